"""Find what a new statement ends or makes older among the stored facts and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from engrain.core.errors import StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import Draft, Item
from engrain.core.model.queries import VectorQuery
from engrain.core.rules.change_cues import are_of_others, find_signs, read_cues, share_a_word
from engrain.core.rules.profile import is_standing_wish, says_wish
from engrain.core.rules.relations import excludes, find_relation
from engrain.core.rules.slot_names import SPEAKER_KEY, is_identity
from engrain.core.rules.statements import is_short_question
from engrain.core.text.passages import Span
from engrain.ingest.changes import (
    MIN_ENDED_SURELY,
    MIN_SAME_WISH,
    Chances,
    JudgedStatement,
    is_another,
    judge_known,
    list_aspects,
    read_statement,
)
from engrain.ingest.message_vectors import MessageVectors, ReadSpan
from engrain.ports import Services
from engrain.ports.search import pin_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

MAX_CANDIDATES, MAX_READ = 10, 16  # a fact and its message are often both near, and one is compared
MIN_ASPECT = 0.25
MAX_MESSAGE_CHARACTERS = 300
_SAID = Filter((Condition("kind", "in", ("fact", "message")),))


@dataclass(frozen=True, slots=True)
class FoundChange:
    """The items that a statement ends, and those that it may only make older. `chance` is that of the most likely one.

    `likeness` is the cosine of the nearest fact.
    """

    ended: tuple[Item, ...] = ()
    earlier: tuple[Item, ...] = ()
    chance: float = 0.0
    likeness: float = 0.0
    aspect: str | None = None

    def only_mark(self) -> FoundChange:
        """Return the change with what it ends as only earlier."""
        return replace(self, ended=(), earlier=(*self.ended, *self.earlier), chance=0.0)

    def spare_slots(self) -> FoundChange:
        """Return the change that ends no value of a slot."""
        return self.only_mark() if any(item.slot for item in self.ended) else self


NO_CHANGE = FoundChange()
# A sentence that the gate alone would not keep is kept if it ends something known this surely, or if it adds to
# something known that is this near.
MIN_CHANCE_TO_KEEP, MIN_LIKENESS = 0.4, 0.25


@dataclass(slots=True)
class ChangeFinder:
    """Looks for changes in one scope. Works only with the embedder whose vectors the weights were made for."""

    scope: Scope
    services: Services
    _known: dict[tuple[str, str | None, str | None], FoundChange] = field(default_factory=dict)

    def find(
        self, text: str, read: ReadSpan | None, slot: str | None = None, speaker: str | None = None
    ) -> FoundChange:
        """Find the change that a statement of this speaker makes. Without its vector only relations are compared."""
        key = (text.strip(" .!"), slot, speaker)
        if key not in self._known:
            found = NO_CHANGE if read is None else self._find(text, read, slot, speaker)
            ended = [item for item in self._find_excluded(text, speaker) if item not in found.ended]
            earlier = tuple(item for item in found.earlier if item not in ended)
            self._known[key] = replace(found, ended=(*found.ended, *ended), earlier=earlier) if ended else found
        return self._known[key]

    def _find_excluded(self, text: str, speaker: str | None) -> list[Item]:
        """Return the facts whose relation a statement ends: "Lena works at Globex" ends "Lena works at Acme"."""
        relation = find_relation(text, speaker)
        if relation is None or not {"added", "beside"}.isdisjoint(find_signs(text)):
            return []
        known = self.services.items.about(self.scope, relation.subject, None)[:MAX_CANDIDATES]
        own = (item for item in known if item.kind == "fact" and item.metadata.get(SPEAKER_KEY) == speaker)
        return [item for item in own if item.relation and excludes(relation, item.relation)]

    def judge_change(self, message: str, span: Span, vectors: MessageVectors) -> Literal["ends", "adds"] | None:
        """Tell what a sentence that the gate would not keep does to what is known, if it should be kept for that."""
        text = message[slice(*span)]
        found = self.find(text, vectors.read_span(message, span))
        if found.chance >= MIN_CHANCE_TO_KEEP:
            return "ends"
        adds = not {"added", "beside"}.isdisjoint(find_signs(text)) and found.likeness >= MIN_LIKENESS
        return "adds" if adds else None

    def _find(self, text: str, read: ReadSpan, slot: str | None, speaker: str | None) -> FoundChange:
        new = read_statement(text, read.vector, slot)
        try:
            found = self._read_candidates(read.vector, pin_embedder(self.services.embedder).model.key, new, speaker)
        except StoreUnavailable:  # the statement is kept all the same
            return NO_CHANGE
        aspect = int(new.aspects.argmax())
        name = list_aspects()[aspect] if new.aspects[aspect] >= MIN_ASPECT else None
        if not found:
            return FoundChange(aspect=name)
        likeness = max(float(read.vector @ said.vector) for _, said in found)
        chances = judge_known(new, read.state, [said for _, said in found])
        change = max(chance.change for chance in chances)
        best = max(range(len(found)), key=lambda place: chances[place].same)
        (item, said), chance = found[best], chances[best]
        another = is_another(new, said)
        # What the program remembered itself may name the same thing for another reason than a person's statement.
        remembered = not any(source.cites for source in item.sources)
        surely = chance.is_ended and (not remembered or chance.ended >= MIN_ENDED_SURELY)
        wish = is_standing_wish(item)  # it holds until a statement of the same thing surely ends it
        if wish and _is_other_wish(text, item.text, chance):
            return FoundChange((), (), change, likeness, name)
        if surely and item.kind == "fact" and not another:
            return FoundChange((item,), (), change, likeness, name)
        marks = chance.is_earlier and ("beside" not in find_signs(text) or "ended" in find_signs(text))
        marks = not wish and (chance.is_ended if another else marks)
        return FoundChange((), (item,) if marks else (), change, likeness, name)

    def _read_candidates(
        self, vector: Matrix, model: str, new: JudgedStatement, speaker: str | None
    ) -> list[tuple[Item, JudgedStatement]]:
        """Return what a statement may be compared with."""
        import numpy as np

        items = self.services.items
        near = self.services.vectors.nearest(VectorQuery(vector, model, self.scope, _SAID, limit=MAX_READ))
        with items.pin_snapshot():
            read = items.get_many(self.scope, near.ids)
            derived = self._list_derived(read)
            found = [item for item in read if item.id not in derived and _is_comparable(item, new, speaker)]
            found = found[:MAX_CANDIDATES]
            rows = items.vectors(self.scope, [item.id for item in found], model) if found else {}
        return [
            (item, read_statement(item.text, np.frombuffer(rows[item.id].rows[0], np.float32), item.slot))
            for item in found
            if item.id in rows and rows[item.id].rows
        ]

    def _list_derived(self, near: Sequence[Item]) -> set[str]:
        """Return the messages from which facts were made: the facts stand for them, and so do those that ended."""
        cites = (cite for item in near if item.kind == "fact" for source in item.sources for cite in source.cites)
        derived = {cite.item for cite in cites}
        asked = {item.id for item in near if item.kind == "message"} - derived
        if not asked:
            return derived
        items = self.services.items
        citing = [one for one in items.lineage(self.scope, sorted(asked)) if one.cite.item in asked]
        facts = {item.id for item in items.get_many(self.scope, [one.item for one in citing]) if item.kind == "fact"}
        return derived | {one.cite.item for one in citing if one.item in facts}


@dataclass(frozen=True, slots=True)
class ReadFact:
    """A fact that is not stored yet, with the vectors of its words."""

    draft: Draft
    read: ReadSpan


def find_ended_fact(new: ReadFact, older: Sequence[ReadFact]) -> int | None:
    """Return the place of the fact that a newer one of the same speaker ends, if one surely does."""
    said = read_statement(new.draft.text, new.read.vector, new.draft.slot)
    places = [place for place, one in enumerate(older) if _may_end(said, new.draft, one.draft)]
    places = sorted(places, key=lambda place: -float(new.read.vector @ older[place].read.vector))[:MAX_CANDIDATES]
    known = [read_statement(older[at].draft.text, older[at].read.vector, older[at].draft.slot) for at in places]
    chances = judge_known(said, new.read.state, known)
    ended = (
        place
        for place, one, chance in zip(places, known, chances, strict=True)
        if chance.is_ended and not is_another(said, one)
        if not (says_wish(one.text, older[place].draft.metadata) and _is_other_wish(said.text, one.text, chance))
    )
    return next(ended, None)


def _is_other_wish(text: str, wish: str, chance: Chances) -> bool:
    """Tell if a statement is of something else than a standing wish: "no emojis", "answer in German"."""
    return chance.same < MIN_SAME_WISH and not share_a_word(text, wish)


def _may_end(new: JudgedStatement, draft: Draft, old: Draft) -> bool:
    own = old.metadata.get(SPEAKER_KEY) == draft.metadata.get(SPEAKER_KEY) and old.text != draft.text
    # The store compares the values of one slot.
    slots = not is_identity(old.slot) and (old.slot is None or draft.slot is None)
    return own and slots and not are_of_others(new.cues, read_cues(old.text))


def _is_comparable(item: Item, new: JudgedStatement, speaker: str | None) -> bool:
    """Tell if a statement may end this item: one of the same speaker, in other words, about no other slot."""
    if item.kind == "message":
        if item.role != "user" or item.speaker != speaker or len(item.text) > MAX_MESSAGE_CHARACTERS:
            return False
        return not is_short_question(item.text)
    if item.metadata.get(SPEAKER_KEY) != speaker or item.text == new.text:
        return False
    if are_of_others(new.cues, read_cues(item.text)):
        return False
    if new.slot is None:
        return not is_identity(item.slot)
    return item.slot in (None, new.slot)
