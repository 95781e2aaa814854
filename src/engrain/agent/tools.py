"""Tools: functions that a model may call."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from engrain.agent.schema import parameters_of, purpose_of
from engrain.core.errors import InvalidInput
from engrain.core.model.chat import ToolCall, ToolSpec, check_timeout
from engrain.core.model.items import Citation, Item, Note, Source
from engrain.core.validation import check_text
from engrain.tasks.policies import Retry, parse_retry

if TYPE_CHECKING:
    from engrain.memory import Memory


MAX_RESULT = 1_000_000  # characters; what is longer is cut, with a mark

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call; `tool` makes one. `parameters` is the JSON schema of its arguments.

    `effect`: it must not happen twice. In a durable run its intent is on disk before it is called, and a crash in
    between is reported instead of repeated. `retries` further attempts are made where it raises (of an effect: where it
    raises EffectNotPerformed); after `timeout` seconds it has failed. `kept=False` keeps what it returns out of the log
    and the journal: for what is stored elsewhere, and must be forgotten there.
    """

    name: str
    description: str
    function: Function
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    effect: bool = False
    retries: int | Retry = 0
    timeout: float | None = None
    kept: bool = True

    def __post_init__(self) -> None:
        self.spec  # noqa: B018  # proves name and parameters
        if not callable(self.function):
            raise InvalidInput(f"tool {self.name!r} is {self.function!r}, which cannot be called.")
        if not isinstance(self.description, str):
            raise InvalidInput(f"the description of tool {self.name!r} must be a str.")
        self.retry  # noqa: B018
        if self.timeout is not None:
            check_timeout(self.timeout)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)

    @property
    def retry(self) -> Retry:
        return parse_retry(self.retries)

    @property
    def awaited(self) -> bool:
        """Whether it is a coroutine function, which only AsyncAgentWithMemory can call."""
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    def bound(self, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        """The call with these arguments, within its time; a coroutine function if the tool is one."""
        call = partial(self.function, **arguments)
        if self.awaited:
            return partial(_awaited_within, self.timeout, call)
        return call if self.timeout is None else partial(_within, self.timeout, call)


@overload
def tool(
    function: Function,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: bool = False,
    retries: int | Retry = 0,
    timeout: float | None = None,
) -> Tool: ...
@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: bool = False,
    retries: int | Retry = 0,
    timeout: float | None = None,
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: bool = False,
    retries: int | Retry = 0,
    timeout: float | None = None,
) -> Tool | Callable[[Function], Tool]:
    """A tool from a function with type hints: tool(look_up), or as a decorator, @tool or @tool(effect=True).

    The docstring says what it does, and under "Args:" what each argument is. What the function returns is shown to the
    model: a str as it is, anything else as JSON. What it raises is told to the model as a failure.
    """

    def made(given: Function) -> Tool:
        if not callable(given):
            raise InvalidInput(f"a tool is made of a function, not of {given!r}.")
        called = name or _name(given)
        told = purpose_of(given) if description is None else description
        return Tool(called, told, given, parameters_of(given, called), effect, retries, timeout)

    return made if function is None else made(function)


def as_tool(given: Any) -> Tool:
    return given if isinstance(given, Tool) else tool(given)


def _name(function: Any) -> str:
    inside = getattr(function, "func", function)  # of a functools.partial
    return str(getattr(inside, "__name__", type(inside).__name__))


def told(value: Any) -> str:
    """What a tool returned, as the model is shown it: storable text of a stated length."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else _json(value)
    if len(text) > MAX_RESULT:
        text = f"{text[:MAX_RESULT]}\n[cut here: {len(text):,} characters in all]"
    return storable(text)


def storable(text: str) -> str:
    """Without what no store takes: a NUL, half a character."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that JSON does not have, a list that holds itself
        return repr(value)


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Nobody can stop a thread: what takes too long goes on alone, and is no longer waited for."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as exc:  # noqa: BLE001  # raised where it is waited for
            failed.append(exc)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="engrain-tool", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"no answer within {seconds:g} s.")
    return found[0]


async def _awaited_within(seconds: float | None, call: Callable[[], Any]) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call()
    except TimeoutError as exc:
        if limit.expired():
            raise TimeoutError(f"no answer within {seconds:g} s.") from exc
        raise


REMEMBER = "remember"
BUDGET = 1_500
HITS = 8
IMPORTANCE = 0.6


def learnt(call: ToolCall, cite: Citation, said: Item) -> Note:
    """What a call of `remember` that did not fail asks to have kept. It is written when the call stands in the log, so
    that it can cite its words there, and what the user `said`, and go with either; what was forgotten no model brings
    back."""
    text = str(call.arguments["text"])
    source = Source("conversation", "agent", (cite, _rests_on(text, said)))
    return Note(text, IMPORTANCE, source=source, derived=True)


def _rests_on(text: str, said: Item) -> Citation:
    """The same words there; where it has others the whole message, which stays when only the fact is forgotten."""
    found = re.search(re.escape(text.strip().rstrip(".!")), said.text, re.IGNORECASE)
    return Citation(said.id, *(found.span() if found else (0, 0)))


def memory_tools(memory: Callable[[], Memory]) -> list[Tool]:
    """`memory` gives the memory when a tool is called, for one that is opened late."""

    def remember(text: str) -> str:
        """Keep a fact for later conversations. What the user says is kept anyway: use it for what you found out.

        Args:
            text: One whole sentence that can be understood alone.
        """
        check_text(text)
        return "Noted."

    def recall(question: str) -> str:
        """Look up what is remembered from earlier conversations. What seems to bear on the user's words is shown to you
        anyway: use it to look for more.

        Args:
            question: What you want to know.
        """
        # What goes on is before the model anyway.
        found = memory().recall(question, n=HITS, budget=BUDGET, shown=())
        return str(found) or "Nothing relevant is remembered."

    # What was recalled is stored where it came from: a copy in the log would outlive its being forgotten.
    return [tool(remember, name=REMEMBER), replace(tool(recall), kept=False)]
