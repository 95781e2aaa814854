"""One turn of a conversation, from what the user says to the answer, as a flow that threads and asyncio can drive."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engrain.agent.journal import NoJournal, Part
from engrain.agent.prompt import MemoryPrompt, system_text
from engrain.agent.results import (
    NOT_KEPT,
    AgentReply,
    Called,
    ModelReply,
    Result,
    Stopped,
    heard_of,
    made,
    result_of,
    storable_reply,
)
from engrain.agent.tools import REMEMBER, Tool, learnt
from engrain.core.errors import Conflict, InvalidInput, ModelFailed, NotFound
from engrain.core.model import chat
from engrain.core.model.chat import ChatMessage, ChatReply, ToolCall
from engrain.core.model.items import Citation, Source
from engrain.core.model.messages import Message, find_call_spans
from engrain.core.tokens import cut_middle, estimate_tokens
from engrain.tasks.driver import Flow, StoreCall, UserCall
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.chat.window import Window
    from engrain.maintenance.metering import MeteredModel
    from engrain.memory import Memory
    from engrain.tiers.conversation import ConversationMemory

# Tokens of this turn's results that are shown whole; beyond, the log's shorter form of them.
WHOLE_RESULTS = 16_000
SHORT = 500  # characters of what is only mentioned
NAME = 60  # of a tool's name, and of its arguments, where a result is named by them
OUTCOME = 0.7  # the importance of what was achieved
_WHY: Mapping[Stopped, str] = {
    "steps": "the steps were used up",
    "length": "the answer was cut, it was too long",
    "refused": "the model refused to answer",
    "failed": "the model answered with nothing",
}

_log = logging.getLogger("engrain")

Together = Callable[[Sequence[Part]], Any]


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """How an agent works. To use a tool that is `aside` is no work: memory's own."""

    model: MeteredModel
    tools: Mapping[str, Tool]
    aside: frozenset[str]
    system: str
    max_steps: int
    max_tokens: int
    timeout: float | None
    on_call: Callable[[Called], None] | None


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Where a turn happens: its memory, its session if one is named, and what memory has for it.

    `together` plays several parts, side by side where the face can."""

    memory: Memory
    session: str | None
    background: MemoryPrompt
    together: Together


class Turn:
    """Its flow may be driven once. What the journal has of it is not done again."""

    def __init__(self, manner: AgentConfig, place: TurnContext, journal: NoJournal, task: str) -> None:
        self._manner = manner
        self._place = place
        self._memory = place.memory
        self._journal = journal
        self._task = task
        self._session = self._id = ""
        self._began = 0  # the store's moment: what comes of a turn does not outlive its user
        self._heard: list[str] = []  # the id of what the user said
        self._refused = False  # whether that asked to forget something which cannot go
        self._own = False  # whether the task at hand in working memory is this turn's
        self._noted = 0  # steps that working memory has from an earlier life
        self._steps = self._replayed = self._tokens_in = self._tokens_out = 0
        self._calls: list[Called] = []
        self._whole: dict[str, str] = {}  # results of this turn by the id of their message
        self._block: str | None = None
        self._conversation: ConversationMemory | None = None

    def flow(self) -> Flow[AgentReply]:
        self._began = yield StoreCall(self._memory.semantic.change_number)
        begun = yield from self._journal.step("begin", self._begin, (self._task,))
        self._session, self._id = begun["session"], begun["turn"]
        try:
            yield from self._hear()
            while True:
                last = self._steps + 1 >= self._manner.max_steps
                heard = yield from self._asked(last)
                if heard.reply.calls and not last:
                    yield from self._use_tools(heard)
                elif (kept := (yield from self._said(heard))) is not None:
                    answer = self._answer(heard.reply, last)
                    yield from self._end(answer, kept)
                    yield from self._leave()
                    return answer
        finally:
            if self._own:
                self._memory.working.clear()

    # The beginning

    def _begin(self) -> Flow[dict[str, str]]:
        yield from ()
        return {"session": self._place.session or self._memory.conversation.session, "turn": uuid.uuid4().hex}

    def _hear(self) -> Flow[None]:
        """What the user said is kept before anything else is done with it."""
        if self._journal.over:
            return
        yield StoreCall(partial(self._place.background.enter, self._memory, self._session))
        self._heard = yield from self._keep([Message("user", self._task)], 0)
        self._refused = self._talk().refused is not None
        working, kept = self._memory.working, self._journal.snapshot
        if working.task:
            return
        self._own = True
        if kept is None:
            yield StoreCall(partial(working.start, short(self._task)))
        else:
            yield StoreCall(partial(working.load, kept["working"]))
            self._noted = kept["steps"]

    # The model

    def _asked(self, last: bool) -> Flow[ModelReply]:
        asked: list[bool] = []

        def part() -> Flow[dict[str, Any]]:
            asked.append(True)
            return (yield from self._ask(last))

        try:
            heard = heard_of((yield from self._journal.step("model", part)))
        except ModelFailed as exc:
            yield from self._failed(exc)
            raise
        self._steps += 1
        self._replayed += not asked
        self._tokens_in += heard.reply.tokens_in
        self._tokens_out += heard.reply.tokens_out
        return heard

    def _failed(self, why: ModelFailed) -> Flow[None]:
        cites = tuple(map(Citation, self._heard))
        try:
            yield StoreCall(partial(self._memory.episodic.record_error, why, session=self._session, cites=cites))
        except NotFound:
            _log.info("that the model failed was not kept: what it was asked is forgotten.")

    def _ask(self, last: bool) -> Flow[dict[str, Any]]:
        seen, window = yield StoreCall(self._look)
        if self._block is None:
            block = partial(self._place.background.block, self._memory, self._session, self._task, window)
            self._block = yield StoreCall(partial(block, at_work=not self._own))
        tools = self._manner.tools
        ask = chat.ChatRequest(
            _answerable(self._shown(window)),
            system_text(self._manner.system, self._block, last and bool(tools), self._refused),
            () if last else tuple(tool.spec for tool in tools.values()),
            self._manner.max_tokens,
            self._manner.timeout,
        )
        reply: ChatReply = yield UserCall(self._manner.model.reply, (ask,))
        return ModelReply(storable_reply(reply), seen).plain

    def _look(self) -> tuple[int, Window]:
        talk = self._talk()
        # The length first: what comes in between is shown, and noticed when the answer is kept.
        return len(talk), talk.window()

    def _shown(self, window: Window) -> list[ChatMessage]:
        """The window, in which this turn's results stand whole as far as there is room, the newest first."""
        room = WHOLE_RESULTS
        messages = list(window.messages)
        for at in reversed(range(len(messages))):
            whole = self._whole.get(messages[at].id or "", "")
            text, _ = cut_middle(whole, room, estimate_tokens)
            if text and (text == whole or len(text) > len(messages[at].text)):
                messages[at] = replace(messages[at], text=text)
                room -= estimate_tokens(text)
        return replace(window, messages=tuple(messages)).said

    # Tools

    def _use_tools(self, heard: ModelReply) -> Flow[None]:
        reply = heard.reply
        parts = [partial(self._called, call, f"{self._steps}.{at}") for at, call in enumerate(reply.calls, 1)]
        called: list[Called] = yield UserCall(self._place.together, (parts,))
        self._calls += called
        said = [Message("assistant", reply.text, calls=reply.calls), *map(self._result, reply.calls, called)]
        ids = yield from self._keep(said, self._steps)
        self._whole.update(zip(ids[1:], (one.result for one in called), strict=False))
        yield from self._learn(reply.calls, called, ids)
        yield from self._note(reply.text, called)

    def _called(self, call: ToolCall, key: str) -> Flow[Called]:
        used = self._manner.tools.get(call.name)
        effect = used is not None and used.effect
        making = partial(made, call, self._manner.tools, effect and self._journal.durable)

        def part() -> Flow[Any]:
            return (yield from making()).plain

        if used is None or used.kept:
            name = call.name.replace("[", "(").replace("]", ")")
            result = result_of((yield from self._journal.call(name, key, part, effect)))
        else:
            result = Result(NOT_KEPT) if self._journal.over else (yield from making())
        called = Called(call.name, call.arguments, result.text, result.failed)
        if self._manner.on_call is not None:
            self._manner.on_call(called)
        return called

    def _result(self, call: ToolCall, called: Called) -> Message:
        used = self._manner.tools.get(call.name)
        text = called.result if used is None or used.kept or called.failed else NOT_KEPT
        return Message("tool", text, answers=call.id, tool=call.name, failed=called.failed)

    def _learn(self, calls: Sequence[ToolCall], called: Sequence[Called], ids: list[str]) -> Flow[None]:
        """What the model asked to have remembered, citing what the user said and the words of its call in the log."""
        aside = self._manner.aside
        wanted = [not one.failed and one.tool in aside and one.tool == REMEMBER for one in called]
        row = (yield StoreCall(partial(self._memory.get, ids[0]))) if ids and any(wanted) else None
        spans = find_call_spans(row) if row else []
        heard = (yield StoreCall(partial(self._memory.get, self._heard[0]))) if row else None
        request = self._journal.request(self._id, self._steps)
        for at, (call, mine, span) in enumerate(zip(calls, wanted, spans, strict=False)):
            if not mine or heard is None:
                continue
            keep = self._memory.semantic.remember
            try:
                yield StoreCall(
                    partial(keep, learnt(call, Citation(ids[0], *span), heard), request and f"{request}:{at}")
                )
            except (NotFound, InvalidInput) as exc:
                _log.info("what the model wanted remembered was not kept: %s", exc)

    def _note(self, thought: str, called: Sequence[Called]) -> Flow[None]:
        """In working memory, whose snapshot travels with the task."""
        if self._journal.over or self._steps <= self._noted:
            return
        for one in called:
            result = short(one.result)
            seen = {"failed": result} if one.failed else result
            yield StoreCall(partial(self._memory.working.step, short(thought), _action(one), seen))
            thought = ""
        if self._own:
            yield from self._journal.keep({"steps": self._steps, "working": self._memory.working.snapshot()})

    # The end

    def _said(self, heard: ModelReply) -> Flow[list[str] | None]:
        """The id of the answer, if there is one. None if somebody else spoke while the model thought: then it is asked
        again, with what was said."""
        if not heard.reply.text.strip():
            return []
        message, spare = Message("assistant", heard.reply.text), self._steps <= self._manner.max_steps

        def part() -> Flow[list[str] | None]:
            try:
                return (yield from self._keep([message], self._steps, heard.seen))
            except Conflict:
                if not spare:
                    raise
                return None

        kept: list[str] | None = yield from self._journal.step("answer", part)
        return kept

    def _answer(self, reply: ChatReply, last: bool) -> AgentReply:
        stopped: Stopped = "end" if reply.stop == "tools" else reply.stop
        if last and self._manner.tools:
            stopped = "steps"
        elif stopped == "end" and not reply.text.strip():
            stopped = "failed"
        tokens = (self._tokens_in, self._tokens_out)
        return AgentReply(
            reply.text, stopped, self._session, reply.model, self._steps, self._replayed, *tokens, tuple(self._calls)
        )

    def _end(self, answer: AgentReply, kept: list[str]) -> Flow[None]:
        """The outcome is kept of what was work; a mere answer stands in the log. It cites the log, so that it goes when
        what was said is forgotten."""
        worked = self._journal.durable or any(one.tool not in self._manner.aside for one in answer.calls)
        if not self._own or not worked:
            return
        request = self._journal.request(self._id, self._steps + 1)
        cites = tuple(map(Citation, (*self._heard, *kept)))
        if answer.stopped == "end":
            text = f"Successfully completed: {short(self._task)} Outcome: {short(answer.text)}"
            keep = partial(self._memory.remember, text, importance=OUTCOME, source=Source("task", "agent", cites))
        else:
            text = f"Failed: {short(self._task)} Outcome: {_WHY[answer.stopped]}"
            keep = partial(self._memory.episodic.record_error, text, session=self._session, cites=cites)
        try:
            yield StoreCall(partial(keep, request_id=request))
        except NotFound:
            _log.info("the outcome of a turn was not kept: what it rests on was forgotten meanwhile.")

    def _leave(self) -> Flow[None]:
        if self._own:
            yield StoreCall(self._memory.working.clear)
            self._own = False

    def _keep(self, said: list[Message], number: int, seen: int | None = None) -> Flow[list[str]]:
        """What happened is kept wherever the session has come to; what answers, only if that is still `seen`."""
        if self._journal.over:
            return []
        request = self._journal.request(self._id, number)
        ids: list[str] = yield StoreCall(partial(traced(self.add_messages), said, seen, request))
        return ids

    def add_messages(self, said: list[Message], seen: int | None, request: str | None) -> list[str]:
        return list(self._talk().take(said, expect=seen, request_id=request, began=self._began).ids)

    def _talk(self) -> ConversationMemory:
        """The conversation of this turn; one object, which knows what it has read."""
        if self._conversation is None:
            own = self._memory.current_session == self._session
            self._conversation = self._memory.conversation if own else self._memory.session(self._session).conversation
        return self._conversation


def short(text: str) -> str:
    """On one line, for where something is only mentioned."""
    line = " ".join(text[: 2 * SHORT].split())
    return line if len(line) <= SHORT and len(text) <= 2 * SHORT else line[: SHORT - 1] + "…"


def _action(called: Called) -> str:
    """The name of a result in working memory, which is short."""
    given = json.dumps(dict(called.arguments), ensure_ascii=False)
    return f"{called.tool[:NAME]} {given if len(given) <= NAME else given[: NAME - 1] + '…'}"


def _answerable(said: list[ChatMessage]) -> tuple[ChatMessage, ...]:
    """A model answers the user or a tool: what an assistant said after that is left out."""
    last = max((at for at, one in enumerate(said) if one.role in ("user", "tool")), default=-1)
    return tuple(one for at, one in enumerate(said) if at <= last or one.role != "assistant")
