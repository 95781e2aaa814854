"""The scopes of a store: open, being erased, or hidden by a hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.erasure import Subject, hash_tombstone
from engrain.stores.relational.dialect import ScopeKey, Transaction

OPEN, ERASING, HIDDEN = range(3)
# Every table with rows of a scope; a table comes before those that its rows point to. An engine has more for searches.
TABLES: tuple[str, ...] = (
    "source", "citation", "entity", "raw_text", "episode", "trial", "item", "session", "summary", "progress", "request",
    "step", "snapshot", "task", "large_result", "event", "record",
)  # fmt: skip
_UNCOUNTED = ("citation", "entity")


class ScopeRow(NamedTuple):
    key: ScopeKey
    scope: Scope
    state: int


def hash_scope(key: bytes, scope: Scope) -> str:
    """The keyed hash that stands for the scope's id while the scope is erased or hidden."""
    return hash_keyed(key, "scope", scope.id)


def load_scopes(tx: Transaction) -> list[ScopeRow]:
    """All that are not erased."""
    return [_read_scope(*row) for row in tx.rows("load_scopes")]


def find_user_scopes(tx: Transaction, user: Subject) -> list[ScopeRow]:
    """The scopes of exactly this user in this tenant, whatever the agent."""
    return [_read_scope(*row) for row in tx.rows("find_user_scopes", user=user.name, tenant=user.scope.tenant)]


def lock_user_scopes(tx: Transaction, user: Subject) -> list[ScopeRow]:
    return [_read_scope(*row) for row in tx.rows("lock_user_scopes", user=user.name, tenant=user.scope.tenant)]


def _read_scope(key: ScopeKey, tenant: str | None, agent: str | None, user: str | None, state: int) -> ScopeRow:
    return ScopeRow(key, Scope(tenant, agent, user), state)


def block_scope(tx: Transaction, row: ScopeRow, state: int) -> None:
    """Put the scope out of reach: nobody finds it by its own id, and nobody writes to it."""
    if row.state == OPEN:
        tx.run("block_scope", key=row.key, hash=hash_scope(tx.dialect.key, row.scope), state=state)
    else:
        tx.run("store_scope_state", key=row.key, state=state)


def show_scope(tx: Transaction, row: ScopeRow) -> None:
    """Undo block_scope. Every search and every outbox sees the items as changed."""
    tx.run("show_scope", key=row.key, id=row.scope.id)
    inside = tx.within(row.scope)
    inside.begin_write()
    inside.many("mark_item", [{"n": n} for n, _, _ in inside.rows("load_texts")])
    if inside.changes:
        inside.end_write()


def anonymize_scope(tx: Transaction, row: ScopeRow) -> str:
    """Delete the names of a blocked scope. Its tombstones stay under the keyed hash that is returned."""
    digest = hash_scope(tx.dialect.key, row.scope)
    tx.run("anonymize_scope", key=row.key, id=row.scope.id, hash=digest)
    return digest


def count_scopes(tx: Transaction, keys: Sequence[ScopeKey]) -> dict[str, int]:
    """The rows of each kind in these scopes."""
    vectors = tx.ask("count_scope_vectors", keys=keys)
    counts = count_tables(tx, "count_rows", [table for table in TABLES if table not in _UNCOUNTED], keys=keys)
    return {**counts, "vector": int(vectors.fetchall()[0][0])}


def count_tables(tx: Transaction, statement: str, tables: Iterable[str], **values: Any) -> dict[str, int]:
    """Run a statement that counts rows of {table} for each table."""
    count = tx.dialect.statements[statement]
    asked = {table: tx.ask(count.fill(table=table), **values) for table in tables}
    return {table: int(found.fetchall()[0][0]) for table, found in asked.items()}


def delete_scopes(tx: Transaction, rows: Sequence[ScopeRow]) -> dict[str, int]:
    """Delete every row of these scopes but their own, and count them. Each text leaves a tombstone."""
    counts = count_scopes(tx, [row.key for row in rows])
    delete = tx.dialect.statements["delete_rows"]
    for row in rows:
        inside = tx.within(row.scope, row.key)
        _, at = inside.begin_write()
        items = inside.rows("load_texts")
        hashes = (bytes.fromhex(hash_tombstone(tx.dialect.key, text)) for _, _, text in items)
        inside.many("add_tombstone", [{"hash": digest, "at": at} for digest in hashes])
        inside.many("add_deleted_item", [{"n": n, "id": id_} for n, id_, _ in items])
        inside.delete_scope_index()
        for table in TABLES:
            inside.run(delete.fill(table=table))
        if inside.changes:
            inside.end_write()
    return counts


def add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, count in more.items():
        total[kind] = total.get(kind, 0) + count
