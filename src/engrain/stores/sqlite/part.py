"""Take a session or a source out of one scope, and put right what remains."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject, SubjectKind
from engrain.core.model.messages import read_calls
from engrain.core.rules.removal import (
    NO_TOOL_DERIVED,
    ItemLineage,
    MessageRow,
    RemovalPlan,
    SourceLineage,
    ToolDerived,
    escape_argument,
    find_addresses,
    find_tool_derived,
    plan_removal,
)
from engrain.stores.sqlite import pieces
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.forget import remove
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import Work

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")


def find(db: Connection, scope: int, subject: Subject) -> RemovalPlan:
    cites: dict[tuple[str, int], list[str]] = {}
    for id_, number, cited in db.rows(_SQL["cites"], (scope,)):
        cites.setdefault((id_, number), []).append(cited)
    origins: dict[str, list[SourceLineage]] = {}
    for id_, number, kind, name in db.rows(_SQL["origins"], (scope,)):
        origins.setdefault(id_, []).append(SourceLineage(number, kind, name, tuple(cites.get((id_, number), ()))))
    parts = (
        ItemLineage(id_, kind, session, place, slot, tuple(origins.get(id_, ())), replaced, ends, bool(retracted))
        for _, id_, kind, session, place, slot, replaced, ends, retracted in db.rows(_SQL["parts"], (scope,))
    )
    return plan_removal(subject, parts, _brought(db, scope, subject))


def _brought(db: Connection, scope: int, subject: Subject) -> ToolDerived:
    if subject.by != "source":
        return NO_TOOL_DERIVED
    values = {"scope": scope, "name": subject.name, "argument": escape_argument(subject.name)}
    lines = (
        MessageRow(id_, session, role, text, json.loads(kept), bool(named))
        for id_, session, role, text, kept, named in db.rows(_SQL["talks"], values)
    )
    return find_tool_derived(subject.name, lines)


def take_part(work: Work, subject: Subject) -> tuple[dict[str, int], list[str]]:
    """How many rows of what went, and the ids of the items."""
    db, scope = work.db, work.scope_n
    found = find(db, scope, subject)
    counts = counted(db, scope, subject, found)  # before: an item takes its own episodes along
    known = {id_: n for n, id_, *_ in db.rows(_SQL["parts"], (scope,))}
    remove(work, [known[id_] for id_ in found.gone], {known[id_] for id_ in found.tombstoned})
    for id_, numbers in found.lost_sources.items():
        for number in numbers:
            db.run(_SQL["strip_cites"], (scope, known[id_], number))
            db.run(_SQL["strip"], (scope, known[id_], number))
        db.run(_SQL["trust"], (found.trust[id_], work.mark(), known[id_]))
    for one in found.restored:
        db.run(_SQL["restore"], (one.valid_to, one.replaced_by, work.mark(), known[one.id]))
    for id_, by in found.repointed.items():
        db.run(_QUERIES["point_item"], (by, known[id_]))
    for session, place in found.reprocess_from.items():
        db.run(_SQL["back"], {"scope": scope, "session": session, "place": place})
    drop_requests(db, scope, found.gone)
    if subject.by == "session":
        pieces.drop_session(db, scope, subject.name)
    return counts, list(found.gone)


def counted(db: Connection, scope: int, subject: Subject, found: RemovalPlan) -> dict[str, int]:
    """The rows of each kind that go, as long as they are there."""
    requests = answered(db, scope, found.gone)
    counts = {"item": len(found.gone), "source": len(found.lost_sources), "request": len(requests)}
    return counts | (pieces.count_session(db, scope, subject.name) if subject.by == "session" else {})


def answered(db: Connection, scope: int, ids: Collection[str]) -> list[str]:
    """The requests that were answered with one of these items."""
    gone = set(ids)
    rows = db.rows(_SQL["requests"], (scope,)) if gone else []
    return [id_ for id_, answer in rows if not gone.isdisjoint(_ids(json.loads(answer)))]


def drop_requests(db: Connection, scope: int, ids: Collection[str]) -> int:
    """How many were answered with one of these items."""
    dropped = answered(db, scope, ids)
    db.many(_SQL["drop_request"], [(scope, id_) for id_ in dropped])
    return len(dropped)


def _ids(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [id_ for one in value for id_ in _ids(one)] if isinstance(value, list) else []


def subjects(db: Connection, scope: Scope, number: int, by: SubjectKind) -> Iterator[Subject]:
    """Every session, source or item that there is in a scope; a source may be known only by a call of a tool."""
    statement = {"session": "sessions", "source": "names", "id": "items"}[by]
    for row in db.rows(_SQL[statement], (number,)):
        yield Subject(scope, by, row[1] if by == "id" else row[0])
    if by == "source":
        calls = (
            call for text, kept in db.rows(_SQL["calls"], (number,)) for call in read_calls(text, json.loads(kept))
        )
        yield from (Subject(scope, by, name) for name in {one for call in calls for one in find_addresses(call)})


def add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, count in more.items():
        total[kind] = total.get(kind, 0) + count
