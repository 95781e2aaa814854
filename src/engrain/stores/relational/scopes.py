"""The scopes of a store: open, being erased, or under a legal hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.erasure import (
    Hold,
    ReasonChoice,
    Subject,
    add_reason,
    find_owner,
    make_hold_error,
    remove_reasons,
    write_reasons,
)
from engrain.core.rules.tombstone_hashes import hash_tombstone
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dialect import Dialect, ScopeKey, Transaction
from engrain.stores.relational.rows import read_hold

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


def hash_owner(key: bytes, scope: Scope) -> str:
    """The keyed hash of the user whose scope it is. A scope of no user has "", which no hold has."""
    user = find_owner(scope)
    return user.hash(key) if user else ""


def check_hold(tx: Transaction) -> None:
    """OnHold if the owner of the transaction's scope is under a hold. Lock the owner before."""
    reasons = load_reasons(tx, tx.owner)
    if reasons and tx.scope and (user := find_owner(tx.scope)):
        raise make_hold_error(user, reasons)


def load_scopes_on_hold(tx: Transaction) -> list[ScopeKey]:
    """The keys of all scopes whose owner is under a hold. No hold begins before the commit."""
    tx.lock_holds()
    on_hold = {subject_hash for subject_hash, *_ in tx.rows("load_holds")}
    # A hold knows its user by a keyed hash alone, so every name is hashed; without holds none is.
    rows = load_scopes(tx) if on_hold else []
    return [row.key for row in rows if hash_owner(tx.dialect.key, row.scope) in on_hold]


def load_reasons(tx: Transaction, subject_hash: str) -> tuple[str, ...]:
    rows = tx.rows("load_hold", subject_hash=subject_hash)
    return read_hold(rows[0]).reasons if rows else ()


def find_user(tx: Transaction, subject_hash: str) -> Subject | None:
    """The user with this keyed hash: every name in the store is hashed and compared."""
    owners = (find_owner(row.scope) for row in load_scopes(tx))
    return next((owner for owner in owners if owner and owner.hash(tx.dialect.key) == subject_hash), None)


def hide_user(tx: Transaction, user: Subject) -> None:
    for row in lock_user_scopes(tx, user):
        block_scope(tx, row, HIDDEN)


class Holds:
    """The part of erasure that keeps data."""

    def __init__(self, dialect: Dialect, audit: Audit) -> None:
        self._dialect, self._audit = dialect, audit

    def hash_subject(self, subject: Subject) -> str:
        return subject.hash(self._dialect.key)

    def hold(self, subject: Subject, reason: str) -> Hold:
        def do(tx: Transaction) -> Hold:
            subject_hash = self.hash_subject(subject)
            tx.lock_holds(change=True)
            tx.lock_holds(subject_hash, change=True)
            known = load_reasons(tx, subject_hash)
            reasons = add_reason(known, reason)
            if reasons != known:
                tx.run("store_hold", subject_hash=subject_hash, at=tx.now(), reason=write_reasons(reasons))
                self._audit.write(tx, "hold", {"reason": reason}, subject_hash)
            return read_hold(tx.rows("load_hold", subject_hash=subject_hash)[0])

        return self._dialect.write(None, do)

    def release(self, subject: Subject, reason: ReasonChoice = None) -> bool:
        def do(tx: Transaction) -> bool:
            subject_hash = self.hash_subject(subject)
            tx.lock_holds(subject_hash, change=True)
            known = load_reasons(tx, subject_hash)
            left = remove_reasons(subject, known, reason)
            if left == known:
                return False
            if left:
                tx.run("store_hold", subject_hash=subject_hash, at=0, reason=write_reasons(left))
            else:
                self._end_hold(tx, subject)
            for known_reason in known:
                if known_reason not in left:
                    self._audit.write(tx, "release", {"reason": known_reason}, subject_hash)
            return True

        return self._dialect.write(None, do)

    def _end_hold(self, tx: Transaction, subject: Subject) -> None:
        tx.lock_new_scopes(self.hash_subject(subject))
        tx.run("delete_hold", subject_hash=self.hash_subject(subject))
        for row in lock_user_scopes(tx, subject):
            if row.state == HIDDEN:
                show_scope(tx, row)

    def holds(self) -> list[Hold]:
        return [read_hold(row) for row in self._dialect.ask(None, "load_holds")]

    def users(self) -> list[Subject]:
        rows = self._dialect.read(None, load_scopes)
        scopes = [Scope(row.scope.tenant, None, row.scope.user) for row in rows if row.state in (OPEN, HIDDEN)]
        return [user for user in map(find_owner, dict.fromkeys(scopes)) if user]

    def is_on_hold(self, scope: Scope) -> bool:
        user = find_owner(scope)
        return bool(user and self._dialect.ask(None, "load_hold", subject_hash=self.hash_subject(user)))
