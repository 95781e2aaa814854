"""Tools: functions that a model may call, the calls in its replies, and their results."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from engrain.agent.tool_schema import build_schema, fit_arguments, read_purpose
from engrain.core.errors import EffectNotPerformed, InvalidInput
from engrain.core.model.items import Citation, Item, Note, Source
from engrain.core.model.messages import ChatReply, ToolCall, ToolSpec, check_timeout, encode_arguments
from engrain.core.validation import check_text
from engrain.ports.timed_call import call_within
from engrain.tasks.flow_requests import Flow, Sleep, UserCall
from engrain.tasks.step_kinds import Retry, parse_retry

if TYPE_CHECKING:
    from engrain.memory import Memory


MAX_RESULT_CHARACTERS = 1_000_000  # a longer one is cut, with a note
REMEMBER = "remember"
RECALL_TOKENS = 1_500
RECALL_HITS = 8
LEARNED_IMPORTANCE = 0.6

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call; `tool` makes one. `parameters` is the JSON schema of its arguments.

    An `effect` must not happen twice. In a durable run its intent is on disk before the call, and an interrupted call
    is reported instead of repeated. If the function raises, `retries` more attempts are made; for an effect only if it
    raises EffectNotPerformed. After `timeout` seconds the call has failed. `kept=False` keeps the result out of the log
    and the journal: it is stored elsewhere, and must be forgotten there. With `approval` a person decides about each
    call; such a turn needs a `task_id`.
    """

    name: str
    description: str
    function: Function
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    effect: bool = False
    retries: int | Retry = 0
    timeout: float | None = None
    kept: bool = True
    approval: bool = False

    def __post_init__(self) -> None:
        self.spec  # noqa: B018  # checks name and parameters
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
    def is_async(self) -> bool:
        """True for a coroutine function, which only AsyncAgentWithMemory can call."""
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    def bind(self, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        """Return a function without parameters that makes this call within the time-out."""
        call = partial(self.function, **arguments)
        if self.is_async:
            return partial(_await_within, self.timeout, call)
        return call if self.timeout is None else partial(call_within, self.timeout, call)


FINAL_ANSWER = "final_answer"


def make_output_tool(output: Any) -> Tool:
    """Make the tool with which a model gives its answer in a form: a pydantic model, or a JSON schema of an object."""
    validate = getattr(output, "model_validate", None)
    if validate is None and not isinstance(output, Mapping):
        raise InvalidInput(f"output must be a pydantic model or a JSON schema, not {type(output).__name__}.")
    schema = output.model_json_schema() if validate else output

    def check(**arguments: Any) -> Any:
        return validate(arguments) if validate else arguments

    return Tool(FINAL_ANSWER, "Give the final answer, in this form. Call it once, alone.", check, schema)


def fit_output(arguments: Mapping[str, Any], output: Tool) -> dict[str, Any]:
    """Return the arguments of a final answer; ValueError if they do not have the form."""
    fitted, problems = fit_arguments(arguments, output.parameters)
    if problems:
        raise InvalidInput("; ".join(problems))
    return fitted


class ToolOptions(TypedDict, total=False):
    """Fields of a Tool that `tool` takes as keywords."""

    effect: bool
    retries: int | Retry
    timeout: float | None
    approval: bool


@overload
def tool(
    function: Function, *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Tool: ...
@overload
def tool(
    function: None = None, *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Function], Tool]:
    """Make a tool from a function with type hints: tool(look_up), or as a decorator, @tool or @tool(effect=True).

    The docstring says what the tool does, and under "Args:" what each argument is. The model sees the result: a str as
    it is, anything else as JSON. It sees an exception as a failure. The options are effect, retries, timeout and
    approval, as in Tool.
    """

    def make(function: Function) -> Tool:
        if not callable(function):
            raise InvalidInput(f"a tool is made of a function, not of {function!r}.")
        inside = getattr(function, "func", function)  # of a functools.partial
        tool_name = name or str(getattr(inside, "__name__", type(inside).__name__))
        purpose = read_purpose(function) if description is None else description
        schema = build_schema(function, tool_name)
        return Tool(tool_name, purpose, function, schema, **options)

    return make if function is None else make(function)


def render_value(value: Any) -> str:
    """Render the result of a tool for the model: storable text of limited length."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # such as a list that contains itself
        text = repr(value)
    if len(text) > MAX_RESULT_CHARACTERS:
        text = f"{text[:MAX_RESULT_CHARACTERS]}\n[cut here: {len(text):,} characters in all]"
    return clean_text(text)


def clean_text(text: str) -> str:
    """Remove what no store accepts: NUL, and halves of surrogate pairs."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


async def _await_within(seconds: float | None, call: Callable[[], Any]) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call()
    except TimeoutError as exc:
        if limit.expired():
            raise TimeoutError(f"no answer within {seconds:g} s.") from exc
        raise


def build_learned_note(call: ToolCall, cite: Citation, message: Item, results: Sequence[str]) -> Note:
    """Build the note of a successful call of `remember`, after tool results with these ids.

    It cites the call's words in the log, the user's message and the results: it is forgotten with each, and trusted no
    more than the least of them. As a derived note it cannot bring back a forgotten fact.
    """
    text = str(call.arguments["text"])
    source = Source("conversation", "agent", (cite, _cite_message(text, message), *cite_results(results)))
    return Note(text, LEARNED_IMPORTANCE, source=source, derived=True)


def cite_results(ids: Sequence[str]) -> tuple[Citation, ...]:
    """Cite tool results without words: they stay when what was derived from them is forgotten."""
    return tuple(Citation(id, 0, 0) for id in ids)


def _cite_message(text: str, message: Item) -> Citation:
    """Cite the same words of the message; else the whole message, which stays when only the fact is forgotten."""
    found = re.search(re.escape(text.strip().rstrip(".!")), message.text, re.IGNORECASE)
    return Citation(message.id, *(found.span() if found else (0, 0)))


def memory_tools(memory: Callable[[], Memory]) -> list[Tool]:
    """Make the tools `remember` and `recall`. `memory` is called with each use: it may be opened late."""

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
        # shown=(): the model sees the current session anyway.
        found = memory().recall(question, n=RECALL_HITS, budget=RECALL_TOKENS, shown=())
        return str(found) or "Nothing relevant is remembered."

    # Recalled items are not kept: a copy in the log would remain after they are forgotten.
    return [tool(remember, name=REMEMBER), replace(tool(recall), kept=False)]


MAX_ERROR_CHARACTERS = 2_000
MAX_NAME_CHARACTERS = 64  # of a tool's name and a call's id: the limit of the services
DEFAULT_NAME = "unnamed"
NOT_KEPT = "(shown when it was called, not kept)"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The text that the model sees. `plain` is its form in a journal."""

    text: str
    failed: bool = False

    @property
    def plain(self) -> Any:
        return {"failed": self.text} if self.failed else self.text

    @classmethod
    def parse(cls, plain: Any) -> ToolOutput:
        """A person may have resolved an effect with any value."""
        failed = isinstance(plain, dict) and plain.keys() == {"failed"}
        return cls(render_value(plain["failed"] if failed else plain), failed)


def call_tool(call: ToolCall, tools: Mapping[str, Tool], once: bool) -> Flow[ToolOutput]:
    """Call the tool, with its retries.

    After an error other than EffectNotPerformed, an effect may have happened. It is not tried again; with `once`, in a
    durable run, the error is raised.
    """
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(tools) or "none"
        return ToolOutput(f"There is no tool {call.name!r}. Known: {known}.", failed=True)
    if call.malformed:
        return ToolOutput(
            f"The arguments of {call.name} must be a JSON object, not {call.malformed[:200]}", failed=True
        )
    arguments, problems = fit_arguments(call.arguments, tool.parameters)
    if problems:
        return ToolOutput(f"{call.name} was not called: {'; '.join(problems)}.", failed=True)
    failures = 0
    while True:
        try:
            return ToolOutput(render_value((yield UserCall(tool.bind(arguments)))))
        except Exception as exc:
            ambiguous = tool.effect and not isinstance(exc, EffectNotPerformed)
            if ambiguous and once:
                raise
            if ambiguous or failures >= tool.retry.times:
                return ToolOutput(_describe_failure(exc, ambiguous), failed=True)
        failures += 1
        yield Sleep(tool.retry.pause(failures))


def _describe_failure(exc: Exception, ambiguous: bool) -> str:
    text = render_value(f"{type(exc).__name__}: {exc}".removesuffix(": ")[:MAX_ERROR_CHARACTERS])
    return f"{text}\nIt may have happened all the same: do not repeat it before you know." if ambiguous else text


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply, and how many messages the session had when the model was asked. `plain` is its form in a journal."""

    reply: ChatReply
    seen: int

    @property
    def plain(self) -> dict[str, Any]:
        calls = [
            {**asdict(replace(call, arguments={})), "arguments": dict(call.arguments)} for call in self.reply.calls
        ]
        return {**asdict(replace(self.reply, calls=())), "calls": calls, "seen": self.seen}

    @classmethod
    def parse(cls, plain: dict[str, Any]) -> ModelReply:
        values = {name: value for name, value in plain.items() if name not in ("calls", "seen")}
        return cls(ChatReply(calls=tuple(ToolCall(**call) for call in plain["calls"]), **values), plain["seen"])


def clean_reply(reply: ChatReply) -> ChatReply:
    """Remove from a reply what a store or a journal would refuse: the reply has been paid for."""
    return replace(reply, text=clean_text(reply.text), calls=tuple(map(_clean_call, reply.calls)))


def _clean_call(call: ToolCall) -> ToolCall:
    cleaned = replace(
        call,
        id=clean_text(call.id)[:MAX_NAME_CHARACTERS],
        name=clean_text(call.name)[:MAX_NAME_CHARACTERS].strip() or DEFAULT_NAME,
        malformed=clean_text(call.malformed),
    )
    try:
        encode_arguments(cleaned)
    except InvalidInput:
        written = clean_text(json.dumps(dict(call.arguments), default=str, ensure_ascii=False))
        return replace(cleaned, arguments={}, malformed=written[:10_000] or "(not JSON)")
    return cleaned
