"""The rows of a whole memory on their way from one store to another, the same from every backend."""

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
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.model.tasks import StepRecord, TaskRecord

RowKind = Literal[
    "store", "item", "cites", "tombstone", "request", "session", "summary", "progress", "episode", "trial", "task",
    "step", "event", "grave", "erased", "hold", "audit",
]  # fmt: skip
# In the order in which they can be restored: what cites comes after what is cited.
ROW_KINDS: tuple[RowKind, ...] = get_args(RowKind)
# Those that are the store's own, and of no scope.
STORE_KINDS: frozenset[RowKind] = frozenset({"store", "grave", "erased", "hold", "audit"})
Key = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """`key` is unique for its kind and orders its rows by code point. `values` are plain JSON."""

    kind: RowKind
    key: Key
    values: Mapping[str, Any] = field(default_factory=dict)

    def __bytes__(self) -> bytes:
        """The same for equal rows."""
        return json.dumps([self.kind, self.key, self.values], sort_keys=True, separators=(",", ":")).encode()

    @property
    def scope(self) -> Scope:
        return Scope(*self.values["scope"])


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item with what a store keeps of it besides; its sources without their cites, which are rows of their own."""

    scope: Scope
    item: Item
    hash: str
    traits: int
    vectors: Mapping[str, tuple[bytes, ...]]  # by model


@dataclass(frozen=True, slots=True)
class ChangeToken:
    """What had been forgotten and erased by the time that somebody looked; `mark` is another as soon as more is."""

    scopes: tuple[Scope, ...]
    mark: str


def hash_rows(rows: Iterable[Row], known: Any = None) -> Any:
    """Of rows in their order; with `known`, of what came before as well."""
    known = known or hashlib.blake2b(digest_size=16)
    for row in rows:
        raw = bytes(row)
        known.update(b"%d:" % len(raw) + raw)
    return known


def key_to_row(key: bytes) -> Row:
    """The key of every hash in the store: with it, hashes are moved as they are."""
    return Row("store", ("store",), {"key": key.hex()})


def item_to_row(kept: StoredItem) -> Row:
    values = _plain(kept.item)
    values["sources"] = [[source.kind, source.name] for source in kept.item.sources]
    values["relation"] = _plain(kept.item.relation) if kept.item.relation else None
    vectors = {model: [b64encode(row).decode() for row in rows] for model, rows in sorted(kept.vectors.items())}
    beside = {"hash": kept.hash, "traits": kept.traits, "vectors": vectors, "scope": _parts(kept.scope)}
    return Row("item", (kept.item.id,), {**values, **beside})


def row_to_item(row: Row) -> StoredItem:
    values = dict(row.values)
    vectors = {model: tuple(b64decode(one) for one in rows) for model, rows in values.pop("vectors").items()}
    hash, traits, scope = values.pop("hash"), values.pop("traits"), Scope(*values.pop("scope"))
    values["sources"] = tuple(Source(name, kind) for kind, name in values["sources"])
    values["relation"] = Relation(**values["relation"]) if values["relation"] else None
    return StoredItem(scope, _made(Item, values), hash, traits, vectors)


def cites_to_row(scope: Scope, item: str, cites: Iterable[tuple[int, Citation]]) -> Row:
    """By the number of the source that cites."""
    listed = [[number, cite.item, cite.start, cite.end] for number, cite in cites]
    return Row("cites", (item,), {"scope": _parts(scope), "cites": listed})


def row_to_cites(row: Row) -> list[tuple[int, Citation]]:
    return [(number, Citation(item, start, end)) for number, item, start, end in row.values["cites"]]


def tombstone_to_row(scope: Scope, hash: str) -> Row:
    return Row("tombstone", (scope.id, hash), {"scope": _parts(scope)})


def request_to_row(scope: Scope, id: str, asked: str, answer: Applied) -> Row:
    outcomes = [[one.id, one.status, list(one.others), list(one.marked), one.place] for one in answer.outcomes]
    values = {"scope": _parts(scope), "asked": asked, "seq": answer.seq, "outcomes": outcomes}
    return Row("request", (scope.id, id), values)


def row_to_request(row: Row) -> tuple[str, Applied]:
    """What was asked, as its hash, and the first answer."""
    outcomes = (
        Outcome(id, status, tuple(others), tuple(marked), place)
        for id, status, others, marked, place in row.values["outcomes"]
    )
    return row.values["asked"], Applied(tuple(outcomes), row.values["seq"])


def session_to_row(scope: Scope, session: str, length: int, rank: int) -> Row:
    """`rank` is the number of the change that last added to it."""
    return Row("session", (scope.id, session), {"scope": _parts(scope), "length": length, "rank": rank})


def summary_to_row(scope: Scope, session: str, summary: Summary) -> Row:
    return Row("summary", (scope.id, session), {"scope": _parts(scope), **_plain(summary)})


def row_to_summary(row: Row) -> Summary:
    return _made(Summary, _rest(row))


def progress_to_row(scope: Scope, session: str, work: str, upto: int) -> Row:
    return Row("progress", (scope.id, session, work), {"scope": _parts(scope), "upto": upto})


def episode_to_row(scope: Scope, episode: Episode, raw: RawOutput | None) -> Row:
    values = {"scope": _parts(scope), **_plain(episode), "raw": _plain(raw) if raw else None}
    return Row("episode", (scope.id, episode.id), values)


def row_to_episode(row: Row) -> tuple[Episode, RawOutput | None]:
    values = _rest(row)
    raw = values.pop("raw")
    return _made(Episode, values), _made(RawOutput, raw) if raw else None


def trial_to_row(scope: Scope, trial: Trial) -> Row:
    return Row("trial", (scope.id, trial.procedure, trial.task), {"scope": _parts(scope), **_plain(trial)})


def row_to_trial(row: Row) -> Trial:
    return _made(Trial, _rest(row))


def task_to_row(task: TaskRecord) -> Row:
    return Row("task", (task.scope.id, task.task), {**_plain(task), "scope": _parts(task.scope)})


def row_to_task(row: Row) -> TaskRecord:
    return replace(_made(TaskRecord, {**row.values, "scope": None}), scope=row.scope)


def step_to_row(scope: Scope, task: str, number: int, step: StepRecord) -> Row:
    """`number` counts the steps of a task in the order in which they first began."""
    return Row("step", (scope.id, task, f"{number:09d}"), {"scope": _parts(scope), **_plain(step)})


def row_to_step(row: Row) -> StepRecord:
    return _made(StepRecord, _rest(row))


def event_to_row(scope: Scope, task: str, event: str, payload: str) -> Row:
    return Row("event", (scope.id, task, event), {"scope": _parts(scope), "payload": payload})


def erased_tombstone_to_row(aside: str, hash: str) -> Row:
    """A tombstone of somebody who was erased: the scope is known by its keyed hash alone."""
    return Row("grave", (aside, hash))


def erased_to_row(erased: ErasedSubject) -> Row:
    return Row("erased", (erased.mark,), _plain(erased))


def row_to_erased(row: Row) -> ErasedSubject:
    return _made(ErasedSubject, row.values)


def hold_to_row(hold: Hold) -> Row:
    values = {"mark": hold.mark, "at": to_micros(hold.at), "reason": write_reasons(hold.reasons), "hidden": hold.hidden}
    return Row("hold", (hold.mark,), values)


def row_to_hold(row: Row) -> Hold:
    values = row.values
    return Hold(values["mark"], from_micros(values["at"]), read_reasons(values["reason"]), values["hidden"])


def audit_entry_to_row(entry: AuditEntry) -> Row:
    return Row("audit", (f"{entry.n:012d}",), _plain(entry))


def audit_head_to_row(head: AuditHead) -> Row:
    """The sealed end of the log comes along as it is, so that a cut end is found in a copy as well."""
    return Row("audit", ("head",), _plain(head))


def row_to_audit(row: Row) -> AuditEntry | AuditHead:
    return _made(AuditHead, row.values) if row.key == ("head",) else _made(AuditEntry, row.values)


def _parts(scope: Scope) -> list[str | None]:
    return [scope.tenant, scope.agent, scope.user]


def _rest(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.values.items() if name != "scope"}


def _plain(value: Any) -> dict[str, Any]:
    """The fields of a value, times as microseconds since 1970."""
    given = {one.name: getattr(value, one.name) for one in fields(value)}
    return {name: to_micros(one) if isinstance(one, datetime) else _unfrozen(one) for name, one in given.items()}


def _unfrozen(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _made(kind: Callable[..., T], values: Mapping[str, Any]) -> T:
    times = _times_of(kind)
    return kind(
        **{name: from_micros(one) if name in times and one is not None else one for name, one in values.items()}
    )


@cache
def _times_of(kind: Callable[..., object]) -> frozenset[str]:
    return frozenset(one.name for one in fields(cast(Any, kind)) if "datetime" in str(one.type))
