"""Tools of MCP servers for an agent. Needs the extra `mcp`."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from engrain.agent.tools import Tool
from engrain.core.errors import BackendMissing, McpServerFailed

MAX_TOOLS = 500
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_CHARACTERS = 64


@contextmanager
def mcp_tools(
    server: str | Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    prefix: str = "",
    timeout: float = 60.0,
) -> Iterator[list[Tool]]:
    """Connect to an MCP server, and return its tools for an agent:

        with mcp_tools(["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]) as tools:
            AgentWithMemory(memory, model, tools)

    `server` is a command, which is started with `env`, or the URL of a streamable HTTP server, which gets `headers`
    with each request: {"Authorization": "Bearer KEY"}. `prefix` goes in front of each name. A tool is an effect, which
    is never repeated silently, unless the server calls it read-only or idempotent. It can be used until the `with`
    block ends.
    """
    client = (
        _make_http_client(server, headers, timeout) if isinstance(server, str) else _make_client(server, env, timeout)
    )
    connection = _Connection(client, timeout)
    try:
        yield [_make_tool(connection, description, prefix) for description in connection.tools]
    finally:
        connection.close()


def _make_client(command: Sequence[str], env: Mapping[str, str] | None, timeout: float) -> Any:
    mcp = _import_mcp()
    program, *arguments = command
    parameters = mcp.StdioServerParameters(command=program, args=arguments, env=None if env is None else dict(env))
    return mcp.Client(parameters, read_timeout_seconds=timeout)


def _make_http_client(url: str, headers: Mapping[str, str] | None, timeout: float) -> Any:
    mcp = _import_mcp()
    if not headers:
        return mcp.Client(url, read_timeout_seconds=timeout)
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    http = httpx2.AsyncClient(headers=dict(headers), timeout=timeout)
    return mcp.Client(streamable_http_client(url, http_client=http), read_timeout_seconds=timeout)


def _import_mcp() -> Any:
    try:
        import mcp
    except ImportError as exc:
        raise BackendMissing("The client for MCP servers", "mcp") from exc
    return mcp


class _Connection:
    """A connected client on an event loop of its own thread, so that tools can be called from any thread."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.tools: list[Any] = []
        self._thread = threading.Thread(target=self._serve, name="engrain-mcp-client", daemon=True)
        self._thread.start()
        if not self._ready.wait(timeout) or self._failure is not None:
            self.close()
            reason = self._failure or f"no answer within {timeout:g} s"
            raise McpServerFailed(f"The MCP server cannot be used: {reason}.") from self._failure

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        if not self._thread.is_alive():
            raise McpServerFailed(f"{name} was not called: its `with mcp_tools(…)` block has ended.")
        called = asyncio.run_coroutine_threadsafe(self._client.call_tool(name, arguments), self._loop)
        try:
            result = called.result()
        except Exception as exc:
            raise McpServerFailed(f"{name} failed: {exc}.") from exc
        text = "\n".join(block.text for block in result.content if getattr(block, "text", None) is not None)
        if result.is_error:
            raise McpServerFailed(text or f"{name} failed.")
        return text

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(self._timeout)

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._connect())
        except BaseException as exc:  # noqa: BLE001  # raised where the tools are asked for
            self._failure = exc
        finally:
            self._ready.set()
            self._loop.close()

    async def _connect(self) -> None:
        # The client is entered and left by one task, as its transport demands.
        async with self._client as client:
            cursor = None
            while len(self.tools) < MAX_TOOLS:
                page = await client.list_tools(cursor=cursor)
                self.tools += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    break
            self._ready.set()
            await self._stop.wait()


def _make_tool(connection: _Connection, description: Any, prefix: str) -> Tool:
    def call(**arguments: Any) -> str:
        return connection.call(description.name, arguments)

    hints = description.annotations
    repeatable = bool(hints and (hints.read_only_hint or hints.idempotent_hint))
    name = _NOT_IN_NAME.sub("_", prefix + description.name)[:_MAX_NAME_CHARACTERS]
    return Tool(name, description.description or "", call, description.input_schema, effect=not repeatable)
