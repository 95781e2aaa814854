"""Commit the rows that a `remember` wrote once more, bare: the least that the same durable write can cost."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw


class Twin:
    """A file with the schema, page size and durability of a store, and none of engrain."""

    def __init__(self, store: Path, twin: Path) -> None:
        self._store = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
        self._twin = apsw.Connection(str(twin))
        page = self._store.pragma("page_size")
        for pragma in (f"page_size = {page}", "journal_mode = wal", "synchronous = full", "secure_delete = on"):
            self._twin.execute(f"pragma {pragma}")
        self._tables = self._growing_tables()
        self._inserts = {name: self._insert(name) for name in self._tables}
        self._seen = dict.fromkeys(self._tables, 0)
        self.commit(self.new_rows())

    def new_rows(self) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """What the store has that was not seen before, by table."""
        found = []
        for table, key in self._tables.items():
            rows = list(self._store.execute(f"select * from {table} where {key} > ?", (self._seen[table],)))
            if rows:
                self._seen[table] = self._store.execute(f"select max({key}) from {table}").get
                found.append((self._inserts[table], rows))
        return found

    def commit(self, rows: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
        run = self._twin.execute
        run("begin immediate")
        for insert, some in rows:
            self._twin.executemany(insert, some)
        run("commit")

    def _growing_tables(self) -> dict[str, str]:
        """The tables that get a row with each item: those with a number that only grows in their key."""
        tables = {}
        for name, sql in list(self._store.execute("select name, sql from sqlite_master where type = 'table'")):
            if name.startswith("sqlite_"):
                continue
            self._twin.execute(sql)
            columns = list(self._store.execute(f"pragma table_info({name})"))
            keys = {column[1]: column[2].lower() for column in columns if column[5]}
            first = "item" if "item" in keys else next(iter(keys), None)
            if first is not None and keys[first] == "integer":
                tables[name] = first
        for (sql,) in list(self._store.execute("select sql from sqlite_master where type = 'index' and sql <> ''")):
            self._twin.execute(sql)
        return tables

    def _insert(self, table: str) -> str:
        width = len(list(self._store.execute(f"pragma table_info({table})")))
        return f"insert into {table} values ({', '.join('?' * width)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()
        self._twin.close()
