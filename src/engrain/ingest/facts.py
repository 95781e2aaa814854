"""Turn the statements that the gate found in a message into steps: facts to add, change or forget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import (
    ASPECT_KEY,
    ENDS_KEY,
    LATER_KEY,
    OUTDATES_KEY,
    RESERVED_KEY,
    ROLES,
    WISH_KEY,
    Citation,
    Draft,
    ForgetRequest,
    Item,
    Note,
    Source,
    Statement,
)
from engrain.core.model.messages import Message
from engrain.core.model.plans import Add, Change, Correct, Forget, Step
from engrain.core.rules.forget_matters import read_topic
from engrain.core.rules.profile import is_standing_wish
from engrain.core.rules.relations import find_relation
from engrain.core.rules.slot_names import SPEAKER_KEY, rename_for_speaker
from engrain.core.rules.statements import PREFERENCE, detect_traits, load_statement_rules
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import split_sentences
from engrain.core.text.tokenizer import extract_terms, split_identifier, tokenize
from engrain.ingest import gate
from engrain.ingest.change_finder import NO_CHANGE, FoundChange
from engrain.ingest.forget_targets import Candidate
from engrain.ingest.sentence_model import begins_with_own_subject
from engrain.ingest.write import build_draft
from engrain.ports import Services

BY_GATE = "gate"  # metadata "by" of a fact that the rules found
# A statement that ends the value of a slot this surely becomes its next value.
MIN_CHANCE_OF_SLOT = 0.6

USER_NAME = "user.name"
_WISH_IMPORTANCE = 0.8
_EMPLOYER, _JOB = ".employer", ".job"
_FACTS = Filter((Condition("kind", "=", "fact"),))
_GATE_FACTS = Filter((*_FACTS.conditions, Condition("metadata.by", "=", BY_GATE)))


@dataclass(frozen=True, slots=True)
class Utterance:
    """A message from the user's side of a conversation."""

    message: Message
    row_id: str  # of its log row, or the plan's placeholder for that id
    is_live: bool = False  # said now, not imported from an earlier time
    speaker: str | None = None  # None: the user

    def quote(self, found: Statement | ForgetRequest) -> str:
        return self.message.text[found.start : found.end]


@dataclass(frozen=True, slots=True)
class FactReads:
    """The facts to read before a statement is planned."""

    slots: tuple[str, ...] = ()
    history: str | None = None  # the slot of which all values are read
    words: str = ""  # facts that share words with this text, and match the filter
    where: Filter = _FACTS


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """The facts that were read. `likely` are those that share words with the statement, by the same speaker.

    `change` is what the statement ends by its meaning.
    `targets` are what a request to forget means, if that is certain.
    """

    slots: Mapping[str, Item | None]
    history: Sequence[Item]
    likely: Sequence[Item]
    change: FoundChange = NO_CHANGE
    targets: Sequence[Candidate] = ()


def resolve_slots(found: Sequence[Statement | ForgetRequest], utterance: Utterance) -> list[Statement | ForgetRequest]:
    """Return the statements with the slots of their speaker. Blank ones are dropped."""
    spoken = (one for one in found if utterance.quote(one).strip())
    return [replace(one, slot=rename_for_speaker(utterance.speaker, one.slot)) for one in spoken]


def introduces_other(found: Sequence[Statement | ForgetRequest], utterance: Utterance, known: Item | None) -> bool:
    """Check for a message whose speaker has another name than the user.

    A message that only gives a name, or that speaks of a change of names, renames the user.
    """
    named = next((one for one in found if isinstance(one, Statement) and one.slot == USER_NAME), None)
    if known is None or named is None or (len(found) == 1 and len(split_sentences(utterance.message.text)) == 1):
        return False
    renames = load_statement_rules().sign("renames")
    if renames.search(utterance.quote(named)) or renames.search(known.text):
        return False
    stored = _extract_value_terms(USER_NAME, known.text)
    return bool(stored) and stored.isdisjoint(extract_terms(utterance.message.text))


def list_reads(found: Statement | ForgetRequest, utterance: Utterance) -> FactReads:
    if isinstance(found, ForgetRequest):
        return FactReads(history=found.slot, words=utterance.quote(found))
    if found.slot is None:
        return FactReads(words=found.replaces or "", where=_GATE_FACTS)
    if not _says_ended(found, utterance):
        return FactReads()
    job = (_job_of(found.slot),) if found.slot.endswith(_EMPLOYER) else ()
    return FactReads((found.slot, *job), words=found.replaces or "", where=_GATE_FACTS)


def plan_steps(
    found: Statement | ForgetRequest,
    utterance: Utterance,
    planned: Sequence[Step],
    stored: StoredFacts,
    scope: Scope,
    services: Services,
) -> list[Step]:
    """Return the planned steps with those of this statement added, and without those that it retracts."""
    if isinstance(found, Statement):
        return [*planned, *_plan_statement(found, utterance, planned, stored, services)]
    writes = [step for step in planned if isinstance(step, (Add, Correct))]
    retracted = [step for step in writes if found.topic is None and _retracts_draft(found, utterance, step.draft)]
    others = [step for step in planned if step not in retracted]
    meant = [one.item for one in stored.targets if one.item.kind != "message"]
    meant = meant or find_meant(found, utterance.quote(found), stored)
    words = [cite for step in retracted for cite in step.draft.source.cites]
    words += [Citation(one.item.id, *one.span) for one in stored.targets if one.item.kind == "message"]
    marks = unmark_earlier(meant, scope, services)
    return [*others, *marks, *_plan_forgetting(found, utterance, meant, words, services)]


def find_other_speaker(speaker: str | None, scope: Scope, services: Services) -> str | None:
    """Return the speaker, or None if it is the user: by the scope's user id, or by the stored `user.name`."""
    words = set(tokenize(speaker or "")) - set(ROLES)
    if not words:
        return None
    stored = services.items.slot(scope, USER_NAME, None)
    user_id, user_name = set(tokenize(scope.user or "")), set(tokenize(stored.text if stored else ""))
    return None if words <= user_id or words <= user_name or (user_id and user_id <= words) else speaker


def build_note(found: Statement, utterance: Utterance, services: Services) -> Note:
    """Quote the statement's words in a note that cites them.

    A live statement may bring back what was forgotten. An imported one may not.
    """
    by_other = utterance.speaker is not None
    return Note(
        text=utterance.quote(found),
        importance=found.importance,
        slot=found.slot,
        metadata={"by": BY_GATE, SPEAKER_KEY: utterance.speaker} if by_other else {"by": BY_GATE},
        source=Source(
            utterance.speaker,
            "document" if found.doubtful else "user",
            (Citation(utterance.row_id, found.start, found.end),),
        ),
        # With a time of its own, another speaker's "I like tea" is not merged with the user's.
        occurred_at=utterance.message.occurred_at or (services.clock() if by_other else None),
        derived=not utterance.is_live,
    )


def _plan_statement(
    found: Statement, utterance: Utterance, planned: Sequence[Step], stored: StoredFacts, services: Services
) -> list[Step]:
    values = {slot: item.text for slot, item in stored.slots.items() if item}
    values |= {step.draft.slot: step.draft.text for step in planned if isinstance(step, Add) and step.draft.slot}
    found = replace(found, slot=_choose_slot(found, utterance, values))
    old = _find_replaced(found, utterance, stored.likely)
    change = stored.change
    wish = found.wish or _follows_wish(utterance.quote(found), (old, *change.ended) if old else change.ended)
    importance = max(found.importance, _WISH_IMPORTANCE) if wish else found.importance
    importance = max(importance, *(item.importance for item in change.ended), 0.0)  # as much as what it replaces
    slot = old.slot if old else found.slot or _inherit_slot(change)
    made = build_draft(
        build_note(replace(found, slot=slot, importance=importance), utterance, services), services.redact
    )
    made = replace(made, relation=None if found.doubtful else find_relation(made.text, utterance.speaker))
    if old is not None and old.slot is None:
        marked = replace(made, metadata={**made.metadata, RESERVED_KEY: {WISH_KEY: True}}) if wish else made
        return [Correct(old.id, marked)]
    begins = made.occurred_at or services.clock()
    older = [item for item in change.earlier if item.valid_from < begins]
    earlier = [mark_earlier(item, begins) for item in older]
    ends = [item.id for item in change.ended]
    outdates = {item.id: begins.isoformat() for item in older}
    notes = {ASPECT_KEY: change.aspect, ENDS_KEY: ends, OUTDATES_KEY: outdates, WISH_KEY: wish}
    own = {key: value for key, value in notes.items() if value}
    if own:
        made = replace(made, ends=tuple(ends), metadata={**made.metadata, RESERVED_KEY: own})
    return [Add(made), *earlier]


def _follows_wish(text: str, ended: Sequence[Item]) -> bool:
    """Tell if a statement takes the place of a standing wish: "long answers are fine again"."""
    return any(map(is_standing_wish, ended)) and not begins_with_own_subject(text)


def _inherit_slot(change: FoundChange) -> str | None:
    """Return the slot whose value a statement surely replaces."""
    slots = {item.slot for item in change.ended}
    return slots.pop() if len(slots) == 1 and change.chance >= MIN_CHANCE_OF_SLOT else None


def mark_earlier(item: Item, since: datetime) -> Change:
    """Note on an item that something newer was said about its matter: it is shown as earlier."""
    own = item.metadata.get(RESERVED_KEY)
    marked = {**(own if isinstance(own, Mapping) else {}), LATER_KEY: since.isoformat()}
    return Change(item.id, metadata={**item.metadata, RESERVED_KEY: marked})


def unmark_earlier(gone: Sequence[Item], scope: Scope, services: Services) -> list[Change]:
    """Return the steps that undo the marks of facts that are forgotten, unless a newer fact has renewed them."""
    since: dict[str, object] = {}
    for item in gone:
        own = item.metadata.get(RESERVED_KEY)
        outdates = own.get(OUTDATES_KEY) if isinstance(own, Mapping) else None
        since |= outdates if isinstance(outdates, Mapping) else {}
    steps: list[Change] = []
    for item in services.items.get_many(scope, list(since)) if since else ():
        own = item.metadata.get(RESERVED_KEY)
        if isinstance(own, Mapping) and own.get(LATER_KEY) == since[item.id] and item not in gone:
            left = {key: value for key, value in own.items() if key != LATER_KEY}
            steps.append(Change(item.id, metadata={**item.metadata, RESERVED_KEY: left}))
    return steps


def _choose_slot(found: Statement, utterance: Utterance, values: Mapping[str, str]) -> str | None:
    """Return the slot that a statement fills.

    A statement that something ended fills a slot only if the slot holds that value: somebody who lives in Quito may
    say that he no longer lives in Lima.
    """
    slot = found.slot
    if slot is None or not _says_ended(found, utterance):
        return slot
    value = values.get(slot)
    if found.replaces is not None:
        return slot if value and set(extract_terms(found.replaces)) <= set(extract_terms(value)) else None
    # "I quit my job" ends the job if no employer is known.
    return _job_of(slot) if not value and slot.endswith(_EMPLOYER) and values.get(_job_of(slot)) else slot


def _says_ended(found: Statement, utterance: Utterance) -> bool:
    return load_statement_rules().sign("ended").search(utterance.quote(found)) is not None


def _job_of(slot: str) -> str:
    return slot.removesuffix(_EMPLOYER) + _JOB


def _find_replaced(found: Statement, utterance: Utterance, likely: Sequence[Item]) -> Item | None:
    """Return the preference that the statement ends, or the fact that it repeats to deny it ("I no longer like tea").

    None if several facts could be meant.
    """
    if found.replaces is None or found.slot is not None:
        return None
    words, quoted = set(extract_terms(found.replaces)), set(tokenize(utterance.quote(found)))
    named = [item for item in likely if words <= set(extract_terms(item.text))]
    meant = [item for item in named if detect_traits(item.text) & PREFERENCE or quoted > set(tokenize(item.text))]
    return meant[0] if len(meant) == 1 else None


def _retracts_draft(found: ForgetRequest, utterance: Utterance, draft: Draft) -> bool:
    """Check whether a forget request means a draft that is planned but not written yet."""
    statement = utterance.quote(found)
    if draft.kind != "fact" or draft.metadata.get(SPEAKER_KEY) != utterance.speaker:
        return False
    if found.slot is None or draft.slot != found.slot:
        return tokenize(draft.text) == tokenize(statement)
    value = _extract_value_terms(found.slot, statement)
    return not gate.find_statements(statement) or not value.isdisjoint(extract_terms(draft.text))


def _plan_forgetting(
    found: ForgetRequest,
    utterance: Utterance,
    meant: Sequence[Item],
    words: Sequence[Citation],
    services: Services,
) -> list[Step]:
    """Plan to forget the facts that are meant, the words that name them in this message, and other words of the log.

    A statement cites all of these words, so forgetting a meant fact forgets them too. If no fact is known yet, the
    statement has expired from the start and the caller forgets it: this keeps the words from being ingested later.
    """
    now = services.clock()
    span = Citation(utterance.row_id, found.start, found.end)
    statement = Draft(
        utterance.quote(found),
        source=Source(kind="user", cites=(*(Citation(item.id) for item in meant[:1]), span, *words)),
        occurred_at=now,
        expires_at=None if meant else now,
    )
    return [Add(statement), *(Forget(item.id) for item in meant)]


def find_meant(found: ForgetRequest, statement: str, stored: StoredFacts) -> list[Item]:
    """Return the facts that a forget request means.

    A slot's named values, or all that it ever had if none is named ("forget my city"). Otherwise, facts with exactly
    the same words.
    """
    topic = read_topic(statement, everything=False)
    values = _find_slot_values(found.slot, statement, stored.history) if found.slot else []
    if found.slot and not gate.find_statements(statement):
        values = [one for one in values if topic.fits_time(one.text, ended=not one.open)]
        values = [one for one in values if topic.fits_qualifiers(one.text)]
    return values or [item for item in stored.likely if tokenize(item.text) == tokenize(statement)]


def _find_slot_values(slot: str, statement: str, history: Sequence[Item]) -> list[Item]:
    versions = [item for item in history if item.retracted_at is None]
    if not gate.find_statements(statement):
        return versions
    value = _extract_value_terms(slot, statement)
    shared = {item.id: value.intersection(extract_terms(item.text)) for item in versions}
    # "Forget that I live in Quito" means the fact "I moved to Quito", not "I live in Lima": the last word decides.
    last = next((one for one in reversed(extract_terms(statement)) if one in value), None)
    full_matches = [item for item in versions if shared[item.id] == value]
    last_matches = [item for item in versions if last in shared[item.id]]
    return full_matches or last_matches or [item for item in versions if shared[item.id]]


def _extract_value_terms(slot: str, statement: str) -> set[int]:
    return set(extract_terms(statement)) - set(extract_terms(split_identifier(slot))) - load_languages().stop_terms
