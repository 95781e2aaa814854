"""Write what happens in a session, with all that follows from it, in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engrain.core.errors import Conflict, EmbedderFailed, NotFound, OnHold, StoreError
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, ForgetRequest, Source, Statement
from engrain.core.model.messages import Message, item_to_message, message_to_note
from engrain.core.model.plans import Add, Applied, Correct, Forget, Plan, Step, refer_to_step
from engrain.core.model.sessions import EpisodeDraft
from engrain.core.rules.importance import EpisodeEvent, EpisodeKind, measure_novelty, score_importance
from engrain.core.rules.message_filters import blank_recalled
from engrain.ingest import episodes, gate, write
from engrain.ingest.facts import Utterance, find_other_speaker, plan_steps
from engrain.ingest.tool_output import shorten_output
from engrain.ingest.write import redact_message
from engrain.ports import Services

# Characters at either end of a message in which the gate looks for what lasts: what is between was pasted.
MAX_GATE_CHARACTERS = 20_000
MAX_ATTEMPTS = 5

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class RecordResult:
    """The ids and numbers of the messages. `facts` are what lasts of them: facts that the gate kept, and important
    episodes. `forgotten` is what the user wanted gone, `marked` the messages of which a span was cut out, `refused` why
    nothing could go though it was wanted. `repeated`: the request was known, and this is its first answer."""

    ids: tuple[str, ...]
    places: tuple[int, ...]
    facts: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    repeated: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """A request id that is known changes nothing. With `expect` the session must have that length, else Conflict.
    `began` is the store's moment when that began which the messages come of, if that was earlier."""

    request_id: str | None = None
    expect: int | None = None
    began: int | None = None


@dataclass(frozen=True, slots=True)
class AnalyzedMessage:
    """A message as the log shows it, with what is known before it is written: the whole of a long output, what the
    gate found, and what happened."""

    message: Message
    raw: str | None
    found: Sequence[Statement | ForgetRequest]
    event: EpisodeEvent | None


def record_messages(
    happened: Sequence[Message], session: str, scope: Scope, services: Services, terms: RecordOptions | None = None
) -> RecordResult:
    """Checked messages into the log, one after the other, with the facts and episodes that they give.

    The texts are embedded before anything is locked; then all of it is written together or not at all. What a legal
    hold keeps is not forgotten, whatever the message wants gone: the message is kept, and the answer says so.
    """
    terms = terms or RecordOptions()
    began = services.items.moment() if terms.began is None else terms.began
    happened = [redact_message(message, services.redact) for message in happened]
    expect = None if terms.expect is None else (session, terms.expect)
    plan = Plan(scope, (), terms.request_id, expect, began=began)
    try:
        return _write_with_retries(happened, session, services, plan)
    except OnHold as exc:
        kept = _write_with_retries(happened, session, services, plan, forgets=False)
        _log.warning("what a message of session %r wanted forgotten stays: %s", session, exc)
        return replace(kept, refused=str(exc))


def _write_with_retries(
    happened: Sequence[Message], session: str, services: Services, plan: Plan, forgets: bool = True
) -> RecordResult:
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return _write_messages(happened, session, services, plan, forgets)
        except NotFound:
            # Nothing is written: a fact that this changes or ends was forgotten or corrected by another meanwhile.
            _log.debug("what a message of session %r speaks of has changed", session)
    return _write_messages(happened, session, services, plan, forgets)


def _write_messages(
    happened: Sequence[Message], session: str, services: Services, plan: Plan, forgets: bool
) -> RecordResult:
    scope, request_id = plan.scope, plan.request_id
    turns = _analyze_messages(
        happened, [item_to_message(row) for row in services.log.last(scope, session, episodes.NOVELTY_ROWS)]
    )
    steps: list[Step] = []
    for k, turn in enumerate(turns):
        request = None if request_id is None else f"{request_id}\x1f{k}"
        steps.append(Add(write.build_draft(message_to_note(turn.message, session), services.redact), request))
    # Who brings several messages of the user at once brings a transcript: nobody says all of it now.
    follows: list[Step] = []
    now = sum(turn.message.role == "user" for turn in turns) == 1
    for k, turn in enumerate(turns):
        said = Utterance(turn.message, refer_to_step(k), now and turn.message.occurred_at is None)
        if turn.found and turn.message.speaker:
            said = replace(said, speaker=find_other_speaker(turn.message.speaker, scope, services))
        found = [one for one in turn.found if forgets or isinstance(one, Statement)]
        after = plan_steps(found, said, follows, scope, services)
        follows = after if after != follows else [*follows, *_plan_lasting_item(turn, k, services)]
    steps += follows
    # What is to be forgotten and was never known: a statement over those words alone, and it goes at once.
    alone = [k for k, step in enumerate(steps) if isinstance(step, Add) and step.draft.expires_at is not None]
    steps += [Forget(refer_to_step(k)) for k in alone]
    plan = replace(
        plan, steps=_embed_steps(steps, services), episodes=tuple(_build_happenings(turns, session, services))
    )
    applied = _apply_plan(plan, session, services)
    recorded = _build_result(applied, len(turns))
    return recorded if applied.repeated else _finish_forgetting(recorded, scope, services)


def _analyze_messages(happened: Sequence[Message], before: Sequence[Message]) -> list[AnalyzedMessage]:
    turns: list[AnalyzedMessage] = []
    for message in happened:
        text, raw = shorten_output(message.text, message.tool, message.failed) if message.role == "tool" else ("", None)
        shown = replace(message, text=text) if message.role == "tool" else message
        earlier = [*before, *(turn.message for turn in turns)][-episodes.NOVELTY_ROWS :]
        found = _find_user_statements(shown, earlier)
        turns.append(AnalyzedMessage(shown, raw, found, _build_event(shown, earlier, found)))
    return turns


def _find_user_statements(message: Message, earlier: Sequence[Message]) -> list[Statement | ForgetRequest]:
    """Only the user's own words count: nobody else's, and not those that came from recall."""
    if message.role != "user":
        return []
    head, rest = message.text[:MAX_GATE_CHARACTERS], message.text[MAX_GATE_CHARACTERS:]
    tail = rest[-MAX_GATE_CHARACTERS:]
    own = blank_recalled(head) + " " * (len(rest) - len(tail)) + blank_recalled(tail)
    return gate.find_statements(own, [(one.role, one.text) for one in earlier])


def _build_event(
    message: Message, earlier: Sequence[Message], found: Sequence[Statement | ForgetRequest]
) -> EpisodeEvent | None:
    if message.role == "system":
        return None
    # Of a call its name and arguments, as the row has them: two different calls are two events.
    text = message_to_note(message, "").text if message.calls else message.text
    kind: EpisodeKind = message.event or ("tool" if message.role == "tool" else "turn")  # type: ignore[assignment]
    explicit = any(isinstance(one, Statement) and one.explicit for one in found)
    new = measure_novelty(text, [one.text for one in earlier])
    return EpisodeEvent(kind, text, message.role, message.failed, explicit=explicit, novelty=new)


def _plan_lasting_item(turn: AnalyzedMessage, k: int, services: Services) -> list[Step]:
    """The item that an important episode becomes; where the gate kept something of it, that is what lasts."""
    if turn.event is None or not turn.event.text or not score_importance(turn.event).promotes:
        return []
    source = message_to_note(turn.message, "").source
    assert isinstance(source, Source)
    # The whole row: where the same words in two rows are one item, to forget one row leaves the other as it is.
    note = episodes.build_lasting_note(turn.event, replace(source, cites=(Citation(refer_to_step(k)),)))
    return [Add(replace(write.build_draft(note, services.redact), kind="episode"))]


def _build_happenings(turns: Sequence[AnalyzedMessage], session: str, services: Services) -> list[EpisodeDraft]:
    made: list[EpisodeDraft] = []
    now = services.clock()
    for k, turn in enumerate(turns if services.episodes else ()):
        told = turn.message.occurred_at
        at = told if isinstance(told, datetime) else now
        entry = turn.event and episodes.build_entry(turn.event, session, at, refer_to_step(k), turn.message.tool)
        # What is told of long ago has expired already.
        if entry and entry.alive(now):
            made.append(EpisodeDraft(entry, episodes.build_raw(turn.raw, at)))
    return made


def _embed_steps(steps: Sequence[Step], services: Services) -> tuple[Step, ...]:
    drafts = [step.draft for step in steps if isinstance(step, (Add, Correct))]
    made = iter(write.add_vectors(drafts, services.embedder))
    return tuple(replace(step, draft=next(made)) if isinstance(step, (Add, Correct)) else step for step in steps)


def _apply_plan(plan: Plan, session: str, services: Services) -> Applied:
    try:
        return episodes.commit_plan(plan, services)
    except Conflict:
        # What follows from a message depends on what is known, so that a repeated request may ask for other steps.
        first = _find_first_answer(plan, session, services) if plan.request_id is not None else None
        if first is None:
            raise
        return first


def _find_first_answer(plan: Plan, session: str, services: Services) -> Applied | None:
    try:
        # No session has this length: nothing is written unless the request is known.
        first = services.items.apply(Plan(plan.scope, (), plan.request_id, (session, -1)))
    except Conflict:
        return None
    # Each message has a request id of its own: other words under this one are a Conflict here.
    rows = tuple(step for step in plan.steps if isinstance(step, Add) and step.request_id is not None)
    services.items.apply(Plan(plan.scope, rows, began=plan.began))
    return first


def _build_result(applied: Applied, count: int) -> RecordResult:
    rows, rest = applied.outcomes[:count], applied.outcomes[count:]
    gone = dict.fromkeys(id for one in rest if one.status == "forgotten" for id in (one.id, *one.others))
    kept = dict.fromkeys(one.id for one in rest if one.status not in ("forgotten", "missing"))
    return RecordResult(
        ids=tuple(one.id or "" for one in rows),
        places=tuple(one.place or 0 for one in rows),
        facts=tuple(id for id in kept if id and id not in gone),
        forgotten=tuple(id for id in gone if id and id not in kept),
        marked=tuple(dict.fromkeys(id for one in rest for id in one.marked)),
        repeated=applied.repeated,
    )


def _finish_forgetting(recorded: RecordResult, scope: Scope, services: Services) -> RecordResult:
    """After a forgetting: entries in a store that does not see it, the bytes of what is gone, the vectors of what was
    cut."""
    if not recorded.forgotten and not recorded.marked:
        return recorded
    try:
        if services.episodes is not None and not services.same_store:
            services.episodes.remove(scope, [*recorded.forgotten, *recorded.marked])
        services.items.purge()
        write.embed_missing(services, len(recorded.marked))
    except (StoreError, EmbedderFailed) as exc:
        # What was asked for is done; the upkeep goes on trying.
        _log.warning("something is left to do after forgetting: %s", exc)
    return recorded
