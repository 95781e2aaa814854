"""Make steps of what the gate found in a message: facts to keep, and what is to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.capture import gate
from engrain.capture.write import draft
from engrain.core.filters import Condition, Filter
from engrain.core.items import Cite, Draft, Item, Source
from engrain.core.languages import languages
from engrain.core.messages import Message
from engrain.core.notes import Note
from engrain.core.plans import Add, Correct, Forget, Step
from engrain.core.scope import Scope
from engrain.core.statements import statements
from engrain.core.traits import PREFERENCE, traits
from engrain.core.words import spoken, terms, tokens
from engrain.core.worth import Unsaid, Worth
from engrain.ports import Kit, WordQuery

GATE = "gate"  # metadata "by" of a fact that the rules found
LIKELY = 20  # facts that are looked at for words they share with a statement

_FACTS = Filter((Condition("kind", "=", "fact"),))
_OF_THE_GATE = Filter((*_FACTS.conditions, Condition("metadata.by", "=", GATE)))


def steps_for(found: Sequence[Worth | Unsaid], message: Message, row: str, scope: Scope, kit: Kit) -> list[Step]:
    """`row` is the id of the message's log row, or what stands for it in the plan."""
    steps: list[Step] = []
    for one in found:
        if not message.text[one.start : one.end].strip():
            continue
        if isinstance(one, Unsaid):
            steps += _unsaid(one, message, row, scope, kit)
        else:
            steps.append(_kept(one, message, row, scope, kit))
    return steps


def note_for(found: Worth, message: Message, row: str) -> Note:
    """The words of the span, citing it. Only what the speaker asked to have kept can bring back what was forgotten."""
    return Note(
        text=message.text[found.start : found.end],
        importance=found.importance,
        slot=found.slot,
        metadata={"by": GATE},
        source=Source(kind="user", cites=(Cite(row, found.start, found.end),)),
        occurred_at=message.occurred_at,
        derived=not found.explicit,
    )


def _kept(found: Worth, message: Message, row: str, scope: Scope, kit: Kit) -> Step:
    if found.slot and not _concerned(found, message, scope, kit):
        found = replace(found, slot=None)
    old = _replaced(found, message, scope, kit)
    slot = found.slot if old is None else old.slot
    made = draft(note_for(replace(found, slot=slot), message, row))
    return Add(made) if old is None or old.slot else Correct(old.id, made)


def _concerned(found: Worth, message: Message, scope: Scope, kit: Kit) -> bool:
    """Who lives in Quito may well say that he no longer lives in Lima: only what is named has ended."""
    if found.replaces is None or not statements().sign("ended").search(message.text, found.start, found.end):
        return True
    held = kit.items.slot(scope, found.slot or "", None)
    return held is None or set(terms(found.replaces)) <= set(terms(held.text))


def _replaced(found: Worth, message: Message, scope: Scope, kit: Kit) -> Item | None:
    """The one preference of which the statement says that it no longer holds, or the one fact that it repeats in order
    to deny it ("I no longer like tea"); none if it may be another."""
    if found.replaces is None or found.slot is not None:
        return None
    words = set(terms(found.replaces))
    likely = _with_words(found.replaces, _OF_THE_GATE, scope, kit)
    said = set(tokens(message.text[found.start : found.end]))
    named = [item for item in likely if words <= set(terms(item.text))]
    meant = [item for item in named if traits(item.text) & PREFERENCE or said > set(tokens(item.text))]
    return meant[0] if len(meant) == 1 else None


def _unsaid(found: Unsaid, message: Message, row: str, scope: Scope, kit: Kit) -> list[Step]:
    """What is meant goes, and with it the words in which this message speaks of it.

    A statement over those words, which cites what is meant, is forgotten along with it. If nothing is known yet, the
    statement stands alone, expired from the start, and whoever applies the plan forgets it: that keeps the words from
    being taken in later.
    """
    meant = _meant(found, message, scope, kit)
    now = kit.clock()
    span = Cite(row, found.start, found.end)
    statement = Draft(
        message.text[found.start : found.end],
        source=Source(kind="user", cites=(Cite(meant[0].id), span) if meant else (span,)),
        occurred_at=now,
        expires_at=None if meant else now,
    )
    return [Add(statement), *(Forget(item.id) for item in meant)]


def _meant(found: Unsaid, message: Message, scope: Scope, kit: Kit) -> list[Item]:
    """Of a slot, the values that are named, or all that it ever had if none is: "forget my city". Without one, or if it
    holds nothing of the kind, the facts with the very same words."""
    statement = message.text[found.start : found.end]
    return _of_slot(found.slot, statement, scope, kit) if found.slot else _same_words(statement, scope, kit)


def _of_slot(slot: str, statement: str, scope: Scope, kit: Kit) -> list[Item]:
    versions = [item for item in kit.items.history(scope, slot) if item.retracted_at is None]
    if not gate.worth(statement):
        return versions
    value = set(terms(statement)) - set(terms(spoken(slot))) - languages().stop_terms
    whole = [item for item in versions if value <= set(terms(item.text))]
    named = whole or [item for item in versions if not value.isdisjoint(terms(item.text))]
    return named or _same_words(statement, scope, kit)


def _same_words(statement: str, scope: Scope, kit: Kit) -> list[Item]:
    words = tokens(statement)
    return [item for item in _with_words(statement, _FACTS, scope, kit) if tokens(item.text) == words]


def _with_words(text: str, where: Filter, scope: Scope, kit: Kit) -> list[Item]:
    query = WordQuery(tuple(dict.fromkeys(terms(text))), scope, where, limit=LIKELY)
    return kit.items.get_many(scope, [hit.id for hit in kit.words.best(query).hits]) if query.terms else []
