"""Who is under a legal hold, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.erasure import (
    Hold,
    ReasonChoice,
    Subject,
    add_reason,
    find_owner,
    read_reasons,
    remove_reasons,
    write_reasons,
)
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.locks import hold_begins, hold_ends
from engrain.stores.postgres.sql import load

if TYPE_CHECKING:
    from engrain.stores.postgres.erasing import PostgresErasing

_SQL = load("erasing.sql")
_OPEN, _HIDDEN = 0, 2


def hold_of(row: Row) -> Hold:
    mark, at, reason, hidden = row
    return Hold(mark, from_micros(at), read_reasons(reason), hidden)


def reasons_of(db: Db, mark: str) -> tuple[str, ...]:
    return next((hold_of(row).reasons for row in db.rows(_SQL["hold"], {"mark": mark})), ())


def hold(erasing: PostgresErasing, db: Db, subject: Subject, reason: str) -> Hold:
    store, mark = erasing._store, erasing.mark(subject)
    hold_begins(db, mark)
    known = reasons_of(db, mark)
    reasons = add_reason(known, reason)
    if reasons != known:
        db.run(_SQL["keep_hold"], (mark, store._micros(db), write_reasons(reasons)))
        store.audit.write(db, "hold", {"reason": reason}, mark)
    return hold_of(db.rows(_SQL["hold"], {"mark": mark})[0])


def release(erasing: PostgresErasing, db: Db, subject: Subject, reason: ReasonChoice) -> bool:
    mark = erasing.mark(subject)
    hold_ends(db, mark)
    known = reasons_of(db, mark)
    left = remove_reasons(subject, known, reason)
    if left == known:
        return False
    if left:
        db.run(_SQL["keep_hold"], (mark, 0, write_reasons(left)))
    else:
        erasing.end_hold(db, subject)
    for one in known:
        if one not in left:
            erasing._store.audit.write(db, "release", {"reason": one}, mark)
    return True


def users(db: Db) -> list[Subject]:
    scopes = [Scope(row[1], None, row[3]) for row in db.rows(_SQL["named"]) if row[4] in (_OPEN, _HIDDEN)]
    return [user for user in map(find_owner, dict.fromkeys(scopes)) if user]
