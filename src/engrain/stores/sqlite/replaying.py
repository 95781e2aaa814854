"""Take out of a restored copy what was erased or forgotten after it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.erasure import PART_KINDS, ErasedSubject, Subject, find_owner, group_by_scope
from engrain.core.model.plans import Forget
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.erasing import HIDDEN
from engrain.stores.sqlite.forget import forget
from engrain.stores.sqlite.part import add_counts, drop_requests, subjects, take_part
from engrain.stores.sqlite.sql import load

if TYPE_CHECKING:
    from engrain.stores.sqlite.erasing import SqliteErasing

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")


def replay(
    erasing: SqliteErasing, db: Connection, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Names are known only as keyed hashes: each name in the copy is hashed and compared."""
    erasing._store._purge.mark(db)
    # A copy that was made after an erasure knows of it, and may hold what was said since.
    known = {mark: at for mark, _, at, _ in db.rows(_SQL["erased"], {"mark": None})}
    marks = {one.mark for one in erased if known.get(one.mark, -1) < to_micros(one.at)}
    total: dict[str, int] = {}
    forgotten = group_by_scope(tombstones)
    for row in db.rows(_SQL["named"]):
        scope, number = Scope(*row[1:4]), row[0]
        user = find_owner(scope)
        if user is not None and erasing.mark(user) in marks:
            add_counts(total, dict(erasing.take_scopes(db, [row])))
            db.run(_SQL["shut_scope"], {"id": erasing.aside(scope), "state": 3, "n": number})
            db.run(_SQL["unname_scope"], (number,))
            continue
        for subject in (one for by in PART_KINDS for one in subjects(db, scope, number, by)):
            if erasing.mark(subject) in marks:
                add_counts(total, _taken(erasing, db, subject, number))
        add_counts(total, _forgotten(erasing, db, scope, number, forgotten.get(scope.id, set())))
    for one in erased:
        values = {"mark": one.mark, "by": one.by, "at": to_micros(one.at), "receipt": one.receipt}
        db.run(_SQL["add_erased"], values)
        # A copy that was made halfway through it would go on with it, and with it has the name.
        db.run(_SQL["drop_erasing"], (one.receipt,))
    # Whoever comes back begins to write after it.
    ((seq, now),) = db.rows(_QUERIES["counters"])
    db.run(_QUERIES["set_counters"], {"seq": seq, "now": max([now, *(to_micros(one.at) + 1 for one in erased)])})
    return total


def tombstones(erasing: SqliteErasing, db: Connection) -> Iterator[tuple[str, str]]:
    """By the scope's own id, though a hold may hide it. Its items are then given to nobody who would put them back, so
    that words which were told anew in it are left out."""
    yield from db.rows(_SQL["tombstones"])
    for number, tenant, agent, user, shut, _ in db.rows(_SQL["named"]):
        if shut == HIDDEN:
            scope = Scope(tenant, agent, user)
            work = erasing._work(db, scope, number)
            standing = {work.digest("text", text).hex() for _, _, text in db.rows(_SQL["items"], (number,))}
            hashes = (hash_ for (hash_,) in db.rows(_SQL["tombstones_of"], (number,)))
            yield from ((scope.id, one) for one in hashes if one not in standing)


def _taken(erasing: SqliteErasing, db: Connection, subject: Subject, number: int) -> dict[str, int]:
    work = erasing._work(db, subject.scope, number)
    if subject.by == "id":
        outcome = forget(work, Forget(subject.name))
        gone = [subject.name, *outcome.others] if outcome.status == "forgotten" else []
        counts = {"item": len(gone), "request": drop_requests(db, number, gone)}
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
