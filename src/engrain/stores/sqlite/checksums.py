"""Keep a checksum in every row and a digest of every scope, so that damage to the file is seen."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from typing import NamedTuple

from engrain.core.errors import EngrainError, StoreCorrupt
from engrain.stores.relational.statements import read_migrations
from engrain.stores.sqlite.connection import NO_CHECKSUM, Connection, choose_engine, connect

# Columns that no checksum covers: a digest is the sum of checksums, and `logs` is written by a reader's connection.
_UNCHECKED = {"checksum", "digest", "logs"}
_INDEX = {"words", "code", "vector"}


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def list_values(self, row: str) -> str:
        return ", ".join(f"{row}.{column}" for column in self.columns)

    def build_check(self, value: str) -> str:
        """SQL that gives `value`, and raises StoreCorrupt if the row was changed other than by a write of ours."""
        return f"checked_row({value}, '{self.name}', {self.name}.checksum, {self.list_values(self.name)})"

    def build_triggers(self) -> list[str]:
        """They keep the row's checksum, and the digest of its scope: without a scope, of the store."""
        owner = "scope set digest = digest + {} where scope = {}.scope"
        if "scope" not in self.columns:
            owner = "counter set digest = digest + {} where n = 1"
        where = " and ".join(f"{column} = new.{column}" for column in self.key)
        written = f"(select checksum from {self.name} where {where})"
        store = f"update {self.name} set checksum = row_checksum({self.list_values('new')}) where {where}"
        # An update must not give a damaged row a new checksum.
        old = f"checked_row(1, '{self.name}', old.checksum, {self.list_values('old')})"
        bodies = {
            "insert": f"{store}; update {owner.format(f'{written} - {NO_CHECKSUM}', 'new')}",
            f"update of {', '.join(self.columns)}": f"{store} and {old}; "
            f"update {owner.format(f'{written} - old.checksum', 'new')}",
            "delete": f"update {owner.format(f'{NO_CHECKSUM} - old.checksum', 'old')}",
        }
        begin, on = f"create temp trigger {self.name}", f"on main.{self.name}"
        return [f"{begin}_{event[:6]} after {event} {on} begin {body}; end" for event, body in bodies.items()]


@cache
def load_tables() -> Mapping[str, Table]:
    """The tables with checksums in our own schema: no name is taken out of a file."""
    with closing(connect(":memory:", choose_engine("auto"))) as db:
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
    return [trigger for table in load_tables().values() for trigger in table.build_triggers()]


def seal_rows(db: Connection) -> None:
    """Write every checksum and digest anew, in a transaction that has no triggers: for rows of a migration."""
    for table in load_tables().values():
        db.run(f"update {table.name} set checksum = row_checksum({table.list_values(table.name)})")
    _store_digests(db)


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
    _store_digests(db)
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
            found += [f"{count:,} rows of table {table.name} are damaged"] if count else []
    if found:
        return found
    sums = _sum_checksums(db)
    kept: dict[int | None, int] = {
        None: 0,
        **dict(db.rows("select scope, digest from scope")),
        **dict(db.rows("select null, digest from counter")),
    }
    wrong = [scope for scope in sums.keys() | kept.keys() if sums.get(scope, 0) != kept.get(scope, 0)]
    return [f"rows are missing, or of another time, in {len(wrong):,} of {len(kept):,} scopes"] if wrong else []


def _store_digests(db: Connection) -> None:
    db.run("update scope set digest = 0")
    for scope, digest in _sum_checksums(db).items():
        where = "counter set digest = ?1" if scope is None else "scope set digest = ?1 where scope = ?2"
        db.run(f"update {where}", (digest,) if scope is None else (digest, scope))


def _sum_checksums(db: Connection) -> dict[int | None, int]:
    """The digest of each scope as its rows are now; None stands for rows of no scope."""
    sums: dict[int | None, int] = {}
    for table in load_tables().values():
        scope = "scope" if "scope" in table.columns else "null"
        for key, digest in db.rows(f"select {scope}, sum(checksum - {NO_CHECKSUM}) from {table.name} group by 1"):
            sums[key] = sums.get(key, 0) + digest
    return sums
