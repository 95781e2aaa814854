"""Add the row of a scope that is new, or begins anew."""

from __future__ import annotations

from engrain.core.model.erasure import find_owner, make_blocked_error
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.scopes import ERASING, HIDDEN, OPEN, find_user_scopes, hash_scope

_ERASED = 3  # the state of a scope that has no names


def add_scope_row(tx: Transaction) -> int:
    """Add the row of a scope on its first write, unless its user takes no writes.

    A scope that was erased begins anew under its old number, where its tombstones are."""
    scope = tx.scope
    assert scope is not None
    _check_user(tx)
    names = {"id": scope.id, "tenant": scope.tenant, "agent": scope.agent, "user": scope.user}
    known = tx.rows("find_scope", id=hash_scope(tx.dialect.key, scope))
    if not known:
        ((number,),) = tx.rows("add_scope", **names)
        return int(number)
    number, state = known[0]
    _refuse(OPEN if state == _ERASED else state)
    tx.run("reopen_scope", key=number, **names)
    return int(number)


def _check_user(tx: Transaction) -> None:
    """Another agent's memory of the same user may be blocked, and this one with it.

    No scope is there to be blocked if nothing was known of the user when the erasure began."""
    user = find_owner(tx.scope) if tx.scope else None
    if user is None:
        return
    _refuse(max((row.state for row in find_user_scopes(tx, user)), default=OPEN))
    _refuse(ERASING if tx.rows("find_user_erasure", subject_hash=tx.owner) else OPEN)
    _refuse(HIDDEN if any(row[3] for row in tx.rows("load_hold", subject_hash=tx.owner)) else OPEN)


def _refuse(state: int) -> None:
    if state != OPEN:
        raise make_blocked_error(hidden=state == HIDDEN)
