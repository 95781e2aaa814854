"""Rows that are left of erased subjects: written by others during the erasure, or restored from an older backup."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.erasure import PART_KINDS, ErasedSubject, Erasure, Subject, find_owner, first_summary_version
from engrain.core.model.plans import Forget
from engrain.core.rules.tombstone_hashes import group_by_scope, hash_tombstone
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.forget import (
    RemovableItem,
    count_part,
    forget_item,
    load_subjects,
    remove_items,
    remove_part,
)
from engrain.stores.relational.scopes import (
    HIDDEN,
    OPEN,
    ScopeRow,
    add_counts,
    anonymize_scope,
    count_tables,
    delete_scopes,
    find_user,
    load_reasons,
    load_scopes,
    lock_user_scopes,
)


def count_leftovers(tx: Transaction, erasures: Sequence[Erasure]) -> list[dict[str, int]]:
    """Rows by kind, for each erasure. Rows that were written since are not counted.

    Subjects are known by keyed hashes: each name in the store is hashed once and compared with all of them."""
    totals: list[dict[str, int]] = [_count_erased_rows(tx, erasure) for erasure in erasures]
    asked: dict[tuple[str, str], list[int]] = {}
    for n, erasure in enumerate(erasures):
        asked.setdefault((erasure.by, erasure.subject_hash), []).append(n)
    kinds = {erasure.by for erasure in erasures}
    for row in load_scopes(tx):
        inside = tx.within(row.scope, row.key)
        parts = (subject for kind in PART_KINDS if kind in kinds for subject in load_subjects(inside, kind))
        owner = find_owner(row.scope) if "user" in kinds else None
        for subject in filter(None, (owner, *parts)):
            for n in asked.get((subject.by, subject.hash(tx.dialect.key)), ()):
                add_counts(totals[n], _count_older(inside, row, subject, erasures[n]))
    return totals


def _count_erased_rows(tx: Transaction, erasure: Erasure) -> dict[str, int]:
    """Rows that the erasure itself should have deleted."""
    if erasure.by != "user":
        return dict(tx.rows("count_index_orphans", ids=erasure.ids)) if erasure.ids else {}
    ids = [*erasure.ids, *(scope.id for scope in erasure.scopes)]
    return count_tables(tx, "count_erased_rows", tx.dialect.scope_tables, ids=ids)


def _count_older(tx: Transaction, row: ScopeRow, subject: Subject, erasure: Erasure) -> dict[str, int]:
    """Rows of the subject from before its erasure."""
    at = to_micros(erasure.at)
    if subject.by == "user":
        if not tx.rows("find_older_rows", at=at):
            return {}
        return count_tables(tx, "count_scope_rows", tx.dialect.scope_tables, ids=[row.scope.id])
    _, ids, losing_source = count_part(tx, subject)
    named = {"item": ids, "source": losing_source}
    counts = {kind: int(tx.rows("count_older_items", ids=some, at=at)[0][0]) for kind, some in named.items()}
    if subject.by == "session":
        values = {"session": subject.name, "subject_hash": erasure.subject_hash, "at": at}
        add_counts(counts, dict(tx.rows("count_session_leftovers", **values, version=first_summary_version(at))))
    return counts


def remove_concurrent_writes(tx: Transaction, erasure: Erasure) -> None:
    """Remove them after the names were deleted. Data that a hold keeps by now stays, and is counted as left.

    A task is written without the lock of its scope, so it may come in while its scope is being erased."""
    tx.lock_holds(erasure.subject_hash)
    tx.lock_new_scopes(erasure.subject_hash)
    if load_reasons(tx, erasure.subject_hash):
        return
    counts, ids = dict(erasure.counts), list(erasure.ids)
    keys = [tx.add_erased_scope(id_) for id_ in ids]
    add_counts(counts, delete_scopes(tx, [ScopeRow(key, Scope(), OPEN) for key in keys]))
    user = find_user(tx, erasure.subject_hash)
    at = to_micros(erasure.at)
    for row in lock_user_scopes(tx, user) if user else ():
        inside = tx.within(row.scope, row.key)
        if row.state != OPEN or not inside.rows("find_concurrent_rows", at=at):
            continue
        if inside.rows("find_newer_rows", at=at):
            add_counts(counts, {"item": _remove_older(inside, at)})
        else:
            add_counts(counts, {"scope": 1, **delete_scopes(tx, [row])})
            ids.append(anonymize_scope(tx, row))
    tx.run("update_counts", id=erasure.id, counts=json.dumps(counts), ids=json.dumps(ids))
    tx.mark_purge()


def has_no_rows(tx: Transaction, part: Subject) -> bool:
    """True if nothing of a part was written since its rows were deleted.

    Then a later time may be that of its erasure, which keeps out a writer that began during it."""
    inside = tx.within(part.scope)
    if not inside.lock_known_scope():
        return False
    counts, ids, _ = count_part(inside, part)
    return not ids and not any(counts.values())


def _remove_older(tx: Transaction, at: int) -> int:
    """Remove old items, tasks and records from a scope to which the user has written since.

    An episode has its writer's time. One that seems old may be new by a clock that is behind: it stays, and is counted
    as left."""
    _, now = tx.begin_write()
    items = [RemovableItem(*row) for row in tx.rows("load_older_items", at=at)]
    remove_items(tx, items, {item.n for item in items}, now)
    tx.run("delete_older_events", at=at)
    tx.run("delete_older_tasks", at=at)
    tx.run("delete_older_records", at=at)
    if tx.changes:
        tx.end_write()
    return len(items)


def replay_erasures(
    tx: Transaction, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Remove from a restored copy what was erased or forgotten after it was made.

    Names are known as keyed hashes alone: each name in the copy is hashed and compared."""
    # A copy that was made after an erasure knows of it, and may hold what was said since.
    known = {subject_hash: at for subject_hash, _, at, _ in tx.rows("load_receipts", subject_hash=None)}
    hashes = {erasure.subject_hash for erasure in erased if known.get(erasure.subject_hash, -1) < to_micros(erasure.at)}
    forgotten = group_by_scope(tombstones)
    total: dict[str, int] = {}
    for row in load_scopes(tx):
        user = find_owner(row.scope)
        if user is not None and user.hash(tx.dialect.key) in hashes:
            add_counts(total, delete_scopes(tx, [row]))
            anonymize_scope(tx, row)
        else:
            add_counts(total, _remove_parts(tx, row, hashes, forgotten.get(row.scope.id, set())))
    for erasure in erased:
        values = {"subject_kind": erasure.by, "at": to_micros(erasure.at), "receipt": erasure.receipt}
        tx.run("add_receipt", subject_hash=erasure.subject_hash, **values)
        # A copy that was made during the erasure would resume it, and with it has the name.
        tx.run("delete_erasure", id=erasure.receipt)
    if erased:
        # A user who comes back begins to write after it.
        tx.run("advance_time", at=max(to_micros(erasure.at) + 1 for erasure in erased))
    tx.mark_purge()
    return total


def _remove_parts(tx: Transaction, row: ScopeRow, hashes: set[str], forgotten: set[str]) -> dict[str, int]:
    """Remove the parts with one of these hashes, and the items in the words of a tombstone."""
    inside = tx.within(row.scope, row.key)
    subjects = [
        subject
        for kind in PART_KINDS
        for subject in load_subjects(inside, kind)
        if subject.hash(tx.dialect.key) in hashes
    ]
    if not subjects and not forgotten:
        return {}
    total: dict[str, int] = {}
    _, at = inside.begin_write()
    for subject in subjects:
        add_counts(total, remove_part(inside, subject, at)[0])
    for _, id_, text in inside.rows("load_texts") if forgotten else ():
        if hash_tombstone(tx.dialect.key, text) in forgotten:
            outcome = forget_item(inside, Forget(id_, keep_source=True), at)
            add_counts(total, {"item": (1 + len(outcome.others)) * (outcome.status == "forgotten")})
    inside.many("add_tombstone", [{"hash": bytes.fromhex(hash_), "at": at} for hash_ in forgotten])
    if inside.changes:
        inside.end_write()
    return total


def load_tombstones(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Yield (scope id, hash) under the scope's own id, even if a hold hides it.

    The reader of a hidden scope's tombstones does not get its items. So texts that are stored again are left out."""
    hidden = {row.key: row.scope for row in load_scopes(tx) if row.state == HIDDEN}
    current = {
        (key, hash_tombstone(tx.dialect.key, text))
        for key, scope in hidden.items()
        for _, _, text in tx.within(scope, key).rows("load_texts")
    }
    for key, id_, digest in tx.rows("load_tombstones"):
        if (key, digest.hex()) not in current:
            yield hidden[key].id if key in hidden else id_, digest.hex()
