"""AsyncStore and AsyncMemory: the same verbs, awaited. Each runs on a thread of the store's pool."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import InvalidInput, StoreClosed
from engrain.core.identity import Scope, check_reads, check_scope
from engrain.core.model.items import SourceKind
from engrain.core.model.tasks import TaskRecord
from engrain.core.validation import check_key
from engrain.memory.foreign_verbs import answer_other_names
from engrain.memory.memory import Memory
from engrain.memory.session_handle import Session
from engrain.memory.store import Store
from engrain.tasks.run import AsyncRun, check_callable, run_flow_async
from engrain.tasks.run_lifecycle import TaskOptions
from engrain.tiers.session_lifecycle import new_session

if TYPE_CHECKING:
    from engrain.ports import Model
    from engrain.ports.search import Embedder

P = ParamSpec("P")
R = TypeVar("R")
Sync = TypeVar("Sync")
Opened = TypeVar("Opened", covariant=True)

MAX_THREADS = 8


class _ThreadFace(Protocol[Opened]):
    async def call_in_thread(self, call: Callable[[Opened], R]) -> R: ...


def _make_async(
    verb: Callable[Concatenate[Sync, P], R],
) -> Callable[Concatenate[_ThreadFace[Sync], P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def call(self: _ThreadFace[Sync], *args: P.args, **kwargs: P.kwargs) -> R:
        # By name: a memory on a server has verbs of its own.
        return await self.call_in_thread(lambda opened: getattr(opened, verb.__name__)(*args, **kwargs))

    return cast("Callable[Concatenate[_ThreadFace[Sync], P], Coroutine[Any, Any, R]]", call)


@answer_other_names
class AsyncStore:
    """Store for asyncio: same arguments, same verbs, same answers. The first verb opens the database.

        async with AsyncStore("agent.db") as store:
            await store.memory(user="ana").remember("Ana prefers Python over JavaScript.")

    A cancelled verb may still happen: its thread is not stopped. Give writes a `request_id` to repeat them.
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
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="engrain-async")

    def memory(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        reads: Sequence[Scope] = (),
    ) -> AsyncMemory:
        """Make a view of one scope: no thread, no file, nothing to close."""
        return AsyncMemory(self, user=user, agent=agent, tenant=tenant, reads=reads)

    memories = _make_async(Store.memories)
    status = _make_async(Store.status)
    maintain = _make_async(Store.maintain)
    backup = _make_async(Store.backup)
    doctor = _make_async(Store.doctor)
    rebuild = _make_async(Store.rebuild)
    copy = _make_async(Store.copy)
    erase = _make_async(Store.erase)
    undo = _make_async(Store.undo)
    resume_erasures = _make_async(Store.resume_erasures)
    verify_erasure = _make_async(Store.verify_erasure)
    hold = _make_async(Store.hold)
    release = _make_async(Store.release)
    holds = _make_async(Store.holds)
    audit = _make_async(Store.audit)
    verify_audit = _make_async(Store.verify_audit)
    find_records = _make_async(Store.find_records)

    async def call_in_thread(self, call: Callable[[Store], R]) -> R:
        """Internal: call a function with the opened store on a thread of the pool."""
        if self._closed:
            raise StoreClosed("this store was closed. Open it again: AsyncStore(…), or AsyncMemory(…).")
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(self.opened()))

    def opened(self) -> Store:
        """Internal: return the store, and open it if needed. Call it on a thread of the pool."""
        with self._opening:
            if self._store is None:
                self._store = self._make()
            return self._store

    async def close(self) -> None:
        """Wait for the running verbs, write what is buffered and close the files."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    async def __aenter__(self) -> Self:
        await self.call_in_thread(lambda _: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncPart:
    """A part whose verbs are awaited: await memory.procedural.get("deploy").

    A property is awaited like a verb: await memory.working.summary().
    """

    def __init__(self, memory: AsyncMemory, part: Callable[[Memory], Any]) -> None:
        self._memory = memory
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name.startswith("_"):
            raise AttributeError(name)

        async def awaited(*args: Any, **named: Any) -> Any:
            def call(opened: Memory) -> Any:
                found = getattr(self._part(opened), name)
                return found(*args, **named) if callable(found) else found

            return await self._memory.call_in_thread(call)

        return awaited


class AsyncTasks(AsyncPart):
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
        """Continue tasks as Tasks.recover. `work` may be a coroutine function."""
        check_callable(work)
        memory = self._memory

        async def run_task(task: str) -> None:
            async with memory.task(task, version=version, accepts=accepts, lease=lease) as run:
                found = work(run)
                if inspect.isawaitable(found):
                    await found

        tasks = await memory.call_in_thread(lambda opened: opened.tasks)
        return await run_flow_async(tasks.recover_flow((version, *accepts), limit, run_task), memory.run_in_thread)


class AsyncSession(AsyncPart):
    """A session whose verbs are awaited, also its start: await session.start()."""

    def __init__(self, memory: AsyncMemory, id: str) -> None:
        self.id = id
        self._session: Session | None = None
        super().__init__(memory, self._opened)

    @property
    def conversation(self) -> AsyncPart:
        """The messages of this session."""
        return AsyncPart(self._memory, lambda opened: self._opened(opened).conversation)

    def _opened(self, memory: Memory) -> Session:
        if self._session is None:
            self._session = memory.session(self.id)
        return self._session

    def __repr__(self) -> str:
        return f"AsyncSession({self.id!r})"


class _AsyncPartOf:
    """The property for the part of this name, awaited."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, memory: AsyncMemory, owner: object = None) -> AsyncPart:
        return AsyncPart(memory, attrgetter(self._name))


@answer_other_names
class AsyncMemory:
    """Memory for asyncio: same arguments, same verbs, same answers. The first verb opens the store.

        async with AsyncMemory("agent.db", user="ana") as memory:
            await memory.remember("Ana prefers Python over JavaScript.")

    With an AsyncStore as its location it is a view of that. A cancelled verb may still happen: its thread is not
    stopped. Give writes a `request_id` to repeat them.
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
        self._scope = check_scope(tenant, agent, user)
        self._reads = check_reads(reads)
        self._owns = not isinstance(location, AsyncStore)
        if isinstance(location, AsyncStore):
            self._store = location
        else:
            options = {"embedder": embedder, "model": model, "clock": clock, "background": background}
            self._store = AsyncStore(location, **options, settings=settings)  # type: ignore[arg-type]
        self._view: Memory | None = None
        self._lock = threading.Lock()

    remember = _make_async(Memory.remember)
    remember_many = _make_async(Memory.remember_many)
    recall = _make_async(Memory.recall)
    prompt = _make_async(Memory.prompt)
    get = _make_async(Memory.get)
    list = _make_async(Memory.list)
    update = _make_async(Memory.update)
    correct = _make_async(Memory.correct)
    forget = _make_async(Memory.forget)
    explain = _make_async(Memory.explain)
    start_session = _make_async(Memory.start_session)
    add_message = _make_async(Memory.add_message)
    add_messages = _make_async(Memory.add_messages)
    end_session = _make_async(Memory.end_session)
    export = _make_async(Memory.export)
    load = _make_async(Memory.load)
    erase = _make_async(Memory.erase)

    def session(self, id: str | None = None) -> AsyncSession:
        """Open a new session or continue one. Its verbs are awaited."""
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
        """Run a task as Memory.task: async with memory.task("order-42") as run: …"""
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
    ) -> AsyncPart:
        """Mirror as Memory.mirror. Its verbs are awaited: await memory.mirror("notes").sync()."""
        mirror = functools.cache(lambda: self.opened().mirror(folder, max_lines=max_lines, max_bytes=max_bytes, by=by))
        return AsyncPart(self, lambda _: mirror())

    slots = _AsyncPartOf("slots")
    relations = _AsyncPartOf("relations")
    working = _AsyncPartOf("working")
    conversation = _AsyncPartOf("conversation")
    episodic = _AsyncPartOf("episodic")
    semantic = _AsyncPartOf("semantic")
    procedural = _AsyncPartOf("procedural")
    sessions = _AsyncPartOf("sessions")
    records = _AsyncPartOf("records")

    @property
    def tasks(self) -> AsyncTasks:
        return AsyncTasks(self, lambda opened: opened.tasks)

    @property
    def scope(self) -> Scope:
        return self._scope

    @property
    def reads(self) -> tuple[Scope, ...]:
        return tuple(scope for scope in self._reads if scope != self._scope)

    @property
    def current_session(self) -> str | None:
        return None if self._view is None else self._view.current_session

    @property
    def store(self) -> AsyncStore:
        """The store that this memory opens, with the operator's verbs. A view of somebody else's store has none."""
        if not self._owns:
            raise InvalidInput("this memory is a view: the operator's verbs are on the AsyncStore that made it.")
        return self._store

    async def call_in_thread(self, call: Callable[[Memory], R]) -> R:
        """Internal: call a function with the opened memory on a thread of the store's pool."""
        return await self._store.call_in_thread(lambda _: call(self.opened()))

    async def run_in_thread(self, call: Callable[[], R]) -> R:
        """Internal: call a function on a thread of the store's pool."""
        return await self._store.call_in_thread(lambda _: call())

    def opened(self) -> Memory:
        """Internal: return the view, and open the store if needed. Call it on a thread of the pool."""
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
        await self.call_in_thread(lambda _: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
