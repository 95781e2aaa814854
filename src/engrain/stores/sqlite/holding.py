"""Which scopes are under a legal hold, so that nothing of them goes."""

from __future__ import annotations

from engrain.core.erasure import keyed, owner
from engrain.core.errors import OnHold
from engrain.core.scope import Scope
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.sql import load

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")


def held_scopes(db: Connection) -> list[int]:
    """Their numbers. A hold knows its user as a keyed hash alone, so every name is hashed; with no hold, none is."""
    reasons = _reasons(db)
    if not reasons:
        return []
    key = _key(db)
    return [number for number, *names, _, _ in db.rows(_SQL["named"]) if _mark(key, Scope(*names)) in reasons]


def held(db: Connection, number: int | None) -> bool:
    return _reason(db, number) is not None


def check_held(db: Connection, number: int | None) -> None:
    if (reason := _reason(db, number)) is not None:
        raise OnHold(f"a legal hold ({reason}) keeps this data from being removed. Release it first: engrain hold.")


def _reason(db: Connection, number: int | None) -> str | None:
    reasons = _reasons(db)
    names = db.rows(_SQL["names_of"], (number,)) if reasons else []
    return reasons.get(_mark(_key(db), Scope(*names[0]))) if names else None


def _reasons(db: Connection) -> dict[str, str]:
    return {mark: reason for mark, _, reason, _ in db.rows(_SQL["hold"], {"mark": None})}


def _key(db: Connection) -> bytes:
    ((key,),) = db.rows(_QUERIES["meta"], ("key",))
    return bytes(key)


def _mark(key: bytes, scope: Scope) -> str:
    user = owner(scope)
    return keyed(key, *user.parts()) if user else ""
