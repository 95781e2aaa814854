"""Keep a checksum in every row and a digest of every scope, so that damage to the file is seen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from engrain.core.errors import EngrainError, StoreCorrupt
from engrain.stores.relational.statements import read_migrations
from engrain.stores.sqlite.connection import NO_CHECKSUM, Connection, Insert, connect

# Columns that no checksum covers: a digest is the sum of checksums, and `logs` is written by a reader's connection.
_UNCHECKED = {"checksum", "digest", "logs"}
_INDEX = {"words", "code", "vector"}
_COUNTER = "counter"
# Tables that every remembered item adds to. Their inserts bring the checksum along: see Connection.insert. A trigger
# would make SQLite copy each page that a statement changes, in case the trigger fails.
_BRING_CHECKSUM = {"item", "source", *_INDEX}
_INSERT = re.compile(r"insert into (\w+)")
_PARAMETER = re.compile(r":(\w+)")


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def list_values(self, row: str) -> str:
        return ", ".join(f"{row}.{column}" for column in self.columns)

    def build_check(self, value: str) -> str:
        """SQL that gives `value`, and raises StoreCorrupt if the row was changed other than by a write of ours."""
        return f"checked_row({value}, '{self.name}', {self.name}.checksum, {self.list_values(self.name)})"

    def build_triggers(self) -> dict[str, str]:
        """They keep the row's checksum, and note how the digest of its scope changes: without a scope, of the store."""
        new, old = self.list_values("new"), self.list_values("old")
        scope = "{}.scope" if "scope" in self.columns else "null"
        where = " and ".join(f"{column} = new.{column}" for column in self.key)
        store = f"begin update {self.name} set checksum = {{}} where {where}"
        inserted = store.format(f"inserted_row({scope.format('new')}, {new})")
        updated = store.format(f"updated_row('{self.name}', {scope.format('new')}, old.checksum, {old}, {new})")
        on = f"on main.{self.name}"
        bodies = {
            "insert": f"insert {on} when new.checksum = {NO_CHECKSUM} {inserted}",
            "update": f"update of {', '.join(self.columns)} {on} {updated}",
            "delete": f"delete {on} begin select deleted_row({scope.format('old')}, old.checksum)",
        }
        return {event: f"create temp trigger {self.name}_{event} after {body}; end" for event, body in bodies.items()}


@cache
def load_tables() -> Mapping[str, Table]:
    """The tables with checksums in our own schema: no name is taken out of a file."""
    with closing(connect(":memory:")) as db:
        for _, script in read_migrations("engrain.stores.sqlite"):
            for statement in split_statements(script):
                db.run(statement)
        names = db.rows("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")
        found = {name: db.rows("select name, pk from pragma_table_info(?)", (name,)) for (name,) in names}
    return {
        name: Table(
            name,
            tuple(column for column, _ in columns if column not in _UNCHECKED),
            tuple(column for column, key in columns if key),
        )
        for name, columns in found.items()
        if any(column == "checksum" for column, _ in columns)
    }


def split_statements(script: str) -> list[str]:
    """The statements of a script. Each one ends a line. (executescript would commit first.)"""
    found, lines = [], []
    for line in script.splitlines():
        lines.append(line)
        if line.rstrip().endswith(";"):
            found.append("\n".join(lines).strip())
            lines = []
    return found


@cache
def list_triggers() -> list[str]:
    """The triggers that keep checksums and digests with every write of a connection.

    They are temporary. A row that another program changes keeps its old checksum, and so is found."""
    return [
        trigger
        for table in load_tables().values()
        for event, trigger in table.build_triggers().items()
        if table.name != _COUNTER and (event != "insert" or table.name not in _BRING_CHECKSUM)
    ]


@cache
def find_target(sql: str) -> Table | None:
    """The table of an insert that must bring a checksum along."""
    found = _INSERT.match(sql)
    return load_tables()[found[1]] if found and found[1] in _BRING_CHECKSUM else None


@cache
def prepare_insert(sql: str) -> Insert:
    """An insert that brings its checksum along."""
    table = find_target(sql)
    assert table, sql
    assert _PARAMETER.findall(sql) == [*table.columns, "checksum"], sql
    return Insert(_PARAMETER.sub("?", sql), itemgetter(*table.columns))


@cache
def list_insert_triggers() -> list[tuple[str, str]]:
    """Names and SQL of triggers for inserts that bring no checksum: a restore inserts a row or updates it."""
    return [(f"{name}_insert", load_tables()[name].build_triggers()["insert"]) for name in sorted(_BRING_CHECKSUM)]


def seal_rows(db: Connection) -> None:
    """Write every checksum and digest anew, in a transaction that has no triggers: for rows of a migration."""
    for table in load_tables().values():
        db.run(f"update {table.name} set checksum = row_checksum({table.list_values(table.name)})")
    db.differences += _compare_digests(db)
    db.count_commit(build_commit_count())


def replace_meta(db: Connection, name: str, value: str) -> None:
    """Replace a value of a store that nobody has opened yet, and whose rows are sealed."""
    columns = ", ".join("?2" if column == "value" else column for column in load_tables()["meta"].columns)
    ((before,),) = db.rows("select checksum from meta where name = ?1", (name,))
    update = f"update meta set value = ?2, checksum = row_checksum({columns}) where name = ?1 returning checksum"
    ((after,),) = db.rows(update, (name, value))
    db.differences.append((None, after - before))
    db.count_commit(build_commit_count())


def build_commit_count() -> str:
    """SQL that adds to the digest of the rows of no scope, and numbers the commit."""
    return _build_counter_update(commits="commits + 1", digest="digest + ?1") + " returning commits"


def build_counter_raise() -> str:
    """SQL that lets the newest change and the newest time be no lower than its two values."""
    return _build_counter_update(change="max(change, ?1)", now="max(now, ?2)")


@cache
def _build_counter_update(**columns: str) -> str:
    """The counter has its checksum from each statement: it is written with every commit, and a trigger takes longer."""
    counter = load_tables()[_COUNTER]
    changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
    values = ", ".join(columns.get(name, name) for name in counter.columns)
    return f"update counter set {changes}, checksum = row_checksum({values}) where n = 0 and {counter.build_check('1')}"


def accept_rows(db: Connection) -> int:
    """Accept damaged rows as they are now, and count them. Those of the search index are deleted: it is rebuilt.

    For an operator who has no backup. A row that cannot be read stays as it is."""
    accepted = 0
    for table in load_tables().values():
        computed = f"row_checksum({table.list_values(table.name)})"
        change = f"update {table.name} set checksum = {computed}"
        if table.name in _INDEX:
            change = f"delete from {table.name}"
        with suppress(StoreCorrupt):
            accepted += len(db.rows(f"{change} where checksum <> {computed} returning 1"))
    db.differences += _compare_digests(db)
    return accepted


def find_damage(db: Connection) -> list[str]:
    """Say which tables have damaged rows, and which scopes have lost or won rows."""
    found = []
    for table in load_tables().values():
        differs = f"row_checksum({table.list_values(table.name)}) <> checksum"
        try:
            ((count,),) = db.rows(f"select count(*) from {table.name} where {differs}")
        except EngrainError as exc:
            found.append(f"table {table.name} cannot be read ({exc})")
        else:
            found += [f"{count:,} damaged {'row' if count == 1 else 'rows'} in table {table.name}"] if count else []
    if found:
        return found
    if wrong := len(_compare_digests(db)):
        ((count,),) = db.rows("select count(*) from scope")
        return [f"rows are missing, or of another time, in {wrong:,} of {count + 1:,} scopes"]
    return []


def _compare_digests(db: Connection) -> list[tuple[int | None, int]]:
    """Return the difference of each digest from the sum of its rows, if there is one; None: rows of no scope."""
    lacking: dict[int | None, int] = {}
    for scope, digest in db.rows("select nullif(n, 0), digest from counter"):
        lacking[scope] = -digest
    for scope, difference in db.differences:  # noted, and not yet in the digest
        lacking[scope] = lacking.get(scope, 0) - difference
    for table in load_tables().values():
        scope = "scope" if "scope" in table.columns else "null"
        if table.name != _COUNTER:
            for key, digest in db.rows(f"select {scope}, sum(checksum - {NO_CHECKSUM}) from {table.name} group by 1"):
                lacking[key] = lacking.get(key, 0) + digest
    return [(scope, difference) for scope, difference in lacking.items() if difference]
