"""One turn of a conversation, from the user's message to the answer, as a flow for threads and asyncio."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engrain.agent.attachments import keep_attachments, load_attachments, refer_to_attachments
from engrain.agent.results import AgentEvent, AgentReply, CallResult, StopReason, TextDelta, ToolStarted
from engrain.agent.system_text import MemoryPrompt, MemoryText, build_system_text
from engrain.agent.tools import (
    FINAL_ANSWER,
    NOT_KEPT,
    REMEMBER,
    ModelReply,
    Tool,
    ToolOutput,
    build_learned_note,
    call_tool,
    cite_results,
    clean_reply,
    fit_output,
)
from engrain.agent.turn_journal import EphemeralJournal, Part
from engrain.core.errors import ApprovalNeeded, Conflict, InvalidInput, ModelFailed, NotFound, TaskWaiting
from engrain.core.model.items import Citation, Source
from engrain.core.model.messages import (
    Attachment,
    ChatMessage,
    ChatReply,
    ChatRequest,
    Message,
    ToolCall,
    find_call_spans,
)
from engrain.core.tokens import cut_middle, estimate_tokens, shorten_line
from engrain.ingest.write_messages import RecordOptions, WriteAlong
from engrain.tasks.flow_requests import Flow, StoreCall, UserCall
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.chat.window import Window
    from engrain.maintenance.model_usage import MeteredModel
    from engrain.memory import Memory
    from engrain.tiers.conversation import ConversationMemory


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
    on_event: Callable[[AgentEvent], object] | None
    session: str | None
    prompt: MemoryPrompt
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request of the user. `output` is the tool that takes the answer in a form; `emit` gets events of a stream."""

    task: str
    attachments: tuple[Attachment, ...] = ()
    output: Tool | None = None
    emit: Callable[[AgentEvent], object] | None = None


class Turn:
    """One turn. Its flow runs once; recorded parts are not done again.

    `run_parts` runs several parts, in parallel.
    """

    def __init__(
        self, config: AgentConfig, memory: Memory, journal: EphemeralJournal, run_parts: RunParts, request: TurnRequest
    ) -> None:
        self._config = config
        self._memory = memory
        self._journal = journal
        self._run_parts = run_parts
        self._request = request
        self._task = request.task
        self._tools = {**config.tools, **({request.output.name: request.output} if request.output else {})}
        self._listeners = [listen for listen in (config.on_event, request.emit) if listen is not None]
        self._output: Any = None
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
                received = self._take_output((yield from self._get_reply(last)))
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
        attachments = self._request.attachments
        message = Message("user", self._task, metadata=refer_to_attachments(attachments))
        keep = partial(keep_attachments, self._memory, attachments) if attachments else None
        self._user_message_ids = yield from self._add_to_log([message], 0, keep=keep)
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
        if not asked and received.reply.text:
            self._emit(TextDelta(received.reply.text))
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
        attached = yield StoreCall(partial(load_attachments, self._memory, window.messages))
        output = self._request.output
        tools = ([output] if output else []) if last else list(self._tools.values())
        streamed: list[str] = []
        request = ChatRequest(
            _drop_trailing_answers(self._show_whole_results(window, attached)),
            build_system_text(self._config.system, self._memory_text, last and bool(self._config.tools), self._refused),
            tuple(tool.spec for tool in tools),
            self._config.max_tokens,
            self._config.timeout,
            "auto" if output is None else output.name if len(tools) == 1 else "any",
            self._config.parameters,
            partial(self._emit_text, streamed) if self._listeners else None,
        )
        reply: ChatReply = yield UserCall(self._config.model.reply, (request,))
        if reply.text and not streamed:  # a model that cannot stream
            self._emit(TextDelta(reply.text))
        return ModelReply(clean_reply(reply), seen).plain

    def _emit(self, event: AgentEvent) -> None:
        for listen in self._listeners:
            listen(event)

    def _emit_text(self, streamed: list[str], text: str) -> None:
        if text:
            streamed.append("")
            self._emit(TextDelta(text))

    def _take_output(self, received: ModelReply) -> ModelReply:
        """Make the call that gives the answer in its form the answer. A wrong form is answered as a failure."""
        if self._request.output is None:
            return received
        reply = received.reply
        call = next((call for call in reply.calls if call.name == FINAL_ANSWER), None)
        written = _parse_object(reply.text) if call is None else call.arguments
        if written is None or (call is not None and call.malformed):
            return received
        try:
            self._output = self._request.output.function(**fit_output(written, self._request.output))
        except ValueError:
            return received
        text = json.dumps(dict(written), ensure_ascii=False)
        return replace(received, reply=replace(reply, text=text, calls=(), stop="end"))

    def _read_window(self) -> tuple[int, Window]:
        conversation = self._open_conversation()
        # The length first: a message in between is shown, and found when the answer is kept.
        return len(conversation), conversation.window()

    def _show_whole_results(self, window: Window, attached: Mapping[int, tuple[Attachment, ...]]) -> list[ChatMessage]:
        """Show attachments, and this turn's results whole as far as there is room, the newest first."""
        room = MAX_WHOLE_RESULT_TOKENS
        messages = list(window.messages)
        for at in reversed(range(len(messages))):
            whole = self._whole_results.get(messages[at].id or "", "")
            text, _ = cut_middle(whole, room, estimate_tokens)
            if text and (text == whole or len(text) > len(messages[at].text)):
                messages[at] = replace(messages[at], text=text)
                room -= estimate_tokens(text)
        said = replace(window, messages=tuple(messages)).chat_messages
        first = len(said) - len(messages)
        for place, attachments in attached.items():
            said[first + place] = replace(said[first + place], attachments=attachments)
        return said

    # Tools

    def _use_tools(self, reply: ChatReply) -> Flow[None]:
        parts = [partial(self._run_call, call, f"{self._steps}.{at}") for at, call in enumerate(reply.calls, 1)]
        # Effects keep the order in which the model asked for them; other calls run in parallel.
        ordered = any(tool.effect for call in reply.calls if (tool := self._tools.get(call.name)))
        results: list[CallResult] = []
        for group in [[part] for part in parts] if ordered else [parts]:
            results += yield UserCall(self._run_parts, (group,))
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
        tool = self._tools.get(call.name)
        effect = tool is not None and tool.effect
        run = partial(call_tool, call, self._tools, effect and self._journal.durable)

        def part() -> Flow[Any]:
            self._emit(ToolStarted(call.name, call.arguments))
            return (yield from run()).plain

        refusal = (yield from self._ask_person(call, key)) if tool is not None and tool.approval else None
        if refusal is not None:
            output = ToolOutput(refusal, failed=True)
        elif tool is None or tool.kept:
            name = call.name.replace("[", "(").replace("]", ")")
            output = ToolOutput.parse((yield from self._journal.call(name, key, part, effect)))
        else:
            output = ToolOutput(NOT_KEPT) if self._journal.is_over else (yield from run())
        result = CallResult(call.name, call.arguments, output.text, output.failed)
        self._emit(result)
        return result

    def _ask_person(self, call: ToolCall, key: str) -> Flow[str | None]:
        """Wait until a person decides about a call. Return None for yes, and otherwise the text for the model."""
        event = f"approval {key}"
        try:
            decision = yield from self._journal.wait_event(event)
        except TaskWaiting as exc:
            shown = shorten(json.dumps(dict(call.arguments), ensure_ascii=False, default=str))
            asked = f'{call.name} {shown} waits for approval: signal the event {event!r} with "yes", or a reason.'
            raise ApprovalNeeded(asked, event, call.name, call.arguments) from exc
        if decision is True or decision == "yes":
            return None
        reason = decision if isinstance(decision, str) and decision != "no" else ""
        return "A person refused this call. Do not repeat it." + (f" They said: {shorten(reason)}" if reason else "")

    def _build_message(self, call: ToolCall, result: CallResult) -> Message:
        tool = self._tools.get(call.name)
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
        if self._request.output is not None:
            stopped = "end" if self._output is not None else "failed" if stopped == "end" else stopped
        return AgentReply(
            reply.text,
            stopped,
            self._session,
            reply.model,
            self._steps,
            self._replayed,
            self._tokens_in,
            self._tokens_out,
            tuple(self._calls),
            self._output,
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

    def _add_to_log(
        self, said: list[Message], number: int, seen: int | None = None, keep: WriteAlong | None = None
    ) -> Flow[list[str]]:
        """Add messages to the log; with `seen`, only if the session still has that many."""
        if self._journal.is_over:
            return []
        options = RecordOptions(self._journal.request_id(self._id, number), seen, self._began, keep)
        ids: list[str] = yield StoreCall(partial(traced(self.add_messages), said, options))
        return ids

    def add_messages(self, said: list[Message], options: RecordOptions) -> list[str]:
        return self._open_conversation().append(said, options)

    def _open_conversation(self) -> ConversationMemory:
        """Return the conversation of this turn: one object, which caches what it has read."""
        if self._conversation is None:
            own = self._memory.current_session == self._session
            self._conversation = self._memory.conversation if own else self._memory.session(self._session).conversation
        return self._conversation


def _parse_object(text: str) -> dict[str, Any] | None:
    """Read an answer that a model wrote as text instead of calling the tool for it."""
    bare = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _name_action(called: CallResult) -> str:
    """Return a short name for a result in working memory."""
    arguments = json.dumps(dict(called.arguments), ensure_ascii=False)
    return f"{called.tool[:MAX_ACTION_CHARACTERS]} {shorten_line(arguments, MAX_ACTION_CHARACTERS)}"


def _drop_trailing_answers(said: list[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Leave out assistant messages after the last message of the user or a tool: a model answers those."""
    last = max((at for at, message in enumerate(said) if message.role in ("user", "tool")), default=-1)
    return tuple(message for at, message in enumerate(said) if at <= last or message.role != "assistant")
