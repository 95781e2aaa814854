"""Find copies of a store's file that somebody made in the same folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from engrain.core.errors import StoreError
from engrain.stores.sqlite.connection import connect, file_uri
from engrain.stores.sqlite.migrate import APPLICATION_ID
from engrain.stores.sqlite.opening import StoreFile
from engrain.stores.sqlite.sql import load

_SQL = load("queries.sql")
_CHUNK = 1 << 20
_SECTOR = 512  # the smallest page: no database has a size between
_OPEN_HERE = ("/proc/self/fd", "/dev/fd")


def copies(site: StoreFile, key: bytes) -> list[Path]:
    """Those that have the store's own key in them, and are no file of the store. One that is encrypted is not known."""
    if site.path is None:
        return []
    own, held = set(site.files()), _held()
    return sorted(one for one in _databases(site.path.parent, held) if one not in own and _is_copy(one, site, key))


def _held() -> set[tuple[int, int]]:
    """The files that this process has open. To read one of them and close it would drop the locks it has there."""
    folder = next((one for one in _OPEN_HERE if os.path.isdir(one)), None)
    found = set()
    for name in os.listdir(folder) if folder else ():
        try:
            status = os.fstat(int(name))
        except (OSError, ValueError):
            continue  # closed meanwhile
        found.add((status.st_dev, status.st_ino))
    return found


def _databases(folder: Path, held: set[tuple[int, int]]) -> Iterator[Path]:
    for one in folder.iterdir():
        try:
            status = one.lstat()
            plain = stat.S_ISREG(status.st_mode) and status.st_size and status.st_size % _SECTOR == 0
            if plain and (status.st_dev, status.st_ino) not in held and _ours(one):
                yield one
        except OSError:
            continue  # it went meanwhile, or may not be read


def _ours(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(100)
    return head.startswith(b"SQLite format 3\x00") and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


def _is_copy(path: Path, site: StoreFile, key: bytes) -> bool:
    """By the key that it says it has. One that cannot say, being damaged or half written, is read byte by byte."""
    try:
        with closing(connect(file_uri(path, "ro", immutable=True), site.engine)) as db:
            found = db.rows(_SQL["meta"], ("key",))
    except (StoreError, UnicodeError):
        found = []
    return found[0][0] == key if found else _has(path, key)


def _has(path: Path, key: bytes) -> bool:
    with path.open("rb") as file:
        before = b""
        while chunk := file.read(_CHUNK):
            if key in before + chunk:
                return True
            before = chunk[-len(key) :]
    return False
