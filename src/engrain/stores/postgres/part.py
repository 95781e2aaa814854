"""Take a session or a source out of one scope, and put right what remains."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

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
from engrain.stores.postgres.forget import remove
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work

_SQL, _QUERIES = load("erasing.sql"), load("queries.sql")
_OF_SESSION = ("episode", "progress", "summary", "session")


def find(db: Db, subject: Subject) -> RemovalPlan:
    scope = subject.scope.id
    cites: dict[tuple[str, int], list[str]] = {}
    for id_, number, cited in db.rows(_SQL["cites"], (scope,)):
        cites.setdefault((id_, number), []).append(cited)
    origins: dict[str, list[SourceLineage]] = {}
    for id_, number, kind, name in db.rows(_SQL["origins"], (scope,)):
        origins.setdefault(id_, []).append(SourceLineage(number, kind, name, tuple(cites.get((id_, number), ()))))
    parts = (
        ItemLineage(id_, kind, session, place, slot, tuple(origins.get(id_, ())), replaced, ends, retracted)
        for _, id_, kind, session, place, slot, replaced, ends, retracted, _ in db.rows(_SQL["parts"], (scope,))
    )
    return plan_removal(subject, parts, _brought(db, subject))


def _brought(db: Db, subject: Subject) -> ToolDerived:
    if subject.by != "source":
        return NO_TOOL_DERIVED
    values = {"scope": subject.scope.id, "name": subject.name, "argument": escape_argument(subject.name)}
    lines = (
        MessageRow(id_, session, role, text, json.loads(kept), named)
        for id_, session, role, text, kept, named in db.rows(_SQL["talks"], values)
    )
    return find_tool_derived(subject.name, lines)


def take_part(work: Work, subject: Subject) -> tuple[dict[str, int], list[str]]:
    """How many rows of what went, and the ids of the items."""
    db, scope = work.db, work.owner
    found = find(db, subject)
    counts = counted(db, subject, found)  # before: an item takes its own episodes along
    known = {row[1]: row for row in db.rows(_SQL["parts"], (scope,))}
    closure = [(known[id_][0], id_, known[id_][9], *known[id_][3:5]) for id_ in found.gone]
    remove(work, closure, {known[id_][0] for id_ in found.tombstoned})
    for id_, numbers in found.lost_sources.items():
        for number in numbers:
            db.run(_SQL["strip_cites"], (scope, known[id_][0], number))
            db.run(_SQL["strip"], (scope, known[id_][0], number))
        work.change(_SQL["trust"], (found.trust[id_], scope, known[id_][0]))
    for one in found.restored:
        values = {"scope": scope, "ends": one.valid_to, "by": one.replaced_by, "n": known[one.id][0]}
        work.change(_SQL["restore"], values)
    for id_, by in found.repointed.items():
        db.run(_QUERIES["point_item"], (by, scope, id_))
    for session, place in found.reprocess_from.items():
        db.run(_SQL["back"], {"scope": scope, "session": session, "place": place})
    drop_requests(db, scope, found.gone)
    if subject.by == "session":
        for table in _OF_SESSION:
            db.run(f"delete from {table} where scope = %s and session = %s", (scope, subject.name))
    return counts, list(found.gone)


def counted(db: Db, subject: Subject, found: RemovalPlan) -> dict[str, int]:
    """The rows of each kind that go, as long as they are there."""
    scope = subject.scope.id
    requests = answered(db, scope, found.gone)
    counts = {"item": len(found.gone), "source": len(found.lost_sources), "request": len(requests)}
    if subject.by == "session":
        sql = "select count(*) from {} where scope = %s and session = %s"
        counts |= {table: db.rows(sql.format(table), (scope, subject.name))[0][0] for table in _OF_SESSION}
    return counts


def subjects(db: Db, scope: Scope, by: SubjectKind) -> Iterator[Subject]:
    """Every session, source or item that there is in a scope; a source may be known only by a call of a tool."""
    statement = {"session": "sessions", "source": "names", "id": "item_ids"}[by]
    values = {"scope": scope.id}
    for row in db.rows(_SQL[statement], values):
        yield Subject(scope, by, row[0])
    if by == "source":
        calls = (call for text, kept in db.rows(_SQL["calls"], values) for call in read_calls(text, json.loads(kept)))
        yield from (Subject(scope, by, name) for name in {one for call in calls for one in find_addresses(call)})


def answered(db: Db, scope: str, ids: Collection[str]) -> list[str]:
    """The requests that were answered with one of these items."""
    gone = set(ids)
    rows = db.rows(_SQL["requests"], (scope,)) if gone else []
    return [id_ for id_, answer in rows if not gone.isdisjoint(_ids(json.loads(answer)))]


def drop_requests(db: Db, scope: str, ids: Collection[str]) -> int:
    """How many were answered with one of these items."""
    dropped = answered(db, scope, ids)
    for id_ in dropped:
        db.run(_SQL["drop_request"], (scope, id_))
    return len(dropped)


def _ids(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [id_ for one in value for id_ in _ids(one)] if isinstance(value, list) else []
