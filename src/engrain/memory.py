"""Memory: the one entry object, and the verbs as a program sees them."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engrain.core.clock import Clock, Time, system_clock
from engrain.core.errors import EmptyText, InvalidInput, StoreClosed
from engrain.core.items import Item, Place, Relation, Source
from engrain.core.journal import StepEnd
from engrain.core.notes import Note
from engrain.core.plans import Change, Outcome
from engrain.core.recalled import Recall, RecallRequest
from engrain.core.scope import Scope
from engrain.core.tokens import CountTokens, estimated_tokens
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.answers import Forgotten, Status, Why
    from engrain.core.journal import StepRecord, TaskRecord, TaskStatus
    from engrain.engine import Engine
    from engrain.ports import Embedder, Finding
    from engrain.tasks.care import Settled, Timeline
    from engrain.tasks.run import Run
    from engrain.tiers.semantic import SemanticMemory

Filter = Mapping[str, Any]


class Memory:
    """A memory that stays, for one (tenant, agent, user).

        with Memory("agent.db", user="ana") as memory:
            memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
            print(memory.recall("Which language should the example use?"))

    `store` is a path (the file is made on first use), a URL, or the path of a .toml file. `reads` are scopes of other
    memories in the same store that `recall` may look into; nothing is ever written there. Safe to use from several
    threads and, on one file, from several processes.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        reads: Sequence[Scope] = (),
        embedder: Embedder | str | None = None,
        clock: Clock = system_clock,
        count_tokens: CountTokens = estimated_tokens,
        read_only: bool = False,
        background: bool = True,
    ) -> None:
        # Imported here, so that `import engrain` stays light: numpy and the store's engine come with the first memory.
        from engrain.wiring import Engine, open_kit

        scope = _scope(tenant, agent, user)
        shared = tuple(one for one in _read(reads) if one != scope)
        kit = open_kit(store, embedder=embedder, clock=clock, count_tokens=count_tokens, read_only=read_only)
        try:
            self._engine: Engine | None = Engine(kit, scope, shared, background and not read_only)
        except BaseException:
            kit.items.close()
            raise

    @property
    def scope(self) -> Scope:
        return self._open.scope

    @property
    def semantic(self) -> SemanticMemory:
        return self._open.semantic

    # Knowledge

    @traced
    def remember(
        self,
        text: str,
        *,
        importance: float = 0.5,
        slot: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | Source | None = None,
        occurred_at: Time | None = None,
        place: Place | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a text word for word, and return its id. When this returns, the text is on disk and can be found.

        `slot` names a place for one value ("user.city"): a newer value closes the older one. `place` puts the text into
        a session as a turn. Repeating a text returns the id it has; repeating a `request_id` gives the first answer
        and changes nothing.
        """
        note = Note(text, importance, slot, metadata, source, occurred_at, place)
        return self._open.remember(note, request_id)

    @traced
    def remember_many(
        self,
        notes: Iterable[str | Note | Mapping[str, Any]],
        *,
        request_id: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> builtins.list[Outcome]:
        """Keep many texts, in transactions of a few hundred; `progress` hears how many each of them wrote.

        All notes are checked before the first is written. With a `request_id` a call that was cut off can be repeated.
        """
        return self._open.remember_many(notes, request_id, progress)

    @traced
    def recall(
        self,
        query: str,
        *,
        n: int = 5,
        budget: int | None = None,
        as_of: Time | None = None,
        min_relevance: float | None = None,
        where: Filter | None = None,
        min_importance: float = 0.0,
    ) -> Recall:
        """Look through every kind of memory. `str()` of the answer is the block for the prompt.

        `budget` bounds its tokens. `as_of` asks what held at that time (of a date: at its end). With no `min_relevance`
        the embedder's own calibrated floor applies, 0 turns it off: the answer may be empty, and `left_out` says what
        was cut and why.
        """
        request = RecallRequest(
            query=query,
            n=n,
            budget=budget,
            at=as_of,  # type: ignore[arg-type]  # the engine proves it
            min_relevance=min_relevance,
            where=where,  # type: ignore[arg-type]
            min_importance=min_importance,
        )
        return self._open.recall(request)

    @traced
    def slot(self, name: str, *, as_of: Time | None = None) -> Item | None:
        """The item that holds this slot, now or at a time."""
        return self._open.slot(name, as_of)

    @traced
    def slots(self, prefix: str = "", *, as_of: Time | None = None) -> builtins.list[Item]:
        """Every filled slot whose name starts with the prefix, by name."""
        return self._open.slots(prefix, as_of)

    @traced
    def relate(
        self,
        subject: str,
        relation: str,
        object: str,
        *,
        importance: float = 0.5,
        metadata: Mapping[str, Any] | None = None,
        source: str | Source | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a relation between two entities: relate("Ana", "works at", "Acme")."""
        note = Note("", importance, metadata=metadata, source=source)
        return self._open.relate(Relation(subject, relation, object), note, request_id)

    @traced
    def about(self, entity: str, *, as_of: Time | None = None) -> builtins.list[Item]:
        """The relations that an entity is part of, newest first."""
        return self._open.about(entity, as_of)

    # One item or many

    @traced
    def get(self, id: str) -> Item | None:
        return self._open.get(id)

    @traced
    def list(
        self,
        where: Filter | None = None,
        *,
        as_of: Time | None = None,
        history: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> builtins.list[Item]:
        """Items that match a filter, newest first: list({"kind": "fact", "importance": {">=": 0.5}}).

        `history` shows replaced and corrected versions as well. For the next page pass the last id as `after`.
        """
        from engrain.ports import ListQuery

        view = ListQuery(self.scope, None, as_of, history, limit, after)  # type: ignore[arg-type]
        return self._open.list(where, view)

    @traced
    def correct(self, id: str, text: str, *, source: str | Source | None = None, request_id: str | None = None) -> str:
        """It was never so: replace the text; returns the new version's id. If it changed, `remember` the new value."""
        return self._open.correct(id, Note(text, source=source), request_id)

    @traced
    def forget(self, what: str | Filter, *, keep_source: bool = False, request_id: str | None = None) -> Forgotten:
        """Remove an item, or all that match a filter, with everything derived from it, from every file of the store.

        What it cites in the log is cut out as well; `keep_source` leaves the log as it is.
        """
        return self._open.forget(what, keep_source, request_id)

    @traced
    def pin(self, id: str, pinned: bool = True, *, request_id: str | None = None) -> None:
        """Keep an item from ever being consolidated away."""
        self._open.change(Change(id, pinned=pinned), request_id)

    @traced
    def update_importance(self, id: str, importance: float, *, request_id: str | None = None) -> None:
        """Set how much an item matters, from 0 to 1."""
        self._open.change(Change(id, importance=importance), request_id)

    @traced
    def why(self, id: str) -> Why:
        """Where an item came from, what it rests on, what it led to, how far it is trusted. `print` it."""
        return self._open.why(id)

    # Durable tasks

    def task(
        self,
        id: str,
        *,
        goal: str = "",
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        max_age: timedelta | float | None = None,
    ) -> Run:
        """A task whose steps never run twice: with memory.task("order-42", goal="ship it") as run: …

        Entering claims it for this worker and replays its journal; TaskClaimed says who else runs it. `version` is that
        of your code, `accepts` the older ones whose tasks it may continue. The lease is `lease` seconds without a sign
        of life. After `max_age` (seconds) an unfinished task becomes "expired". docs/tasks.md has the promises.
        """
        from engrain.tasks.course import Terms
        from engrain.tasks.run import Run

        return Run(self._open.tasks.course(Terms(id, goal, version, accepts, lease, max_age)))

    @traced
    def tasks(self, *, status: TaskStatus | Sequence[TaskStatus] = (), limit: int = 100) -> builtins.list[TaskRecord]:
        """The tasks of this memory, newest first; tasks(status="parked") are those that need somebody."""
        return self._open.tasks.listed(status, limit)

    @traced
    def timeline(self, task: str) -> Timeline:
        """A task and its steps, in the order they began."""
        return self._open.tasks.timeline(task)

    @traced
    def resolve(
        self,
        task: str,
        step: str,
        outcome: Settled,
        *,
        occurrence: int = 0,
        result: Any = None,
        note: str = "",
    ) -> StepRecord:
        """Settle an ambiguous effect by your word: it is "done" (with this result), or it "failed" to happen and is to
        be done again, or it is "skipped". The word is recorded; the task goes on when it is next started."""
        return self._open.tasks.resolve(task, StepEnd(step, occurrence, outcome, error=note), result)

    @traced
    def signal(self, task: str, event: str, payload: Any = None) -> bool:
        """Deliver an event to a task, which need not have begun; False if it has one of that name already."""
        return self._open.tasks.signal(task, event, payload)

    @traced
    def park(self, task: str, why: str = "") -> TaskRecord:
        """Stop a task; whoever runs it is fenced off. It goes on when it is next started."""
        return self._open.tasks.overrule(task, "parked", why)

    @traced
    def resume(self, task: str) -> TaskRecord:
        """Let a parked task go on: `recover` picks it up."""
        return self._open.tasks.resume(task)

    @traced
    def cancel(self, task: str, why: str = "") -> TaskRecord:
        """End a task for good; whoever runs it is fenced off."""
        return self._open.tasks.overrule(task, "cancelled", why)

    def recover(
        self,
        work: Callable[[Any], Any],
        *,
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        limit: int = 100,
    ) -> builtins.list[TaskRecord]:
        """Continue what a dead worker left and what has waited long enough: work(run) for each, and how each ended."""
        from engrain.tasks.flow import drive
        from engrain.tasks.run import checked_function

        checked_function(work)

        def one(task: str) -> None:
            with self.task(task, version=version, accepts=accepts, lease=lease) as run:
                work(run)

        return drive(self._open.tasks.recover((version, *accepts), limit, one))

    @traced
    def prune_tasks(self, older_than: timedelta | float = timedelta(days=7)) -> int:
        """Remove tasks that ended so long ago, with their steps; never one that has not ended."""
        return self._open.tasks.prune(older_than)

    @traced
    def checkpoint(self, id: str, state: Any, *, done: bool = False) -> None:
        """Keep plain JSON under a task's name, in place of what was kept before. `done` ends it: kept for 7 days."""
        self._open.tasks.checkpoint(id, state, done)

    @traced
    def restore(self, id: str) -> Any:
        """What `checkpoint` or `run.keep` stored last; None if nothing. Whoever restores takes over from others."""
        return self._open.tasks.restore(id)

    # The memory itself

    @traced
    def status(self) -> Status:
        return self._open.status()

    @traced
    def check(self) -> builtins.list[Finding]:
        """Look at the store and the embedder themselves: what `engrain doctor` prints."""
        return self._open.check()

    @traced
    def rebuild(self, progress: Callable[[int], None] | None = None) -> int:
        """Make every index anew from the stored texts; the number of items seen."""
        return self._open.rebuild(progress or (lambda _: None))

    def close(self) -> None:
        """Write what is buffered and let go of the file. A second call does nothing."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _open(self) -> Engine:
        if self._engine is None:
            raise StoreClosed("this memory was closed. Open it again: Memory(…).")
        return self._engine


def _scope(tenant: str | None, agent: str | None, user: str | None) -> Scope:
    for name, value in (("tenant", tenant), ("agent", agent), ("user", user)):
        # Nearly always a variable that was not set: all its users would share one memory.
        if value == "":
            raise EmptyText(f"{name} is empty. Leave it out for a memory that has none.")
    return Scope(tenant, agent, user)


def _read(reads: object) -> tuple[Scope, ...]:
    if isinstance(reads, (list, tuple)) and all(isinstance(one, Scope) for one in reads):
        return tuple(dict.fromkeys(reads))
    raise InvalidInput(f"reads takes a list of Scopes, such as [Scope(agent='team')], not {reads!r}.")
