"""Answer recall and prompt from all tiers: hits, the work in progress, and what happened last."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engrain.core.clock import check_time
from engrain.core.errors import BackendUnavailableWarning, StoreUnavailable
from engrain.core.model.filters import parse_filter
from engrain.core.model.messages import message_to_note
from engrain.core.model.recall import (
    RECENT_HEADING,
    SESSION_HEADING,
    Degraded,
    Recall,
    RecallRequest,
    Section,
    escape_text,
    quote_lines,
)
from engrain.core.model.sessions import Event
from engrain.core.validation import MAX_QUERY, check_count, check_share, check_text
from engrain.retrieval.search import search

if TYPE_CHECKING:
    from engrain.memory.memory import Memory
    from engrain.ports import Services
    from engrain.tiers.conversation import ConversationMemory

MAX_HITS = 1_000
MAX_BUDGET = 10_000_000
RECENT_EPISODES = 3
SESSION_TOKENS = 2_000  # of working memory, at most, in an answer without a budget
LINE = 300  # characters of an episode that recall shows
HISTORY = "Conversation so far"


def recall(memory: Memory, services: Services, request: RecallRequest) -> Recall:
    """Search all scopes that the memory may read, and put what goes on in front."""
    asked = _checked(memory, services, request)
    recent, degraded = _recent_events(memory, services, asked)
    found = search(replace(asked, context=_context(memory, asked, recent)), services)
    if services.feed is not None and (trouble := services.feed.trouble):
        degraded = (*degraded, Degraded("vector server", trouble))
    found = replace(found, degraded=degraded) if degraded else found
    shown = [hit.item.id for hit in found.hits]
    if shown:
        services.items.touch(memory.scope, shown)
    if any(one.item in shown for one in recent):
        # A hit is not told twice.
        fewer = [one for one in recent if one.item not in shown]
        found = replace(found, context=_without_repeats(found, fewer))
        found = replace(found, tokens=services.count_tokens(str(found)))
    return found


def prompt(memory: Memory, services: Services, request: str, budget: int | None, history: bool) -> str:
    """The request, what is known that bears on it, and what was said so far."""
    head = f"Current task: {check_text(request, 'request')}"
    left = None if budget is None else max(0, budget - services.count_tokens(head + "\n\n"))
    told, shown = "", None
    if history and memory.current_session is not None:
        told, shown = _history(memory.conversation, services, None if left is None else left // 3)
    work = _work(memory, left) if shown else ""
    if left is not None:
        left = max(0, left - services.count_tokens(f"{work}\n\n{told}"))
    known = str(recall(memory, services, RecallRequest(request, budget=left, shown=shown)))
    return "\n\n".join(part for part in (head, work, known, told) if part)


def _work(memory: Memory, budget: int | None) -> str:
    """The work in progress. Recall tells it itself where no conversation is shown."""
    room = SESSION_TOKENS if budget is None else min(SESSION_TOKENS, budget // 4)
    text = memory.working.context(room) if memory.working.current_work() else ""
    return str(Section(SESSION_HEADING, tuple(text.splitlines()))) if text else ""


def _history(
    conversation: ConversationMemory, services: Services, budget: int | None
) -> tuple[str, frozenset[str] | None]:
    """The newest turns that fit, after the summary of those before; and the ids of these messages."""
    window = conversation.window()
    told = [(one, message_to_note(one, "").text) for one in window.messages]  # with the calls in it
    lines = [(f'- {one.speaker or one.role}: "{escape_text(text)}"', one.id or "") for one, text in told]
    if window.summary:
        lines.insert(0, ("\n".join(("- before:", *quote_lines(window.summary))), ""))
    while lines and budget is not None and services.count_tokens(_history_block(lines)) > budget:
        del lines[0]
    return (_history_block(lines), frozenset(id for _, id in lines)) if lines else ("", None)


def _history_block(lines: Sequence[tuple[str, str]]) -> str:
    return str(Section(HISTORY, tuple(line for line, _ in lines)))


def _recent_events(
    memory: Memory, services: Services, request: RecallRequest
) -> tuple[list[Event], tuple[Degraded, ...]]:
    """What happened last, for a question about now and about everything."""
    if not _is_open(request) or services.episodes is None:
        return [], ()
    try:
        return memory.episodic.recent(RECENT_EPISODES, memory.current_session), ()
    except StoreUnavailable as exc:
        # Where episodes have a server of their own, everything else is there.
        if services.same_store:
            raise
        told = f"engrain: {exc} Recall answers without the recent context."
        warnings.warn(told, BackendUnavailableWarning, stacklevel=2)
        return [], (Degraded("recent context", str(exc)),)


def _context(memory: Memory, request: RecallRequest, recent: Sequence[Event]) -> tuple[Section, ...]:
    working = memory.working
    room = SESSION_TOKENS if request.budget is None else min(SESSION_TOKENS, request.budget)
    session = []
    if _is_open(request) and working.current_work():
        session = [Section(SESSION_HEADING, tuple(working.context(room).splitlines()))]
    return (*session, *([Section(RECENT_HEADING, tuple(map(_line, recent)))] if recent else []))


def _without_repeats(found: Recall, recent: Sequence[Event]) -> tuple[Section, ...]:
    lines = {_line(one) for one in recent}
    fewer = [
        Section(one.title, tuple(line for line in one.lines if one.title != RECENT_HEADING or line in lines))
        for one in found.context
    ]
    return tuple(one for one in fewer if one.lines)


def _checked(memory: Memory, services: Services, request: RecallRequest) -> RecallRequest:
    check_text(request.query, "query", MAX_QUERY)
    check_count(request.n, "n", 1, MAX_HITS)
    if request.budget is not None:
        check_count(request.budget, "budget", 0, MAX_BUDGET)
    if request.min_relevance is not None:
        check_share(request.min_relevance, "min_relevance")
    check_share(request.min_importance, "min_importance")
    return RecallRequest(
        query=request.query,
        scopes=(memory.scope, *memory.reads),
        n=request.n,
        budget=request.budget,
        at=None if request.at is None else check_time(request.at, "as_of", end_of_day=True),
        now=services.clock(),
        min_relevance=request.min_relevance,
        where=parse_filter(request.where),
        min_importance=request.min_importance,
        shown=request.shown,
    )


def _is_open(request: RecallRequest) -> bool:
    """Whether it asks about now and about everything."""
    everything = request.at is None and request.where is None and request.min_importance <= 0
    return everything and request.shown is None


def _line(event: Event) -> str:
    text = event.text if len(event.text) <= LINE else event.text[: LINE - 1] + "…"
    return str(replace(event, text=text))
