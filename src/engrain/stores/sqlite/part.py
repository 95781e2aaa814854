"""Take a session or a source out of one scope, and put right what remains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from engrain.core.erasure import By, Subject
from engrain.core.scope import Scope
from engrain.core.taking import Origin, Part, Taking, taking
from engrain.stores.sqlite import pieces
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.forget import remove
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import Work

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")


def find(db: Connection, scope: int, subject: Subject) -> Taking:
    cites: dict[tuple[str, int], list[str]] = {}
    for id_, number, cited in db.rows(_SQL["cites"], (scope,)):
        cites.setdefault((id_, number), []).append(cited)
    origins: dict[str, list[Origin]] = {}
    for id_, number, kind, name in db.rows(_SQL["origins"], (scope,)):
        origins.setdefault(id_, []).append(Origin(number, kind, name, tuple(cites.get((id_, number), ()))))
    parts = (
        Part(id_, kind, session, place, slot, tuple(origins.get(id_, ())), replaced, ends, bool(retracted))
        for _, id_, kind, session, place, slot, replaced, ends, retracted in db.rows(_SQL["parts"], (scope,))
    )
    return taking(subject, parts)


def take_part(work: Work, subject: Subject) -> tuple[dict[str, int], list[str]]:
    """How many rows of what went, and the ids of the items."""
    db, scope = work.db, work.scope_n
    found = find(db, scope, subject)
    episodes = count_episodes(db, scope, subject)  # an item takes its own along
    known = {id_: n for n, id_, *_ in db.rows(_SQL["parts"], (scope,))}
    remove(work, [known[id_] for id_ in found.gone], {known[id_] for id_ in found.entombed})
    for id_, numbers in found.stripped.items():
        for number in numbers:
            db.run(_SQL["strip_cites"], (known[id_], number))
            db.run(_SQL["strip"], (known[id_], number))
        db.run(_SQL["trust"], (found.trust[id_], work.mark(), known[id_]))
    for one in found.restored:
        db.run(_SQL["restore"], (one.valid_to, one.replaced_by, work.mark(), known[one.id]))
    for id_, by in found.pointed.items():
        db.run(_QUERIES["point_item"], (by, known[id_]))
    for session, place in found.back.items():
        db.run(_SQL["back"], {"scope": scope, "session": session, "place": place})
    counts = {"item": len(found.gone), "source": len(found.stripped), "request": _drop_requests(work, set(found.gone))}
    if subject.by == "session":
        counts |= {**pieces.drop_session(db, scope, subject.name), "episode": episodes}
    return counts, list(found.gone)


def count_episodes(db: Connection, scope: int, subject: Subject) -> int:
    if subject.by != "session":
        return 0
    return int(db.rows("select count(*) from episode where scope = ? and session = ?", (scope, subject.name))[0][0])


def _drop_requests(work: Work, gone: set[str]) -> int:
    """Requests that were answered with what is gone."""
    dropped = 0
    for id_, answer in work.db.rows(_SQL["requests"], (work.scope_n,)):
        if any(one in gone for one in _ids(json.loads(answer))):
            dropped += work.db.run(_SQL["drop_request"], (work.scope_n, id_))
    return dropped


def _ids(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [id_ for one in value for id_ in _ids(one)] if isinstance(value, list) else []


def subjects(db: Connection, scope: Scope, number: int, by: By) -> Iterator[Subject]:
    """Every session, source or item that there is in a scope."""
    statement = {"session": "sessions", "source": "names", "id": "items"}[by]
    for row in db.rows(_SQL[statement], (number,)):
        yield Subject(scope, by, row[1] if by == "id" else row[0])


def add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, count in more.items():
        total[kind] = total.get(kind, 0) + count
