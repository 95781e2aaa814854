"""Take a session or a source out of one scope, and put right what remains."""

from __future__ import annotations

import json
from collections.abc import Iterator

from engrain.core.erasure import By, Subject
from engrain.core.scope import Scope
from engrain.core.taking import Origin, Part, Taking, taking
from engrain.stores.postgres.forget import remove
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")


def find(db: Db, subject: Subject) -> Taking:
    scope = subject.scope.id
    cites: dict[tuple[str, int], list[str]] = {}
    for id_, number, cited in db.rows(_SQL["cites"], (scope,)):
        cites.setdefault((id_, number), []).append(cited)
    origins: dict[str, list[Origin]] = {}
    for id_, number, kind, name in db.rows(_SQL["origins"], (scope,)):
        origins.setdefault(id_, []).append(Origin(number, kind, name, tuple(cites.get((id_, number), ()))))
    parts = (
        Part(id_, kind, session, place, slot, tuple(origins.get(id_, ())), replaced, ends, retracted)
        for _, id_, kind, session, place, slot, replaced, ends, retracted, _ in db.rows(_SQL["parts"], (scope,))
    )
    return taking(subject, parts)


def take_part(work: Work, subject: Subject) -> tuple[dict[str, int], list[str]]:
    """How many rows of what went, and the ids of the items."""
    db, scope = work.db, work.owner
    found = find(db, subject)
    episodes = count_episodes(db, subject)  # an item takes its own along
    known = {row[1]: row for row in db.rows(_SQL["parts"], (scope,))}
    closure = [(known[id_][0], id_, known[id_][9], *known[id_][3:5]) for id_ in found.gone]
    remove(work, closure, {known[id_][0] for id_ in found.entombed})
    for id_, numbers in found.stripped.items():
        for number in numbers:
            db.run(_SQL["strip_cites"], (known[id_][0], number))
            db.run(_SQL["strip"], (known[id_][0], number))
        work.change(_SQL["trust"], (found.trust[id_], known[id_][0]))
    for one in found.restored:
        work.change(_SQL["restore"], {"ends": one.valid_to, "by": one.replaced_by, "n": known[one.id][0]})
    for id_, by in found.pointed.items():
        db.run(_QUERIES["point_item"], (by, scope, id_))
    for session, place in found.back.items():
        db.run(_SQL["back"], {"scope": scope, "session": session, "place": place})
    counts = {"item": len(found.gone), "source": len(found.stripped), "request": _drop_requests(work, set(found.gone))}
    if subject.by == "session":
        for table in ("episode", "progress", "session"):
            sql = (
                "with gone as (delete from {} where scope = %s and session = %s returning 1) select count(*) from gone"
            )
            ((counts[table],),) = db.rows(sql.format(table), (scope, subject.name))
        counts["episode"] = episodes
    return counts, list(found.gone)


def count_episodes(db: Db, subject: Subject) -> int:
    if subject.by != "session":
        return 0
    sql = "select count(*) from episode where scope = %s and session = %s"
    return int(db.rows(sql, (subject.scope.id, subject.name))[0][0])


def subjects(db: Db, scope: Scope, by: By) -> Iterator[Subject]:
    """Every session, source or item that there is in a scope."""
    statement = {"session": "sessions", "source": "names", "id": "item_ids"}[by]
    for row in db.rows(_SQL[statement], {"scope": scope.id}):
        yield Subject(scope, by, row[0])


def _drop_requests(work: Work, gone: set[str]) -> int:
    """Requests that were answered with what is gone."""
    answered = work.db.rows(_SQL["requests"], (work.owner,))
    dropped = [id_ for id_, answer in answered if any(one in gone for one in _ids(json.loads(answer)))]
    for id_ in dropped:
        work.db.run(_SQL["drop_request"], (work.owner, id_))
    return len(dropped)


def _ids(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [id_ for one in value for id_ in _ids(one)] if isinstance(value, list) else []
