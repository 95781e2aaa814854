"""MCP servers to test with, as processes, over HTTP and in this process, and the real client for them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from engrain_conformance.embedder import HashEmbedder
from lazy_classes import Client, MemoryServer, StdioServerParameters, StoreLoader

from engrain import Store
from engrain.core.http_routes import RIGHTS
from engrain.core.identity import Scope
from engrain.server.access import Access, OpenAccess
from engrain.server.keys import ApiKey, KeyFile, KeyLimits
from engrain.server.serve import ApiServer, listen_tcp

Found = TypeVar("Found")
LEGACY, MODERN = "legacy", "2026-07-28"
VERSIONS = {LEGACY: "2025-11-25", MODERN: "2026-07-28"}
SOURCES = os.pathsep.join(path for path in sys.path if path)


def stdio(store: Path, *options: str, user: str = "ana") -> StdioServerParameters:
    """The command of a stdio server, as an agent starts it."""
    arguments = ["-m", "engrain", "mcp", "--store", str(store), "--user", user, *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": SOURCES})


def run(client: Client, use: Callable[[Client], Awaitable[Found]], seconds: float = 300) -> Found:
    async def connected() -> Found:
        async with asyncio.timeout(seconds), client:
            return await use(client)

    return asyncio.run(connected())


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that succeeds, and return its structured answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def fail(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that fails, and return what it tells the model."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return str(result.content[0].text)


@contextmanager
def local_server(
    store: Path | Callable[[], Store], user: str = "ana", tools: tuple[str, ...] | None = None
) -> Iterator[MemoryServer]:
    """A server in this process, for a client in this process."""
    from engrain.mcp.memories import SingleMemory
    from engrain.mcp.tools import TOOLS

    open_store = store if callable(store) else lambda: Store(store, embedder=HashEmbedder(), background=False)
    loader = StoreLoader(open_store)
    try:
        yield MemoryServer(SingleMemory(loader, Scope(user=user)), tools or tuple(TOOLS))
    finally:
        loader.close()


def http_client(url: str, key: str | None = None, mode: str = MODERN, **headers: str) -> Client:
    """A client that sends a key, and headers in whose names `_` stands for `-`."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        given["Authorization"] = f"Bearer {key}"
    return Client(streamable_http_client(url, http_client=httpx2.AsyncClient(headers=given, timeout=60)), mode=mode)


class HttpServer:
    """A streamable HTTP server in a thread, and its keys."""

    def __init__(self, folder: Path, access: Access, read_only: bool) -> None:
        from engrain.mcp.http import McpApi
        from engrain.mcp.tools import TOOLS

        self.keys = access.keys
        self._loader = StoreLoader(lambda: Store(folder / "store.db", embedder=HashEmbedder(), background=False))
        self._listener = listen_tcp("127.0.0.1", 0)
        self._listener.socket.listen()
        self.url = f"{self._listener.address}/mcp"
        self._server = ApiServer(McpApi(self._loader, access, tuple(TOOLS), read_only), 2)
        self._thread = threading.Thread(target=self._server.serve_until_stopped, args=(self._listener,))
        self._thread.start()

    def add_key(self, name: str, **values: Any) -> str:
        assert self.keys is not None
        limits = values.pop("limits", KeyLimits(None, None))
        return self.keys.add(ApiKey("", name, "", values.pop("rights", RIGHTS), limits=limits, **values))

    def client(self, key: str | None = None, mode: str = MODERN, **headers: str) -> Client:
        return http_client(self.url, key, mode, **headers)

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the server did not stop"
        self._listener.socket.close()
        self._loader.close()


@contextmanager
def http_process(store: Path, *options: str) -> Iterator[str]:
    """The command with --http as a process; yields its URL."""
    command = [sys.executable, "-m", "engrain", "mcp", "--http", "--port", "0", "--store", str(store), *options]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        found = re.search(r"http://\S+/mcp", process.stderr.readline())
        assert found is not None
        yield found[0]
    finally:
        process.terminate()
        assert process.wait(120) == 0


@contextmanager
def http_server(folder: Path, open_access: OpenAccess | None = None, read_only: bool = False) -> Iterator[HttpServer]:
    keys = None if open_access else KeyFile(folder / "store.db.keys.json")
    server = HttpServer(folder, Access(keys, open_access), read_only)
    try:
        yield server
    finally:
        server.stop()
