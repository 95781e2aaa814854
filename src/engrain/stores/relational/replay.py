"""Remove from a restored copy what was erased or forgotten after it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engrain.core.clock import to_micros
from engrain.core.identity import hash_keyed
from engrain.core.model.erasure import PART_KINDS, ErasedSubject, Subject, find_owner, group_by_scope, hash_tombstone
from engrain.core.model.plans import Forget
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.forget import forget_item, load_subjects, remove_part
from engrain.stores.relational.scopes import HIDDEN, ScopeRow, add_counts, anonymize_scope, delete_scopes, load_scopes


def replay_erasures(
    tx: Transaction, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Names are known as keyed hashes alone: each name in the copy is hashed and compared."""
    # A copy that was made after an erasure knows of it, and may hold what was said since.
    known = {subject_hash: at for subject_hash, _, at, _ in tx.rows("load_receipts", subject_hash=None)}
    hashes = {one.subject_hash for one in erased if known.get(one.subject_hash, -1) < to_micros(one.at)}
    forgotten = group_by_scope(tombstones)
    total: dict[str, int] = {}
    for row in load_scopes(tx):
        user = find_owner(row.scope)
        if user is not None and _hash(tx, user) in hashes:
            add_counts(total, delete_scopes(tx, [row]))
            anonymize_scope(tx, row)
        else:
            add_counts(total, _remove_parts(tx, row, hashes, forgotten.get(row.scope.id, set())))
    for one in erased:
        values = {"subject_kind": one.by, "at": to_micros(one.at), "receipt": one.receipt}
        tx.run("add_receipt", subject_hash=one.subject_hash, **values)
        # A copy that was made during the erasure would resume it, and with it has the name.
        tx.run("delete_erasure", id=one.receipt)
    if erased:
        # A user who comes back begins to write after it.
        tx.run("advance_time", at=max(to_micros(one.at) + 1 for one in erased))
    tx.mark_purge()
    return total


def _remove_parts(tx: Transaction, row: ScopeRow, hashes: set[str], forgotten: set[str]) -> dict[str, int]:
    """Remove the parts with one of these hashes, and the items in the words of a tombstone."""
    inside = tx.within(row.scope, row.key)
    subjects = [one for kind in PART_KINDS for one in load_subjects(inside, kind) if _hash(tx, one) in hashes]
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
    inside.many("add_tombstone", [{"hash": bytes.fromhex(one), "at": at} for one in forgotten])
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


def _hash(tx: Transaction, subject: Subject) -> str:
    return hash_keyed(tx.dialect.key, *subject.parts())
