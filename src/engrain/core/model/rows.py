"""Rows of a whole memory, in one form for every backend, to copy, export and restore it."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args

from engrain.core.clock import from_micros, to_micros
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, AuditHead
from engrain.core.model.erasure import ErasedSubject, Hold, read_reasons, write_reasons
from engrain.core.model.items import Citation, Item, Relation, Source
from engrain.core.model.plans import Applied, Outcome
from engrain.core.model.procedures import Trial
from engrain.core.model.queries import Summary
from engrain.core.model.records import Record, encode_key
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.model.tasks import StepRecord, TaskRecord

RowKind = Literal[
    "store", "item", "cites", "tombstone", "request", "session", "summary", "progress", "episode", "trial", "task",
    "step", "event", "record", "erased_tombstone", "erased", "hold", "audit",
]  # fmt: skip
# In the order of restoring: cited rows come before the rows that cite them.
ROW_KINDS: tuple[RowKind, ...] = get_args(RowKind)
# Rows of the store itself, without a scope.
STORE_KINDS: frozenset[RowKind] = frozenset({"store", "erased_tombstone", "erased", "hold", "audit"})
Key = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """`key` is unique for its kind and orders its rows by code point. `values` are plain JSON."""

    kind: RowKind
    key: Key
    values: Mapping[str, Any] = field(default_factory=dict)

    def __bytes__(self) -> bytes:
        """Return the same bytes for equal rows."""
        return json.dumps([self.kind, self.key, self.values], sort_keys=True, separators=(",", ":")).encode()

    @property
    def scope(self) -> Scope:
        return Scope(*self.values["scope"])


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item with its stored hash, traits and vectors. Its sources have no cites, which are rows of their own."""

    scope: Scope
    item: Item
    hash: str
    traits: int
    vectors: Mapping[str, tuple[bytes, ...]]  # by model


@dataclass(frozen=True, slots=True)
class ChangeToken:
    """The state of forgetting and erasing in some scopes. `mark` differs after every further forget or erasure."""

    scopes: tuple[Scope, ...]
    mark: str


def hash_rows(rows: Iterable[Row], known: Any = None) -> Any:
    """Hash rows in their order. `known` is the hash of the rows before them."""
    known = known or hashlib.blake2b(digest_size=16)
    for row in rows:
        raw = bytes(row)
        known.update(b"%d:" % len(raw) + raw)
    return known


def key_to_row(key: bytes) -> Row:
    """Return the row of the store's key. With the key, all keyed hashes are copied unchanged."""
    return Row("store", ("store",), {"key": key.hex()})


def item_to_row(stored: StoredItem) -> Row:
    values = _to_plain(stored.item)
    values["sources"] = [[source.kind, source.name] for source in stored.item.sources]
    values["relation"] = _to_plain(stored.item.relation) if stored.item.relation else None
    vectors = {model: [b64encode(row).decode() for row in rows] for model, rows in sorted(stored.vectors.items())}
    own = {"hash": stored.hash, "traits": stored.traits, "vectors": vectors, "scope": _scope_parts(stored.scope)}
    return Row("item", (stored.item.id,), {**values, **own})


def row_to_item(row: Row) -> StoredItem:
    values, vectors = dict(row.values), row_to_vectors(row)
    del values["vectors"]
    hash, traits, scope = values.pop("hash"), values.pop("traits"), Scope(*values.pop("scope"))
    values["sources"] = tuple(Source(name, kind) for kind, name in values["sources"])
    values["relation"] = Relation(**values["relation"]) if values["relation"] else None
    return StoredItem(scope, _build(Item, values), hash, traits, vectors)


def row_to_vectors(row: Row) -> dict[str, tuple[bytes, ...]]:
    """The vectors of an item's row, by model."""
    return {model: tuple(map(b64decode, rows)) for model, rows in row.values["vectors"].items()}


def cites_to_row(scope: Scope, item: str, cites: Iterable[tuple[int, Citation]]) -> Row:
    """`cites` are pairs of a source's number and what it cites."""
    listed = [[number, cite.item, cite.start, cite.end] for number, cite in cites]
    return Row("cites", (item,), {"scope": _scope_parts(scope), "cites": listed})


def row_to_cites(row: Row) -> list[tuple[int, Citation]]:
    return [(number, Citation(item, start, end)) for number, item, start, end in row.values["cites"]]


def tombstone_to_row(scope: Scope, hash: str) -> Row:
    return Row("tombstone", (scope.id, hash), {"scope": _scope_parts(scope)})


def request_to_row(scope: Scope, id: str, asked: str, answer: Applied) -> Row:
    outcomes = [
        [outcome.id, outcome.status, list(outcome.others), list(outcome.marked), outcome.place]
        for outcome in answer.outcomes
    ]
    values = {"scope": _scope_parts(scope), "asked": asked, "seq": answer.seq, "outcomes": outcomes}
    return Row("request", (scope.id, id), values if answer.value is None else {**values, "value": answer.value})


def row_to_request(row: Row) -> tuple[str, Applied]:
    """Return the hash of the request, and its first answer."""
    outcomes = (
        Outcome(id, status, tuple(others), tuple(marked), place)
        for id, status, others, marked, place in row.values["outcomes"]
    )
    return row.values["asked"], Applied(tuple(outcomes), row.values["seq"], value=row.values.get("value"))


def session_to_row(scope: Scope, session: str, length: int, rank: int) -> Row:
    """`rank` is the number of the change that last added to the session."""
    return Row("session", (scope.id, session), {"scope": _scope_parts(scope), "length": length, "rank": rank})


def summary_to_row(scope: Scope, session: str, summary: Summary) -> Row:
    return Row("summary", (scope.id, session), {"scope": _scope_parts(scope), **_to_plain(summary)})


def progress_to_row(scope: Scope, session: str, work: str, upto: int) -> Row:
    return Row("progress", (scope.id, session, work), {"scope": _scope_parts(scope), "upto": upto})


def episode_to_row(scope: Scope, episode: Episode, raw: RawOutput | None) -> Row:
    values = {"scope": _scope_parts(scope), **_to_plain(episode), "raw": _to_plain(raw) if raw else None}
    return Row("episode", (scope.id, episode.id), values)


def row_to_episode(row: Row) -> tuple[Episode, RawOutput | None]:
    values = _without_scope(row)
    raw = values.pop("raw")
    return _build(Episode, values), _build(RawOutput, raw) if raw else None


def trial_to_row(scope: Scope, trial: Trial) -> Row:
    return Row("trial", (scope.id, trial.procedure, trial.task), {"scope": _scope_parts(scope), **_to_plain(trial)})


def task_to_row(task: TaskRecord) -> Row:
    return Row("task", (task.scope.id, task.task), {**_to_plain(task), "scope": _scope_parts(task.scope)})


def row_to_task(row: Row) -> TaskRecord:
    return replace(_build(TaskRecord, {**row.values, "scope": None}), scope=row.scope)


def step_to_row(scope: Scope, task: str, number: int, step: StepRecord) -> Row:
    """`number` counts the steps of a task in the order in which they began."""
    return Row("step", (scope.id, task, f"{number:09d}"), {"scope": _scope_parts(scope), **_to_plain(step)})


def event_to_row(scope: Scope, task: str, event: str, payload: str) -> Row:
    return Row("event", (scope.id, task, event), {"scope": _scope_parts(scope), "payload": payload})


def record_to_row(scope: Scope, space: str, rank: int, record: Record) -> Row:
    """`rank` is the number of the change that wrote the record."""
    values = {"rank": rank, "written_at": to_micros(record.written_at), "body": b64encode(record.body).decode()}
    expires_at = None if record.expires_at is None else to_micros(record.expires_at)
    key = (scope.id, space, encode_key(record.key))
    return Row("record", key, {"scope": _scope_parts(scope), **values, "expires_at": expires_at})


def row_to_body(row: Row) -> bytes:
    return b64decode(row.values["body"])


def erased_tombstone_to_row(hidden_id: str, hash: str) -> Row:
    """Return the row of an erased user's tombstone. Only the keyed hash of the scope is known."""
    return Row("erased_tombstone", (hidden_id, hash))


def erased_to_row(erased: ErasedSubject) -> Row:
    return Row("erased", (erased.subject_hash,), _to_plain(erased))


def hold_to_row(hold: Hold) -> Row:
    values = {"subject_hash": hold.subject_hash, "at": to_micros(hold.at), "hidden": hold.hidden}
    return Row("hold", (hold.subject_hash,), {**values, "reason": write_reasons(hold.reasons)})


def row_to_hold(row: Row) -> Hold:
    values = row.values
    return Hold(values["subject_hash"], from_micros(values["at"]), read_reasons(values["reason"]), values["hidden"])


def audit_entry_to_row(entry: AuditEntry) -> Row:
    return Row("audit", (f"{entry.n:012d}",), _to_plain(entry))


def audit_head_to_row(head: AuditHead) -> Row:
    """Copy the sealed end of the log unchanged, so that a truncated log is detected in a copy too."""
    return Row("audit", ("head",), _to_plain(head))


def row_to_audit(row: Row) -> AuditEntry | AuditHead:
    return _build(AuditHead, row.values) if row.key == ("head",) else _build(AuditEntry, row.values)


def _scope_parts(scope: Scope) -> list[str | None]:
    return [scope.tenant, scope.agent, scope.user]


def _without_scope(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.values.items() if name != "scope"}


def _to_plain(value: Any) -> dict[str, Any]:
    """Return the fields as plain values, times as microseconds since 1970."""

    def plain(field_value: Any) -> Any:
        if isinstance(field_value, datetime):
            return to_micros(field_value)
        return dict(field_value) if isinstance(field_value, Mapping) else field_value

    return {attribute.name: plain(getattr(value, attribute.name)) for attribute in fields(value)}


def _build(kind: Callable[..., T], values: Mapping[str, Any]) -> T:
    times = _time_fields(kind)
    return kind(
        **{name: from_micros(value) if name in times and value is not None else value for name, value in values.items()}
    )


def _read_fields(kind: Callable[..., T]) -> Callable[[Row], T]:
    return lambda row: _build(kind, _without_scope(row))


row_to_summary = _read_fields(Summary)
row_to_trial = _read_fields(Trial)
row_to_step = _read_fields(StepRecord)
row_to_erased = _read_fields(ErasedSubject)


@cache
def _time_fields(kind: Callable[..., object]) -> frozenset[str]:
    return frozenset(attribute.name for attribute in fields(cast(Any, kind)) if "datetime" in str(attribute.type))
