"""Add to recall and prompt what other tiers have: the work in progress, recent events and the conversation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from engrain.core.errors import BackendUnavailableWarning, StoreUnavailable
from engrain.core.model.messages import message_to_note
from engrain.core.model.recall import Degraded, Recall, RecallRequest
from engrain.core.model.recall_block import (
    RECENT_HEADING,
    SESSION_HEADING,
    Section,
    escape_text,
    quote_lines,
    quote_name,
)
from engrain.core.model.sessions import Event
from engrain.core.validation import check_text

if TYPE_CHECKING:
    from engrain.memory.memory import Memory
    from engrain.ports import Services
    from engrain.tiers.conversation import ConversationMemory

RECENT_EPISODES = 3
MAX_WORKING_TOKENS = 2_000  # in an answer without a budget
MAX_EPISODE_CHARACTERS = 300
HISTORY_HEADING = "Conversation so far"


class PreparedRecall(NamedTuple):
    request: RecallRequest  # with the current work and recent events in front of the hits
    recent: Sequence[Event]
    degraded: tuple[Degraded, ...]


class PreparedPrompt(NamedTuple):
    """The parts of a prompt around the recalled items, and the limits of these."""

    head: str
    work: str
    conversation: str
    budget: int | None
    shown: frozenset[str] | None

    def render(self, found: Recall) -> str:
        return "\n\n".join(part for part in (self.head, self.work, str(found), self.conversation) if part)


def prepare_recall(memory: Memory, services: Services, request: RecallRequest) -> PreparedRecall:
    """Add the current work and recent events to a request."""
    recent, degraded = _load_recent_events(memory, services, request)
    return PreparedRecall(replace(request, context=_build_context(memory, request, recent)), recent, degraded)


def finish_recall(memory: Memory, services: Services, prepared: PreparedRecall, found: Recall) -> Recall:
    """Count the use of the hits, and show an event that is a hit only once."""
    recent, degraded = prepared.recent, prepared.degraded
    if services.feed is not None and (problem := services.feed.last_error):
        degraded = (*degraded, Degraded("vector server", problem))
    found = replace(found, degraded=(*found.degraded, *degraded)) if degraded else found
    shown = [hit.item.id for hit in found.hits]
    if shown:
        services.items.touch(memory.scope, shown)
    if any(event.item in shown for event in recent):
        fewer = [event for event in recent if event.item not in shown]
        found = replace(found, context=_drop_repeats(found, fewer))
        found = replace(found, tokens=services.count_tokens(str(found)))
    return found


def prepare_prompt(
    memory: Memory, services: Services, request: str, budget: int | None, history: bool
) -> PreparedPrompt:
    """Build the parts of a prompt: the task, the current work and the conversation so far."""
    head = f"Current task: {check_text(request, 'request')}"
    left = None if budget is None else max(0, budget - services.count_tokens(head + "\n\n"))
    conversation, shown = "", None
    if history and memory.current_session is not None:
        conversation, shown = _render_history(memory.conversation, services, None if left is None else left // 3)
    work = _render_work(memory, left) if shown else ""
    if left is not None:
        left = max(0, left - services.count_tokens(f"{work}\n\n{conversation}"))
    return PreparedPrompt(head, work, conversation, left, shown)


def _render_work(memory: Memory, budget: int | None) -> str:
    """Render the work in progress. Without a conversation, recall itself shows it."""
    room = MAX_WORKING_TOKENS if budget is None else min(MAX_WORKING_TOKENS, budget // 4)
    text = memory.working.context(room) if memory.working.current_work() else ""
    return str(Section(SESSION_HEADING, tuple(text.splitlines()))) if text else ""


def _render_history(
    conversation: ConversationMemory, services: Services, budget: int | None
) -> tuple[str, frozenset[str] | None]:
    """Render the newest turns that fit, after the summary of the older ones; and return the ids of these messages."""
    window = conversation.window()
    texts = [(message, message_to_note(message, "").text) for message in window.messages]  # with tool calls
    lines = [
        (f'- {quote_name(message.speaker or message.role)}: "{escape_text(text)}"', message.id or "")
        for message, text in texts
    ]
    if window.summary:
        lines.insert(0, ("\n".join(("- before:", *quote_lines(window.summary))), ""))
    while lines and budget is not None and services.count_tokens(_join_history(lines)) > budget:
        del lines[0]
    return (_join_history(lines), frozenset(id for _, id in lines)) if lines else ("", None)


def _join_history(lines: Sequence[tuple[str, str]]) -> str:
    return str(Section(HISTORY_HEADING, tuple(line for line, _ in lines)))


def _load_recent_events(
    memory: Memory, services: Services, request: RecallRequest
) -> tuple[list[Event], tuple[Degraded, ...]]:
    """Load the newest events for an unrestricted question."""
    if not _is_unrestricted(request) or services.episodes is None:
        return [], ()
    try:
        return memory.episodic.recent(RECENT_EPISODES, memory.current_session), ()
    except StoreUnavailable as exc:
        # If episodes are on a server of their own, everything else is still available.
        if services.same_store:
            raise
        warning = f"engrain: {exc} Recall answers without the recent context."
        warnings.warn(warning, BackendUnavailableWarning, stacklevel=2)
        return [], (Degraded("recent context", str(exc)),)


def _build_context(memory: Memory, request: RecallRequest, recent: Sequence[Event]) -> tuple[Section, ...]:
    working = memory.working
    room = MAX_WORKING_TOKENS if request.budget is None else min(MAX_WORKING_TOKENS, request.budget)
    session = []
    if _is_unrestricted(request) and working.current_work():
        session = [Section(SESSION_HEADING, tuple(working.context(room).splitlines()))]
    return (*session, *([Section(RECENT_HEADING, tuple(map(_render_event, recent)))] if recent else []))


def _drop_repeats(found: Recall, recent: Sequence[Event]) -> tuple[Section, ...]:
    lines = {_render_event(event) for event in recent}
    fewer = [
        Section(
            section.title, tuple(line for line in section.lines if section.title != RECENT_HEADING or line in lines)
        )
        for section in found.context
    ]
    return tuple(section for section in fewer if section.lines)


def _is_unrestricted(request: RecallRequest) -> bool:
    """True for a question about now and about everything."""
    return request.at is None and request.where is None and request.min_importance <= 0 and request.shown is None


def _render_event(event: Event) -> str:
    text = event.text if len(event.text) <= MAX_EPISODE_CHARACTERS else event.text[: MAX_EPISODE_CHARACTERS - 1] + "…"
    return str(replace(event, text=text))
