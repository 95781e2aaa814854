"""Locks of what no row stands for: whether a user is held, and which scopes a user has."""

from __future__ import annotations

from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

# Taken in this order and before any row is locked, so that nobody waits in a circle: all holds, those on one user, that
# user's scopes. They end with the transaction, and cost no round trip of their own.
# One circle is left: who waited for a scope that was hidden or shown meanwhile has that row locked, and may then want
# to make the scope. The server ends it, and it is done again; a lock with every write would cost more.
_SQL = load("erasing.sql")
_HOLDS, _SCOPES = ".hold", ".scopes"
_EVERYBODY = ""


def hold_begins(db: Db, mark: str) -> None:
    """Whoever has seen that this user is not held comes to an end first."""
    db.run(_SQL["lock"], (_HOLDS, _EVERYBODY))
    db.run(_SQL["lock"], (_HOLDS, mark))


def hold_ends(db: Db, mark: str) -> None:
    db.run(_SQL["lock"], (_HOLDS, mark))


def hold_stays(db: Db, mark: str) -> None:
    """Whether and why this user is held stays as it is. The memory of no user has no mark, and no hold."""
    if mark:
        db.run(_SQL["lock_shared"], (_HOLDS, mark))


def holds_stay(db: Db) -> None:
    """No hold begins, on anybody; one may end."""
    db.run(_SQL["lock_shared"], (_HOLDS, _EVERYBODY))


def scopes_stay(db: Db, mark: str) -> None:
    """This user gets no new scope, and whoever was making one is done."""
    db.run(_SQL["lock"], (_SCOPES, mark))


def scope_comes(db: Db, mark: str) -> None:
    if mark:
        db.run(_SQL["lock_shared"], (_SCOPES, mark))
