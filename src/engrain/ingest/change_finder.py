"""Find what a new statement ends or makes older among the stored facts and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engrain.core.errors import EmbedderFailed, StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import Item
from engrain.core.model.queries import VectorQuery
from engrain.core.rules.change_cues import are_of_others, begins_alike, read_cues, says_change
from engrain.core.rules.own_words import find_own_words
from engrain.core.rules.relations import excludes, find_relation
from engrain.core.rules.slot_names import SPEAKER_KEY
from engrain.core.rules.statements import is_short_question
from engrain.ingest.changes import Said, choose_ended, list_aspects, read_statement
from engrain.ports import Services
from engrain.ports.search import find_span_pooling, pin_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

MAX_CANDIDATES = 14
# The chance from which a fact is ended. In a larger memory a likeness is more often an accident.
MIN_CHANCE, MIN_CHANCE_AMONG_MANY, MANY = 0.25, 0.45, 10
# With more known, words of change do not link two statements: they share this part of the words of the shorter one.
FEW, MIN_COMMON = 6, 0.12
MANY_WORDS, MIN_SHARED = 8, 0.25
MIN_CHANCE_OF_LATER = 0.18  # from here the older one is only marked as earlier
MIN_ASPECT = 0.25
MAX_MESSAGE_CHARACTERS = 300
_SAID = Filter((Condition("kind", "in", ["fact", "message"]),))


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


NO_CHANGE = FoundChange()
# A sentence that the gate alone would not keep is kept if it ends something known this surely, or if it adds to
# something known that is this near.
MIN_CHANCE_TO_KEEP, MIN_LIKENESS = 0.3, 0.25


@dataclass(slots=True)
class ChangeFinder:
    """Looks for changes in one scope. Works only with the embedder whose vectors the weights were made for."""

    scope: Scope
    services: Services
    _known: dict[tuple[str, str | None, str | None], FoundChange] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        return find_span_pooling(self.services.embedder) is not None

    def find(self, text: str, slot: str | None = None, speaker: str | None = None) -> FoundChange:
        """Find the change that a statement of this speaker makes."""
        key = (text.strip(" .!"), slot, speaker)
        if key not in self._known:
            found = self._find(text, slot, speaker) if self.available else NO_CHANGE
            ended = [item for item in self._find_excluded(text, speaker) if item not in found.ended]
            earlier = tuple(item for item in found.earlier if item not in ended)
            self._known[key] = replace(found, ended=(*found.ended, *ended), earlier=earlier) if ended else found
        return self._known[key]

    def _find_excluded(self, text: str, speaker: str | None) -> list[Item]:
        """Return the facts whose relation a statement ends: "Lena works at Globex" ends "Lena works at Acme"."""
        relation = find_relation(text, speaker)
        if relation is None or "added" in read_cues(text).found:
            return []
        known = self.services.items.about(self.scope, relation.subject, None)[:MAX_CANDIDATES]
        own = (item for item in known if item.kind == "fact" and item.metadata.get(SPEAKER_KEY) == speaker)
        return [item for item in own if item.relation and excludes(relation, item.relation)]

    def is_change(self, text: str) -> bool:
        """Tell if a sentence that the gate would not keep should be kept because of what is known already."""
        cues = read_cues(text).found
        found = self.find(text)
        adds = "added" in cues and found.likeness >= MIN_LIKENESS
        return found.chance >= MIN_CHANCE_TO_KEEP or adds

    def _find(self, text: str, slot: str | None, speaker: str | None) -> FoundChange:
        embedder = pin_embedder(self.services.embedder)
        try:
            vector = embedder.embed([text], "document")[0]
            new = read_statement(text, vector, slot)
            found, many = self._read_candidates(vector, embedder.model.key, new, speaker)
        except (EmbedderFailed, StoreUnavailable):  # the statement is kept all the same
            return NO_CHANGE
        aspect = int(new.aspects.argmax())
        name = list_aspects()[aspect] if new.aspects[aspect] >= MIN_ASPECT else None
        if not found:
            return FoundChange(aspect=name)
        likeness = max(float(vector @ said.vector) for _, said in found)
        facts = sum(item.kind == "fact" for item, _ in found)
        chances = choose_ended(new, [said for _, said in found])
        best = max(range(len(found)), key=chances.__getitem__)
        if not says_change(new.cues, found[best][1].cues) and not begins_alike(new.text, found[best][0].text):
            # "The blue one is in the hall" ends nothing about the red one.
            return FoundChange(likeness=likeness, aspect=name)
        chance = chances[best]
        linked = [place for place, (_, said) in enumerate(found) if not many or _have_common_ground(new, said)]
        if not linked:
            return FoundChange(chance=chance, likeness=likeness, aspect=name)
        best = max(linked, key=chances.__getitem__)
        item, said = found[best]
        least = MIN_CHANCE + (MIN_CHANCE_AMONG_MANY - MIN_CHANCE) * min(1.0, (facts - 1) / (MANY - 1))
        sure = chances[best] >= least and not _tells_more(said, new)
        likely = [found[place][0] for place in linked if chances[place] >= MIN_CHANCE_OF_LATER]
        likely = [one for one in likely if one.kind == "fact" or not find_own_words(one.text).mixed]
        ended = (item,) if sure and item.kind == "fact" else ()
        return FoundChange(ended, tuple(one for one in likely if one not in ended), chance, likeness, name)

    def _read_candidates(
        self, vector: Matrix, model: str, new: Said, speaker: str | None
    ) -> tuple[list[tuple[Item, Said]], bool]:
        """Return what a statement may be compared with, and whether more than a few things are known."""
        import numpy as np

        items = self.services.items
        near = self.services.vectors.nearest(VectorQuery(vector, model, self.scope, _SAID, limit=MAX_CANDIDATES))
        found = [item for item in items.get_many(self.scope, near.ids) if _is_comparable(item, new, speaker)]
        derived = self._list_derived([item.id for item in found if item.kind == "message"])
        found = [item for item in found if item.id not in derived]
        rows = items.vectors(self.scope, [item.id for item in found], model) if found else {}
        read = [
            (item, read_statement(item.text, np.frombuffer(rows[item.id].rows[0], np.float32), item.slot))
            for item in found
            if item.id in rows and rows[item.id].rows
        ]
        return read, len(near.ids) > FEW

    def _list_derived(self, messages: Sequence[str]) -> set[str]:
        """Return the messages from which facts were made: the facts stand for them."""
        if not messages:
            return set()
        asked, items = set(messages), self.services.items
        citing = [one for one in items.lineage(self.scope, messages) if one.cite.item in asked]
        facts = {item.id for item in items.get_many(self.scope, [one.item for one in citing]) if item.kind == "fact"}
        return {one.cite.item for one in citing if one.item in facts}


def _have_common_ground(new: Said, old: Said) -> bool:
    shared = len(new.cues.terms & old.cues.terms)
    return shared > 0 and shared >= MIN_COMMON * min(len(new.cues.terms), len(old.cues.terms))


def _tells_more(old: Said, new: Said) -> bool:
    """Tell if an older statement says so much else that it does not end as a whole."""
    words = len(old.cues.terms)
    return words >= MANY_WORDS and len(old.cues.terms & new.cues.terms) < MIN_SHARED * words


def _is_comparable(item: Item, new: Said, speaker: str | None) -> bool:
    """Tell if a statement may end this item: one of the same speaker, in other words, about no other slot."""
    if item.kind == "message":
        if item.role != "user" or item.speaker != speaker or len(item.text) > MAX_MESSAGE_CHARACTERS:
            return False
        return not is_short_question(item.text)
    if item.metadata.get(SPEAKER_KEY) != speaker or item.text == new.text:
        return False
    if are_of_others(new.cues, read_cues(item.text)):
        return False
    return item.slot is None or new.slot is None or item.slot == new.slot
