"""The row of a scope: made on its first write, unless it is shut."""

from __future__ import annotations

from collections.abc import Mapping

from engrain.core.errors import BeingErased, OnHold
from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.erasure import find_owner, find_subjects, make_erased_error
from engrain.core.model.plans import Plan
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.erasing import ERASED, ERASING, HIDDEN, aside
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load

_SQL, _ERASING = load("queries.sql"), load("erasing.sql")


def add_scope(db: Connection, key: bytes, scope: Scope) -> int:
    """One that was erased begins anew under its old number, where its tombstones are."""
    names = {"tenant": scope.tenant, "agent": scope.agent, "user": scope.user}
    user = find_owner(scope)
    if user is not None:
        _check_user(db, hash_keyed(key, *user.parts()), names)
    known = db.rows(_ERASING["aside"], (aside(key, scope),))
    if not known:
        db.run(_SQL["add_scope"], (scope.id, scope.tenant, scope.agent, scope.user))
        return db.last_row
    number, how = known[0]
    _refuse(0 if how == ERASED else how)
    db.run(_ERASING["reopen_scope"], {"id": scope.id, "n": number, **names})
    return int(number)


def check_began(db: Connection, key: bytes, plan: Plan) -> None:
    marks = as_json([hash_keyed(key, *one.parts()) for one in find_subjects(plan)])
    if db.rows(_ERASING["erased_since"], {"marks": marks, "began": plan.began}):
        raise make_erased_error()


def _check_user(db: Connection, mark: str, names: Mapping[str, str | None]) -> None:
    """Another agent's memory of the same user may be shut, and this one with it. Nothing is there to be shut of a user
    of whom nothing was known when it was asked for."""
    _refuse(max((row[4] for row in db.rows(_ERASING["scopes_of"], names) if row[4] != ERASED), default=0))
    _refuse(ERASING if db.rows(_ERASING["shutting"], (mark,)) else 0)
    _refuse(HIDDEN if any(row[3] for row in db.rows(_ERASING["hold"], {"mark": mark})) else 0)


def _refuse(shut: int) -> None:
    if shut == ERASING:
        raise BeingErased("this user's memory is being erased. Write again when that is done: engrain erase --resume.")
    if shut:
        raise OnHold("this user's memory is under a legal hold and is to be erased: nothing is shown or written.")
