"""Serve one agent over stdin and stdout."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection
from os import _exit as exit_at_once

import anyio

from engrain.mcp.memories import MemorySource, StoreLoader
from engrain.mcp.server import MemoryServer


def serve_stdio(source: MemorySource, loader: StoreLoader, tools: Collection[str], preload: bool = True) -> None:
    """Serve one agent until it closes stdin, or a signal comes.

    The store opens meanwhile, or without `preload` at the first call of a tool.
    """
    server = MemoryServer(source, tools)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _stop(loader, number))
    if preload:
        loader.start()
    try:
        anyio.run(server.run_stdio_async)
    finally:
        loader.close()


def _stop(loader: StoreLoader, number: int) -> None:
    """Close the store and exit. A thread that waits for stdin cannot be woken, so that nothing else would end it."""

    def close_and_exit() -> None:
        loader.close()
        exit_at_once(128 + number)

    # The handler returns: whatever it interrupted may hold a lock that closing needs.
    threading.Thread(target=close_and_exit, name="engrain-stop", daemon=True).start()
