"""Create a store file, and bring an older one to the schema of this version."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from functools import cache
from pathlib import Path

from engrain.core.errors import EngrainError, NewerStore, NotADatabase, OlderStore, StoreError
from engrain.stores.relational.statements import read_migrations
from engrain.stores.sqlite.checksums import replace_meta, seal_rows, split_statements
from engrain.stores.sqlite.connection import Connection, connect
from engrain.stores.sqlite.journals import RENUMBER_LOGS
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.opening import StoreFile, sync_folder, write_copy

APPLICATION_ID = 0x656E6772  # "engr"
LOCK_SECONDS = 60.0


def load_migrations() -> tuple[tuple[int, str], ...]:
    return read_migrations("engrain.stores.sqlite")


def latest_version() -> int:
    return load_migrations()[-1][0]


def create_file(file: StoreFile) -> None:
    """Create a new store as one finished file: half the time of running the migrations in it.

    Does nothing if the path is taken, or the file system has no hard links. The migrations then run in the file."""
    if file.path is None or file.key is not None or file.path.exists():
        return
    new = file.sibling(f"-new-{os.getpid()}-{threading.get_ident()}")
    content = bytearray(_build_content())
    # Format versions 18 and 19 of the header say which journal the file has.
    content[18:20] = b"\2\2" if file.journal == "wal" else b"\1\1"
    with suppress(OSError):
        try:
            with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.link(new, file.path)  # refuses a path that is taken by now
            sync_folder(file.path.parent)
        finally:
            new.unlink(missing_ok=True)


def _build_content() -> bytes:
    """The content of a new store, with a key of its own."""
    with closing(connect(":memory:")) as db:
        db.load_pages(_build_template(load_migrations()))
        replace_meta(db, "key", secrets.token_hex(32))
        db.run(RENUMBER_LOGS)
        return db.pages()


@cache
def _build_template(scripts: tuple[tuple[int, str], ...]) -> bytes:
    with closing(connect(":memory:")) as db:
        run_migrations(db, scripts)
        seal_rows(db)
        return db.pages()


def upgrade(db: Connection, file: StoreFile, lock: FileLock | None) -> None:
    """Run the migrations that the file lacks. An older store is copied first."""
    if read_version(db, file) == latest_version():
        return
    if file.read_only:
        raise OlderStore(
            f"{file.path} has an older schema. Open it once without read_only, so that it is brought up to date."
        )
    with lock.hold(LOCK_SECONDS) if lock else nullcontext():
        _upgrade(db, file)


def read_version(db: Connection, file: StoreFile) -> int:
    """The version of the schema; 0 for an empty file."""
    ((application,),) = db.rows("pragma application_id")
    ((number,),) = db.rows("pragma user_version")
    if application != APPLICATION_ID:
        ((tables,),) = db.rows("select count(*) from sqlite_master")
        if application or number or tables:
            raise NotADatabase(f"{file.path} is an SQLite database of another program. Give the path of a new file.")
        if file.read_only:
            raise NotADatabase(f"{file.path} is empty: there is nothing to read. Check the path, or restore a backup.")
        return 0
    ((encoding,),) = db.rows("pragma encoding")
    if encoding != "UTF-8":  # forgotten texts are searched for in UTF-8
        raise NotADatabase(f"{file.path} has its texts in {encoding}: engrain did not make it. Restore a backup.")
    if number > latest_version():
        raise NewerStore(
            f"{file.path} was written by a newer engrain (schema {number}; this one knows {latest_version()}). "
            "Upgrade: pip install -U engrain."
        )
    return int(number)


def _upgrade(db: Connection, file: StoreFile) -> None:
    have = read_version(db, file)  # again: another process may have upgraded it meanwhile
    if have and have < latest_version() and file.path:
        _back_up(db, file.sibling(f"-before-v{latest_version()}"))
    db.begin_writing()
    try:
        run_migrations(db, [(number, script) for number, script in load_migrations() if number > have])
        seal_rows(db)
        db.commit()
    except EngrainError:
        if db.in_transaction:
            db.run("rollback")
        raise


def run_migrations(db: Connection, scripts: Sequence[tuple[int, str]]) -> None:
    for _, script in scripts:
        for statement in split_statements(script):
            db.run(statement)
    db.rows(f"pragma application_id = {APPLICATION_ID}")
    db.rows(f"pragma user_version = {latest_version()}")


def _back_up(db: Connection, target: Path) -> None:
    """Copy the store. The copy is on disk when this returns."""
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        write_copy(db, part)
        part.replace(target)
    except OSError as exc:
        raise StoreError(
            f"the copy {target} before the upgrade could not be made: {exc.strerror}. Nothing was changed."
        ) from exc
    finally:
        part.unlink(missing_ok=True)
