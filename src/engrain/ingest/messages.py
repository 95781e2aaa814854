"""Write what happens in a session, with all that follows from it, in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engrain.core.errors import Conflict, EmbedderFailed, NotFound, OnHold, StoreError
from engrain.core.identity import Scope
from engrain.core.model.items import Cite, ForgetRequest, Source, Statement
from engrain.core.model.messages import Message, item_to_message, message_to_note
from engrain.core.model.plans import Add, Applied, Correct, Forget, Plan, Step, refer_to_step
from engrain.core.model.sessions import EpisodeDraft
from engrain.core.rules.importance import EpisodeEvent, EpisodeKind, measure_novelty, score_importance
from engrain.core.rules.message_filters import blank_recalled
from engrain.ingest import episodes, gate, write
from engrain.ingest.facts import Said, another, steps_for
from engrain.ingest.tool_output import insight
from engrain.ingest.write import clean_message
from engrain.ports import Kit

# Characters at either end of a message in which the gate looks for what lasts: what is between was pasted.
GATED = 20_000
TRIES = 5

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class Recorded:
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
class Terms:
    """A request id that is known changes nothing. With `expect` the session must have that length, else Conflict.
    `began` is the store's moment when that began which the messages come of, if that was earlier."""

    request_id: str | None = None
    expect: int | None = None
    began: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as the log shows it, with what is known before it is written: the whole of a long output, what the
    gate found, and what happened."""

    message: Message
    raw: str | None
    found: Sequence[Statement | ForgetRequest]
    event: EpisodeEvent | None


def record(happened: Sequence[Message], session: str, scope: Scope, kit: Kit, terms: Terms | None = None) -> Recorded:
    """Checked messages into the log, one after the other, with the facts and episodes that they give.

    The texts are embedded before anything is locked; then all of it is written together or not at all. What a legal
    hold keeps is not forgotten, whatever the message wants gone: the message is kept, and the answer says so.
    """
    terms = terms or Terms()
    began = kit.items.moment() if terms.began is None else terms.began
    happened = [clean_message(message, kit.redact) for message in happened]
    expect = None if terms.expect is None else (session, terms.expect)
    plan = Plan(scope, (), terms.request_id, expect, began=began)
    try:
        return _kept(happened, session, kit, plan)
    except OnHold as exc:
        kept = _kept(happened, session, kit, plan, forgets=False)
        _log.warning("what a message of session %r wanted forgotten stays: %s", session, exc)
        return replace(kept, refused=str(exc))


def _kept(happened: Sequence[Message], session: str, kit: Kit, plan: Plan, forgets: bool = True) -> Recorded:
    for _ in range(TRIES - 1):
        try:
            return _written(happened, session, kit, plan, forgets)
        except NotFound:
            # Nothing is written: a fact that this changes or ends was forgotten or corrected by another meanwhile.
            _log.debug("what a message of session %r speaks of has changed", session)
    return _written(happened, session, kit, plan, forgets)


def _written(happened: Sequence[Message], session: str, kit: Kit, plan: Plan, forgets: bool) -> Recorded:
    scope, request_id = plan.scope, plan.request_id
    turns = _turns(happened, [item_to_message(row) for row in kit.log.last(scope, session, episodes.BEFORE)])
    steps: list[Step] = []
    for k, turn in enumerate(turns):
        request = None if request_id is None else f"{request_id}\x1f{k}"
        steps.append(Add(write.draft(message_to_note(turn.message, session), kit.redact), request))
    # Who brings several messages of the user at once brings a transcript: nobody says all of it now.
    follows: list[Step] = []
    now = sum(turn.message.role == "user" for turn in turns) == 1
    for k, turn in enumerate(turns):
        said = Said(turn.message, refer_to_step(k), now and turn.message.occurred_at is None)
        if turn.found and turn.message.speaker:
            said = replace(said, speaker=another(turn.message.speaker, scope, kit))
        found = [one for one in turn.found if forgets or isinstance(one, Statement)]
        after = steps_for(found, said, follows, scope, kit)
        follows = after if after != follows else [*follows, *_lasting(turn, k, kit)]
    steps += follows
    # What is to be forgotten and was never known: a statement over those words alone, and it goes at once.
    alone = [k for k, step in enumerate(steps) if isinstance(step, Add) and step.draft.expires_at is not None]
    steps += [Forget(refer_to_step(k)) for k in alone]
    plan = replace(plan, steps=_vectored(steps, kit), episodes=tuple(_happenings(turns, session, kit)))
    applied = _applied(plan, session, kit)
    recorded = _recorded(applied, len(turns))
    return recorded if applied.repeated else _finished(recorded, scope, kit)


def _turns(happened: Sequence[Message], before: Sequence[Message]) -> list[Turn]:
    turns: list[Turn] = []
    for message in happened:
        text, raw = insight(message.text, message.tool, message.failed) if message.role == "tool" else ("", None)
        shown = replace(message, text=text) if message.role == "tool" else message
        earlier = [*before, *(turn.message for turn in turns)][-episodes.BEFORE :]
        found = _worth(shown, earlier)
        turns.append(Turn(shown, raw, found, _event(shown, earlier, found)))
    return turns


def _worth(message: Message, earlier: Sequence[Message]) -> list[Statement | ForgetRequest]:
    """Only the user's own words count: nobody else's, and not those that came from recall."""
    if message.role != "user":
        return []
    head, rest = message.text[:GATED], message.text[GATED:]
    tail = rest[-GATED:]
    own = blank_recalled(head) + " " * (len(rest) - len(tail)) + blank_recalled(tail)
    return gate.worth(own, [(one.role, one.text) for one in earlier])


def _event(
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


def _lasting(turn: Turn, k: int, kit: Kit) -> list[Step]:
    """The item that an important episode becomes; where the gate kept something of it, that is what lasts."""
    if turn.event is None or not turn.event.text or not score_importance(turn.event).promotes:
        return []
    source = message_to_note(turn.message, "").source
    assert isinstance(source, Source)
    # The whole row: where the same words in two rows are one item, to forget one row leaves the other as it is.
    note = episodes.lasting(turn.event, replace(source, cites=(Cite(refer_to_step(k)),)))
    return [Add(replace(write.draft(note, kit.redact), kind="episode"))]


def _happenings(turns: Sequence[Turn], session: str, kit: Kit) -> list[EpisodeDraft]:
    made: list[EpisodeDraft] = []
    now = kit.clock()
    for k, turn in enumerate(turns if kit.episodes else ()):
        told = turn.message.occurred_at
        at = told if isinstance(told, datetime) else now
        entry = turn.event and episodes.entry(turn.event, session, at, refer_to_step(k), turn.message.tool)
        # What is told of long ago has expired already.
        if entry and entry.alive(now):
            made.append(EpisodeDraft(entry, episodes.raw_of(turn.raw, at)))
    return made


def _vectored(steps: Sequence[Step], kit: Kit) -> tuple[Step, ...]:
    drafts = [step.draft for step in steps if isinstance(step, (Add, Correct))]
    made = iter(write.vectored(drafts, kit.embedder))
    return tuple(replace(step, draft=next(made)) if isinstance(step, (Add, Correct)) else step for step in steps)


def _applied(plan: Plan, session: str, kit: Kit) -> Applied:
    try:
        return episodes.commit(plan, kit)
    except Conflict:
        # What follows from a message depends on what is known, so that a repeated request may ask for other steps.
        first = _first_answer(plan, session, kit) if plan.request_id is not None else None
        if first is None:
            raise
        return first


def _first_answer(plan: Plan, session: str, kit: Kit) -> Applied | None:
    try:
        # No session has this length: nothing is written unless the request is known.
        first = kit.items.apply(Plan(plan.scope, (), plan.request_id, (session, -1)))
    except Conflict:
        return None
    # Each message has a request id of its own: other words under this one are a Conflict here.
    rows = tuple(step for step in plan.steps if isinstance(step, Add) and step.request_id is not None)
    kit.items.apply(Plan(plan.scope, rows, began=plan.began))
    return first


def _recorded(applied: Applied, count: int) -> Recorded:
    rows, rest = applied.outcomes[:count], applied.outcomes[count:]
    gone = dict.fromkeys(id for one in rest if one.status == "forgotten" for id in (one.id, *one.others))
    kept = dict.fromkeys(one.id for one in rest if one.status not in ("forgotten", "missing"))
    return Recorded(
        ids=tuple(one.id or "" for one in rows),
        places=tuple(one.place or 0 for one in rows),
        facts=tuple(id for id in kept if id and id not in gone),
        forgotten=tuple(id for id in gone if id and id not in kept),
        marked=tuple(dict.fromkeys(id for one in rest for id in one.marked)),
        repeated=applied.repeated,
    )


def _finished(recorded: Recorded, scope: Scope, kit: Kit) -> Recorded:
    """After a forgetting: entries in a store that does not see it, the bytes of what is gone, the vectors of what was
    cut."""
    if not recorded.forgotten and not recorded.marked:
        return recorded
    try:
        if kit.episodes is not None and not kit.together:
            kit.episodes.remove(scope, [*recorded.forgotten, *recorded.marked])
        kit.items.purge()
        write.embed_missing(kit, len(recorded.marked))
    except (StoreError, EmbedderFailed) as exc:
        # What was asked for is done; the upkeep goes on trying.
        _log.warning("something is left to do after forgetting: %s", exc)
    return recorded
