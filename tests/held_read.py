"""A reader of another program that holds a moment of a store, and with it the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engrain.stores.sqlite.connection import connect, file_uri


@contextmanager
def held_read(path: Path | str) -> Iterator[None]:
    # By engrain's own engine: closing the file through another SQLite would drop the locks of this process.
    db = connect(file_uri(Path(path), "rw"))
    db.run("begin")
    db.rows("select count(*) from item")
    try:
        yield
    finally:
        db.close()
