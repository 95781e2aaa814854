"""Take what came in while a user was erased, by a program that does not wait for an erasure as this one does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.erasure import Erasure, Subject, find_owner
from engrain.stores.postgres.forget import remove
from engrain.stores.postgres.holding import reasons_of
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.locks import hold_stays, scopes_stay
from engrain.stores.postgres.passed_over import add
from engrain.stores.postgres.sql import load

if TYPE_CHECKING:
    from engrain.stores.postgres.erasing import PostgresErasing

_SQL, _FORGET, _QUERIES = load("erasing.sql"), load("forget.sql"), load("queries.sql")
_OPEN = 0


def take_late(erasing: PostgresErasing, db: Db, erasure: Erasure) -> None:
    """Whose names are gone already. What a hold keeps by now stays, and is told as left."""
    hold_stays(db, erasure.mark)
    scopes_stay(db, erasure.mark)
    if reasons_of(db, erasure.mark):
        return
    counts, ids = dict(erasure.counts), list(erasure.ids)
    add(counts, erasing.take_scopes(db, [(id_, None, None, None) for id_ in ids]))
    for row in _open_scopes(erasing, db, erasure.mark):
        scope, old = Scope(*row[1:4]), {"scope": row[0], "at": to_micros(erasure.at)}
        if not db.rows(_SQL["late"], old):
            continue
        if db.rows(_SQL["newer"], old):
            add(counts, {"item": _take_older(erasing, db, scope, old["at"])})
        else:
            add(counts, {"scope": 1, **erasing.take_scopes(db, [row])})
            ids += erasing.unname_scopes(db, [scope])
    db.run(_SQL["taken"], {"id": erasure.id, "counts": json.dumps(counts), "ids": json.dumps(ids)})
    db.run(_FORGET["sweep_later"])


def is_clear(erasing: PostgresErasing, db: Db, part: Subject) -> bool:
    """Whether nothing of a part has come in since its rows went. Then a later time may be that of its erasure, which
    keeps out whoever began to write while that was open; from here to the commit nobody writes to its scope."""
    return bool(db.rows(_QUERIES["lock_scope"], (part.scope.id,))) and not erasing.reach_in(db, part)


def _open_scopes(erasing: PostgresErasing, db: Db, mark: str) -> list[Row]:
    """Of the user with this mark, locked."""
    users = (find_owner(Scope(*row[1:4])) for row in db.rows(_SQL["named"]))
    user = next((one for one in users if one and erasing.mark(one) == mark), None)
    names = {"user": user.name, "tenant": user.scope.tenant} if user else None
    return [row for row in db.rows(_SQL["scopes_of"], names) if row[4] == _OPEN] if names else []


def _take_older(erasing: PostgresErasing, db: Db, scope: Scope, at: int) -> int:
    """Out of a scope in which the user has said something since. Of the episodes those of items that go: another that
    seems old may be new, by a clock that is behind. It stays, and is told as left."""
    work, old = erasing.begun_work(db, scope), {"scope": scope.id, "at": at}
    items = db.rows(_SQL["older_items"], old)
    remove(work, items, {row[0] for row in items})
    db.run(_SQL["drop_older"], old)
    if work.changed:
        db.rows(_QUERIES["end_write"], (work.owner,))
    return len(items)
