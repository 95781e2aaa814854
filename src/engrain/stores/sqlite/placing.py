"""Put a file that is ready in the place of a store, or of nothing."""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from engrain.core.errors import Conflict, StoreBusy, StoreError, WrongKey
from engrain.core.model.audit import AuditHead, read_head
from engrain.stores.sqlite.backup import sync_folder
from engrain.stores.sqlite.connection import EncryptedEngine, Engine
from engrain.stores.sqlite.lock import borrow_lock, return_lock
from engrain.stores.sqlite.migrate import APPLICATION_ID
from engrain.stores.sqlite.opening import inspect_path, open_connection
from engrain.stores.sqlite.sql import load

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")
_SECONDS = 10.0
_BESIDE = ("-wal", "-shm", "-journal", "-lock")


def last_word(path: Path, engine: Engine | EncryptedEngine) -> AuditHead | None:
    """The end of a store's audit log, which everything that is forgotten or erased moves on; None if it has no such
    log yet, or there is no store. Conflict while an erasure is under way."""
    if not path.exists():
        return None
    with closing(open_connection(inspect_path(path, engine, read_only=True))) as db:
        if not db.rows("select 1 from sqlite_master where name = 'erasure'"):
            return None
        if db.rows(_SQL["erasing"], {"id": None}):
            raise Conflict("an erasure is under way in the present store. Complete it first: engrain erase --resume.")
        rows = db.rows(_QUERIES["meta"], ("audit",))
        return read_head(rows[0][0]) if rows else AuditHead()


def check_damaged(path: Path, error: StoreError) -> None:
    """After a store could not be read: raise unless it is damaged, because of its key or as another program's."""
    with path.open("rb") as file:
        header = file.read(72)
    # Three constants of every SQLite header, which encryption leaves readable.
    if header[21:24] != b"\x40\x20\x20":
        return
    if not header.startswith(b"SQLite format 3\x00"):
        raise WrongKey(
            f"{path} is encrypted with a key that was not given, so it cannot say what was forgotten in it. Set "
            "ENGRAIN_KEY. If the key is lost or the file is damaged, move it away and restore to a new path."
        ) from error
    if header[68:72] != APPLICATION_ID.to_bytes(4, "big"):
        raise error


@contextlib.contextmanager
def making_ready(goal: Path) -> Iterator[Path]:
    """Where a store is made ready, beside its place, so that nobody opens it before the last word is out; what is left
    there afterwards is removed. StoreBusy while somebody else is at it in the same folder."""
    ready = goal.with_name(f"{goal.name}.restoring")
    with _alone(goal.parent):
        _clear(ready)
        try:
            yield ready
        finally:
            _clear(ready)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import fcntl

    held = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # of a file system that cannot lock a folder
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise StoreBusy(f"another restore into {folder} is under way. Wait for it, then try again.") from exc
        yield
    finally:
        os.close(held)


def put_in_place(ready: Path, goal: Path, check: Callable[[], None]) -> None:
    """At once: whoever opens the goal finds the old store or the new one. StoreBusy if somebody uses the old one.
    `check` is asked last, when nobody can write to the old one any more."""
    lock = borrow_lock(_beside(goal, "-lock"))
    try:
        lock.acquire(_SECONDS)
        for log in (_beside(goal, "-wal"), _beside(goal, "-journal")):
            # Frames of the old file that would be taken for those of the new one.
            if log.exists() and log.stat().st_size:
                raise StoreBusy(
                    f"{goal} is in use: close the programs that have it open, then try again. "
                    f"If there are none, and it is to be lost, remove {log.name}."
                )
        check()
        ready.replace(goal)
        for end in ("-wal", "-shm", "-journal"):
            _beside(goal, end).unlink(missing_ok=True)
        sync_folder(goal.parent)
    except OSError as exc:
        raise StoreError(f"{goal} could not be replaced: {exc.strerror}. It is as it was.") from exc
    finally:
        return_lock(lock)


def _clear(ready: Path) -> None:
    """Remove what is left of a file that was made ready, with everything beside it."""
    older = ready.parent.glob(f"{glob.escape(ready.name)}-before-v*") if ready.parent.is_dir() else ()
    for path in (ready, *(_beside(ready, end) for end in _BESIDE), *older):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)
