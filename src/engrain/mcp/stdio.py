"""Serve one agent over stdin and stdout."""

from __future__ import annotations

from collections.abc import Collection

import anyio

from engrain.mcp.memories import OneMemory, StoreLoader
from engrain.mcp.server import MemoryServer


def serve_stdio(source: OneMemory, loader: StoreLoader, tools: Collection[str]) -> None:
    """Serve one agent until it closes stdin. The store opens meanwhile."""
    server = MemoryServer(source, tools)
    loader.start()
    try:
        anyio.run(server.run_stdio_async)
    finally:
        loader.close()
