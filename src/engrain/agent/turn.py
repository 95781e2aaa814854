"""One turn of a conversation, from the user's message to the answer, as a flow for threads and asyncio."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from engrain.agent.prompt import MemoryPrompt, MemoryText, build_system_text
from engrain.agent.tools import (
    NOT_KEPT,
    REMEMBER,
    ModelReply,
    Tool,
    ToolOutput,
    build_learned_note,
    call_tool,
    cite_results,
    clean_reply,
)
from engrain.core.errors import Conflict, InvalidInput, ModelFailed, NotFound
from engrain.core.model.items import Citation, Source
from engrain.core.model.messages import ChatMessage, ChatReply, ChatRequest, Message, ToolCall, find_call_spans
from engrain.core.tokens import cut_middle, estimate_tokens, shorten_line
from engrain.ingest.messages import RecordOptions
from engrain.tasks.flow import Flow, StoreCall, UserCall
from engrain.tasks.run import AsyncRun, Run
from engrain.tasks.steps import Retry, StepWork
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.chat.window import Window
    from engrain.maintenance.metering import MeteredModel
    from engrain.memory import Memory
    from engrain.tiers.conversation import ConversationMemory


Part = Callable[[], Flow[Any]]
# Runs a part of a turn; a plain function or a coroutine function. A replay compares the further arguments of a step.
PartRunner = Callable[..., Any]
StopReason = Literal["end", "steps", "length", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class CallResult:
    """A tool call of a model, and its result."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The answer of an agent; `str()` of it is the text.

    `stopped` is the reason: "end", the answer is complete; "steps", max_steps was reached; "length", the answer was cut
    at max_tokens; "refused", the model did not want to answer; "failed", the answer was empty. `steps` counts the
    replies of the model. A journal supplied `replayed` of them without a new call. The tokens are those of all.
    """

    text: str
    stopped: StopReason
    session: str
    model: str
    steps: int
    replayed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: tuple[CallResult, ...] = ()

    def __str__(self) -> str:
        return self.text


class EphemeralJournal:
    """No record: the turn ends with its process."""

    durable = False
    is_over = False  # True if all of it was done in an earlier run
    snapshot: Any = None

    def step(self, name: str, part: Part, args: tuple[Any, ...] = ()) -> Flow[Any]:
        return (yield from part())

    def call(self, name: str, key: str, part: Part, effect: bool) -> Flow[Any]:
        return (yield from part())

    def keep(self, snapshot: Any) -> Flow[None]:
        yield from ()

    def request_id(self, turn: str, number: int) -> str | None:
        return None


class DurableJournal(EphemeralJournal):
    """The parts of the turn are steps of a task: recorded parts are not done again."""

    durable = True

    def __init__(self, run: Run | AsyncRun, run_part: PartRunner) -> None:
        self._run = run
        self._run_part = run_part
        self.is_over = run.status == "done"
        self.snapshot = run.snapshot

    def step(self, name: str, part: Part, args: tuple[Any, ...] = ()) -> Flow[Any]:
        return (yield from self._run.step_flow(name, None, self._work(part, args)))

    def call(self, name: str, key: str, part: Part, effect: bool) -> Flow[Any]:
        flow = self._run.effect_flow if effect else self._run.step_flow
        return (yield from flow(name, key, self._work(part, ())))

    def keep(self, snapshot: Any) -> Flow[None]:
        yield StoreCall(partial(self._run.execution.keep, snapshot))

    def request_id(self, turn: str, number: int) -> str | None:
        """Return one id for the same write of the same turn, in every run of the task."""
        return f"agent:{turn}:{number}"

    def _work(self, part: Part, args: tuple[Any, ...]) -> StepWork:
        return StepWork(partial(self._run_part, part), args, Retry())


MAX_WHOLE_RESULT_TOKENS = 16_000  # of this turn's results; beyond, the log's shorter form is shown
shorten = partial(shorten_line, limit=500)
MAX_ACTION_CHARACTERS = 60  # of a tool's name and of its arguments in the name of a result
OUTCOME_IMPORTANCE = 0.7
MAX_CITED_RESULTS = 50
_STOP_TEXTS: Mapping[StopReason, str] = {
    "steps": "the steps were used up",
    "length": "the answer was cut, it was too long",
    "refused": "the model refused to answer",
    "failed": "the model answered with nothing",
}

_log = logging.getLogger("engrain")

RunParts = Callable[[Sequence[Part]], Any]


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of an agent. The calls of `memory_tools` do not make a turn a piece of work."""

    model: MeteredModel
    tools: Mapping[str, Tool]
    memory_tools: frozenset[str]
    system: str
    max_steps: int
    max_tokens: int
    timeout: float | None
    on_call: Callable[[CallResult], None] | None
    session: str | None
    prompt: MemoryPrompt


class Turn:
    """One turn. Its flow runs once; recorded parts are not done again.

    `run_parts` runs several parts, in parallel under asyncio.
    """

    def __init__(
        self, config: AgentConfig, memory: Memory, journal: EphemeralJournal, run_parts: RunParts, task: str
    ) -> None:
        self._config = config
        self._memory = memory
        self._journal = journal
        self._run_parts = run_parts
        self._task = task
        self._session = self._id = ""
        self._began = 0  # the store's last change: an erasure after it makes later writes fail
        self._user_message_ids: list[str] = []
        self._result_ids: list[str] = []  # of this turn's tool results: what is derived later cites them
        self._refused = False  # the user asked to forget something that must be kept
        self._owns_work = False  # this turn started the current work of working memory
        self._noted_steps = 0  # steps that working memory has from an earlier run
        self._steps = self._replayed = self._tokens_in = self._tokens_out = 0
        self._calls: list[CallResult] = []
        self._whole_results: dict[str, str] = {}  # by the id of their message
        self._memory_text: MemoryText | None = None
        self._conversation: ConversationMemory | None = None

    def flow(self) -> Flow[AgentReply]:
        self._began = yield StoreCall(self._memory.semantic.change_number)
        begun = yield from self._journal.step("begin", self._begin, (self._task,))
        self._session, self._id = begun["session"], begun["turn"]
        try:
            yield from self._keep_user_message()
            while True:
                last = self._steps + 1 >= self._config.max_steps
                received = yield from self._get_reply(last)
                if received.reply.calls and not last:
                    yield from self._use_tools(received.reply)
                elif (answer_ids := (yield from self._keep_answer(received))) is not None:
                    answer = self._build_answer(received.reply, last)
                    yield from self._keep_outcome(answer, answer_ids)
                    if self._owns_work:
                        yield StoreCall(self._memory.working.clear)
                        self._owns_work = False
                    return answer
        finally:
            if self._owns_work:
                self._memory.working.clear()

    # The beginning

    def _begin(self) -> Flow[dict[str, str]]:
        yield from ()
        return {"session": self._config.session or self._memory.conversation.session, "turn": uuid.uuid4().hex}

    def _keep_user_message(self) -> Flow[None]:
        """Keep the user's message before anything else is done with it."""
        if self._journal.is_over:
            return
        yield StoreCall(partial(self._config.prompt.enter, self._memory, self._session))
        self._user_message_ids = yield from self._add_to_log([Message("user", self._task)], 0)
        self._refused = self._open_conversation().refused is not None
        working, snapshot = self._memory.working, self._journal.snapshot
        if working.task:
            return
        self._owns_work = True
        if snapshot is None:
            yield StoreCall(partial(working.start, shorten(self._task)))
        else:
            yield StoreCall(partial(working.load, snapshot["working"]))
            self._noted_steps = snapshot["steps"]

    # The model

    def _get_reply(self, last: bool) -> Flow[ModelReply]:
        asked: list[bool] = []  # stays empty in a replay

        def part() -> Flow[dict[str, Any]]:
            asked.append(True)
            return (yield from self._ask_model(last))

        try:
            received = ModelReply.parse((yield from self._journal.step("model", part)))
        except ModelFailed as exc:
            yield from self._record_failure(exc)
            raise
        self._steps += 1
        self._replayed += not asked
        self._tokens_in += received.reply.tokens_in
        self._tokens_out += received.reply.tokens_out
        return received

    def _record_failure(self, error: ModelFailed) -> Flow[None]:
        cites = tuple(map(Citation, self._user_message_ids))
        try:
            yield StoreCall(partial(self._memory.episodic.record_error, error, session=self._session, cites=cites))
        except NotFound:
            _log.info("the failure of the model was not kept: the user's message is forgotten.")

    def _ask_model(self, last: bool) -> Flow[dict[str, Any]]:
        seen, window = yield StoreCall(self._read_window)
        if self._memory_text is None:
            render = partial(self._config.prompt.render, self._memory, self._session, self._task, window)
            self._memory_text = yield StoreCall(partial(render, show_work=not self._owns_work))
        tools = self._config.tools
        request = ChatRequest(
            _drop_trailing_answers(self._show_whole_results(window)),
            build_system_text(self._config.system, self._memory_text, last and bool(tools), self._refused),
            () if last else tuple(tool.spec for tool in tools.values()),
            self._config.max_tokens,
            self._config.timeout,
        )
        reply: ChatReply = yield UserCall(self._config.model.reply, (request,))
        return ModelReply(clean_reply(reply), seen).plain

    def _read_window(self) -> tuple[int, Window]:
        conversation = self._open_conversation()
        # The length first: a message in between is shown, and found when the answer is kept.
        return len(conversation), conversation.window()

    def _show_whole_results(self, window: Window) -> list[ChatMessage]:
        """Show this turn's results whole as far as there is room, the newest first."""
        room = MAX_WHOLE_RESULT_TOKENS
        messages = list(window.messages)
        for at in reversed(range(len(messages))):
            whole = self._whole_results.get(messages[at].id or "", "")
            text, _ = cut_middle(whole, room, estimate_tokens)
            if text and (text == whole or len(text) > len(messages[at].text)):
                messages[at] = replace(messages[at], text=text)
                room -= estimate_tokens(text)
        return replace(window, messages=tuple(messages)).said

    # Tools

    def _use_tools(self, reply: ChatReply) -> Flow[None]:
        parts = [partial(self._run_call, call, f"{self._steps}.{at}") for at, call in enumerate(reply.calls, 1)]
        results: list[CallResult] = yield UserCall(self._run_parts, (parts,))
        self._calls += results
        answers = map(self._build_message, reply.calls, results)
        ids = yield from self._add_to_log([Message("assistant", reply.text, calls=reply.calls), *answers], self._steps)
        self._whole_results.update(zip(ids[1:], (result.result for result in results), strict=False))
        yield from self._remember_learned(reply.calls, results, ids)
        outside = [
            id for id, result in zip(ids[1:], results, strict=False) if result.tool not in self._config.memory_tools
        ]
        self._result_ids = [*self._result_ids, *outside][-MAX_CITED_RESULTS:]
        yield from self._note_results(reply.text, results)

    def _run_call(self, call: ToolCall, key: str) -> Flow[CallResult]:
        tool = self._config.tools.get(call.name)
        effect = tool is not None and tool.effect
        run = partial(call_tool, call, self._config.tools, effect and self._journal.durable)

        def part() -> Flow[Any]:
            return (yield from run()).plain

        if tool is None or tool.kept:
            name = call.name.replace("[", "(").replace("]", ")")
            output = ToolOutput.parse((yield from self._journal.call(name, key, part, effect)))
        else:
            output = ToolOutput(NOT_KEPT) if self._journal.is_over else (yield from run())
        result = CallResult(call.name, call.arguments, output.text, output.failed)
        if self._config.on_call is not None:
            self._config.on_call(result)
        return result

    def _build_message(self, call: ToolCall, result: CallResult) -> Message:
        tool = self._config.tools.get(call.name)
        text = result.result if tool is None or tool.kept or result.failed else NOT_KEPT
        return Message("tool", text, answers=call.id, tool=call.name, failed=result.failed)

    def _remember_learned(self, calls: Sequence[ToolCall], called: Sequence[CallResult], ids: list[str]) -> Flow[None]:
        """Remember what the model asked for. The item cites the user's message and the words of the call in the log."""
        memory_tools = self._config.memory_tools
        wanted = [not call.failed and call.tool in memory_tools and call.tool == REMEMBER for call in called]
        row = (yield StoreCall(partial(self._memory.get, ids[0]))) if ids and any(wanted) else None
        spans = find_call_spans(row) if row else []
        heard = (yield StoreCall(partial(self._memory.get, self._user_message_ids[0]))) if row else None
        request = self._journal.request_id(self._id, self._steps)
        for at, (call, mine, span) in enumerate(zip(calls, wanted, spans, strict=False)):
            if not mine or heard is None:
                continue
            note = build_learned_note(call, Citation(ids[0], *span), heard, self._result_ids)
            remember = partial(self._memory.semantic.remember, note, request and f"{request}:{at}")
            try:
                yield StoreCall(remember)
            except (NotFound, InvalidInput) as exc:
                _log.info("a fact of the model was not remembered: %s", exc)

    def _note_results(self, thought: str, called: Sequence[CallResult]) -> Flow[None]:
        """Note the results in working memory, whose snapshot is stored with the task."""
        if self._journal.is_over or self._steps <= self._noted_steps:
            return
        for call in called:
            result = shorten(call.result)
            seen = {"failed": result} if call.failed else result
            yield StoreCall(partial(self._memory.working.step, shorten(thought), _name_action(call), seen))
            thought = ""
        if self._owns_work:
            yield from self._journal.keep({"steps": self._steps, "working": self._memory.working.snapshot()})

    # The end

    def _keep_answer(self, received: ModelReply) -> Flow[list[str] | None]:
        """Keep the answer and return its id, in a list. An empty answer has none.

        None if somebody else spoke meanwhile: then the model is asked again, with the new messages.
        """
        if not received.reply.text.strip():
            return []
        message, may_ask_again = Message("assistant", received.reply.text), self._steps <= self._config.max_steps

        def part() -> Flow[list[str] | None]:
            try:
                return (yield from self._add_to_log([message], self._steps, received.seen))
            except Conflict:
                if not may_ask_again:
                    raise
                return None

        answer_ids: list[str] | None = yield from self._journal.step("answer", part)
        return answer_ids

    def _build_answer(self, reply: ChatReply, last: bool) -> AgentReply:
        stopped: StopReason = "end" if reply.stop == "tools" else reply.stop
        if last and self._config.tools:
            stopped = "steps"
        elif stopped == "end" and not reply.text.strip():
            stopped = "failed"
        tokens = (self._tokens_in, self._tokens_out)
        return AgentReply(
            reply.text, stopped, self._session, reply.model, self._steps, self._replayed, *tokens, tuple(self._calls)
        )

    def _keep_outcome(self, answer: AgentReply, answer_ids: list[str]) -> Flow[None]:
        """Keep the outcome of work; a mere answer is in the log already.

        It cites the log, so that it is forgotten together with the messages.
        """
        worked = self._journal.durable or any(call.tool not in self._config.memory_tools for call in answer.calls)
        if not self._owns_work or not worked:
            return
        request = self._journal.request_id(self._id, self._steps + 1)
        cites = (*map(Citation, (*self._user_message_ids, *answer_ids)), *cite_results(self._result_ids))
        if answer.stopped == "end":
            text = f"Successfully completed: {shorten(self._task)} Outcome: {shorten(answer.text)}"
            keep = partial(
                self._memory.remember, text, importance=OUTCOME_IMPORTANCE, source=Source("task", "agent", cites)
            )
        else:
            text = f"Failed: {shorten(self._task)} Outcome: {_STOP_TEXTS[answer.stopped]}"
            keep = partial(self._memory.episodic.record_error, text, session=self._session, cites=cites)
        try:
            yield StoreCall(partial(keep, request_id=request))
        except NotFound:
            _log.info("the outcome of a turn was not kept: a message that it cites was forgotten meanwhile.")

    def _add_to_log(self, said: list[Message], number: int, seen: int | None = None) -> Flow[list[str]]:
        """Add messages to the log; with `seen`, only if the session still has that many."""
        if self._journal.is_over:
            return []
        request = self._journal.request_id(self._id, number)
        ids: list[str] = yield StoreCall(partial(traced(self.add_messages), said, seen, request))
        return ids

    def add_messages(self, said: list[Message], seen: int | None, request: str | None) -> list[str]:
        return self._open_conversation().append(said, RecordOptions(request, seen, self._began))

    def _open_conversation(self) -> ConversationMemory:
        """Return the conversation of this turn: one object, which caches what it has read."""
        if self._conversation is None:
            own = self._memory.current_session == self._session
            self._conversation = self._memory.conversation if own else self._memory.session(self._session).conversation
        return self._conversation


def _name_action(called: CallResult) -> str:
    """Return a short name for a result in working memory."""
    arguments = json.dumps(dict(called.arguments), ensure_ascii=False)
    return f"{called.tool[:MAX_ACTION_CHARACTERS]} {shorten_line(arguments, MAX_ACTION_CHARACTERS)}"


def _drop_trailing_answers(said: list[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Leave out assistant messages after the last message of the user or a tool: a model answers those."""
    last = max((at for at, message in enumerate(said) if message.role in ("user", "tool")), default=-1)
    return tuple(message for at, message in enumerate(said) if at <= last or message.role != "assistant")
