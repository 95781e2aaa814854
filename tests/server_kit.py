"""A real server over loopback or a unix socket, and clients for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from engrain import Store
from engrain.core.http_routes import RIGHTS
from engrain.server.access import Access, OpenAccess
from engrain.server.app import ApiOptions, HttpApi
from engrain.server.keys import ApiKey, KeyFile, KeyLimits
from engrain.server.serve import ApiServer, Listener, listen_tcp, listen_unix


class RunningServer:
    """A server in a thread, its store and its keys."""

    def __init__(self, store: Store, api: HttpApi, keys: KeyFile | None, listener: Listener, drain: int) -> None:
        self.store, self.api, self.keys, self.listener = store, api, keys, listener
        self.server = ApiServer(api, drain)
        self.drained: bool | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.drained = self.server.serve_until_stopped(self.listener)

    def start(self) -> None:
        self.listener.socket.listen()
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the server did not stop"
        self.listener.socket.close()

    def add_key(self, name: str, **values: Any) -> str:
        assert self.keys is not None
        limits = values.pop("limits", KeyLimits(None, None))
        rights = values.pop("rights", RIGHTS)
        return self.keys.add(ApiKey("", name, "", rights, limits=limits, **values))

    @property
    def url(self) -> str:
        """The URL for a Memory."""
        return self.listener.address.replace("unix:", "unix://")

    def client(self, key: str | None = None, **headers: str) -> httpx.Client:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["Authorization"] = f"Bearer {key}"
        path = self.listener.address.removeprefix("unix:")
        unix = path != self.listener.address
        transport = httpx.HTTPTransport(verify=False, uds=path if unix else None)
        base = "http://localhost" if unix else self.listener.address
        return httpx.Client(base_url=base, headers=given, transport=transport, timeout=120)


@contextmanager
def run_server(
    folder: Path,
    *,
    open_access: OpenAccess | None = None,
    unix: bool = False,
    options: ApiOptions | None = None,
    drain: int = 5,
    **store_options: Any,
) -> Iterator[RunningServer]:
    keys = None if open_access else KeyFile(folder / "store.db.keys.json")
    with Store(folder / "store.db", **{"background": False, **store_options}) as store:
        api = HttpApi(store, Access(keys, open_access), options)
        listener = listen_unix(folder / "engrain.sock") if unix else listen_tcp("127.0.0.1", 0)
        running = RunningServer(store, api, keys, listener, drain)
        running.start()
        try:
            yield running
        finally:
            running.stop()
