"""Refuse a write-ahead log that is not of this store: SQLite would play its pages into the file."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from engrain.core.errors import EngrainError, NotADatabase, StoreCorrupt
from engrain.stores.sqlite.journals import FIRST_LOG, find_open_files
from engrain.stores.sqlite.opening import StoreFile, as_immutable, identify_file
from engrain.stores.sqlite.schema import open_outside

_HEADER_BYTES = 32
_MAX_LOGS = 1_000_000  # that begin while none is played into the file: a reader of days holds them up
_TRIES = 3


class Counter(NamedTuple):
    logs: int
    commits: int

    def may_precede(self, log: Counter) -> bool:
        """Tell if a log with this end belongs to a file in this state. The file is never ahead of its log."""
        near = self.logs < FIRST_LOG or 0 <= log.logs - self.logs <= _MAX_LOGS
        return near and self.commits <= log.commits


def check_log(file: StoreFile) -> StoreFile:
    """NotADatabase for a log of another store, or of another time of this one. Nothing is changed.

    Each commit writes the counter, so that every log has it. It is compared with that in the file alone, which is read
    first: another process may write meanwhile. The file may be torn while that process plays the log into it: only
    three comparisons with the same result count. A file that cannot be read without its log says nothing.
    """
    if file.path is None or file.immutable or file.log_size() <= _HEADER_BYTES:
        return file
    if identify_file(str(file.path), remote=False) in find_open_files():
        return file  # a store that is open here was looked at before
    failed: StoreCorrupt | None = None
    for _ in range(_TRIES):
        try:
            alone = _read_counter(as_immutable(file))
        except EngrainError:
            return file
        try:
            if alone.may_precede(_read_counter(replace(file, read_only=True))):
                return file
        except StoreCorrupt as exc:
            failed = exc
        except EngrainError:
            return file  # it cannot be opened, for a reason that opening it tells
    raise (StoreCorrupt if failed else NotADatabase)(
        f"{file.sibling('-wal')} is not of this store, or not of its present state: {file.path} was replaced, or the "
        "log was. Move it away to open the file as it is."
    ) from failed


def _read_counter(file: StoreFile) -> Counter:
    with open_outside(file) as (db, _):
        ((logs, commits),) = db.rows("select logs, commits from counter where n = 0")
        return Counter(logs, commits)
