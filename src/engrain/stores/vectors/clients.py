"""Share one client per vector server in a process, lock the folders of embedded ones, and split batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from engrain.core.errors import StoreBusy, StoreUnavailable
from engrain.ports.search import VectorServer

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
            path.mkdir(parents=True, exist_ok=True)
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
