"""Everything that the reference store knows, as plain dictionaries of frozen values."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import NamedTuple

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import BeingErased, OnHold, StoreClosed
from engrain.core.identity import IdSource, Scope, SortableIds, hash_keyed
from engrain.core.model.audit import AuditEntry, AuditHead
from engrain.core.model.erasure import ErasedSubject, Erasure, Hold, find_owner, make_hold_error
from engrain.core.model.items import Item, Words
from engrain.core.model.plans import Applied
from engrain.core.model.tasks import StepRecord, TaskRecord
from engrain.ports import Episode, RawOutput, Summary, Trial

Session = tuple[Scope, str]
Task = tuple[Scope, str]

ERASING, HIDDEN = 1, 2
# What is kept by scope.
KEYED = (
    "requests", "numbers", "written", "summaries", "marks", "episodes", "raws", "trials", "tasks", "steps", "events",
)  # fmt: skip
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stored:
    """An item with what is computed from its text."""

    scope: Scope
    item: Item
    hash: str
    words: Words
    traits: int = 0
    vectors: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)


class Changed(NamedTuple):
    seq: int
    scope: Scope
    id: str
    gone: bool


@dataclass(slots=True)
class State:
    items: dict[str, Stored] = field(default_factory=dict)
    changes: dict[str, Changed] = field(default_factory=dict)  # by item: its latest
    requests: dict[tuple[Scope, str], tuple[str, Applied]] = field(default_factory=dict)
    tombstones: set[tuple[Scope, str]] = field(default_factory=set)
    graves: set[tuple[str, str]] = field(default_factory=set)  # of those who were erased: scopes as keyed hashes
    settled: dict[str, int] = field(default_factory=dict)  # by target of the outbox
    numbers: dict[Session, int] = field(default_factory=dict)  # the next place
    written: dict[Session, int] = field(default_factory=dict)  # the change that last added to it
    summaries: dict[Session, Summary] = field(default_factory=dict)
    marks: dict[tuple[Scope, str, str], int] = field(default_factory=dict)  # by work: how far it has come
    episodes: dict[tuple[Scope, str], Episode] = field(default_factory=dict)
    raws: dict[tuple[Scope, str], RawOutput] = field(default_factory=dict)
    trials: dict[tuple[Scope, str, str], Trial] = field(default_factory=dict)  # by item and task
    tasks: dict[Task, TaskRecord] = field(default_factory=dict)
    steps: dict[tuple[Scope, str, str, int], StepRecord] = field(default_factory=dict)
    events: dict[tuple[Scope, str, str], str] = field(default_factory=dict)
    shut: dict[Scope, int] = field(default_factory=dict)  # being erased, or hidden by a hold
    holds: dict[str, Hold] = field(default_factory=dict)
    erasing: dict[str, Erasure] = field(default_factory=dict)
    erased: dict[str, ErasedSubject] = field(default_factory=dict)
    audit: list[AuditEntry] = field(default_factory=list)
    head: AuditHead = field(default_factory=AuditHead)
    seq: int = 0
    newest: datetime = _BEGINNING  # the newest time that was recorded

    def copy(self) -> State:
        return State(**{one.name: copy(getattr(self, one.name)) for one in fields(self)})

    def open(self) -> State:
        """As readers see it: without the scopes that are shut."""
        if not self.shut:
            return self
        shown = self.copy()
        shown.items = {id: one for id, one in self.items.items() if one.scope not in self.shut}
        for name in KEYED:
            kept = {key: value for key, value in getattr(self, name).items() if key[0] not in self.shut}
            setattr(shown, name, kept)
        return shown

    def refuse(self, scope: Scope) -> None:
        """Another agent's memory of the same user may be shut, and this one with it."""
        same = [how for one, how in self.shut.items() if (one.tenant, one.user) == (scope.tenant, scope.user)]
        if ERASING in same:
            raise BeingErased("this user's memory is being erased. Write again when that is done.")
        if same and scope.user is not None:
            raise OnHold("this user's memory is under a legal hold and is to be erased: nothing is written.")

    def scopes(self) -> dict[Scope, None]:
        """Of whom there is anything."""
        keyed = (key[0] for name in KEYED for key in getattr(self, name))
        return dict.fromkeys([*(one.scope for one in self.items.values()), *keyed])

    def within(self, scope: Scope) -> list[Stored]:
        """The items of a scope, oldest first."""
        return sorted((one for one in self.items.values() if one.scope == scope), key=lambda one: one.item.id)

    def known(self, scope: Scope, id: str) -> Stored | None:
        stored = self.items.get(id)
        return stored if stored and stored.scope == scope else None


def held(state: State, key: bytes, scope: Scope) -> bool:
    user = find_owner(scope)
    return user is not None and hash_keyed(key, *user.parts()) in state.holds


def check_held(state: State, key: bytes, scope: Scope) -> None:
    user = find_owner(scope)
    if user and held(state, key, scope):
        raise make_hold_error(user, state.holds[hash_keyed(key, *user.parts())].reasons)


class Holder:
    """One lock, one state. A write works on a copy that takes the state's place only if nothing fails."""

    def __init__(self, clock: Clock = system_clock, ids: IdSource | None = None) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._ids: IdSource = ids or SortableIds()
        self._key = os.urandom(32)
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
            yield state.open()

    @contextmanager
    def writing(self) -> Iterator[State]:
        with self.whole() as state:
            fresh = state.copy()
            yield fresh
            self._state = fresh

    def now(self, at: datetime | None = None) -> datetime:
        return at or max(self._clock(), self._state.newest)
