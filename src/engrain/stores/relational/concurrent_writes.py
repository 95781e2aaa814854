"""Remove what other programs wrote while a user was being erased."""

from __future__ import annotations

import json

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.erasure import Erasure, Subject
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.forget import RemovableItem, count_part, remove_items
from engrain.stores.relational.holds import find_user, load_reasons
from engrain.stores.relational.scopes import (
    OPEN,
    ScopeRow,
    add_counts,
    anonymize_scope,
    delete_scopes,
    lock_user_scopes,
)


def remove_concurrent_writes(tx: Transaction, erasure: Erasure) -> None:
    """Remove them after the names were deleted. Data that a hold keeps by now stays, and is counted as left.

    A task is written without the lock of its scope, so it may come in while its scope is being erased."""
    tx.lock_user(erasure.subject_hash)
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
    """Remove old items and tasks from a scope to which the user has written since.

    An episode has its writer's time. One that seems old may be new by a clock that is behind: it stays, and is counted
    as left."""
    _, now = tx.begin_write()
    items = [RemovableItem(*row) for row in tx.rows("load_older_items", at=at)]
    remove_items(tx, items, {one.n for one in items}, now)
    tx.run("delete_older_events", at=at)
    tx.run("delete_older_tasks", at=at)
    if tx.changes:
        tx.end_write()
    return len(items)
