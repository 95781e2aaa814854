"""Which scopes are under a legal hold, so that nothing of them goes."""

from __future__ import annotations

from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.erasure import Subject, find_owner, make_hold_error, read_reasons
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.sql import load

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")


def held_scopes(db: Connection) -> list[int]:
    """Their numbers. A hold knows its user as a keyed hash alone, so every name is hashed; with no hold, none is."""
    reasons = _reasons(db)
    if not reasons:
        return []
    key = _key(db)
    owned = [(number, find_owner(Scope(*names))) for number, *names, _, _ in db.rows(_SQL["named"])]
    return [number for number, user in owned if user and _mark(key, user) in reasons]


def held(db: Connection, number: int | None) -> bool:
    return _holder(db, number) is not None


def check_held(db: Connection, number: int | None) -> None:
    if (found := _holder(db, number)) is not None:
        raise make_hold_error(*found)


def _holder(db: Connection, number: int | None) -> tuple[Subject, tuple[str, ...]] | None:
    """The user whose scope it is, and why it is held."""
    reasons = _reasons(db)
    names = db.rows(_SQL["names_of"], (number,)) if reasons else []
    user = find_owner(Scope(*names[0])) if names else None
    why = reasons.get(_mark(_key(db), user)) if user else None
    return (user, read_reasons(why)) if user and why else None


def _reasons(db: Connection) -> dict[str, str]:
    return {mark: reason for mark, _, reason, _ in db.rows(_SQL["hold"], {"mark": None})}


def _key(db: Connection) -> bytes:
    ((key,),) = db.rows(_QUERIES["meta"], ("key",))
    return bytes.fromhex(key)


def _mark(key: bytes, user: Subject) -> str:
    return hash_keyed(key, *user.parts())
