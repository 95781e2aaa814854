"""Erase a subject stage by stage, and keep its data out afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import NotFound, OnHold, StoreCorrupt
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry
from engrain.core.model.erasure import ErasedSubject, Erasure, Impact, Subject, find_owner, make_hold_error
from engrain.core.rules.tombstone_hashes import hash_tombstone
from engrain.ports.erasure import NONE
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.forget import count_part, remove_part
from engrain.stores.relational.remaining_rows import (
    count_leftovers,
    has_no_rows,
    load_tombstones,
    remove_concurrent_writes,
    replay_erasures,
)
from engrain.stores.relational.rows import Row, read_receipt
from engrain.stores.relational.scopes import (
    ERASING,
    Holds,
    anonymize_scope,
    block_scope,
    count_scopes,
    delete_scopes,
    find_user_scopes,
    hash_scope,
    hide_user,
    load_reasons,
    lock_user_scopes,
)


class Erasures(Holds):
    """The erasures of a store. Each stage is one transaction that may be repeated."""

    # A server's files cannot be searched, so nobody needs fingerprints of the rows before they are deleted.
    deletes_at_begin = True
    # Others may write while a transaction of ours deletes. In a file one writes at a time.
    concurrent_writers = True

    # What would be removed

    def measure(self, subject: Subject) -> Impact:
        def do(tx: Transaction) -> Impact:
            if subject.by == "user":
                rows = find_user_scopes(tx, subject)
                counts = {"scope": len(rows), **count_scopes(tx, [row.key for row in rows])}
                return Impact(counts, tuple(row.scope for row in rows))
            counts, ids, losing_source = count_part(tx.within(subject.scope), subject)
            found = ids if subject.by == "id" else any(counts.values())
            return Impact(counts, (subject.scope,) if found else (), ids, losing_source)

        return self._dialect.read(None, do)

    def search_terms(self, subject: Subject | None) -> Iterator[bytes]:
        return iter(())

    def copies(self) -> list[str]:
        return []

    def raw(self) -> Iterator[bytes]:
        return iter(())

    # The stages

    def begin(self, id: str, subject: Subject, notes: Mapping[str, Any] = NONE) -> Erasure:
        def do(tx: Transaction) -> Erasure | OnHold:
            if running := tx.rows("load_erasures", id=id):
                return _read_erasure(running[0])
            return self._refuse_on_hold(tx, subject) or self._begin(tx, id, subject, notes)

        return self._write_unless_on_hold(do)

    def _write_unless_on_hold(self, do: Callable[[Transaction], Erasure | OnHold], repeat: bool = False) -> Erasure:
        """Raise a refusal after the commit, because it is on record."""
        self._dialect.prepare_index({})
        (answer,) = self._dialect.write(None, lambda tx: [do(tx)], repeat=repeat)
        if isinstance(answer, OnHold):
            raise answer
        return answer

    def _refuse_on_hold(self, tx: Transaction, subject: Subject) -> OnHold | None:
        """Record the refusal, and hide the user, if a hold keeps the data."""
        user = subject if subject.by == "user" else find_owner(subject.scope)
        if user is not None:
            tx.lock_holds(self.hash_subject(user))
        if subject.by == "user":
            tx.lock_new_scopes(self.hash_subject(subject))
        reasons = load_reasons(tx, self.hash_subject(user)) if user else ()
        if user is None or not reasons:
            return None
        if subject.by == "user":
            hide_user(tx, subject)
            tx.run("hide_hold", subject_hash=self.hash_subject(subject))
        self._audit.write(tx, "erase_refused", {"by": subject.by, "reasons": reasons}, self.hash_subject(subject))
        return make_hold_error(user, reasons, hides=subject.by == "user")

    def _begin(self, tx: Transaction, id: str, subject: Subject, notes: Mapping[str, Any]) -> Erasure:
        scope, at = subject.scope, _advance_time(tx)
        rows = lock_user_scopes(tx, subject) if subject.by == "user" else []
        scopes = [row.scope for row in rows] if subject.by == "user" else [scope]
        listed = [[scope.tenant, scope.agent, scope.user] for scope in scopes]
        names = {"tenant": scope.tenant, "agent": scope.agent, "user": scope.user, "name": subject.name}
        values = {"subject_hash": self.hash_subject(subject), "subject_kind": subject.by, "at": at, **names}
        tx.run("add_erasure", id=id, **values, scopes=json.dumps(listed), notes=json.dumps(dict(notes)))
        if self.deletes_at_begin:
            self._delete_rows(tx, id, subject, at)
        for row in rows:
            block_scope(tx, row, ERASING)
        return self._load(tx, id)

    def save_progress(self, id: str, notes: Mapping[str, Any], prints: bytes) -> None:
        values = {"notes": json.dumps(notes), "fingerprints": prints}
        self._dialect.write(None, lambda tx: tx.run("store_fingerprints", id=id, **values), repeat=True)

    def delete_rows(self, id: str) -> Erasure:
        def do(tx: Transaction) -> Erasure | OnHold:
            erasure = self._load(tx, id)
            if erasure.stage == "blocked" and erasure.subject is not None:
                if refused := self._refuse_on_hold(tx, erasure.subject):
                    tx.run("delete_erasure", id=id)
                    return refused
                # A part may be written to again from now on; a user only when the names are deleted.
                at = to_micros(erasure.at) if erasure.by == "user" else _advance_time(tx)
                self._delete_rows(tx, id, erasure.subject, at)
            elif self.concurrent_writers and erasure.stage == "anonymized" and erasure.by == "user":
                remove_concurrent_writes(tx, erasure)
            return self._load(tx, id)

        return self._write_unless_on_hold(do, repeat=True)

    def _delete_rows(self, tx: Transaction, id: str, subject: Subject, at: int) -> None:
        ids: Sequence[str] = ()
        if subject.by == "user":
            rows = lock_user_scopes(tx, subject)
            counts = {"scope": len(rows), **delete_scopes(tx, rows)}
        else:
            inside = tx.within(subject.scope)
            counts, ids = remove_part(inside, subject, inside.begin_write()[1])
            if inside.changes:
                inside.end_write()
        tx.run("store_counts", id=id, counts=json.dumps(counts), ids=json.dumps(list(ids)), at=at)
        tx.mark_purge()

    def anonymize(self, id: str, notes: Mapping[str, Any] | None = None) -> Erasure:
        def do(tx: Transaction) -> Erasure:
            tx.lock_new_scopes(self._load(tx, id).subject_hash)
            erasure = self._load(tx, id)
            if erasure.stage != "deleted" or erasure.subject is None:
                return erasure
            ids, at = erasure.ids, to_micros(erasure.at)
            if erasure.by == "user":
                # Where nothing is blocked, because there was nothing or another erasure of this user has got here,
                # rows that came in since are new.
                rows = lock_user_scopes(tx, erasure.subject)
                ids = tuple(anonymize_scope(tx, row) for row in rows if row.state == ERASING)
                # A writer that began while the rows were being deleted may have seen a later time.
                at = _advance_time(tx) if ids and self.concurrent_writers else at
            elif self.concurrent_writers and has_no_rows(tx, erasure.subject):
                at = _advance_time(tx)
            values = {"ids": json.dumps(ids), "at": at, "notes": None if notes is None else json.dumps(notes)}
            tx.run("anonymize_erasure", id=id, **values)
            tx.mark_purge()
            return self._load(tx, id)

        return self._dialect.write(None, do, repeat=True)

    def count_remaining(self, erasure: Erasure) -> Mapping[str, int]:
        return self.count_remaining_of([erasure])[0]

    def count_remaining_of(self, erasures: Sequence[Erasure]) -> list[dict[str, int]]:
        """The same for several erasures, in one snapshot."""
        return self._dialect.read(None, lambda tx: count_leftovers(tx, erasures))

    def complete(self, id: str, receipt: Mapping[str, Any]) -> AuditEntry:
        def do(tx: Transaction) -> AuditEntry:
            erasure = self._load(tx, id)
            values = {"subject_kind": erasure.by, "at": to_micros(erasure.at), "receipt": id}
            tx.run("delete_erasure", id=id)
            tx.run("add_receipt", subject_hash=erasure.subject_hash, **values)
            return self._audit.write(tx, "erase", receipt, erasure.subject_hash)

        return self._dialect.write(None, do)

    def running(self) -> list[Erasure]:
        return [_read_erasure(row) for row in self._dialect.ask(None, "load_erasures", id=None)]

    def _load(self, tx: Transaction, id: str) -> Erasure:
        rows = tx.rows("load_erasures", id=id)
        if not rows:
            raise NotFound(f"no erasure {id!r} is under way.")
        return _read_erasure(rows[0])

    # What keeps erased data out

    def erased(self, subject: Subject) -> ErasedSubject | None:
        rows = self._dialect.ask(None, "load_receipts", subject_hash=self.hash_subject(subject))
        return read_receipt(rows[0]) if rows else None

    def all_erased(self) -> list[ErasedSubject]:
        return [read_receipt(row) for row in self._dialect.ask(None, "load_receipts", subject_hash=None)]

    def find_tombstoned(self, scope: Scope, texts: Sequence[str]) -> list[bool]:
        key = self._dialect.key
        ids = [scope.id, hash_scope(key, scope)]
        hashes = [bytes.fromhex(hash_tombstone(key, text)) for text in texts]

        def do(tx: Transaction) -> list[bool]:
            asked = [tx.ask("find_tombstone_of", ids=ids, hash=hash_) for hash_ in hashes]
            return [bool(found.fetchall()) for found in asked]

        return self._dialect.read(None, do)

    def tombstones(self) -> Iterator[tuple[str, str]]:
        return iter(self._dialect.read(None, lambda tx: list(load_tombstones(tx))))

    def replay(self, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        self._dialect.prepare_index({})
        return self._dialect.write(None, lambda tx: replay_erasures(tx, erased, tombstones))


def _advance_time(tx: Transaction) -> int:
    """Now. Everything written afterwards has a later time, even if the clock was set back or stands still."""
    at = tx.now()
    tx.run("advance_time", at=at + 1)
    return at


def _read_erasure(row: Row) -> Erasure:
    id_, subject_hash, kind, stage, at, tenant, agent, user, name, scopes, counts, ids, notes, fingerprints = row
    try:
        subject = None if name is None else Subject(Scope(tenant, agent, user), kind, name)
        removed, memories = dict(json.loads(counts)), tuple(Scope(*parts) for parts in json.loads(scopes))
        return Erasure(
            id_, subject_hash, kind, stage, from_micros(at), subject, memories,
            removed, tuple(json.loads(ids)), dict(json.loads(notes)), bytes(fingerprints),
        )  # fmt: skip
    except (ValueError, StoreCorrupt, TypeError, RecursionError) as exc:
        raise StoreCorrupt(
            "a row of table erasure is damaged: nobody knows what it erases. Run: engrain doctor. Restore a backup."
        ) from exc
