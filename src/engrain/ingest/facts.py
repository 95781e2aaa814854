"""Make steps of what the gate found in a message: facts to keep, and what is to be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import ROLES, Citation, Draft, ForgetRequest, Item, Note, Source, Statement
from engrain.core.model.messages import Message
from engrain.core.model.plans import Add, Correct, Forget, Step
from engrain.core.rules.slots import SPEAKER_KEY, rename_for_speaker
from engrain.core.rules.statements import load_statement_rules
from engrain.core.rules.traits import PREFERENCE, detect_traits
from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import extract_terms, split_identifier, tokenize
from engrain.ingest import gate
from engrain.ingest.write import build_draft
from engrain.ports import Services, WordQuery

BY_GATE = "gate"  # metadata "by" of a fact that the rules found
MAX_LIKELY_FACTS = 20  # facts that are looked at for words they share with a statement

_EMPLOYER, _JOB = ".employer", ".job"
_FACTS = Filter((Condition("kind", "=", "fact"),))
_GATE_FACTS = Filter((*_FACTS.conditions, Condition("metadata.by", "=", BY_GATE)))


@dataclass(frozen=True, slots=True)
class Utterance:
    """A message of the user's side, and the id of its log row, or what stands for that in the plan.

    `now`: it is said at this moment, and not brought along from a time before. `speaker` is who says it, if that is
    another than the user.
    """

    message: Message
    row: str
    now: bool = False
    speaker: str | None = None

    def words(self, found: Statement | ForgetRequest) -> str:
        return self.message.text[found.start : found.end]


def plan_steps(
    found: Sequence[Statement | ForgetRequest],
    said: Utterance,
    planned: Sequence[Step],
    scope: Scope,
    services: Services,
) -> list[Step]:
    """With what is planned already, of which the message may take something back."""
    steps = [*planned]
    for one in found:
        if not said.words(one).strip():
            continue
        theirs = replace(one, slot=rename_for_speaker(said.speaker, one.slot))
        if isinstance(theirs, ForgetRequest):
            back = [
                step for step in steps if isinstance(step, (Add, Correct)) and _retracts_draft(theirs, said, step.draft)
            ]
            steps = [step for step in steps if step not in back]
            steps += _plan_forgetting(theirs, said, [step.draft for step in back], scope, services)
        else:
            steps.append(_plan_statement(theirs, said, steps, scope, services))
    return steps


def find_other_speaker(speaker: str | None, scope: Scope, services: Services) -> str | None:
    """The speaker, unless it is the user: by the scope, or by the name that the memory has for the user."""
    words = set(tokenize(speaker or "")) - set(ROLES)
    if not words:
        return None
    held = services.items.slot(scope, "user.name", None)
    own, known = set(tokenize(scope.user or "")), set(tokenize(held.text if held else ""))
    return None if words <= own or words <= known or (own and own <= words) else speaker


def build_note(found: Statement, said: Utterance, services: Services) -> Note:
    """The words of the span, citing it. What is said now may bring back what was forgotten; what is brought along from
    an earlier time may not."""
    others = said.speaker is not None
    return Note(
        text=said.words(found),
        importance=found.importance,
        slot=found.slot,
        metadata={"by": BY_GATE, SPEAKER_KEY: said.speaker} if others else {"by": BY_GATE},
        source=Source(said.speaker, "user", (Citation(said.row, found.start, found.end),)),
        # With a time of its own, another's "I like tea" does not become one with the user's.
        occurred_at=said.message.occurred_at or (services.clock() if others else None),
        derived=not said.now,
    )


def _plan_statement(
    found: Statement, said: Utterance, planned: Sequence[Step], scope: Scope, services: Services
) -> Step:
    told = {step.draft.slot: step.draft.text for step in planned if isinstance(step, Add) and step.draft.slot}

    def held(slot: str) -> str | None:
        item = None if slot in told else services.items.slot(scope, slot, None)
        return item.text if item else told.get(slot)

    found = replace(found, slot=_choose_slot(found, said, held))
    old = _find_replaced(found, said, scope, services)
    slot = found.slot if old is None else old.slot
    made = build_draft(build_note(replace(found, slot=slot), said, services), services.redact)
    return Add(made) if old is None or old.slot else Correct(old.id, made)


def _choose_slot(found: Statement, said: Utterance, held: Callable[[str], str | None]) -> str | None:
    """The slot that a statement fills. Who lives in Quito may well say that he no longer lives in Lima: of what has
    ended or is denied, only a slot that holds what is named."""
    slot = found.slot or ""
    if found.slot is None or not load_statement_rules().sign("ended").search(said.words(found)):
        return found.slot
    value = held(slot)
    if found.replaces is not None:
        return slot if value and set(extract_terms(found.replaces)) <= set(extract_terms(value)) else None
    # "I quit my job": where nobody knows whose, it is what one did there.
    job = slot.removesuffix(_EMPLOYER) + _JOB
    return job if not value and slot.endswith(_EMPLOYER) and held(job) else slot


def _find_replaced(found: Statement, said: Utterance, scope: Scope, services: Services) -> Item | None:
    """The one preference of which the statement says that it no longer holds, or the one fact that it repeats in order
    to deny it ("I no longer like tea"); none if it may be another."""
    if found.replaces is None or found.slot is not None:
        return None
    words = set(extract_terms(found.replaces))
    likely = [
        item for item in _search_words(found.replaces, _GATE_FACTS, scope, services) if _is_by_same_speaker(item, said)
    ]
    told = set(tokenize(said.words(found)))
    named = [item for item in likely if words <= set(extract_terms(item.text))]
    meant = [item for item in named if detect_traits(item.text) & PREFERENCE or told > set(tokenize(item.text))]
    return meant[0] if len(meant) == 1 else None


def _retracts_draft(found: ForgetRequest, said: Utterance, draft: Draft) -> bool:
    """What was said a moment ago, and is not written yet."""
    statement = said.words(found)
    if draft.kind != "fact" or draft.metadata.get(SPEAKER_KEY) != said.speaker:
        return False
    if found.slot is None or draft.slot != found.slot:
        return tokenize(draft.text) == tokenize(statement)
    return not gate.find_statements(statement) or not _extract_value_terms(found.slot, statement).isdisjoint(
        extract_terms(draft.text)
    )


def _plan_forgetting(
    found: ForgetRequest, said: Utterance, back: Sequence[Draft], scope: Scope, services: Services
) -> list[Step]:
    """What is meant goes, and with it the words in which this message speaks of it, and those that it takes back.

    A statement over those words, which cites what is meant, is forgotten along with it. If nothing is known yet, the
    statement stands alone, expired from the start, and whoever makes the plan forgets it there: that keeps the words
    from being taken in later.
    """
    meant = _find_meant(found, said, scope, services)
    now = services.clock()
    span = Citation(said.row, found.start, found.end)
    words = [cite for draft in back for cite in draft.source.cites]
    statement = Draft(
        said.words(found),
        source=Source(kind="user", cites=(*(Citation(item.id) for item in meant[:1]), span, *words)),
        occurred_at=now,
        expires_at=None if meant else now,
    )
    return [Add(statement), *(Forget(item.id) for item in meant)]


def _find_meant(found: ForgetRequest, said: Utterance, scope: Scope, services: Services) -> list[Item]:
    """Of a slot, the values that are named, or all that it ever had if none is: "forget my city". Without one, or if it
    holds nothing of the kind, the facts with the very same words."""
    statement = said.words(found)
    if found.slot is None:
        return _find_same_words(statement, said, scope, services)
    return _find_slot_values(found.slot, statement, scope, services) or _find_same_words(
        statement, said, scope, services
    )


def _find_slot_values(slot: str, statement: str, scope: Scope, services: Services) -> list[Item]:
    versions = [item for item in services.items.history(scope, slot) if item.retracted_at is None]
    if not gate.find_statements(statement):
        return versions
    value = _extract_value_terms(slot, statement)
    has = {item.id: value.intersection(extract_terms(item.text)) for item in versions}
    # "I live in Quito" was said as "I moved to Quito": that, and not "I live in Lima". The value stands last.
    last = next((one for one in reversed(extract_terms(statement)) if one in value), None)
    whole = [item for item in versions if has[item.id] == value]
    return whole or [item for item in versions if last in has[item.id]] or [item for item in versions if has[item.id]]


def _extract_value_terms(slot: str, statement: str) -> set[int]:
    return set(extract_terms(statement)) - set(extract_terms(split_identifier(slot))) - load_languages().stop_terms


def _find_same_words(statement: str, said: Utterance, scope: Scope, services: Services) -> list[Item]:
    likely = _search_words(statement, _FACTS, scope, services)
    return [item for item in likely if tokenize(item.text) == tokenize(statement) and _is_by_same_speaker(item, said)]


def _is_by_same_speaker(item: Item, said: Utterance) -> bool:
    """A fact that this speaker told, or nobody in particular; where the user speaks, no other speaker."""
    return item.metadata.get(SPEAKER_KEY) == said.speaker


def _search_words(text: str, where: Filter, scope: Scope, services: Services) -> list[Item]:
    query = WordQuery(tuple(dict.fromkeys(extract_terms(text))), scope, where, limit=MAX_LIKELY_FACTS)
    return services.items.get_many(scope, [hit.id for hit in services.words.best(query).hits]) if query.terms else []
