"""Take out of a database that was set back to an earlier moment what was erased or forgotten since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.erasure import PART_KINDS, ErasedSubject, find_owner, group_by_scope
from engrain.core.model.plans import Forget
from engrain.stores.postgres.erasing import HIDDEN
from engrain.stores.postgres.forget import forget
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.part import subjects
from engrain.stores.postgres.passed_over import add
from engrain.stores.postgres.sql import load

if TYPE_CHECKING:
    from engrain.stores.postgres.erasing import PostgresErasing

_SQL, _FORGET = load("erasing.sql"), load("forget.sql")
_QUERIES = load("queries.sql")


def replay(
    erasing: PostgresErasing, db: Db, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Names are known only as keyed hashes: each name that is there is hashed and compared."""
    # A database from after an erasure knows of it, and may hold what was said since.
    known = {mark: at for mark, _, at, _ in db.rows(_SQL["erased"], {"mark": None})}
    marks = {one.mark for one in erased if known.get(one.mark, -1) < to_micros(one.at)}
    total: dict[str, int] = {}
    forgotten = group_by_scope(tombstones)
    _show(erasing, db)
    for row in db.rows(_SQL["named"]):
        scope = Scope(*row[1:4])
        user = find_owner(scope)
        if user is not None and erasing.mark(user) in marks:
            add(total, erasing.take_scopes(db, [row]))
            erasing.unname_scopes(db, [scope])
            continue
        for subject in [one for by in PART_KINDS for one in subjects(db, scope, by)]:
            if erasing.mark(subject) in marks:
                add(total, erasing.take_part(db, subject)[0])
        add(total, _forgotten(erasing, db, scope, forgotten.get(scope.id, set())))
    for mark, *_, hidden in db.rows(_SQL["hold"], {"mark": None}):
        if hidden:
            erasing.hide(db, mark)
    for one in erased:
        values = {"mark": one.mark, "by": one.by, "at": to_micros(one.at), "receipt": one.receipt}
        db.run(_SQL["add_erased"], values)
        # A copy that was made halfway through it would go on with it, and with it has the name.
        db.run(_SQL["drop_erasing"], (one.receipt,))
    if erased:
        # Whoever comes back begins to write after it.
        db.run("select tick(%s)", (max(to_micros(one.at) + 1 for one in erased),))
    db.run(_FORGET["sweep_later"])
    return total


def tombstones(erasing: PostgresErasing, db: Db) -> list[tuple[str, str]]:
    """By the scope's own id, though a hold may hide it. Its items are then given to nobody who would put them back, so
    that words which were told anew in it are left out."""
    own: dict[str, str] = {}
    standing = set[tuple[str, str]]()
    for id_, *names in _hidden(db):
        own[id_], work = Scope(*names).id, erasing._work(db, Scope(*names))
        standing |= {(id_, work.digest("text", text).hex()) for _, text in db.rows(_SQL["texts"], (id_,))}
    found = [row for row in db.rows(_SQL["all_tombstones"]) if row not in standing]
    return [(own.get(id_, id_.replace("-", "")), hash_) for id_, hash_ in found]


def _hidden(db: Db) -> list[Row]:
    return [row[:4] for row in db.rows(_SQL["named"]) if row[4] == HIDDEN]


def _show(erasing: PostgresErasing, db: Db) -> None:
    """What a hold hides, until the end of this: every scope is then found by its own id."""
    for id_, *names in _hidden(db):
        erasing._move(db, id_, Scope(*names).id, 0)


def _forgotten(erasing: PostgresErasing, db: Db, scope: Scope, hashes: set[str]) -> dict[str, int]:
    """Items in the words of a tombstone, and the tombstones themselves."""
    if not hashes:
        return {}
    work, gone = erasing.begun_work(db, scope), 0
    for id_, text in db.rows(_SQL["texts"], (scope.id,)):
        if work.digest("text", text).hex() in hashes:
            outcome = forget(work, Forget(id_, keep_source=True))
            gone += (1 + len(outcome.others)) * (outcome.status == "forgotten")
    db.run(_SQL["entomb"], (scope.id, [bytes.fromhex(one) for one in hashes], work.micros))
    if work.changed:
        db.rows(_QUERIES["end_write"], (work.owner,))
    return {"item": gone}
