"""Take out of a restored copy what was erased or forgotten after it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engrain.core.erasure import Erased, Subject, owner
from engrain.core.plans import Forget
from engrain.core.scope import Scope
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.forget import forget
from engrain.stores.sqlite.part import take_part
from engrain.stores.sqlite.sql import load

if TYPE_CHECKING:
    from engrain.stores.sqlite.erasing import SqliteErasing

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")
_SCOPES = "select n, tenant, agent, user, shut, id from scope where shut in (0, 2) order by n"


def replay(
    erasing: SqliteErasing, db: Connection, erased: Sequence[Erased], tombstones: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Names are known only as keyed hashes: each name in the copy is hashed and compared."""
    marks = {one.mark: one for one in erased}
    total: dict[str, int] = {}
    for row in db.rows(_SCOPES):
        scope, number = Scope(*row[1:4]), row[0]
        user = owner(scope)
        if user is not None and erasing.mark(user) in marks:
            _add(total, dict(erasing.take_scopes(db, [row])))
            db.run(_SQL["shut_scope"], {"id": erasing.aside(scope), "shut": 3, "n": number})
            db.run(_SQL["unname_scope"], (number,))
            continue
        for subject in _subjects(db, scope, number):
            if erasing.mark(subject) in marks:
                _add(total, _taken(erasing, db, subject, number))
        _add(total, _forgotten(erasing, db, scope, number, {hash_ for id_, hash_ in tombstones if id_ == row[5]}))
    for one in erased:
        at = int(one.at.timestamp() * 1_000_000)
        db.run(_SQL["add_erased"], {"mark": one.mark, "by": one.by, "at": at, "receipt": one.receipt})
    return total


def _subjects(db: Connection, scope: Scope, number: int) -> Iterator[Subject]:
    for (session,) in db.rows("select session from session where scope = ?", (number,)):
        yield Subject(scope, "session", session)
    named = "select distinct name from source join item on item.n = source.item where item.scope = ?"
    for (name,) in db.rows(f"{named} and name is not null", (number,)):
        yield Subject(scope, "source", name)
    for (id_,) in db.rows("select id from item where scope = ?", (number,)):
        yield Subject(scope, "id", id_)


def _taken(erasing: SqliteErasing, db: Connection, subject: Subject, number: int) -> dict[str, int]:
    work = erasing._work(db, subject.scope, number)
    if subject.by == "id":
        outcome = forget(work, Forget(subject.name))
        counts = {"item": 1 + len(outcome.others)} if outcome.status == "forgotten" else {}
    else:
        counts, _ = take_part(work, subject)
    db.run(_QUERIES["set_counters"], {"seq": work.seq, "now": work.micros})
    return counts


def _forgotten(erasing: SqliteErasing, db: Connection, scope: Scope, number: int, hashes: set[str]) -> dict[str, int]:
    """Items in the words of a tombstone, and the tombstones themselves."""
    if not hashes:
        return {}
    work = erasing._work(db, scope, number)
    gone = 0
    for _, id_, text in db.rows(_SQL["items"], (number,)):
        if work.digest("text", text).hex() in hashes:
            outcome = forget(work, Forget(id_, keep_source=True))
            gone += (1 + len(outcome.others)) * (outcome.status == "forgotten")
    for hash_ in hashes:
        db.run(_QUERIES["add_tombstone"], (number, bytes.fromhex(hash_), work.micros))
    db.run(_QUERIES["set_counters"], {"seq": work.seq, "now": work.micros})
    return {"item": gone}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for kind, count in more.items():
        total[kind] = total.get(kind, 0) + count
