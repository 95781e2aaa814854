"""AsyncMemory: the same verbs, awaited; one thread hop per verb, in a bounded pool of its own."""

from __future__ import annotations

import asyncio
import builtins
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from engrain.core.errors import StoreClosed
from engrain.core.identity import Scope
from engrain.core.model.items import SourceKind
from engrain.core.model.tasks import TaskRecord
from engrain.memory import Memory
from engrain.tasks.driver import adrive
from engrain.tasks.execution import TaskOptions
from engrain.tasks.run import AsyncRun, checked_function

P = ParamSpec("P")
R = TypeVar("R")

THREADS = 8


def _awaited(
    verb: Callable[Concatenate[Memory, P], R],
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def call(self: AsyncMemory, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._hop(lambda: verb(self._opened(), *args, **kwargs))  # type: ignore[no-any-return]

    return cast("Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]", call)


class AwaitedTier:
    """A tier whose verbs are awaited: await memory.procedural.get("deploy"). What is a value there is a verb here:
    await memory.working.summary()."""

    def __init__(self, hop: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]], tier: Callable[[], Any]) -> None:
        self._hop = hop
        self._tier = tier

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            found = getattr(self._tier(), name)
            return found(*args, **named) if callable(found) else found

        async def awaited(*args: Any, **named: Any) -> Any:
            return await self._hop(lambda: call(args, named))

        return awaited


class AsyncMemory:
    """Memory for asyncio: same arguments, same verbs, same answers. The store is opened by the first verb.

        async with AsyncMemory("agent.db", user="ana") as memory:
            await memory.remember("Ana prefers Python over JavaScript.")

    A cancelled verb may still happen: its thread is not stopped half way. Give writes a `request_id` to repeat them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._open = functools.partial(Memory, *args, **kwargs)
        self._memory: Memory | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="engrain-async")

    remember = _awaited(Memory.remember)
    remember_many = _awaited(Memory.remember_many)
    recall = _awaited(Memory.recall)
    slot = _awaited(Memory.slot)
    slots = _awaited(Memory.slots)
    relate = _awaited(Memory.relate)
    about = _awaited(Memory.about)
    get = _awaited(Memory.get)
    list = _awaited(Memory.list)
    correct = _awaited(Memory.correct)
    forget = _awaited(Memory.forget)
    pin = _awaited(Memory.pin)
    update_importance = _awaited(Memory.update_importance)
    why = _awaited(Memory.why)
    start_session = _awaited(Memory.start_session)
    end_session = _awaited(Memory.end_session)
    sessions = _awaited(Memory.sessions)
    messages = _awaited(Memory.messages)
    add_message = _awaited(Memory.add_message)
    add_messages = _awaited(Memory.add_messages)
    record_tool_call = _awaited(Memory.record_tool_call)
    record_decision = _awaited(Memory.record_decision)
    record_error = _awaited(Memory.record_error)
    record_resolution = _awaited(Memory.record_resolution)
    start_task = _awaited(Memory.start_task)
    record_step = _awaited(Memory.record_step)
    end_task = _awaited(Memory.end_task)
    learn = _awaited(Memory.learn)
    memory_aware_prompt = _awaited(Memory.memory_aware_prompt)
    tasks = _awaited(Memory.tasks)
    timeline = _awaited(Memory.timeline)
    resolve = _awaited(Memory.resolve)
    signal = _awaited(Memory.signal)
    park = _awaited(Memory.park)
    resume = _awaited(Memory.resume)
    cancel = _awaited(Memory.cancel)
    prune_tasks = _awaited(Memory.prune_tasks)
    remove_task = _awaited(Memory.remove_task)
    checkpoint = _awaited(Memory.checkpoint)
    restore = _awaited(Memory.restore)
    erase = _awaited(Memory.erase)
    undo = _awaited(Memory.undo)
    resume_erasures = _awaited(Memory.resume_erasures)
    verify_erasure = _awaited(Memory.verify_erasure)
    hold = _awaited(Memory.hold)
    release = _awaited(Memory.release)
    holds = _awaited(Memory.holds)
    audit = _awaited(Memory.audit)
    verify_audit = _awaited(Memory.verify_audit)
    status = _awaited(Memory.status)
    memories = _awaited(Memory.memories)
    maintain = _awaited(Memory.maintain)
    consolidate = _awaited(Memory.consolidate)
    backup = _awaited(Memory.backup)
    check = _awaited(Memory.check)
    rebuild = _awaited(Memory.rebuild)
    export = _awaited(Memory.export)
    load = _awaited(Memory.load)

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
        terms = TaskOptions(id, goal, version, accepts, lease, max_age)
        # The store is opened when the run is entered, on a thread of the pool.
        return AsyncRun(lambda: self._opened()._open.course(terms, procedure, working), self._hop)

    def mirror(
        self,
        folder: str | os.PathLike[str],
        *,
        max_lines: int = 200,
        max_bytes: int = 25_000,
        by: SourceKind = "user",
    ) -> AwaitedTier:
        """As Memory.mirror; its verbs are awaited: await memory.mirror("notes").sync()."""
        opened = functools.cache(lambda: self._opened().mirror(folder, max_lines=max_lines, max_bytes=max_bytes, by=by))
        return AwaitedTier(self._hop, opened)

    async def recover(
        self,
        work: Callable[[Any], Any],
        *,
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        limit: int = 100,
    ) -> builtins.list[TaskRecord]:
        """As Memory.recover; `work` may be a coroutine function."""
        checked_function(work)

        async def one(task: str) -> None:
            async with self.task(task, version=version, accepts=accepts, lease=lease) as run:
                found = work(run)
                if inspect.isawaitable(found):
                    await found

        tasks = await self._hop(lambda: self._opened()._open.tasks)
        return await adrive(tasks.recover((version, *accepts), limit, one), self._hop)

    async def _hop(self, call: Callable[[], Any]) -> Any:
        if self._closed:
            raise StoreClosed("this memory was closed. Open it again: AsyncMemory(…).")
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    @property
    def working(self) -> AwaitedTier:
        return AwaitedTier(self._hop, lambda: self._opened().working)

    @property
    def conversation(self) -> AwaitedTier:
        return AwaitedTier(self._hop, lambda: self._opened().conversation)

    @property
    def episodic(self) -> AwaitedTier:
        return AwaitedTier(self._hop, lambda: self._opened().episodic)

    @property
    def semantic(self) -> AwaitedTier:
        return AwaitedTier(self._hop, lambda: self._opened().semantic)

    @property
    def procedural(self) -> AwaitedTier:
        return AwaitedTier(self._hop, lambda: self._opened().procedural)

    @property
    def scope(self) -> Scope:
        given = self._open.keywords
        return Scope(given.get("tenant"), given.get("agent"), given.get("user"))

    async def close(self) -> None:
        """Wait for the verbs under way, write what is buffered and let go of the file."""
        self._closed = True
        await asyncio.to_thread(self._shut)

    async def __aenter__(self) -> Self:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._opened)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _opened(self) -> Memory:
        with self._opening:
            if self._memory is None:
                self._memory = self._open()
            return self._memory

    def _shut(self) -> None:
        self._pool.shutdown(wait=True)
        if self._memory is not None:
            self._memory.close()
