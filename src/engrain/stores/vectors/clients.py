"""One connection to a vector server for all memories of a process that use it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from engrain.core.errors import StoreBusy, StoreUnavailable
from engrain.core.model.queries import Finding
from engrain.ports import VectorServer

_guard = threading.Lock()
_open: dict[str, tuple[VectorServer, int]] = {}


def borrow(key: str, make: Callable[[], VectorServer]) -> VectorServer:
    """The one that is open under this key, or a new one; each borrower gives it back once."""
    with _guard:
        server, users = _open.get(key) or (make(), 0)
        _open[key] = server, users + 1
        return server


def give_back(key: str) -> None:
    """The last one closes it."""
    with _guard:
        server, users = _open.pop(key)
        if users > 1:
            _open[key] = server, users - 1
        else:
            server.close()


class Folder:
    """Held until `leave`, or until the process ends in whatever way: the operating system lets go of the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        beside = path.with_name(f"{path.name}.lock")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._file = os.open(beside, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
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


def owners(nobodys: int, owned: int) -> Finding:
    """`nobodys` are items whose scope names nobody, `owned` the memories of users."""
    if nobodys and owned:
        # Nearly always a program that forgot to say whose memory it opens.
        why = f"{nobodys:,} of its items belong to nobody, beside the memories of {owned:,} users"
        return Finding(
            "owners", "warn", why, "engrain list, without --user, shows them; give every Memory(…) its user="
        )
    if nobodys:
        return Finding(
            "owners",
            "pass",
            f"one memory without a user, with {nobodys:,} item{'s' * (nobodys != 1)}, and no user's beside it",
        )
    return Finding("owners", "pass", f"every item belongs to somebody; users with a memory: {owned:,}")
