"""The clients of vector servers: one per server in a process, locked folders of embedded ones, repeated calls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from engrain.core.errors import EngrainError, NotFound, StoreBusy, StoreClosed, StoreError, StoreUnavailable
from engrain.ports.search import VectorServer
from engrain.ports.storage import make_private_folder
from engrain.stores.urls import VectorAddress

RETRY_PAUSE_SECONDS = 0.5
_BATCH_SIZE = 500
T = TypeVar("T")
_guard = threading.Lock()
_open_clients: dict[str, tuple[VectorServer, int]] = {}


def acquire_client(key: str, make: Callable[[], VectorServer]) -> VectorServer:
    """Return the client that is open under this key, or a new one. Each caller releases it once."""
    with _guard:
        server, users = _open_clients.get(key) or (make(), 0)
        _open_clients[key] = server, users + 1
        return server


def release_client(key: str) -> None:
    """Release a client. The last release closes it."""
    with _guard:
        server, users = _open_clients.pop(key)
        if users > 1:
            _open_clients[key] = server, users - 1
        else:
            server.close()


def split_batches(many: Sequence[T]) -> Iterator[Sequence[T]]:
    return (many[start : start + _BATCH_SIZE] for start in range(0, len(many), _BATCH_SIZE))


class LockedFolder:
    """A folder locked for this process until `leave`. The operating system frees the lock when the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lock_path = path.with_name(f"{path.name}.lock")
        try:
            make_private_folder(path)
            self._file = os.open(lock_path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as exc:
            raise StoreUnavailable(f"the folder {path} cannot be used: {exc}.") from exc
        try:
            _lock(self._file)
        except OSError as exc:
            os.close(self._file)
            raise StoreBusy(
                f"another process has {path} open. An embedded vector store serves one process: "
                "start a server for several, and give its host in the URL."
            ) from exc

    def leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


if os.name == "nt":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class VectorClient:
    """The common part of the vector servers. Every call can be repeated without harm, and is, until the timeout."""

    driver_errors: tuple[type[Exception], ...]
    one_call_at_a_time = False  # in a folder

    def __init__(self, address: VectorAddress) -> None:
        self._address = address
        self._folder = LockedFolder(address.folder) if address.folder else None
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._client: Any = None
        self._collections: dict[str, Any] = {}
        self._closed = False
        if self._folder:
            try:
                self._connect()
            except BaseException:
                self.close()
                raise

    @property
    def where(self) -> str:
        return str(self._address)

    def models(self) -> list[str]:
        return sorted({model for model, _ in self._list_collections()})

    def remove(self, model: str) -> None:
        for owner, name in self._list_collections():
            if owner == model:
                self._call("delete_collection", name)
        self._collections.pop(model, None)

    def clear(self) -> None:
        for _, name in self._list_collections():
            self._call("delete_collection", name)
        self._collections.clear()

    def drop(self, model: str, items: Sequence[str]) -> None:
        for batch in split_batches(items):
            self._delete_items(model, batch)
        if left := self.count(model, items):
            raise StoreError(f"{self.where} still has {left} points of items that were removed from it.")

    def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._folder:
            self._folder.leave()

    def count(self, model: str, items: Sequence[str] | None = None) -> int:
        raise NotImplementedError

    def _list_collections(self) -> list[tuple[str, str]]:
        """Return (model, name) of this memory's collections."""
        raise NotImplementedError

    def _delete_items(self, model: str, items: Sequence[str]) -> None:
        raise NotImplementedError

    def _open_client(self) -> Any:
        raise NotImplementedError

    def _translate(self, exc: Exception) -> EngrainError | None:
        """Return our error for the driver's; None if the server did not answer."""
        raise NotImplementedError

    def _get_collection(self, model: str) -> Any:
        found = self._collections.get(model)
        if found is None:
            raise NotFound(f"{self.where} has no collection for {model}.")
        return found

    def _forget_collections(self) -> NotFound:
        self._collections.clear()
        return NotFound(f"a collection is no longer in {self.where}.")

    def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        """Call a method of the client."""
        return self._repeat(lambda client: getattr(client, verb)(*args, **options))

    def _repeat(self, call: Callable[[Any], Any]) -> Any:
        ends = time.monotonic() + self._address.timeout
        while True:
            try:
                with self._turn if self._folder and self.one_call_at_a_time else nullcontext():
                    return call(self._connect())
            except self.driver_errors as exc:
                if error := self._translate(exc):
                    raise error from exc
                # A restarting server refuses at once.
                if time.monotonic() + RETRY_PAUSE_SECONDS > ends:
                    why = f"did not answer within {self._address.timeout:g} s: {str(exc) or type(exc).__name__}."
                    raise StoreUnavailable(f"{self.where} {why}") from exc
                time.sleep(RETRY_PAUSE_SECONDS)

    def _connect(self) -> Any:
        if self._closed:
            raise StoreClosed("this store was closed. Open it again.")
        if self._folder and os.getpid() != self._pid:
            raise StoreBusy(f"{self.where} serves the process that opened it, not one that was forked from it.")
        with self._turn:
            if self._client is None:
                self._client = self._open_client()
            return self._client
