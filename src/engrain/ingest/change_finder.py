"""Find what a new statement ends or makes older among the stored facts and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from engrain.core.errors import StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import Draft, Item
from engrain.core.model.queries import ListQuery, VectorQuery
from engrain.core.rules.change_cues import are_of_others, find_signs, fold_name, read_cues
from engrain.core.rules.change_limits import fold_text, share_a_word, spares_other_claims
from engrain.core.rules.change_values import find_denied_name
from engrain.core.rules.profile import is_standing_wish, says_wish
from engrain.core.rules.relations import excludes, find_relation
from engrain.core.rules.slot_names import SPEAKER_KEY, USER_NAME_SLOT, is_address, is_identity, rename_for_speaker
from engrain.core.rules.statements import is_short_question
from engrain.core.text.passages import Span
from engrain.ingest.changes import (
    MIN_ENDED_DOUBTFULLY,
    MIN_ENDED_SURELY,
    MIN_SAME,
    MIN_SAME_WISH,
    MIN_WISH_ENDED,
    Chances,
    JudgedStatement,
    is_doubtful,
    judge_known,
    leaves_standing,
    list_aspects,
    read_statement,
    surely_ends,
)
from engrain.ingest.message_vectors import MessageVectors, ReadSpan
from engrain.ports import Services
from engrain.ports.search import pin_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

MAX_CANDIDATES, MAX_READ = 10, 16  # a fact and its message are often both near, and one is compared
MIN_ASPECT = 0.25
MAX_MESSAGE_CHARACTERS = 300
MAX_CONTACTS_READ = 200
_EMPLOYER = ".employer"
_WORK_CONTACTS = frozenset((frozenset(("boss",)), frozenset(("colleague",))))
_FACTS = Filter((Condition("kind", "=", "fact"),))
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
            denied = self._find_denied_name(text, speaker)
            found = replace(found, chance=1.0) if denied else found
            ended = [*self._find_excluded(text, speaker), *denied]
            ended = [item for item in ended if item not in found.ended]
            earlier = tuple(item for item in found.earlier if item not in ended)
            found = replace(found, ended=(*found.ended, *ended), earlier=earlier) if ended else found
            if slot is not None and slot.endswith(_EMPLOYER):
                found = self._mark_work_contacts(found, text, slot, speaker)
            self._known[key] = _spare_parts(found, text, slot)
        return self._known[key]

    def _find_excluded(self, text: str, speaker: str | None) -> list[Item]:
        """Return the facts whose relation a statement ends: "Lena works at Globex" ends "Lena works at Acme"."""
        relation = find_relation(text, speaker)
        if relation is None or not {"added", "beside"}.isdisjoint(find_signs(text)):
            return []
        known = self.services.items.about(self.scope, relation.subject, None)[:MAX_CANDIDATES]
        own = (item for item in known if item.kind == "fact" and item.metadata.get(SPEAKER_KEY) == speaker)
        return [item for item in own if item.relation and excludes(relation, item.relation)]

    def _mark_work_contacts(self, found: FoundChange, text: str, slot: str, speaker: str | None) -> FoundChange:
        """Mark who the speaker's manager or colleague was at the employer that is left."""
        known = self.services.items.slot(self.scope, slot, None)
        if "beside" in find_signs(text) or not (found.ended or (known and known.text != text)):
            return found
        query = ListQuery(self.scope, _FACTS, None, False, MAX_CONTACTS_READ, None)
        facts = [item for item in self.services.items.page(query) if item.metadata.get(SPEAKER_KEY) == speaker]
        contacts = (item for item in facts if read_cues(item.text).people in _WORK_CONTACTS)
        told = {item.id for item in (*found.ended, *found.earlier)}
        return replace(found, earlier=(*found.earlier, *(item for item in contacts if item.id not in told)))

    def _find_denied_name(self, text: str, speaker: str | None) -> list[Item]:
        """Return the name that a statement rejects: "don't call me Kat" ends "call me Kat"."""
        name, slot = find_denied_name(text), rename_for_speaker(speaker, USER_NAME_SLOT)
        item = self.services.items.slot(self.scope, slot, None) if name and slot else None
        return [item] if item and name in fold_text(item.text).split() else []

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
        change = max(chance.change for chance in chances)  # also of what is spared: the statement is news
        found = [(item, said) for item, said in found if not leaves_standing(new, said)]
        chances = judge_known(new, read.state, [said for _, said in found]) if len(found) < len(chances) else chances
        if not found:
            return FoundChange(chance=change, likeness=likeness, aspect=name)
        best = max(range(len(found)), key=lambda place: chances[place].same)
        (item, said), chance = found[best], chances[best]
        wish = is_standing_wish(item)  # it holds until a statement of the same thing surely ends it
        if chance.same >= MIN_SAME and item.kind == "fact" and surely_ends(new, said, is_wish=wish):
            return FoundChange((item,), (), max(change, chance.same), likeness, name)
        if wish and _is_other_wish(text, item.text, chance):
            return FoundChange((), (), change, likeness, name)
        doubtful = is_doubtful(new, said)
        # What the program remembered itself may name the same thing for another reason than a person's statement.
        remembered = not any(source.cites for source in item.sources)
        firm = MIN_ENDED_SURELY if remembered or is_address(item.slot) else 0.0
        surely = chance.ended >= max(firm, MIN_WISH_ENDED if wish else 0.0)
        if chance.is_ended and surely and item.kind == "fact" and not doubtful:
            return FoundChange((item,), (), change, likeness, name)
        marks = chance.is_earlier and ("beside" not in find_signs(text) or "ended" in find_signs(text))
        marks = chance.is_ended and chance.ended >= MIN_ENDED_DOUBTFULLY if doubtful else marks
        return FoundChange((), (item,) if marks and not wish else (), change, likeness, name)

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


def _spare_parts(found: FoundChange, text: str, slot: str | None) -> FoundChange:
    """Only mark a fact of which the statement touches one claim and leaves another."""
    others = (one for one in found.ended if (slot is None or one.slot != slot) and not is_standing_wish(one))
    spared = [one for one in others if spares_other_claims(text, one.text)]
    if not spared:
        return found
    ended = tuple(one for one in found.ended if one not in spared)
    return replace(found, ended=ended, earlier=(*found.earlier, *spared))


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
    able = [k for k, one in enumerate(known) if not leaves_standing(said, one) and not is_doubtful(said, one)]
    chances = judge_known(said, new.read.state, [known[k] for k in able])
    ended = (
        places[k]
        for k, chance in zip(able, chances, strict=True)
        if (chance.is_ended and not _leaves_wish(said, older[places[k]].draft, chance))
        or (chance.same >= MIN_SAME and surely_ends(said, known[k], is_wish=False))
    )
    return next((place for place in ended if not spares_other_claims(said.text, older[place].draft.text)), None)


def _is_other_wish(text: str, wish: str, chance: Chances) -> bool:
    """Tell if a statement is of something else than a standing wish: "no emojis", "answer in German"."""
    return chance.same < MIN_SAME_WISH and not share_a_word(text, wish)


def _leaves_wish(new: JudgedStatement, draft: Draft, chance: Chances) -> bool:
    return says_wish(draft.text, draft.metadata) and _is_other_wish(new.text, draft.text, chance)


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
    if are_of_others(new.cues, read_cues(item.text)) or _tell_of_others(new.text, item, speaker):
        return False
    if new.slot is None:
        return not is_identity(item.slot)
    return item.slot in (None, new.slot)


def _tell_of_others(text: str, item: Item, speaker: str | None) -> bool:
    """Tell if two statements tell relations of two things: "Lena works at Acme", "Acme is based in Quito"."""
    relation = find_relation(text, speaker) if item.relation else None
    if relation is None or item.relation is None:
        return False
    return fold_name(relation.subject) != fold_name(item.relation.subject)
