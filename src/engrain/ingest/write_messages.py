"""Write the messages of a session in one transaction, with the facts and episodes that follow from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from engrain.core.chat.parse import parse_messages
from engrain.core.clock import to_micros
from engrain.core.errors import Conflict, NotFound, OnHold, StoreError, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.model.erasure import find_owner, make_erased_error
from engrain.core.model.items import Citation, Draft, ForgetRequest, Note, Source, Statement
from engrain.core.model.messages import Message, item_to_message, message_to_note
from engrain.core.model.plans import Add, Applied, Correct, Forget, Plan, Step, refer_to_step
from engrain.core.model.queries import WordQuery
from engrain.core.model.sessions import EpisodeDraft
from engrain.core.rules.episode_importance import score_importance
from engrain.core.rules.own_words import find_own_words
from engrain.core.rules.slot_names import SPEAKER_KEY
from engrain.core.text.tokenizer import extract_terms
from engrain.core.validation import check_count, check_optional_key
from engrain.ingest import episodes, write
from engrain.ingest.change_finder import NO_CHANGE, ChangeFinder
from engrain.ingest.facts import (
    USER_NAME,
    StoredFacts,
    Utterance,
    find_meant,
    find_other_speaker,
    introduces_other,
    list_reads,
    plan_steps,
    resolve_slots,
)
from engrain.ingest.forget_targets import Candidate, TargetFinder, is_statement
from engrain.ingest.message_results import RecordResult, build_result, find_cited, find_owners
from engrain.ingest.message_vectors import MessageVectors
from engrain.ingest.read_messages import (
    MAX_GATE_CHARACTERS,
    AnalyzedMessage,
    Found,
    analyze_messages,
    asks_to_forget,
    shorten_result,
)
from engrain.ingest.step_changes import end_older_steps
from engrain.ingest.write import redact_message
from engrain.ports import Services
from engrain.ports.sessions import Episodes

MAX_ATTEMPTS = 5
MAX_LIKELY_FACTS = 20  # read per statement, by the words that they share with it

# Writes to the same store, given the ids of the messages. It may be called twice, on another thread.
WriteAlong = Callable[[Sequence[str]], object]
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class RecordOptions:
    request_id: str | None = None  # a known id changes nothing
    expect: int | None = None  # the session must have this length, else Conflict
    began: int | None = None  # the store's moment at which the caller's operation started, if earlier than now
    write_along: WriteAlong | None = None  # part of the messages' transaction; left out if the request id is known


@dataclass(frozen=True, slots=True)
class _Derived:
    """The steps that follow from messages, and for each message the items that it only may ask to forget."""

    steps: list[Step]
    proposed: list[tuple[str, ...]]


def record_messages(
    messages: Iterable[Any], session: str, scope: Scope, services: Services, options: RecordOptions | None = None
) -> RecordResult:
    """Write messages to the log in order, with the facts and episodes that follow from them.

    The texts are embedded before anything is locked. Then everything is written, or nothing. A legal hold wins over a
    message that asks to forget: the message is kept, and `refused` gives the reason.
    """
    given, options = parse_messages(messages), options or RecordOptions()
    request_id = check_optional_key(options.request_id, "request_id")
    expect = None if options.expect is None else (session, check_count(options.expect, "expect", 0, 2**53))
    began = services.items.current_time() if options.began is None else options.began
    plan = Plan(scope, (), request_id, expect, began=began)
    try:
        return _write_with_retries(given, session, services, plan, options.write_along)
    except OnHold as exc:
        result = _write_with_retries(given, session, services, plan, options.write_along, forgets=False)
        _log.warning("a message of session %r asked to forget, but nothing was forgotten: %s", session, exc)
        return replace(result, refused=str(exc))


def _write_with_retries(
    messages: Sequence[Message],
    session: str,
    services: Services,
    plan: Plan,
    along: WriteAlong | None,
    forgets: bool = True,
) -> RecordResult:
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return _write_messages(messages, session, services, plan, along, forgets)
        except NotFound:
            # Nothing was written: another writer forgot or corrected a fact that this message changes.
            _log.debug("a fact changed while a message of session %r was written; trying again", session)
    return _write_messages(messages, session, services, plan, along, forgets)


def _write_messages(
    messages: Sequence[Message], session: str, services: Services, plan: Plan, along: WriteAlong | None, forgets: bool
) -> RecordResult:
    scope, request_id = plan.scope, plan.request_id
    earlier = [item_to_message(row) for row in services.log.last(scope, session, episodes.NOVELTY_ROWS)]
    redacted = [redact_message(one, services.redact) for one in messages]
    if request_id is not None and (first := _repeat_answer(redacted, earlier, session, services, plan)):
        return replace(first, messages=messages)
    finder = ChangeFinder(scope, services)
    turns = analyze_messages(redacted, earlier, finder)
    steps: list[Step] = []
    for k, turn in enumerate(turns):
        request = None if request_id is None else f"{request_id}\x1f{k}"
        note = message_to_note(turn.message, session)
        if turn.message.role == "assistant" and turn.message.text:
            note = _cite_results(note, _list_results(turns[:k], earlier))
        steps.append(Add(write.build_draft(note, services.redact), request))
    derived = _plan_derived(turns, session, finder, forgets)
    steps += derived.steps
    # A request to forget something unknown adds a statement that has expired: it is forgotten at once.
    expired = [k for k, step in enumerate(steps) if isinstance(step, Add) and step.draft.expires_at is not None]
    steps += [Forget(refer_to_step(k)) for k in expired]
    plan = replace(
        plan, steps=_embed_steps(steps, turns, services), episodes=tuple(_build_happenings(turns, session, services))
    )
    applied = _apply_plan(plan, session, services, along and partial(_write_along, along, len(turns)))
    result = build_result(applied, messages, find_owners(steps, len(messages)), derived.proposed)
    if not applied.repeated and (result.forgotten or result.marked):
        write.finish_forgetting(result.forgotten, result.marked, scope, services)
    return result


def _list_results(turns: Sequence[AnalyzedMessage], earlier: Sequence[Message]) -> list[str]:
    """Return the ids of the tools' results since the user last spoke, newest first."""
    said = [(refer_to_step(k), turn.message) for k, turn in enumerate(turns)]
    results: list[str] = []
    for id, message in reversed([*((one.id or "", one) for one in earlier), *said]):
        if message.role == "user":
            break
        if message.role == "tool" and id:
            results.append(id)
    return results


def _cite_results(note: Note, results: Sequence[str]) -> Note:
    """Let an assistant's words cite the tools' results before them, so that they are trusted no further."""
    assert isinstance(note.source, Source)
    return replace(note, source=replace(note.source, cites=tuple(Citation(id, 0, 0) for id in results)))


def _plan_derived(turns: Sequence[AnalyzedMessage], session: str, finder: ChangeFinder, forgets: bool) -> _Derived:
    """Plan the facts and lasting items of the messages, and the facts that they ask to forget."""
    scope, services = finder.scope, finder.services
    steps: list[Step] = []
    proposed: list[tuple[str, ...]] = []
    # Several user messages at once are a transcript, not live speech.
    is_live = sum(turn.message.role == "user" for turn in turns) == 1
    for k, turn in enumerate(turns):
        utterance = Utterance(turn.message, refer_to_step(k), is_live and turn.message.occurred_at is None)
        if turn.found and turn.message.speaker:
            utterance = replace(utterance, speaker=find_other_speaker(turn.message.speaker, scope, services))
        before, doubtful = steps, []
        targets_of = TargetFinder(scope, services, utterance.speaker, session)
        for found in _list_own(turn, utterance, targets_of):
            if not forgets and isinstance(found, ForgetRequest):
                continue
            stored = _read_stored(found, utterance, finder, turn.vectors)
            if isinstance(found, Statement):
                steps = plan_steps(found, utterance, steps, stored, scope, services)
                continue
            meant = [item.id for item in find_meant(found, utterance.quote(found), stored)]
            targets, certain = _find_targets(found, utterance, targets_of)
            unsure = found.doubtful or not certain
            rivals = [one.item.id for one in targets if unsure and one.item.id not in meant]
            if found.doubtful or (rivals and found.slot) or (not meant and not certain and found.topic is not None):
                doubtful += [*meant, *rivals]
            else:
                # All about somebody is more than the slot that says who it is.
                whole = not meant or (found.everything and set(meant) <= {one.item.id for one in targets})
                stored = replace(stored, targets=targets if certain else ()) if whole else stored
                steps = plan_steps(found, utterance, steps, stored, scope, services)
        proposed.append(tuple(dict.fromkeys(doubtful)))
        # Forgetting cuts words out of the message, and would move those that a later fact of it cites.
        known = set(map(id, before))
        steps = sorted(steps, key=lambda step: id(step) not in known and isinstance(step, Forget))
        if steps == before:
            steps = [*steps, *_plan_lasting_item(turn, k, services)]
    return _Derived(end_older_steps(steps, turns), proposed)


def _find_targets(found: ForgetRequest, utterance: Utterance, finder: TargetFinder) -> tuple[list[Candidate], bool]:
    """Return what a request to forget means, and whether that is certain.

    A whole statement means nothing that is uncertain. A slot is compared with what else may be meant.
    """
    topic = utterance.quote(found) if found.topic is None else found.topic
    chosen, certain = finder.find(topic, everything=found.everything)
    return ([], False) if found.topic is None and is_statement(topic) and not certain else (chosen, certain)


def _choose_matters(found: Found, utterance: Utterance, finder: TargetFinder) -> Sequence[Found]:
    """Return the requests that a request lists. It stays one if only the whole is certain."""
    if not isinstance(found, ForgetRequest) or not found.matters:
        return [found]
    whole = replace(found, slot=None, topic=found.topic or utterance.quote(found), matters=())
    each = [replace(one, topic=utterance.quote(one)) for one in found.matters]
    if all(_find_targets(one, utterance, finder)[1] for one in each) or not _find_targets(whole, utterance, finder)[1]:
        return found.matters
    return [whole]


def _list_own(turn: AnalyzedMessage, utterance: Utterance, finder: TargetFinder) -> list[Found]:
    """Return what the gate found. It fills no slot if the message is by somebody of another name."""
    scope, services = finder.scope, finder.services
    each = [one for found in turn.found for one in _choose_matters(found, utterance, finder)]
    found = resolve_slots(each, utterance)
    if not any(one.slot == USER_NAME for one in found):
        return found
    if not introduces_other(found, utterance, services.items.slot(scope, USER_NAME, None)):
        return found
    sure = (one for one in found if isinstance(one, ForgetRequest) or not one.doubtful)
    return [replace(one, doubtful=True, slot=one.slot if isinstance(one, ForgetRequest) else None) for one in sure]


def _read_stored(found: Found, utterance: Utterance, finder: ChangeFinder, vectors: MessageVectors) -> StoredFacts:
    scope, services = finder.scope, finder.services
    reads, items = list_reads(found, utterance), services.items
    change = NO_CHANGE
    if isinstance(found, Statement):
        read = vectors.read_span(utterance.message.text, (found.start, found.end))
        change = finder.find(utterance.quote(found), read, found.slot, utterance.speaker)
        # A doubtful statement may be of a text that somebody else wrote: it ends nothing.
        change = change.only_mark() if found.doubtful else change.spare_slots() if found.spares_slots else change
    query = WordQuery(tuple(dict.fromkeys(extract_terms(reads.words))), scope, reads.where, limit=MAX_LIKELY_FACTS)
    hits = services.words.best(query).hits if query.terms else ()
    likely = items.get_many(scope, [hit.id for hit in hits]) if hits else []
    return StoredFacts(
        {slot: items.slot(scope, slot, None) for slot in reads.slots},
        items.history(scope, reads.history) if reads.history else (),
        [item for item in likely if item.metadata.get(SPEAKER_KEY) == utterance.speaker],
        change,
    )


def _plan_lasting_item(turn: AnalyzedMessage, k: int, services: Services) -> list[Step]:
    """Plan the item that an important event becomes. The caller skips it if the gate kept something of the message."""
    if turn.event is None or not turn.event.text or not score_importance(turn.event).promotes:
        return []
    # A text with words of others is an event, but not a lasting statement of the user.
    if turn.message.role == "user" and find_own_words(turn.message.text[:MAX_GATE_CHARACTERS]).mixed:
        return []
    source = message_to_note(turn.message, "").source
    assert isinstance(source, Source)
    # Cites the whole row: if two rows with the same words share one item, forgetting one row leaves the other.
    note = episodes.build_lasting_note(turn.event, replace(source, cites=(Citation(refer_to_step(k)),)))
    return [Add(replace(write.build_draft(note, services.redact), kind="episode"))]


def _build_happenings(turns: Sequence[AnalyzedMessage], session: str, services: Services) -> list[EpisodeDraft]:
    made: list[EpisodeDraft] = []
    now = services.clock()
    for k, turn in enumerate(turns if services.episodes else ()):
        occurred = turn.message.occurred_at
        at = occurred if isinstance(occurred, datetime) else now
        entry = turn.event and episodes.build_entry(turn.event, session, at, refer_to_step(k), turn.message.tool)
        # The entry of an old event has expired already.
        if entry and entry.alive(now):
            made.append(EpisodeDraft(entry, episodes.build_raw(turn.raw, at)))
    return made


def _embed_steps(steps: Sequence[Step], turns: Sequence[AnalyzedMessage], services: Services) -> tuple[Step, ...]:
    """Add the vectors: those that the passes over the messages left, and the others in one call."""
    drafts = [_take_vectors(step.draft, k, turns) for k, step in enumerate(steps) if isinstance(step, (Add, Correct))]
    made = iter(write.add_vectors(drafts, services.embedder))
    return tuple(replace(step, draft=next(made)) if isinstance(step, (Add, Correct)) else step for step in steps)


def _take_vectors(draft: Draft, place: int, turns: Sequence[AnalyzedMessage]) -> Draft:
    places = {refer_to_step(k): k for k in range(len(turns))}
    cites = [Citation(refer_to_step(place))] if place < len(turns) else draft.source.cites
    if len(cites) != 1 or cites[0].item not in places:
        return draft
    turn = turns[places[cites[0].item]]
    span = cites[0].find_span(len(turn.message.text))
    return replace(draft, vectors=turn.vectors.embed_draft(draft, turn.message.text, span))


def _apply_plan(plan: Plan, session: str, services: Services, along: Callable[[Applied], object] | None) -> Applied:
    try:
        return commit_plan(plan, services, along)
    except Conflict:
        # The derived steps depend on what is stored, so a repeated request may come with other steps.
        first = _find_first_answer(plan, session, services) if plan.request_id is not None else None
        if first is None:
            raise
        return first


def _write_along(along: WriteAlong, count: int, applied: Applied) -> None:
    if not applied.repeated:
        along([outcome.id or "" for outcome in applied.outcomes[:count]])


def _repeat_answer(
    messages: Sequence[Message], earlier: Sequence[Message], session: str, services: Services, plan: Plan
) -> RecordResult | None:
    """Return the first answer to a known request before anything is embedded; None if the rest is to be done again.

    That is so for a request to forget, which may propose items, and if episodes may be missing in a store of their own.
    """
    rows = tuple(
        Add(
            write.build_draft(message_to_note(shorten_result(one)[0], session), services.redact),
            f"{plan.request_id}\x1f{k}",
        )
        for k, one in enumerate(messages)
    )
    if not rows or not write.is_known(rows[0], plan.scope, services) or (services.episodes and not services.same_store):
        return None
    if any(asks_to_forget(one, [*earlier, *messages[:k]]) for k, one in enumerate(messages)):
        return None
    first = _find_first_answer(replace(plan, steps=rows), session, services)
    if first is None:
        return None
    owners = find_cited(first, len(rows), services.items.get_many, plan.scope)
    return build_result(first, messages, owners, [()] * len(rows))


def commit_plan(plan: Plan, services: Services, along: Callable[[Applied], object] | None = None) -> Applied:
    """Apply the plan in one transaction if one store holds items and episodes. `along` is part of that of the items.

    Otherwise the items are written first, because they must not be lost.
    """
    if services.same_store or not plan.episodes:
        return _apply_with(plan, services, along)
    store = episodes.require_episodes(services)
    applied = _apply_with(replace(plan, episodes=()), services, along)
    ids = {refer_to_step(step): outcome.id for step, outcome in enumerate(applied.outcomes)}
    added: list[str] = []
    for happening in plan.episodes:
        try:
            added += _add_entry(happening, ids, plan.scope, store, applied.repeated)
        except StoreError as exc:
            raise_interrupt(exc)
            # The rows and lasting items are stored: an error here would make the caller write them again.
            _log.warning("an entry of episodic memory was not written: %s", exc)
    if added and _was_erased_meanwhile(plan, services):
        # The user's rows are erased, and the erasure passed this store before the entries arrived.
        store.remove(plan.scope, added)
        raise make_erased_error()
    return applied


def _apply_with(plan: Plan, services: Services, along: Callable[[Applied], object] | None) -> Applied:
    if along is None:
        return services.items.apply(plan)

    def apply_both() -> Applied:
        applied = services.items.apply(plan)
        along(applied)
        return applied

    return services.items.in_transaction(apply_both)


def _was_erased_meanwhile(plan: Plan, services: Services) -> bool:
    user, erasing = find_owner(plan.scope), services.erasing
    if plan.began is None or user is None or erasing is None:
        return False
    subject_hash, done = erasing.hash_subject(user), erasing.erased(user)
    times = [one.at for one in erasing.running() if one.subject_hash == subject_hash] + ([done.at] if done else [])
    return any(to_micros(at) >= plan.began for at in times)


def _add_entry(
    happening: EpisodeDraft, ids: dict[str, str | None], scope: Scope, store: Episodes, repeated: bool
) -> list[str]:
    """Write one entry. Return its id, or nothing if its row is missing or the entry exists."""
    episode = happening.episode
    item = ids.get(episode.item, episode.item) if episode.item else None
    if episode.item and item is None:
        return []
    whole = replace(episode, item=item, id=episode.id or item or "")
    # A repeated request may have stopped before its entry was written. A second write would count the event twice.
    if repeated:
        recent = store.recent(scope, whole.session, episodes.MAX_ENTRIES, whole.happened_at)
        if any(one.id == whole.id for one in recent):
            return []
    store.add(scope, whole, happening.raw)
    return [whole.id]


def _find_first_answer(plan: Plan, session: str, services: Services) -> Applied | None:
    try:
        # No session has length -1, so this writes nothing and only answers for a known request.
        first = services.items.apply(Plan(plan.scope, (), plan.request_id, (session, -1)))
    except Conflict:
        return None
    # Each message has its own request id: different words under the same id raise Conflict here.
    rows = tuple(step for step in plan.steps if isinstance(step, Add) and step.request_id is not None)
    answered = services.items.get_many(plan.scope, [one.id for one in first.outcomes[: len(rows)] if one.id])
    if len(first.outcomes) < len(rows) or any(item.kind != "message" for item in answered):
        return None  # the id is that of another verb, or of fewer messages
    services.items.apply(Plan(plan.scope, rows, began=plan.began))
    return first
