"""Session: one conversation, from its start to its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engrain.core.clock import Time
from engrain.core.model.messages import Message, MessageResult
from engrain.core.validation import check_key
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.identity import Scope
    from engrain.core.model.sessions import SessionEnd, SessionStart
    from engrain.ports import Services


class Session:
    """One session of one scope. Several may be open at once, in this process and in others.

    session = memory.session("monday")
    print(session.start)
    session.add_message("user", "Hello.")
    session.end()
    """

    def __init__(self, services: Services, scope: Scope, id: str) -> None:
        from engrain.tiers.conversation import ConversationMemory
        from engrain.tiers.session_lifecycle import Sessions

        self._services = services
        self._scope = scope
        self.id = check_key(id, "session")
        self.conversation = ConversationMemory(services, scope, id)
        self._sessions = Sessions(services, scope)
        self._start: SessionStart | None = None

    @property
    def start(self) -> SessionStart:
        """Return the profile, the last session and important episodes. `str()` of it is a text for the prompt."""
        if self._start is None:
            self._start = self._sessions.start(self.id)
        return self._start

    @traced
    def add_message(
        self,
        role: str,
        text: str,
        *,
        speaker: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        occurred_at: Time | None = None,
        request_id: str | None = None,
    ) -> MessageResult:
        """Keep a message word for word. Return its id and what was kept, replaced, forgotten or proposed."""
        message = Message(role, text, speaker, metadata=metadata or {}, occurred_at=occurred_at)
        return self._record([message], None, request_id)[0]

    @traced
    def add_messages(
        self, messages: Sequence[Any], *, expect: int | None = None, request_id: str | None = None
    ) -> list[MessageResult]:
        """Keep several messages together: Messages, or dicts and objects of the Anthropic and OpenAI APIs."""
        return self._record(messages, expect, request_id)

    def messages(self, n: int = 20) -> list[Message]:
        """Return the newest n messages, oldest of them first."""
        return self.conversation.last(n)

    @traced
    def end(self, *, request_id: str | None = None) -> SessionEnd:
        """Summarise the session and keep the summary, which recall finds. The session may continue afterwards."""
        return self._sessions.end(self.id, request_id=request_id)

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def _record(self, messages: Sequence[Any], expect: int | None, request_id: str | None) -> list[MessageResult]:
        from engrain.ingest.write_messages import RecordOptions, record_messages

        options = RecordOptions(request_id, expect)
        recorded = record_messages(messages, self.id, self._scope, self._services, options)
        self.conversation.follow(recorded)
        return list(recorded.results)
