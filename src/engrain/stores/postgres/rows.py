"""Rows of the database as values of the core, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict
from engrain.core.model.items import Citation, Item, Relation, Source
from engrain.core.model.plans import Applied, Outcome

Row = tuple[Any, ...]


def item_of(row: Row) -> Item:
    """From the columns of sql.ITEM."""
    (
        _, id_, kind, text, importance, recorded, begins, ends, occurred, slot, metadata, trust, session, place,
        speaker, role, subject, relation, object_, pinned, replaced_by, retracted, expires, count, accessed, sources,
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
        sources=tuple(source_of(one) for one in sources or ()),
        trust=trust,
        session=session,
        place=place,
        speaker=speaker,
        role=role,
        relation=None if subject is None else Relation(subject, relation, object_),
        pinned=pinned,
        replaced_by=replaced_by,
        retracted_at=moment(retracted),
        expires_at=moment(expires),
        access_count=count,
        last_accessed=moment(accessed),
    )


def source_of(found: Sequence[Any]) -> Source:
    kind, name, cites = found
    return Source(name, kind, tuple(Citation(*cite) for cite in cites or ()))


def moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def micros_of(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)


def metadata_text(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":")) if metadata else "{}"


def filters_text(metadata: Mapping[str, Any]) -> str | None:
    """What filters look at: plain values and lists of them. A float is written out in full, so that it is compared with
    a whole number as Python does; jsonb keeps every digit."""
    if not metadata:
        return None
    return "{" + ",".join(f"{json.dumps(key)}:{_exact(value)}" for key, value in metadata.items()) + "}"


def _exact(value: object) -> str:
    if isinstance(value, float):
        return format(Decimal(value), "f")
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_exact, value)) + "]"
    return "{}" if isinstance(value, Mapping) else json.dumps(value)


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
