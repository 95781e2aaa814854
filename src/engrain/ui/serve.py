"""Serve the page on this machine: a socket, the address with its token, and the browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass

import uvicorn

from engrain import Conflict, Scope, Store
from engrain.server.access import LOCAL_HOSTS
from engrain.server.serve import DEFAULT_PORT, Listener, listen_tcp
from engrain.ui.access import Access
from engrain.ui.app import build_app
from engrain.ui.page_request import Ui

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """The place to listen at. Without a port the usual one is taken, or any free one."""

    host: str = LOOPBACK
    port: int | None = None


def serve(
    store: Store,
    home: Scope,
    where: Address,
    name: str,
    on_ready: Callable[[str], None],
    read_only: bool = False,
) -> None:
    """Serve until Ctrl-C. `on_ready` gets the address to open."""
    with closing(listen(where)) as listener:
        listener.socket.listen()  # before the server runs: the browser may be quicker
        port = listener.socket.getsockname()[1]
        ui = Ui(store, home, make_access(where.host, port), name, read_only)
        on_ready(f"http://{where.host}:{port}/?token={ui.access.token}")
        # No access log: the first address has the token.
        config = uvicorn.Config(
            build_app(ui), log_level="warning", access_log=False, server_header=False, lifespan="off",
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener.socket])


def make_access(host: str, port: int) -> Access:
    hosts = frozenset(f"{name}:{port}" for name in (*LOCAL_HOSTS, host))
    return Access(hosts, cookie=f"engrain_ui_{port}")


def listen(where: Address) -> Listener:
    """Bind the named port; without one the usual port, or any free one."""
    if where.port is not None:
        return listen_tcp(where.host, where.port)
    try:
        return listen_tcp(where.host, DEFAULT_PORT)
    except Conflict:
        return listen_tcp(where.host, 0)


def choose_home(scope: Scope, store: Store) -> Scope:
    """The named memory. Without a name the one without an owner, if it has items; else the largest."""
    if scope != Scope():
        return scope
    sized = {info.scope: info.items for info in store.memories()}
    return scope if sized.get(scope) or not sized else max(sized, key=lambda known: sized[known])


def open_browser(address: str) -> bool:
    """Open the page, unless the only browser is one that would take over the terminal."""
    desktop = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(desktop) and webbrowser.open(address)
