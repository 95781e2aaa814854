"""Errors of the embedded store name the file, and say what to do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from engrain.core.errors import NotADatabase, NotFound, StoreCorrupt
from engrain.memory.transfer import restore_backup
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.connection import _ERRORS, make_error


@pytest.mark.parametrize("code", [*_ERRORS, 999])
def test_an_error_of_the_driver_says_what_to_do(code: int) -> None:
    advice, _, cause = str(make_error(code, "why")).partition(" (SQLite")
    assert cause, "what SQLite said is lost"
    assert advice.rstrip(".").count(". ") or ": " in advice, f"no second sentence: {advice}"


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("Ana likes tea.\n" * 1_000)
    with pytest.raises(NotADatabase, match=r"notes\.db is not an SQLite database.*ENGRAIN_KEY"):
        SqliteStore(path)


def test_a_backup_that_is_not_there_or_was_changed_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="that engrain backup wrote"):
        restore_backup(tmp_path / "monday.db", tmp_path / "new.db")
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.backup(tmp_path / "monday.db")
    with (tmp_path / "monday.db").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(StoreCorrupt, match="Restore another backup"):
        restore_backup(tmp_path / "monday.db", tmp_path / "new.db")
