"""AgentWithMemory and AsyncAgentWithMemory: one loop of recalling, answering and using tools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engrain.agent.prompt import MemoryPrompt
from engrain.agent.tools import Tool
from engrain.agent.tools import memory_tools as own_tools
from engrain.agent.tools import tool as make_tool
from engrain.agent.turn import (
    AgentConfig,
    AgentReply,
    CallResult,
    DurableJournal,
    EphemeralJournal,
    Part,
    RunParts,
    Turn,
    shorten,
)
from engrain.core.errors import Conflict, InvalidInput
from engrain.core.model.messages import check_timeout
from engrain.core.validation import check_count, check_key, check_text
from engrain.maintenance.metering import MeteredModel
from engrain.memory import Memory
from engrain.memory.async_memory import AsyncMemory
from engrain.tasks.flow import Flow
from engrain.tasks.run import run_flow, run_flow_async

if TYPE_CHECKING:
    from engrain.ports import Model

M = TypeVar("M")
MAX_STEPS = 1_000
# A later engrain with other steps has another version, and continues no task of this one.
JOURNAL_VERSION = "agent-1"


class _AgentBase(Generic[M]):
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
        on_call: Callable[[CallResult], None] | None = None,
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
            on_call,
            None if session is None else check_key(session, "session"),
            MemoryPrompt(check_count(budget, "budget", 0, 1_000_000)),
        )
        self._busy = threading.Lock()

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

    def _turn(self, journal: EphemeralJournal, run_parts: RunParts, task: str) -> Flow[AgentReply]:
        return Turn(self._config, self._open_memory(), journal, run_parts, task).flow()

    @contextmanager
    def _hold_exclusively(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise Conflict("this agent is working on an answer: wait for it, or make another agent.")
        try:
            yield
        finally:
            self._busy.release()


class AgentWithMemory(_AgentBase[Memory]):
    """An agent with a lasting memory: it recalls before it answers, uses tools, and remembers.

        with Memory("agent.db", user="ana") as memory:
            print(AgentWithMemory(memory, "anthropic:claude-sonnet-4-5", [look_up]).run("Where is my parcel?"))

    `model` is a Model, or a text such as "anthropic:NAME", "openai:NAME" or "ollama:NAME". `tools` are functions with
    type hints, or Tools. `system` says who the agent is. A turn has at most `max_steps` replies of the model, each of
    at most `max_tokens`. The last reply gets no tools, so that there is an answer. The model sees up to `budget`
    tokens from memory, as quoted data. Without a `session` the memory's current one is used. `memory_tools` lets the
    model itself remember and recall. `on_call` is called with the result of each tool call.
    """

    _memory_type = Memory

    def run(self, task: str, *, task_id: str | None = None) -> AgentReply:
        """Answer the user: one turn of the conversation. The message is in the log before the model is asked.

        With a `task_id` the turn is a durable task: after a crash the same call continues it, and no recorded reply of
        the model is paid for twice. An interrupted effect raises StepAmbiguous.
        """
        said = check_text(task, "task")
        with self._hold_exclusively():
            if task_id is None:
                return run_flow(self._turn(EphemeralJournal(), _run_in_order, said))
            with self._memory.task(task_id, goal=shorten(said), version=JOURNAL_VERSION, working=False) as run:
                answer = run_flow(self._turn(DurableJournal(run, _run_part), _run_in_order, said))
                run.outcome = shorten(answer.text)
                return answer

    def _open_memory(self) -> Memory:
        return self._memory


class AsyncAgentWithMemory(_AgentBase[AsyncMemory]):
    """AgentWithMemory for asyncio, on an AsyncMemory.

    `run` is awaited, tools may be coroutine functions, and the calls of one reply run in parallel.
    """

    _memory_type = AsyncMemory
    _calls_coroutines = True

    async def run(self, task: str, *, task_id: str | None = None) -> AgentReply:
        """Answer the user, as AgentWithMemory.run."""
        said = check_text(task, "task")
        run_in_thread = self._memory.run_in_thread

        async def run_part(part: Part, *_: Any) -> Any:
            return await run_flow_async(part(), run_in_thread)

        async def run_parts(parts: Sequence[Part]) -> list[Any]:
            # Wait for all: completed calls are recorded, even if others fail.
            found = await asyncio.gather(*map(run_part, parts), return_exceptions=True)
            for result in found:
                if isinstance(result, BaseException):
                    raise result
            return found

        with self._hold_exclusively():
            await run_in_thread(self._open_memory)
            if task_id is None:
                return await run_flow_async(self._turn(EphemeralJournal(), run_parts, said), run_in_thread)
            async with self._memory.task(task_id, goal=shorten(said), version=JOURNAL_VERSION, working=False) as run:
                answer = await run_flow_async(self._turn(DurableJournal(run, run_part), run_parts, said), run_in_thread)
                run.outcome = shorten(answer.text)
                return answer

    def _open_memory(self) -> Memory:
        return self._memory.opened()


def _run_part(part: Part, *_: Any) -> Any:
    return run_flow(part())


def _run_in_order(parts: Sequence[Part]) -> list[Any]:
    return [run_flow(part()) for part in parts]


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
