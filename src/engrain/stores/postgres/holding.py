"""Who is under a legal hold, and for what."""

from __future__ import annotations

from engrain.core.clock import from_micros
from engrain.core.erasure import Hold, Subject, owner
from engrain.core.holds import read
from engrain.core.scope import Scope
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.sql import load

_SQL = load("erasing.sql")
_OPEN, _HIDDEN = 0, 2


def hold_of(row: Row) -> Hold:
    mark, at, reason, hidden = row
    return Hold(mark, from_micros(at), read(reason), hidden)


def reasons_of(db: Db, mark: str) -> tuple[str, ...]:
    return next((hold_of(row).reasons for row in db.rows(_SQL["hold"], {"mark": mark})), ())


def users(db: Db) -> list[Subject]:
    scopes = [Scope(row[1], None, row[3]) for row in db.rows(_SQL["named"]) if row[4] in (_OPEN, _HIDDEN)]
    return [user for user in map(owner, dict.fromkeys(scopes)) if user]
