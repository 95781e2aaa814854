"""AsyncStore and AsyncMemory: the same verbs, awaited; one thread hop per verb, in one bounded pool per store."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import InvalidInput, StoreClosed
from engrain.core.identity import Scope
from engrain.core.model.items import SourceKind
from engrain.core.model.tasks import TaskRecord
from engrain.core.validation import check_key
from engrain.memory.memory import Memory, checked_reads, checked_scope
from engrain.memory.sessions import Session
from engrain.memory.store import Store
from engrain.tasks.driver import run_flow_async
from engrain.tasks.execution import TaskOptions
from engrain.tasks.run import AsyncRun, check_callable
from engrain.tiers.sessions import new_session

if TYPE_CHECKING:
    from engrain.ports import Embedder, Model

P = ParamSpec("P")
R = TypeVar("R")
Sync = TypeVar("Sync")
Opened = TypeVar("Opened", covariant=True)

THREADS = 8


class _Hops(Protocol[Opened]):
    """An awaited face of something that works on threads."""

    async def hop(self, call: Callable[[Opened], R]) -> R: ...


def _awaited(
    verb: Callable[Concatenate[Sync, P], R],
) -> Callable[Concatenate[_Hops[Sync], P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def call(self: _Hops[Sync], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.hop(lambda opened: verb(opened, *args, **kwargs))

    return cast("Callable[Concatenate[_Hops[Sync], P], Coroutine[Any, Any, R]]", call)


class AsyncStore:
    """Store for asyncio: same arguments, same verbs, same answers. The database is opened by the first verb.

        async with AsyncStore("agent.db") as store:
            await store.memory(user="ana").remember("Ana prefers Python over JavaScript.")

    A cancelled verb may still happen: its thread is not stopped half way. Give writes a `request_id` to repeat them.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        embedder: Embedder | str | None = None,
        model: Model | str | None = None,
        key: str | None = None,
        clock: Clock = system_clock,
        read_only: bool = False,
        background: bool = True,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._make = functools.partial(
            Store,
            location,
            embedder=embedder,
            model=model,
            key=key,
            clock=clock,
            read_only=read_only,
            background=background,
            settings=settings,
        )
        self._store: Store | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="engrain-async")

    def memory(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        reads: Sequence[Scope] = (),
    ) -> AsyncMemory:
        """A view of one scope: no thread, no file, nothing to close."""
        return AsyncMemory(self, user=user, agent=agent, tenant=tenant, reads=reads)

    memories = _awaited(Store.memories)
    status = _awaited(Store.status)
    maintain = _awaited(Store.maintain)
    backup = _awaited(Store.backup)
    doctor = _awaited(Store.doctor)
    rebuild = _awaited(Store.rebuild)
    copy = _awaited(Store.copy)
    erase = _awaited(Store.erase)
    undo = _awaited(Store.undo)
    resume_erasures = _awaited(Store.resume_erasures)
    verify_erasure = _awaited(Store.verify_erasure)
    hold = _awaited(Store.hold)
    release = _awaited(Store.release)
    holds = _awaited(Store.holds)
    audit = _awaited(Store.audit)
    verify_audit = _awaited(Store.verify_audit)

    async def hop(self, call: Callable[[Store], R]) -> R:
        """Call a function with the opened store on a thread of the pool."""
        if self._closed:
            raise StoreClosed("this store was closed. Open it again: AsyncStore(…), or AsyncMemory(…).")
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(self.opened()))

    def opened(self) -> Store:
        """The store itself, opened now if it is not yet: for a thread of the pool."""
        with self._opening:
            if self._store is None:
                self._store = self._make()
            return self._store

    async def close(self) -> None:
        """Wait for the running verbs, write what is buffered and close the files."""
        self._closed = True
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._pool.shutdown(wait=True)
        if self._store is not None:
            self._store.close()

    async def __aenter__(self) -> Self:
        await self.hop(lambda _: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AwaitedPart:
    """A part whose verbs are awaited: await memory.procedural.get("deploy"). A value there is a verb here: await
    memory.working.summary()."""

    def __init__(self, memory: AsyncMemory, part: Callable[[Memory], Any]) -> None:
        self._memory = memory
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(opened: Memory, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            found = getattr(self._part(opened), name)
            return found(*args, **named) if callable(found) else found

        async def awaited(*args: Any, **named: Any) -> Any:
            return await self._memory.hop(lambda opened: call(opened, args, named))

        return awaited


class AsyncTasks(AwaitedPart):
    """The durable tasks of a memory, awaited."""

    async def recover(
        self,
        work: Callable[[Any], Any],
        *,
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        limit: int = 100,
    ) -> list[TaskRecord]:
        """As Tasks.recover; `work` may be a coroutine function."""
        check_callable(work)
        memory = self._memory

        async def run_one(task: str) -> None:
            async with memory.task(task, version=version, accepts=accepts, lease=lease) as run:
                found = work(run)
                if inspect.isawaitable(found):
                    await found

        tasks = await memory.hop(lambda opened: opened.tasks)
        return await run_flow_async(tasks.recover_flow((version, *accepts), limit, run_one), memory.run_in_thread)


class AsyncSession(AwaitedPart):
    """A session whose verbs are awaited; so is what it starts with: await session.start()."""

    def __init__(self, memory: AsyncMemory, id: str) -> None:
        self.id = id
        self._session: Session | None = None
        super().__init__(memory, self._opened)

    @property
    def conversation(self) -> AwaitedPart:
        """The messages of this session."""
        return AwaitedPart(self._memory, lambda opened: self._opened(opened).conversation)

    def _opened(self, memory: Memory) -> Session:
        if self._session is None:
            self._session = memory.session(self.id)
        return self._session

    def __repr__(self) -> str:
        return f"AsyncSession({self.id!r})"


class AsyncMemory:
    """Memory for asyncio: same arguments, same verbs, same answers. The store is opened by the first verb.

        async with AsyncMemory("agent.db", user="ana") as memory:
            await memory.remember("Ana prefers Python over JavaScript.")

    With an AsyncStore as its location it is a view of that. A cancelled verb may still happen: its thread is not
    stopped half way. Give writes a `request_id` to repeat them.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | AsyncStore | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        reads: Sequence[Scope] = (),
        embedder: Embedder | str | None = None,
        model: Model | str | None = None,
        clock: Clock = system_clock,
        background: bool = True,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._scope = checked_scope(tenant, agent, user)
        self._reads = checked_reads(reads)
        self._owns = not isinstance(location, AsyncStore)
        if isinstance(location, AsyncStore):
            self._store = location
        else:
            self._store = AsyncStore(
                location, embedder=embedder, model=model, clock=clock, background=background, settings=settings
            )
        self._view: Memory | None = None
        self._lock = threading.Lock()

    remember = _awaited(Memory.remember)
    remember_many = _awaited(Memory.remember_many)
    recall = _awaited(Memory.recall)
    prompt = _awaited(Memory.prompt)
    get = _awaited(Memory.get)
    list = _awaited(Memory.list)
    update = _awaited(Memory.update)
    correct = _awaited(Memory.correct)
    forget = _awaited(Memory.forget)
    explain = _awaited(Memory.explain)
    start_session = _awaited(Memory.start_session)
    add_message = _awaited(Memory.add_message)
    add_messages = _awaited(Memory.add_messages)
    end_session = _awaited(Memory.end_session)
    export = _awaited(Memory.export)
    load = _awaited(Memory.load)
    erase = _awaited(Memory.erase)

    def session(self, id: str | None = None) -> AsyncSession:
        """A session, new or continued; its verbs are awaited."""
        return AsyncSession(self, new_session(system_clock()) if id is None else check_key(id, "session"))

    def task(
        self,
        id: str,
        *,
        goal: str = "",
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        max_age: timedelta | float | None = None,
        procedure: str | None = None,
        working: bool = True,
    ) -> AsyncRun:
        """As Memory.task: async with memory.task("order-42") as run: …"""
        options = TaskOptions(id, goal, version, accepts, lease, max_age)
        # The store is opened when the run is entered, on a thread of the pool.
        return AsyncRun(lambda: self.opened().tasks.execution(options, procedure, working), self.run_in_thread)

    def mirror(
        self,
        folder: str | os.PathLike[str],
        *,
        max_lines: int = 200,
        max_bytes: int = 25_000,
        by: SourceKind = "user",
    ) -> AwaitedPart:
        """As Memory.mirror; its verbs are awaited: await memory.mirror("notes").sync()."""
        made = functools.cache(lambda: self.opened().mirror(folder, max_lines=max_lines, max_bytes=max_bytes, by=by))
        return AwaitedPart(self, lambda _: made())

    @property
    def slots(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.slots)

    @property
    def relations(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.relations)

    @property
    def working(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.working)

    @property
    def conversation(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.conversation)

    @property
    def episodic(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.episodic)

    @property
    def semantic(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.semantic)

    @property
    def procedural(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.procedural)

    @property
    def sessions(self) -> AwaitedPart:
        return AwaitedPart(self, lambda opened: opened.sessions)

    @property
    def tasks(self) -> AsyncTasks:
        return AsyncTasks(self, lambda opened: opened.tasks)

    @property
    def scope(self) -> Scope:
        return self._scope

    @property
    def reads(self) -> tuple[Scope, ...]:
        return tuple(one for one in self._reads if one != self._scope)

    @property
    def current_session(self) -> str | None:
        return None if self._view is None else self._view.current_session

    @property
    def store(self) -> AsyncStore:
        """The store that this memory opens, with the operator's verbs. A view of somebody else's store has none."""
        if not self._owns:
            raise InvalidInput("this memory is a view: the operator's verbs are on the AsyncStore that made it.")
        return self._store

    async def hop(self, call: Callable[[Memory], R]) -> R:
        """Call a function with the opened memory on a thread of the store's pool."""
        return await self._store.hop(lambda _: call(self.opened()))

    async def run_in_thread(self, call: Callable[[], R]) -> R:
        """Call a function on a thread of the store's pool."""
        return await self._store.hop(lambda _: call())

    def opened(self) -> Memory:
        """The view itself, for a thread of the pool: the store is opened now if it is not yet."""
        store = self._store.opened()
        with self._lock:
            if self._view is None:
                scope = self._scope
                self._view = store.memory(user=scope.user, agent=scope.agent, tenant=scope.tenant, reads=self._reads)
            return self._view

    async def close(self) -> None:
        """Close the store that this memory opened. A view of somebody else's store has nothing to close."""
        if self._owns:
            await self._store.close()

    async def __aenter__(self) -> Self:
        await self.hop(lambda _: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
