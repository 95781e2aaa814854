"""Legal holds: who is under one and for what reasons, and data that a hold hides."""

from __future__ import annotations

from engrain.core.identity import Scope
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
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dialect import Dialect, ScopeKey, Transaction
from engrain.stores.relational.rows import read_hold
from engrain.stores.relational.scopes import HIDDEN, OPEN, block_scope, load_scopes, lock_user_scopes, show_scope


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
