"""AgentWithMemory and AsyncAgentWithMemory: one loop of recalling, answering and using tools, with two faces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engrain.agent.journal import NoJournal, Part, TaskJournal
from engrain.agent.prompt import MemoryPrompt
from engrain.agent.results import AgentReply, Called
from engrain.agent.tools import Tool, as_tool
from engrain.agent.tools import memory_tools as own_tools
from engrain.agent.turn import AgentConfig, Together, Turn, TurnContext, short
from engrain.core.errors import Conflict, InvalidInput
from engrain.core.model.chat import check_timeout
from engrain.core.validation import check_count, check_key, check_text
from engrain.maintenance.metering import MeteredModel
from engrain.memory import Memory
from engrain.memory.async_memory import AsyncMemory
from engrain.tasks.driver import Flow, run_flow, run_flow_async

if TYPE_CHECKING:
    from engrain.ports import Model

M = TypeVar("M")
MAX_STEPS = 1_000
# Of the journal's steps: a later engrain that takes them differently gives another, and continues no task of this one.
VERSION = "agent-1"


class _Agent(Generic[M]):
    """What both faces have in common: all but who drives the flow."""

    _takes: type[M]

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
        on_call: Callable[[Called], None] | None = None,
    ) -> None:
        if not isinstance(system, str):
            raise InvalidInput(f"system must be a str, not {type(system).__name__}.")
        if not isinstance(memory, self._takes):
            raise InvalidInput(
                f"{type(self).__name__} works on {self._takes.__name__}, not on {type(memory).__name__}."
            )
        self._memory = memory
        own = own_tools(self._opened) if memory_tools else []
        self._manner = AgentConfig(
            MeteredModel(_model(model)),
            _by_name(self._proved([*own, *_tools(tools)])),
            frozenset(tool.name for tool in own),
            system,
            check_count(max_steps, "max_steps", 1, MAX_STEPS),
            check_count(max_tokens, "max_tokens", 1, 10_000_000),
            None if timeout is None else check_timeout(timeout),
            on_call,
        )
        self._session = None if session is None else check_key(session, "session")
        self._background = MemoryPrompt(check_count(budget, "budget", 0, 1_000_000))
        self._busy = threading.Lock()

    def status(self) -> dict[str, Any]:
        """What the model was asked since the agent was made: calls, failures, tokens, and how the last failure read."""
        names = ("name", "calls", "failures", "tokens_in", "tokens_out", "last_error")
        return {name: getattr(self._manner.model, name) for name in names}

    def _opened(self) -> Memory:
        raise NotImplementedError

    def _proved(self, tools: list[Tool]) -> list[Tool]:
        return tools

    def _turn(self, journal: NoJournal, together: Together, task: str) -> Flow[AgentReply]:
        place = TurnContext(self._opened(), self._session, self._background, together)
        return Turn(self._manner, place, journal, task).flow()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise Conflict("this agent is at work on an answer: wait for it, or make another agent.")
        try:
            yield
        finally:
            self._busy.release()


class AgentWithMemory(_Agent[Memory]):
    """An agent whose conversations stay: it recalls before it answers, uses tools, and keeps what happens.

        with Memory("agent.db", user="ana") as memory:
            print(AgentWithMemory(memory, "anthropic:claude-sonnet-4-5", [look_up]).run("Where is my parcel?"))

    `model` is a Model, or a text such as "anthropic:NAME", "openai:NAME" or "ollama:NAME". `tools` are functions with
    type hints, or Tools. `system` says who the agent is. A turn ends after at most `max_steps` replies of the model,
    each of at most `max_tokens`; the last one is asked for without tools, so that there is an answer. Up to `budget`
    tokens of what memory holds are put before the model, as quoted data. With no `session` it speaks in the memory's
    present one. `memory_tools` lets the model itself remember and recall. `on_call` hears of each call of a tool.
    """

    _takes = Memory

    def run(self, task: str, *, task_id: str | None = None) -> AgentReply:
        """One turn of the conversation. What the user said is in the log before the model is asked; ModelFailed leaves
        it there.

        With a `task_id` the turn is a durable task: if the process dies, the same call continues it, and no recorded
        reply of the model is paid for twice. A tool that is an effect and was cut off raises StepAmbiguous.
        """
        said = check_text(task, "task")
        with self._alone():
            if task_id is None:
                return run_flow(self._turn(NoJournal(), _one_by_one, said))
            with self._memory.task(task_id, goal=short(said), version=VERSION, working=False) as run:
                answer = run_flow(self._turn(TaskJournal(run, _played), _one_by_one, said))
                run.outcome = short(answer.text)
                return answer

    def _opened(self) -> Memory:
        return self._memory

    def _proved(self, tools: list[Tool]) -> list[Tool]:
        for tool in tools:
            if tool.awaited:
                raise InvalidInput(f"tool {tool.name!r} is a coroutine function: give it to AsyncAgentWithMemory.")
        return tools


class AsyncAgentWithMemory(_Agent[AsyncMemory]):
    """AgentWithMemory for asyncio, on an AsyncMemory: `run` is awaited, tools may be coroutine functions, and the calls
    of one reply are made side by side."""

    _takes = AsyncMemory

    async def run(self, task: str, *, task_id: str | None = None) -> AgentReply:
        """As AgentWithMemory.run."""
        said = check_text(task, "task")
        hop = self._memory.run_in_thread

        async def played(part: Part, *_: Any) -> Any:
            return await run_flow_async(part(), hop)

        async def together(parts: Sequence[Part]) -> list[Any]:
            # All are waited for: what finished is recorded, whatever became of the others.
            found = await asyncio.gather(*map(played, parts), return_exceptions=True)
            for one in found:
                if isinstance(one, BaseException):
                    raise one
            return found

        with self._alone():
            await hop(self._opened)
            if task_id is None:
                return await run_flow_async(self._turn(NoJournal(), together, said), hop)
            async with self._memory.task(task_id, goal=short(said), version=VERSION, working=False) as run:
                answer = await run_flow_async(self._turn(TaskJournal(run, played), together, said), hop)
                run.outcome = short(answer.text)
                return answer

    def _opened(self) -> Memory:
        return self._memory.opened()


def _played(part: Part, *_: Any) -> Any:
    return run_flow(part())


def _one_by_one(parts: Sequence[Part]) -> list[Any]:
    return [run_flow(part()) for part in parts]


def _model(given: Model | str) -> Model:
    if isinstance(given, str):
        from engrain.providers.chat import open_model

        return open_model(given)
    if not callable(getattr(given, "reply", None)):
        raise InvalidInput(f"a model has a reply(ask) method; {type(given).__name__} has none.")
    return given


def _tools(given: object) -> list[Tool]:
    if given is None:
        return []
    if isinstance(given, (str, Tool)) or not isinstance(given, Iterable):
        raise InvalidInput(f"tools must be a list of functions, not {type(given).__name__}.")
    return [as_tool(one) for one in given]


def _by_name(tools: list[Tool]) -> dict[str, Tool]:
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"each tool needs a name of its own: {', '.join(twice)}.")
    return dict(zip(names, tools, strict=True))
