"""The verbs of what happens: sessions, messages, tool calls, decisions, errors, and the task at hand."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engrain.core.clock import Time
from engrain.core.errors import InvalidInput
from engrain.core.model.chat import ToolCall
from engrain.core.model.messages import Message
from engrain.memory.opened import Opened
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.model.sessions import SessionEnd, SessionInfo, SessionStart


class Happenings(Opened):
    @traced
    def start_session(self, id: str | None = None) -> SessionStart:
        """Begin a session, or go on with one. `str()` of the answer is a block for the prompt: what is known of the
        user, how the last session ended, and what mattered lately. One that is still open is ended first."""
        return self._open.start_session(id)

    @traced
    def end_session(self) -> SessionEnd | None:
        """End the present session: its summary is kept, and found by recall. None if there is none."""
        return self._open.end_session()

    @traced
    def sessions(self, limit: int = 20) -> builtins.list[SessionInfo]:
        """The sessions last added to, newest first, each with its length and its summary."""
        return self._open.sessions.listed(limit)

    @traced
    def messages(self, n: int = 20, *, session: str | None = None) -> builtins.list[Message]:
        """The newest messages of a session, oldest of them first; of the present one if none is named."""
        return self._open.conversation(session).last(n)

    @traced
    def add_message(
        self,
        role: str,
        text: str,
        *,
        speaker: str | None = None,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        occurred_at: Time | None = None,
        expect: int | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep what was said, word for word, and return its id; without a session it goes to the present one.

        What a user says that lasts ("I prefer …", "my city is …", "remember that …") becomes a fact that cites these
        words. With `expect` the session must have that many messages, else Conflict.
        """
        said = Message(role, text, speaker, metadata=metadata or {}, occurred_at=occurred_at)
        return self._open.add_messages([said], session, expect, request_id)[0]

    @traced
    def add_messages(
        self,
        messages: Sequence[Any],
        *,
        session: str | None = None,
        expect: int | None = None,
        request_id: str | None = None,
    ) -> builtins.list[str]:
        """Keep several with nobody else's between them: Messages, or dicts as Anthropic and OpenAI have them."""
        return self._open.add_messages(messages, session, expect, request_id)

    @traced
    def record_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        result: str = "",
        *,
        failed: bool = False,
        session: str | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a call and its result. A long result is shown as its insight; `episodic.raw(id)` has the whole for a
        day."""
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidInput(f"arguments must be a dict, not {type(arguments).__name__}.")
        call = ToolCall(self._open.call_id(), tool, dict(arguments or {}))
        return self._open.record_tool_call(call, result, failed, session, request_id)

    @traced
    def record_decision(
        self, text: str, why: str = "", *, session: str | None = None, request_id: str | None = None
    ) -> str:
        """Keep a decision with its reasons; it lasts."""
        engine = self._open
        return engine.episodic.record_decision(text, why, session=engine.present(session), request_id=request_id)

    @traced
    def record_error(
        self,
        error: str | BaseException,
        *,
        tool: str | None = None,
        session: str | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep what went wrong; the id is what `record_resolution` takes once it is known what helped."""
        engine = self._open
        return engine.episodic.record_error(error, session=engine.present(session), tool=tool, request_id=request_id)

    @traced
    def record_resolution(self, error: str, text: str, *, request_id: str | None = None) -> str:
        """Keep what helped against an error: from now on both last, as one."""
        return self._open.episodic.record_resolution(error, text, request_id=request_id)

    @traced
    def start_task(self, task: str, *, goal: str | None = None, procedure: str | None = None) -> str:
        """Clear working memory for a new task. The outcome counts for the procedure it uses, if one is named."""
        return self._open.start_task(task, goal, procedure)

    @traced
    def record_step(self, thought: str, action: str, result: Any) -> None:
        """Note in working memory what was thought, done and seen."""
        self._open.record_step(thought, action, result)

    @traced
    def end_task(self, success: bool, outcome: str = "") -> str | None:
        """End the task at hand: success becomes knowledge, failure an episode, and either counts for its procedure."""
        return self._open.end_task(success, outcome)

    @traced
    def learn(self, content: str, importance: float = 0.5, source: str = "conversation") -> str:
        """Keep what the agent found out by itself, as the agent's word."""
        return self._open.semantic.learn(content, importance, source)

    @traced
    def memory_aware_prompt(self, task: str, *, budget: int | None = None, include_history: bool = True) -> str:
        """The task with all that memory has for it: working memory, recall, and the conversation so far."""
        return self._open.prompt(task, budget, include_history)
