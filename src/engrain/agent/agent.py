"""AgentWithMemory and AsyncAgentWithMemory: one loop of recalling, answering and using tools."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from engrain.agent.attachments import parse_attachments
from engrain.agent.results import AgentEvent, AgentReply
from engrain.agent.stream import iterate_events, iterate_events_async
from engrain.agent.system_text import MemoryPrompt
from engrain.agent.tools import Tool, make_output_tool
from engrain.agent.tools import memory_tools as own_tools
from engrain.agent.tools import tool as make_tool
from engrain.agent.turn import AgentConfig, RunParts, Turn, TurnRequest, shorten
from engrain.agent.turn_journal import DurableJournal, EphemeralJournal, Part
from engrain.core.errors import Conflict, InvalidInput
from engrain.core.model.messages import Attachment, check_timeout
from engrain.core.validation import check_count, check_key, check_text
from engrain.maintenance.model_usage import MeteredModel
from engrain.memory import Memory
from engrain.memory.async_memory import AsyncMemory
from engrain.tasks.flow_requests import Flow
from engrain.tasks.run import run_flow, run_flow_async

if TYPE_CHECKING:
    from engrain.ports import Model

M = TypeVar("M")
Reply = TypeVar("Reply")
Events = TypeVar("Events")
Emit = Callable[[AgentEvent], object]
MAX_STEPS = 1_000
MAX_PARALLEL_CALLS = 8  # of the tools of one reply
AttachmentLike = Attachment | str | Path
# A later engrain with other steps has another version, and continues no task of this one.
JOURNAL_VERSION = "agent-1"


class RunOptions(TypedDict, total=False):
    """The options of `run`, whether it streams or not."""

    task_id: str | None
    attachments: Sequence[AttachmentLike]
    output: Any


class _AgentBase(Generic[M, Reply, Events]):
    _memory_type: type[M]
    _calls_coroutines = False

    def __init__(
        self,
        memory: M,
        model: Model | str,
        tools: Iterable[Tool | Callable[..., Any]] | None = (),
        *,
        system: str = "",
        max_steps: int = 12,
        max_tokens: int = 4096,
        budget: int = 1500,
        session: str | None = None,
        timeout: float | None = None,
        memory_tools: bool = False,
        on_event: Callable[[AgentEvent], object] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(system, str):
            raise InvalidInput(f"system must be a str, not {type(system).__name__}.")
        if not isinstance(memory, self._memory_type):
            raise InvalidInput(
                f"{type(self).__name__} works on {self._memory_type.__name__}, not on {type(memory).__name__}."
            )
        self._memory = memory
        own = own_tools(self._open_memory) if memory_tools else []
        self._config = AgentConfig(
            MeteredModel(_parse_model(model)),
            self._index_tools([*own, *_parse_tools(tools)]),
            frozenset(tool.name for tool in own),
            system,
            check_count(max_steps, "max_steps", 1, MAX_STEPS),
            check_count(max_tokens, "max_tokens", 1, 10_000_000),
            None if timeout is None else check_timeout(timeout),
            on_event,
            None if session is None else check_key(session, "session"),
            MemoryPrompt(check_count(budget, "budget", 0, 1_000_000)),
            dict(parameters or {}),
        )
        self._busy = threading.Lock()

    @overload
    def run(self, task: str, *, stream: Literal[False] = False, **options: Unpack[RunOptions]) -> Reply: ...
    @overload
    def run(self, task: str, *, stream: Literal[True], **options: Unpack[RunOptions]) -> Events: ...
    def run(
        self,
        task: str,
        *,
        task_id: str | None = None,
        attachments: Sequence[AttachmentLike] = (),
        output: Any = None,
        stream: bool = False,
    ) -> Reply | Events:
        """Answer the user: one turn of the conversation. The message is in the log before the model is asked.

        With a `task_id` the turn is a durable task: after a crash the same call continues it, and no recorded reply of
        the model is paid for twice. An interrupted effect raises StepAmbiguous, a tool that a person must approve
        ApprovalNeeded. `attachments` are images and PDFs, as paths or Attachments. With `output`, a pydantic model or a
        JSON schema of an object, the answer is in `AgentReply.output`. With `stream=True` the events are returned as
        they come: TextDelta, ToolStarted, CallResult, and the AgentReply as the last one. An AsyncAgentWithMemory is
        awaited, or with `stream=True` iterated by `async for`.
        """
        start = partial(self._run, self._make_request(task, task_id, attachments, output), task_id)
        return self._iterate(start) if stream else start(None)

    def _run(self, request: TurnRequest, task_id: str | None, emit: Emit | None) -> Reply:
        raise NotImplementedError

    def _iterate(self, start: Callable[[Emit], Reply]) -> Events:
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Return the use of the model by this agent: calls, failures, tokens, and the last error."""
        names = ("name", "calls", "failures", "tokens_in", "tokens_out", "last_error")
        return {name: getattr(self._config.model, name) for name in names}

    def _open_memory(self) -> Memory:
        raise NotImplementedError

    def _index_tools(self, tools: list[Tool]) -> dict[str, Tool]:
        indexed: dict[str, Tool] = {}
        for tool in tools:
            if tool.is_async and not self._calls_coroutines:
                raise InvalidInput(f"tool {tool.name!r} is a coroutine function: give it to AsyncAgentWithMemory.")
            if indexed.setdefault(tool.name, tool) is not tool:
                raise InvalidInput(f"each tool needs a name of its own: {tool.name}.")
        return indexed

    def _make_request(
        self, task: str, task_id: str | None, attachments: Sequence[AttachmentLike], output: Any
    ) -> TurnRequest:
        waiting = [tool.name for tool in self._config.tools.values() if tool.approval]
        if waiting and task_id is None:
            raise InvalidInput(f"{waiting[0]} needs a person's approval: run(…, task_id=…), so that the turn can wait.")
        tool = None if output is None else make_output_tool(output)
        return TurnRequest(check_text(task, "task"), parse_attachments(attachments), tool)

    def _turn(self, journal: EphemeralJournal, run_parts: RunParts, request: TurnRequest) -> Flow[AgentReply]:
        return Turn(self._config, self._open_memory(), journal, run_parts, request).flow()

    @contextmanager
    def _hold_exclusively(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise Conflict("this agent is working on an answer: wait for it, or make another agent.")
        try:
            yield
        finally:
            self._busy.release()


class AgentWithMemory(_AgentBase[Memory, AgentReply, Iterator[AgentEvent]]):
    """An agent with a lasting memory: it recalls before it answers, uses tools, and remembers.

        with Memory("agent.db", user="ana") as memory:
            print(AgentWithMemory(memory, "anthropic:claude-sonnet-4-5", [look_up]).run("Where is my parcel?"))

    `model` is a Model, or a text such as "anthropic:NAME", "openai:NAME" or "ollama:NAME". `tools` are functions with
    type hints, or Tools. `system` says who the agent is. A turn has at most `max_steps` replies of the model, each of
    at most `max_tokens`. The last reply gets no tools, so that there is an answer. The model sees up to `budget`
    tokens from memory, as quoted data. Without a `session` the memory's current one is used. `memory_tools` lets the
    model itself remember and recall. `on_event` is called with each TextDelta, ToolStarted and CallResult as it comes.
    `parameters` go to the model's service as they are: {"temperature": 0.2}.
    """

    _memory_type = Memory

    def _run(self, request: TurnRequest, task_id: str | None, emit: Emit | None) -> AgentReply:
        asked = replace(request, emit=emit)
        with self._hold_exclusively():
            if task_id is None:
                return run_flow(self._turn(EphemeralJournal(), _run_in_threads, asked))
            with self._memory.task(task_id, goal=shorten(asked.task), version=JOURNAL_VERSION, working=False) as run:
                answer = run_flow(self._turn(DurableJournal(run, _run_part), _run_in_threads, asked))
                run.outcome = shorten(answer.text)
                return answer

    def _iterate(self, start: Callable[[Emit], AgentReply]) -> Iterator[AgentEvent]:
        return iterate_events(start)

    def _open_memory(self) -> Memory:
        return self._memory


class AsyncAgentWithMemory(_AgentBase[AsyncMemory, Coroutine[Any, Any, AgentReply], AsyncIterator[AgentEvent]]):
    """AgentWithMemory for asyncio, on an AsyncMemory.

    `run` is awaited, and tools may be coroutine functions.
    """

    _memory_type = AsyncMemory
    _calls_coroutines = True

    async def _run(self, request: TurnRequest, task_id: str | None, emit: Emit | None) -> AgentReply:
        asked = replace(request, emit=emit)
        run_in_thread = self._memory.run_in_thread
        limit = asyncio.Semaphore(MAX_PARALLEL_CALLS)

        async def run_part(part: Part, *_: Any) -> Any:
            return await run_flow_async(part(), run_in_thread)

        async def run_limited(part: Part) -> Any:
            async with limit:
                return await run_part(part)

        async def run_parts(parts: Sequence[Part]) -> list[Any]:
            # Wait for all: completed calls are recorded, even if others fail.
            return _raise_first(await asyncio.gather(*map(run_limited, parts), return_exceptions=True))

        with self._hold_exclusively():
            await run_in_thread(self._open_memory)
            if task_id is None:
                return await run_flow_async(self._turn(EphemeralJournal(), run_parts, asked), run_in_thread)
            goal = shorten(asked.task)
            async with self._memory.task(task_id, goal=goal, version=JOURNAL_VERSION, working=False) as run:
                answer = await run_flow_async(
                    self._turn(DurableJournal(run, run_part), run_parts, asked), run_in_thread
                )
                run.outcome = shorten(answer.text)
                return answer

    def _iterate(self, start: Callable[[Emit], Coroutine[Any, Any, AgentReply]]) -> AsyncIterator[AgentEvent]:
        return iterate_events_async(start)

    def _open_memory(self) -> Memory:
        return self._memory.opened()


def _run_part(part: Part, *_: Any) -> Any:
    return run_flow(part())


def _run_in_threads(parts: Sequence[Part]) -> list[Any]:
    """Run the calls of one reply in parallel, and wait for all: completed calls are recorded, even if others fail."""
    if len(parts) == 1:
        return [_run_part(parts[0])]
    with ThreadPoolExecutor(MAX_PARALLEL_CALLS, "engrain-tool") as pool:
        started = [pool.submit(contextvars.copy_context().run, _run_part, part) for part in parts]
    return _raise_first([future.exception() or future.result() for future in started])


def _raise_first(found: list[Any]) -> list[Any]:
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return found


def _parse_model(model: Model | str) -> Model:
    if isinstance(model, str):
        from engrain.providers.chat import open_model

        return open_model(model)
    if not callable(getattr(model, "reply", None)):
        raise InvalidInput(f"a model has a reply(request) method; {type(model).__name__} has none.")
    return model


def _parse_tools(tools: object) -> list[Tool]:
    if isinstance(tools, (str, Tool)) or not isinstance(tools, Iterable | None):
        raise InvalidInput(f"tools must be a list of functions, not {type(tools).__name__}.")
    return [tool if isinstance(tool, Tool) else make_tool(tool) for tool in tools or ()]
