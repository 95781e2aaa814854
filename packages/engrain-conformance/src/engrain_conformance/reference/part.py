"""Find a session or a source in one scope, and what else of it goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.rules.removal import (
    NO_TOOL_DERIVED,
    ItemLineage,
    MessageRow,
    RemovalPlan,
    SourceLineage,
    find_tool_derived,
    plan_removal,
)
from engrain_conformance.reference.state import State


def find(state: State, subject: Subject) -> RemovalPlan:
    items = [one.item for one in state.within(subject.scope)]
    said = sorted((one for one in items if one.kind == "message" and one.session), key=_order)
    lines = (_line(one, subject.name) for one in said)
    return plan_removal(
        subject,
        map(_part, items),
        find_tool_derived(subject.name, lines) if subject.by == "source" else NO_TOOL_DERIVED,
    )


def _order(item: Any) -> tuple[Any, ...]:
    return item.session, item.place or 0, item.id


def _line(item: Any, name: str) -> MessageRow:
    named = any(source.name == name for source in item.sources)
    return MessageRow(item.id, item.session, item.role, item.text, item.metadata, named)


def _part(item: Any) -> ItemLineage:
    origins = tuple(
        SourceLineage(number, source.kind, source.name, tuple(cite.item for cite in source.cites))
        for number, source in enumerate(item.sources)
    )
    retracted = item.retracted_at is not None
    place = (item.session, item.place, item.slot)
    return ItemLineage(item.id, item.kind, *place, origins, item.replaced_by, item.valid_to, retracted)


def counted(state: State, subject: Subject, found: RemovalPlan) -> dict[str, int]:
    requests = answered(state, found.gone)
    counts = {"item": len(found.gone), "source": len(found.lost_sources), "request": len(requests)}
    if subject.by == "session":
        key = (subject.scope, subject.name)
        counts["episode"] = len(episodes_of(state, subject))
        counts["summary"] = int(key in state.summaries)
        counts["progress"] = sum(one[:2] == key for one in state.marks)
        counts["session"] = int(key in state.numbers or key in state.written)
    return counts


def answered(state: State, gone: Sequence[str]) -> list[tuple[Scope, str]]:
    """The requests that were answered with one of these items."""
    return [asked for asked, (_, answer) in state.requests.items() if _answers(answer.outcomes, gone)]


def _answers(outcomes: Iterable[Any], gone: Sequence[str]) -> bool:
    return any(id in gone for one in outcomes for id in (one.id, *one.others, *one.marked))


def episodes_of(state: State, subject: Subject) -> list[tuple[Scope, str]]:
    mine = [(key, one.session) for key, one in state.episodes.items() if key[0] == subject.scope]
    return [key for key, session in mine if subject.by == "session" and session == subject.name]


def drop_session(state: State, subject: Subject) -> None:
    for key in episodes_of(state, subject):
        del state.episodes[key]
        state.raws.pop(key, None)
    for name in ("numbers", "written", "summaries", "marks"):
        kept = {key: one for key, one in getattr(state, name).items() if key[:2] != (subject.scope, subject.name)}
        setattr(state, name, kept)
