"""Rows of the database as values of the core, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict
from engrain.core.model.items import Citation, Item, Relation, Source
from engrain.core.model.plans import Applied, Outcome
from engrain.stores.sqlite.engine import Connection, Row
from engrain.stores.sqlite.sql import load

_SQL = load("queries.sql")


def items_of(db: Connection, rows: Sequence[Row]) -> list[Item]:
    """Items from rows that hold sql.ITEM, with their sources."""
    if not rows:
        return []
    sources = sources_of(db, [row[0] for row in rows])
    return [_item(row, sources.get(row[0], ())) for row in rows]


def sources_of(db: Connection, numbers: Sequence[int]) -> dict[int, tuple[Source, ...]]:
    wanted = (as_json(numbers),)
    cites: dict[tuple[int, int], list[Citation]] = {}
    for item, number, cited, start, end in db.rows(_SQL["cites_of"], wanted):
        cites.setdefault((item, number), []).append(Citation(cited, start, end))
    sources: dict[int, tuple[Source, ...]] = {}
    for item, number, kind, name in db.rows(_SQL["sources_of"], wanted):
        source = Source(name, kind, tuple(cites.get((item, number), ())))
        sources[item] = (*sources.get(item, ()), source)
    return sources


def _item(row: Row, sources: tuple[Source, ...]) -> Item:
    (
        _, id_, kind, text, importance, recorded, begins, ends, occurred, slot, metadata, trust, session, place,
        speaker, role, subject, relation, object_, pinned, replaced_by, retracted, expires, count, accessed,
    ) = row  # fmt: skip
    return Item(
        id=id_,
        kind=kind,
        text=text,
        importance=importance,
        recorded_at=from_micros(recorded),
        valid_from=from_micros(begins),
        valid_to=moment(ends),
        occurred_at=moment(occurred),
        slot=slot,
        metadata={} if metadata == "{}" else json.loads(metadata),
        sources=sources,
        trust=trust,
        session=session,
        place=place,
        speaker=speaker,
        role=role,
        relation=None if subject is None else Relation(subject, relation, object_),
        pinned=bool(pinned),
        replaced_by=replaced_by,
        retracted_at=moment(retracted),
        expires_at=moment(expires),
        access_count=count,
        last_accessed=moment(accessed),
    )


def moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def micros_of(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)


def metadata_text(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":")) if metadata else "{}"


def as_json(values: Iterable[int | str]) -> str:
    """Many values as one: read back with json_each."""
    return json.dumps(list(values), ensure_ascii=False)


def answer_text(applied: Applied, asked: bytes) -> str:
    """Ids, words of our own, numbers and a keyed hash of what was asked: nothing that a user wrote."""
    outcomes = [[one.id, one.status, one.others, one.marked, one.place] for one in applied.outcomes]
    return json.dumps([applied.seq, outcomes, asked.hex()])


def answer_of(text: str, asked: bytes | None) -> Applied:
    seq, outcomes, first = json.loads(text)
    if asked is not None and asked.hex() != first:
        raise Conflict("this request id was used for another write. Give this one an id of its own.")
    found = (
        Outcome(id_, status, tuple(others), tuple(marked), place) for id_, status, others, marked, place in outcomes
    )
    return Applied(tuple(found), seq, repeated=True)
