"""Make the row of a scope on its first write, unless its user takes no writes."""

from __future__ import annotations

from engrain.core.errors import BeingErased, OnHold
from engrain.core.model.erasure import find_owner
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.scopes import ERASING, HIDDEN, OPEN, find_user_scopes, hash_scope

_ERASED = 3


def add_scope(tx: Transaction) -> int:
    """A scope that was erased begins anew under its old number, where its tombstones are."""
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
    if state == ERASING:
        raise BeingErased("this user's memory is being erased. Write again when that is done: engrain erase --resume.")
    if state:
        raise OnHold("this user's memory is under a legal hold and is to be erased: nothing is shown or written.")
