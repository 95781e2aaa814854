"""Add to recall and prompt what else the model needs: wishes, the profile, work in progress, events, conversation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from engrain.core.errors import BackendUnavailableWarning, StoreUnavailable
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import TRUST, Item, is_all_forgotten
from engrain.core.model.messages import check_timeout, message_to_note
from engrain.core.model.recall import (
    PROFILE_HEADING,
    RECENT_HEADING,
    SESSION_HEADING,
    WISHES_HEADING,
    ContextFact,
    Degraded,
    Recall,
    RecallRequest,
    Section,
    escape_text,
    quote_item,
    quote_lines,
    quote_name,
)
from engrain.core.model.sessions import Event
from engrain.core.rules.empty_talk import is_about_speaker, says_nothing
from engrain.core.rules.forget_requests import is_rest_of_request
from engrain.core.rules.own_words import find_own_words
from engrain.core.rules.profile import bears_on, bears_on_health, find_topics, is_about_user, is_standing_wish
from engrain.core.rules.slot_names import find_mentioned_slot
from engrain.core.secrets.redact import contains_secret
from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import extract_terms
from engrain.core.validation import MAX_QUERY, check_text
from engrain.ingest.forget_intent import find_forget_topics
from engrain.ingest.sentence_model import begins_as_task
from engrain.retrieval.query import parse_query
from engrain.retrieval.search import search
from engrain.tiers.session_lifecycle import collect_user_facts, collect_wishes

if TYPE_CHECKING:
    from engrain.core.identity import Scope
    from engrain.memory.memory import Memory
    from engrain.ports import Services
    from engrain.tiers.conversation import ConversationMemory

PROMPT_HITS = 8
RECENT_EPISODES = 3
RECENT_TIME = timedelta(days=1)
MAX_NEAREST_FACTS = 40  # from which a prompt's profile is chosen
MAX_WISHES = 12
MAX_PROFILE_FACTS = 32  # in a prompt
MAX_BEARING_FACTS = 8  # that a subject of the request calls for
MAX_WORKING_TOKENS = 2_000  # in an answer without a budget
MAX_EPISODE_CHARACTERS = 300
MIN_SHARED_TERMS = 2  # of a question about the user and a text of others
_WORK_SLOTS = ("user.employer", "user.job")  # where somebody works may be said with their job
HISTORY_HEADING = "Conversation so far"
_FACTS = parse_filter({"kind": "fact", "trust": {">=": TRUST["agent"]}})


class PreparedRecall(NamedTuple):
    request: RecallRequest  # with the current work and recent events in front of the hits
    recent: Sequence[Event]
    degraded: tuple[Degraded, ...]


class PreparedPrompt(NamedTuple):
    """The parts of a prompt around the recalled items, and the request for these."""

    head: str
    work: str
    conversation: str
    request: RecallRequest

    def render(self, found: Recall) -> str:
        return "\n\n".join(part for part in (self.head, self.work, str(found), self.conversation) if part)


def answer_recall(
    memory: Memory,
    services: Services,
    request: RecallRequest,
    *,
    whole_profile: bool = False,
    deadline: float | None = None,
) -> Recall:
    """Answer a request, within `deadline` seconds of the embedder if there is one."""
    seconds = None if deadline is None else check_timeout(deadline, "deadline")
    prepared = prepare_recall(memory, services, request, whole_profile)
    if seconds is None:
        found = search(prepared.request, services)
    else:
        from engrain.memory.deadline import search_until

        found = search_until(prepared.request, services, seconds)
    return finish_recall(memory, services, prepared, found)


def prepare_recall(
    memory: Memory, services: Services, request: RecallRequest, whole_profile: bool = False
) -> PreparedRecall:
    """Add to a request what the block opens with: wishes, profile, current work and recent events.

    Unless the whole profile is wanted, it has only the facts that bear on the request.
    """
    recent, degraded = _load_recent_events(memory, services, request)
    wishes, profile = _choose_user_facts(memory, services, request, whole_profile)
    facts = tuple(ContextFact(item, quote_item(item)) for item in (*wishes, *profile))
    lines = [fact.line for fact in facts]
    user = (Section(WISHES_HEADING, tuple(lines[: len(wishes)])), Section(PROFILE_HEADING, tuple(lines[len(wishes) :])))
    context = (*(one for one in user if one.lines), *_build_context(memory, request, recent))
    return PreparedRecall(replace(request, context=context, context_facts=facts), recent, degraded)


def _choose_user_facts(
    memory: Memory, services: Services, request: RecallRequest, whole: bool
) -> tuple[list[Item], list[Item]]:
    """Choose the standing wishes and the facts about the user for a request about now and everything."""
    if not whole and not _is_unrestricted(request):
        return [], []
    topics, asked = find_topics(request.query), find_mentioned_slot(request.query)
    slots = _WORK_SLOTS if asked in _WORK_SLOTS else (asked,)
    facts = collect_user_facts(services, memory.scope) if whole or topics or asked else []
    found = (*collect_wishes(services, memory.scope), *filter(is_standing_wish, facts))
    wishes = list({item.id: item for item in found}.values())[:MAX_WISHES]
    # Of the imported facts, only those that name the user were collected.
    kept = (item for item in facts if item.trust < TRUST["agent"] or is_about_user(item))
    others = [item for item in kept if not is_standing_wish(item)]
    bearing = (item for item in others if bears_on(item, topics) or (asked and item.slot in slots))
    chosen = list(bearing)[:MAX_BEARING_FACTS]
    if whole:
        near = {id: place for place, id in enumerate(_find_nearest_facts(request, services))}
        nearest = sorted((item for item in others if item.id in near), key=lambda item: near[item.id])
        chosen = list({item.id: item for item in (*chosen, *nearest, *others)}.values())
        chosen = sorted(chosen, key=lambda item: item.trust < TRUST["agent"])[:MAX_PROFILE_FACTS]
    # The newest first: an older fact may no longer hold. An allergy comes before all: a small budget cuts from the end.
    return _sort_newest(wishes), sorted(_sort_newest(chosen), key=lambda item: not bears_on_health(item, topics))


def _find_nearest_facts(request: RecallRequest, services: Services) -> list[str]:
    """Return the ids of the facts that are nearest to the request, however far that is."""
    own = replace(request, scopes=request.scopes[:1], where=_FACTS, n=MAX_NEAREST_FACTS, budget=None, min_relevance=0.0)
    return [hit.item.id for hit in search(own, services)]


def _sort_newest(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: item.occurred_at or item.recorded_at, reverse=True)


def finish_recall(memory: Memory, services: Services, prepared: PreparedRecall, found: Recall) -> Recall:
    """Count the use of the hits, and show an event that is a hit only once."""
    recent, degraded = prepared.recent, prepared.degraded
    if services.feed is not None and (problem := services.feed.last_error):
        degraded = (*degraded, Degraded("vector server", problem))
    found = replace(found, degraded=(*found.degraded, *degraded)) if degraded else found
    if _is_unrestricted(prepared.request):
        found = _drop_empty_hits(found, prepared.request.query, services)
    shown = [hit.item.id for hit in found.hits]
    if shown:
        services.items.touch(memory.scope, shown)
    told = {
        *shown,
        *_list_cited([*(hit.item for hit in found.hits), *(one.item for one in prepared.request.context_facts)]),
    }
    if any(event.item in told for event in recent):
        fewer = [event for event in recent if event.item not in told]
        found = replace(found, context=_drop_repeats(found, fewer))
        found = replace(found, tokens=services.count_tokens(str(found)))
    return found


def _drop_empty_hits(found: Recall, question: str, services: Services) -> Recall:
    """Leave out messages that answer nothing, or that are only for the question that they belong to."""
    hits = tuple(
        hit
        for hit in found.hits
        if hit.item.kind != "message" or not _is_beside(hit.item.text, question, quoting=hit.quoting)
    )
    if len(hits) == len(found.hits):
        return found
    found = replace(found, hits=hits)
    return replace(found, tokens=services.count_tokens(str(found)))


def _is_beside(text: str, question: str, *, quoting: bool) -> bool:
    """Tell if a message says nothing, asks to forget, or is a secret or a text of others that is not asked for."""
    if says_nothing(text) or is_rest_of_request(text) or find_forget_topics(text):
        return True
    secret = contains_secret(text)
    if not secret and not (quoting and is_about_speaker(question) and begins_as_task(text)):
        return False
    # A text to translate, or a story, says nothing about the user, and its words may be anybody's: "I live in Lima".
    shared = (set(extract_terms(question)) - load_languages().all_stop_terms).intersection(extract_terms(text))
    return len(shared) < (1 if secret else MIN_SHARED_TERMS)


def _list_cited(items: Sequence[Item]) -> list[str]:
    return [cite.item for item in items for source in item.sources for cite in source.cites]


def prepare_prompt(
    memory: Memory, services: Services, request: str, scopes: tuple[Scope, ...], budget: int | None, history: bool
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
    query = check_text(request, "query", MAX_QUERY)
    wanted = RecallRequest(query, scopes, PROMPT_HITS, left, now=services.clock(), shown=shown)
    return PreparedPrompt(head, work, conversation, wanted)


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
        if not is_all_forgotten(text)
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
        recent = memory.episodic.recent(RECENT_EPISODES, memory.current_session)
        return [event for event in recent if _is_worth_telling(event, request)], ()
    except StoreUnavailable as exc:
        # If episodes are on a server of their own, everything else is still available.
        if services.same_store:
            raise
        warning = f"engrain: {exc} Recall answers without the recent context."
        warnings.warn(warning, BackendUnavailableWarning, stacklevel=2)
        return [], (Degraded("recent context", str(exc)),)


def _is_worth_telling(event: Event, request: RecallRequest) -> bool:
    """Tell if an event happened recently, and has a word of the question or is asked for as recent."""
    if request.now - event.happened_at > RECENT_TIME:
        return False
    if event.kind == "turn" and _is_beside(event.text, request.query, quoting=find_own_words(event.text).mixed):
        return False
    question = parse_query(request.query, (), request.now)
    return bool(question.spans) or not set(question.terms).isdisjoint(extract_terms(event.text))


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
