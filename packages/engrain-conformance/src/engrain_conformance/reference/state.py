"""The state of the reference store: plain dictionaries of frozen values, one lock, and the audit log."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from engrain.core.clock import Clock, system_clock, to_micros
from engrain.core.errors import StoreClosed
from engrain.core.identity import IdSource, Scope, SortableIds, hash_keyed
from engrain.core.model.audit import AuditEntry, AuditHead, AuditResult, find_end, make_entry, seal_head, verify_log
from engrain.core.model.erasure import (
    ErasedSubject,
    Erasure,
    Hold,
    find_owner,
    first_summary_version,
    hash_session_subjects,
    make_blocked_error,
    make_hold_error,
)
from engrain.core.model.items import Item, Words
from engrain.core.model.plans import Applied
from engrain.core.model.procedures import Trial
from engrain.core.model.queries import Summary
from engrain.core.model.records import Record, RecordKey
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.model.tasks import StepRecord, TaskRecord
from engrain.core.rules.tombstone_hashes import hash_tombstone

Session = tuple[Scope, str]
Task = tuple[Scope, str]

ERASING, HIDDEN = 1, 2
# The fields whose keys begin with a scope.
SCOPED_FIELDS = (
    "requests", "answered", "lengths", "last_writes", "summaries", "progress", "episodes", "raw_outputs", "trials",
    "tasks", "steps", "events", "records",
)  # fmt: skip
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """An item with the values computed from its text."""

    scope: Scope
    item: Item
    hash: str
    words: Words
    traits: int = 0
    vectors: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)


class StoredRecord(NamedTuple):
    record: Record
    rank: int  # the change that wrote it


class ChangeRow(NamedTuple):
    seq: int
    scope: Scope
    id: str
    deleted: bool


@dataclass(slots=True)
class State:
    items: dict[str, StoredRow] = field(default_factory=dict)
    changes: dict[str, ChangeRow] = field(default_factory=dict)  # by item: its latest
    requests: dict[tuple[Scope, str], tuple[str, Applied]] = field(default_factory=dict)
    answered: dict[tuple[Scope, str], datetime] = field(default_factory=dict)  # when each request was
    tombstones: set[tuple[Scope, str]] = field(default_factory=set)
    erased_tombstones: set[tuple[str, str]] = field(default_factory=set)  # of erased users: scopes as keyed hashes
    settled: dict[str, int] = field(default_factory=dict)  # by target of the outbox
    lengths: dict[Session, int] = field(default_factory=dict)  # the next place
    last_writes: dict[Session, int] = field(default_factory=dict)  # the change that last added to it
    summaries: dict[Session, Summary] = field(default_factory=dict)
    progress: dict[tuple[Scope, str, str], int] = field(default_factory=dict)  # by work: how far it has come
    episodes: dict[tuple[Scope, str], Episode] = field(default_factory=dict)
    raw_outputs: dict[tuple[Scope, str], RawOutput] = field(default_factory=dict)
    trials: dict[tuple[Scope, str, str], Trial] = field(default_factory=dict)  # by item and task
    tasks: dict[Task, TaskRecord] = field(default_factory=dict)
    steps: dict[tuple[Scope, str, str, int], StepRecord] = field(default_factory=dict)
    events: dict[tuple[Scope, str, str], str] = field(default_factory=dict)
    records: dict[tuple[Scope, str, RecordKey], StoredRecord] = field(default_factory=dict)  # by space and key
    blocked: dict[Scope, int] = field(default_factory=dict)  # being erased, or hidden by a hold
    holds: dict[str, Hold] = field(default_factory=dict)
    erasing: dict[str, Erasure] = field(default_factory=dict)
    erased: dict[str, ErasedSubject] = field(default_factory=dict)
    audit: list[AuditEntry] = field(default_factory=list)
    head: AuditHead = field(default_factory=AuditHead)
    key: bytes = field(default_factory=lambda: os.urandom(32))  # of the keyed hashes
    seq: int = 0
    newest: datetime = _BEGINNING  # the newest time that was recorded

    def copy(self) -> State:
        return State(**{field.name: copy(getattr(self, field.name)) for field in fields(self)})

    def hide_blocked(self) -> State:
        """The state without the blocked scopes, as readers see it."""
        if not self.blocked:
            return self
        shown = self.copy()
        shown.items = {id: item for id, item in self.items.items() if item.scope not in self.blocked}
        for name in SCOPED_FIELDS:
            kept = {key: value for key, value in getattr(self, name).items() if key[0] not in self.blocked}
            setattr(shown, name, kept)
        return shown

    def check_writable(self, scope: Scope) -> None:
        """Raise if any memory of this user is blocked, whatever its agent."""
        same = [how for one, how in self.blocked.items() if (one.tenant, one.user) == (scope.tenant, scope.user)]
        if ERASING in same:
            raise make_blocked_error(hidden=False)
        if same and scope.user is not None:
            raise make_blocked_error(hidden=True)

    def scopes(self) -> dict[Scope, None]:
        """The scopes that have any data."""
        keyed = (key[0] for name in SCOPED_FIELDS for key in getattr(self, name))
        return dict.fromkeys([*(item.scope for item in self.items.values()), *keyed])

    def list_items(self, scope: Scope) -> list[StoredRow]:
        """The items of a scope, oldest first."""
        return sorted((item for item in self.items.values() if item.scope == scope), key=lambda item: item.item.id)

    def find_item(self, scope: Scope, id: str) -> StoredRow | None:
        stored = self.items.get(id)
        return stored if stored and stored.scope == scope else None


def is_held(state: State, scope: Scope) -> bool:
    user = find_owner(scope)
    return user is not None and user.hash(state.key) in state.holds


def check_not_held(state: State, scope: Scope) -> None:
    user = find_owner(scope)
    if user and is_held(state, scope):
        raise make_hold_error(user, state.holds[user.hash(state.key)].reasons)


class StateHolder:
    """One lock and one state. A write changes a copy, which replaces the state only if nothing fails."""

    def __init__(self, clock: Clock = system_clock, ids: IdSource | None = None) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self.ids: IdSource = ids or SortableIds()
        self.holder = self
        self._state = State()
        self._closed = False

    @contextmanager
    def whole(self) -> Iterator[State]:
        with self._lock:
            if self._closed:
                raise StoreClosed("this store was closed. Open it again.")
            yield self._state

    @contextmanager
    def reading(self) -> Iterator[State]:
        with self.whole() as state:
            yield state.hide_blocked()

    @contextmanager
    def writing(self) -> Iterator[State]:
        with self.whole() as state:
            changed = state.copy()
            yield changed
            self._state = changed

    def now(self, at: datetime | None = None) -> datetime:
        return at or max(self._clock(), self._state.newest)


class StateView:
    """A port that the store offers as an attribute, such as `store.episodes`."""

    def __init__(self, holder: StateHolder) -> None:
        self.holder = holder


Args = ParamSpec("Args")
Answer = TypeVar("Answer")
Method = Callable[Concatenate[Any, State, Args], Answer]


def reads(method: Method[Args, Answer]) -> Callable[Concatenate[Any, Args], Answer]:
    """Pass the method the state without blocked scopes."""
    return _locked(method, lambda holder: holder.reading())


def reads_all(method: Method[Args, Answer]) -> Callable[Concatenate[Any, Args], Answer]:
    """Pass the method the whole state."""
    return _locked(method, lambda holder: holder.whole())


def writes(method: Method[Args, Answer]) -> Callable[Concatenate[Any, Args], Answer]:
    """Pass the method a copy of the state, which is kept if the method succeeds."""
    return _locked(method, lambda holder: holder.writing())


def _locked(
    method: Method[Args, Answer], enter: Callable[[StateHolder], AbstractContextManager[State]]
) -> Callable[Concatenate[Any, Args], Answer]:
    @wraps(method)
    def call(self: Any, /, *args: Args.args, **kwargs: Args.kwargs) -> Answer:
        with enter(self.holder) as state:
            return method(self, state, *args, **kwargs)

    return call


class ReferenceAudit(StateView):
    @writes
    def append(self, state: State, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        return record_audit(state, self.holder.now(), what, details, subject)

    @reads_all
    def entries(self, state: State, after: int, limit: int) -> list[AuditEntry]:
        return [entry for entry in state.audit if entry.n > after][:limit]

    @reads_all
    def verify(self, state: State) -> AuditResult:
        return verify_log(state.key, state.audit, state.head, bool(state.erased or state.holds))


def record_audit(
    state: State, now: datetime, what: str, details: Mapping[str, Any], subject: str | None = None
) -> AuditEntry:
    last = max((entry.n for entry in state.audit), default=0)
    entry = make_entry(state.key, find_end(state.key, state.head, last), now, what, subject, details)
    state.audit.append(entry)
    state.head = seal_head(state.key, entry.n, entry.hash)
    return entry


class WriteContext:
    """One plan in its transaction: what every step needs to know and to count."""

    def __init__(self, state: State, scope: Scope, now: datetime, ids: IdSource) -> None:
        self.state, self.scope, self.now, self.ids = state, scope, now, ids
        self.outcome_ids: dict[str, str | None] = {}  # the items of the earlier steps, by refer_to_step(number)

    def update(self, id: str, **values: Any) -> None:
        stored = self.state.items[id]
        self.state.items[id] = replace(stored, item=replace(stored.item, **values))
        self.mark_changed(id)

    def mark_changed(self, id: str, gone: bool = False) -> None:
        self.state.seq += 1
        self.state.newest = self.now
        self.state.changes[id] = ChangeRow(self.state.seq, self.scope, id, gone)

    def add_tombstone(self, text: str) -> None:
        self.state.tombstones.add((self.scope, hash_tombstone(self.state.key, text)))

    def is_tombstoned(self, text: str) -> bool:
        hash, hidden = hash_tombstone(self.state.key, text), hash_keyed(self.state.key, "scope", self.scope.id)
        return (self.scope, hash) in self.state.tombstones or (hidden, hash) in self.state.erased_tombstones


def get_summary(state: State, scope: Scope, session: str) -> Summary:
    """The summary; of version 0 if there never was one, after an erasure of a version that was never used."""
    marks = hash_session_subjects(state.key, scope, session)
    known: list[ErasedSubject | Erasure] = [*state.erased.values(), *state.erasing.values()]
    at = max((to_micros(erased.at) for erased in known if erased.subject_hash in marks), default=0)
    return state.summaries.get((scope, session), Summary("", 0, first_summary_version(at)))
