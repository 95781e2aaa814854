"""Map rows of the database to values of the core, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ContextDecorator
from datetime import datetime
from typing import Any, get_args

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict, EngrainError, StoreCorrupt
from engrain.core.model.erasure import ErasedSubject, Hold, read_reasons
from engrain.core.model.items import Citation, Item, Relation, Source, SourceKind
from engrain.core.model.plans import Applied, Outcome
from engrain.core.model.sessions import Episode

Row = tuple[Any, ...]
_UNREADABLE = (ValueError, TypeError, OverflowError, LookupError, AttributeError, RecursionError)

# The columns that read_item takes, in its order. A dialect adds the sources as JSON: see read_sources.
ITEM_COLUMNS = """item.n, item.id, item.kind, item.text, item.importance, item.recorded_at, item.valid_from,
  item.valid_to, item.occurred_at, item.slot, item.metadata, item.trust, item.session, item.place, item.speaker,
  item.role, item.subject, item.relation, item.object, item.pinned, item.replaced_by, item.retracted_at,
  item.expires_at, item.access_count, item.last_accessed"""
ITEM_WIDTH = 26
# The columns that read_episode takes, in its order.
EPISODE_COLUMNS = """episode.id, episode.session, episode.kind, episode.text, episode.importance, episode.happened_at,
  episode.expires_at, episode.count, episode.data,
  (select item.id from item where item.scope = episode.scope and item.n = episode.item), episode.key"""
# The columns that tasks.read_task takes, in its order, from task, scope and snapshot.
TASK_COLUMNS = """scope.tenant, scope.agent, scope."user", task.task, task.goal, task.version, task.status, task.epoch,
  task.worker, task.lease_until, task.started_at, task.ended_at, task.outcome, task.deadline, snapshot.body"""
TASK_WIDTH = 15
# The columns that tasks.read_step takes, in its order, from step and large_result.
STEP_COLUMNS = """step.name, step.occurrence, step.kind, step.status, step.attempt, step.epoch, step.input, step.key,
  step.version, step.started_at, step.ended_at, coalesce(step.result, large_result.body), step.error"""
# The columns that records read, in their order.
RECORD_COLUMNS = "record.key, record.body, record.at, record.expires_at"
# Most items have one source without a name or a citation: a fifth of the time of reading such an item is its JSON.
_PLAIN = {f'[["{kind}",null,[]]]': (Source(None, kind),) for kind in get_args(SourceKind)}


class _Decoding(ContextDecorator):
    """Raises StoreCorrupt for a value that engrain never writes: a forged row may have the checksum that fits."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _UNREADABLE) and not isinstance(error, EngrainError):
            raise StoreCorrupt(
                f"a row holds a value that engrain does not write ({type(error).__name__}). Run: engrain doctor. "
                "Restore a backup."
            ) from error


decoding = _Decoding()


@decoding
def read_item(row: Row) -> Item:
    (
        _, id_, kind, text, importance, recorded, begins, ends, occurred, slot, metadata, trust, session, place,
        speaker, role, subject, relation, object_, pinned, replaced_by, retracted, expires, count, accessed, sources,
    ) = row  # fmt: skip
    return Item(
        id=id_, kind=kind, text=text, importance=importance, recorded_at=from_micros(recorded),
        valid_from=from_micros(begins), valid_to=read_time(ends), occurred_at=read_time(occurred), slot=slot,
        metadata=read_metadata(metadata), sources=read_sources(sources), trust=trust, session=session, place=place,
        speaker=speaker, role=role, relation=read_relation(subject, relation, object_),
        pinned=bool(pinned), replaced_by=replaced_by, retracted_at=read_time(retracted),
        expires_at=read_time(expires), access_count=count, last_accessed=read_time(accessed),
    )  # fmt: skip


def read_relation(subject: Any, relation: Any, object_: Any) -> Relation | None:
    if subject is None:
        return None
    if relation is None or object_ is None:
        raise ValueError("a relation without its name or its object")
    return Relation(subject, relation, object_)


def read_sources(found: Any) -> tuple[Source, ...]:
    """Read [[kind, name, [[cited, start, end], …]], …], as JSON text or as a driver has parsed it."""
    if isinstance(found, str) and found in _PLAIN:
        return _PLAIN[found]
    parsed: Sequence[Any] = json.loads(found) if isinstance(found, str) else found or ()
    return tuple(Source(name, kind, tuple(Citation(*cite) for cite in cites or ())) for kind, name, cites in parsed)


def read_metadata(text: str) -> dict[str, Any]:
    return {} if text == "{}" else dict(json.loads(text))


def write_metadata(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":")) if metadata else "{}"


def read_time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def write_time(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)


@decoding
def read_receipt(row: Row) -> ErasedSubject:
    subject_hash, kind, at, receipt = row
    return ErasedSubject(subject_hash, kind, from_micros(at), receipt)


@decoding
def read_hold(row: Row) -> Hold:
    subject_hash, at, reasons, hidden = row
    return Hold(subject_hash, from_micros(at), read_reasons(reasons), bool(hidden))


def write_answer(applied: Applied, asked: bytes) -> str:
    """Encode ids, statuses, numbers and a keyed hash of the request: no text of a user."""
    outcomes = [
        [outcome.id, outcome.status, outcome.others, outcome.marked, outcome.place] for outcome in applied.outcomes
    ]
    return json.dumps([applied.seq, outcomes, asked.hex(), applied.value])


@decoding
def read_answer(text: str, asked: bytes | None) -> Applied:
    """Raise Conflict if `asked` is given and the request id was first used for another write."""
    seq, outcomes, first, value = json.loads(text)
    if asked is not None and asked.hex() != first:
        raise Conflict("this request id was used for another write. Give this one an id of its own.")
    found = (
        Outcome(id_, status, tuple(others), tuple(marked), place) for id_, status, others, marked, place in outcomes
    )
    return Applied(tuple(found), seq, repeated=True, value=value)


def write_episode(episode: Episode, item: int | None) -> dict[str, Any]:
    names = ("id", "session", "kind", "text", "importance", "count", "key")
    return {
        **{name: getattr(episode, name) for name in names},
        "item": item,
        "happened_at": to_micros(episode.happened_at),
        "expires_at": write_time(episode.expires_at),
        "data": write_metadata(episode.data),
    }


@decoding
def read_episode(row: Row) -> Episode:
    id_, session, kind, text, importance, happened, expires, count, data, item, key = row
    return Episode(
        id_, session, kind, text, importance, from_micros(happened), read_time(expires), count, read_metadata(data),
        item, key,
    )  # fmt: skip
