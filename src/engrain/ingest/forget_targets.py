"""Resolve a request to forget into the facts and messages that it means, and say how certain that is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engrain.core.errors import EmbedderFailed
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import FORGOTTEN, Citation, Item
from engrain.core.model.queries import VectorQuery, WordQuery
from engrain.core.model_weights import load_weights
from engrain.core.rules.change_cues import find_people, read_cues
from engrain.core.rules.forget_matters import (
    Topic,
    are_apart,
    find_kinds,
    is_also,
    is_another_one,
    is_beside,
    is_continued,
    is_of_kind,
    is_of_nobody,
    is_own_words,
    read_topic,
    share_words,
    state_kind,
)
from engrain.core.rules.forget_names import add_names, only_mentions_name
from engrain.core.rules.forget_requests import is_candidate, list_matter_words, read_words
from engrain.core.rules.slot_names import SPEAKER_KEY
from engrain.core.text.passages import Span, split_sentences
from engrain.core.text.tokenizer import extract_terms, tokenize
from engrain.ingest.forget_intent import find_forget_topics
from engrain.ports import Services
from engrain.ports.search import find_span_pooling, pin_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

WEIGHTS = "forget.npz"
# The chance from which something belongs to the matter, from which a single target is certain, and is proposed.
MIN_CHANCE, MIN_CERTAIN, MIN_PROPOSED = 0.5, 0.8, 0.15
# The chance from which another statement makes the likeliest one uncertain: of the speaker's own things, of any.
MIN_RIVAL, MIN_RIVAL_ANY = 0.4, 0.04
MIN_UNLIKE = 0.3  # below this chance something surely does not belong to the matter
ALIKE_OWN = 0.4  # cosine of two things of one kind
# The least cosine of a certain target without all words of the matter and without a value of its shape: with some
# words, of its kind, with neither.
MIN_WITH_WORDS, MIN_OF_KIND, MIN_MEANING = 0.48, 0.18, 0.4
MIN_TAKEN = 0.5  # share of a sentence from which its fact stands for it
MAX_CANDIDATES, MAX_SENTENCES, MAX_ROWS_BACK, MAX_VALUES_BACK = 30, 20, 8, 10
MAX_UNLIKELY = 3  # things that are proposed where none is likely
_SAID = Filter((Condition("kind", "in", ("fact", "message")),))
# A whole statement, rather than a name of a matter.
_STATEMENT = re.compile(
    r"^(?:i|i'm|im|i've|we|we're|we've|he|she|they|it|you|ich|wir|yo|je|nous)\b|^j'|"
    r"\b(?:is|are|was|were|has|have|ist|sind|heißt|es|son|soy|est|suis|sont)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Something that may be meant: the words of a fact, or a sentence of a message, and the vector of the item.

    `thing` is what it tells of: the id of the fact, or of the one that a statement of the message became later.
    `message` is where it was said: the message that a fact cites, or itself.
    """

    item: Item
    span: Span
    vector: Matrix | None = None
    thing: str | None = None
    message: str = ""

    @property
    def text(self) -> str:
        return self.item.text[slice(*self.span)]

    @property
    def has_ended(self) -> bool:
        """Tell if it does not hold any more."""
        return not self.item.open or self.thing not in (None, self.item.id)


def choose_targets(
    topic: Topic, vectors: TopicVectors | None, found: Sequence[Candidate]
) -> tuple[list[Candidate], bool]:
    """Return the candidates that a matter means, and whether that is certain. Uncertain ones are only proposed."""
    groups = group_candidates(found)
    if not groups:
        return [], False
    texts = [one[0].text for one in groups]
    rows = compare_targets(topic, vectors, [(one[0].text, one[0].vector) for one in groups])
    chances = _narrow(topic, texts, rows, judge_targets(rows))
    meant = [k for k, chance in enumerate(chances) if chance >= MIN_CHANCE]
    if len(meant) == 1:
        certain = chances[meant[0]] >= MIN_CERTAIN and not _is_doubtful(topic, groups, rows, chances, meant[0])
    else:
        unsure = any(MIN_UNLIKE <= one < MIN_CHANCE for one in chances)
        certain = bool(meant) and not unsure and topic.is_one_thing([texts[k] for k in meant])
    if certain:
        meant = _add_continued(topic, groups, meant)
        return [one for k in meant for one in groups[k]], True
    return _propose(groups, chances), False


def _propose(groups: Sequence[Sequence[Candidate]], chances: Sequence[float]) -> list[Candidate]:
    """Return what is likely meant, and the best of the others if that is little."""
    ranked = sorted(range(len(groups)), key=lambda k: -chances[k])
    likely = [k for k in ranked if chances[k] >= MIN_CHANCE]
    others = [k for k in ranked if MIN_PROPOSED <= chances[k] < MIN_CHANCE][: max(0, MAX_UNLIKELY - len(likely))]
    return [one for k in likely for one in groups[k]] + [groups[k][-1] for k in others]


def group_candidates(found: Sequence[Candidate]) -> list[list[Candidate]]:
    """Put together what tells the same: the same words, or values of one thing over time. In the order of telling."""
    groups: list[list[Candidate]] = []
    for one in sorted(found, key=lambda one: (one.item.id, one.span)):
        words = tokenize(one.text)
        same = (
            group
            for group in groups
            if tokenize(group[0].text) == words or any(_is_same_thing(one, other) for other in group)
        )
        group = next(same, None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def _is_same_thing(one: Candidate, other: Candidate) -> bool:
    """Tell if one became the other, and they are alike: a newer statement may have ended another by mistake."""
    if one.thing is None or one.thing != other.thing:
        return False
    if one.vector is not None and other.vector is not None and float(one.vector @ other.vector) < ALIKE_OWN:
        return False
    kinds = find_kinds(one.text), find_kinds(other.text)
    alike = not any(kinds) or not kinds[0].isdisjoint(kinds[1]) or share_words(one.text, other.text)
    return alike and not are_apart(one.text, other.text)


def is_statement(text: str) -> bool:
    return _STATEMENT.search(text) is not None


@dataclass(frozen=True, slots=True, eq=False)
class TopicVectors:
    """The vectors of a matter's own words, and of its whole clause."""

    words: Matrix
    clause: Matrix


# Columns that decisions read.
COVER, FULL, COSINE, SIGN, SHAPE, VALUE = 0, 1, 3, 5, 6, 11


def compare_targets(
    topic: Topic, vectors: TopicVectors | None, texts: Sequence[tuple[str, Matrix | None]]
) -> list[list[float]]:
    """Return the features of each text that a matter may mean, beside the others."""
    rows = [_compare_target(topic, vectors, text, vector) for text, vector in texts]
    for k, row in enumerate(rows):
        others = [one for place, one in enumerate(rows) if place != k]
        cover, cosine, kind = row[COVER], row[COSINE], row[SIGN] + row[SHAPE]
        ahead = cosine - max((one[COSINE] for one in others), default=cosine)
        covered = cover - max((one[COVER] for one in others), default=cover)
        shaped = kind - max((one[SIGN] + one[SHAPE] for one in others), default=kind)
        follows = float(k > 0 and is_continued(texts[k][0]) and rows[k - 1][COVER] > 0)
        every = float(topic.everything)
        row += [2 * max(-0.5, min(0.5, ahead)), covered, shaped / 2, follows, every * cover, every * follows]
    return rows


def states_kind(row: Sequence[float]) -> bool:
    """Tell if a text states something of the kind that the matter names."""
    return row[SIGN] > 0 or row[SHAPE] > 0


def _compare_target(topic: Topic, vectors: TopicVectors | None, text: str, vector: Matrix | None) -> list[float]:
    covered = topic.cover(text)
    cover = len(covered) / len(topic.words) if topic.words else 0.0
    full = float(bool(topic.words) and cover == 1)
    cosine = whole = 0.0
    if vectors is not None and vector is not None:
        cosine, whole = float(vectors.words @ vector), float(vectors.clause @ vector)
    stated = [state_kind(name, text) if is_of_kind(name, text) else (False, False) for name in topic.kinds]
    sign, shape = (float(any(one[k] for one in stated)) for k in (0, 1))
    people = read_cues(text).people
    other = float(bool(people) and people.isdisjoint(topic.people))
    missing = float(bool(topic.people) and find_people(text).isdisjoint(topic.people))
    value = float(topic.has_value(text))
    mine = float(topic.is_own and is_own_words(text) and not people)
    kind = max(sign, shape)
    return [
        cover, full, min(len(covered), 3) / 3, cosine, whole, sign, shape, sign * shape,
        float(bool(topic.kinds)) * (1 - kind), other, missing, value, float(bool(topic.values)) * (1 - value), mine,
        cover * cosine, other * full, sign * mine, shape * mine, other * kind, missing * cover, kind * cosine,
    ]  # fmt: skip


def judge_targets(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the chance of each candidate to belong to the matter."""
    import numpy as np

    weights = load_weights(WEIGHTS)
    scores = np.array(rows, np.float32) @ weights["target"] + weights["target_bias"]
    return [float(one) for one in 1 / (1 + np.exp(-np.clip(scores, -30, 30)))]


def _narrow(topic: Topic, texts: Sequence[str], rows: Sequence[Sequence[float]], chances: list[float]) -> list[float]:
    """Leave out what is of others, where the speaker's own is meant, and what fits a number or several words less."""
    places = range(len(texts))
    passing = (only_mentions_name(topic, text) for text in texts)
    chances = [min(one, MIN_UNLIKE - 0.01) if cut else one for one, cut in zip(chances, passing, strict=True)]
    others = [topic.is_of_other(text) for text in texts]
    if topic.is_own and any(chances[k] >= MIN_CHANCE and not others[k] for k in places):
        chances = [0.0 if others[k] else chances[k] for k in places]
    if any(rows[k][VALUE] for k in places):
        chances = [chances[k] if rows[k][VALUE] else 0.0 for k in places]
    meant = [k for k in places if chances[k] >= MIN_CHANCE]
    unfit = {k for k in meant if not topic.fits_qualifiers(texts[k])}
    if len(unfit) < len(meant):
        chances = [MIN_UNLIKE - 0.01 if k in unfit else chances[k] for k in places]
        meant = [k for k in meant if k not in unfit]
    best = max((rows[k][COVER] for k in meant), default=0.0)
    if len(meant) > 1 and len(topic.words) > 1 and best >= 0.5 and not topic.everything and not topic.is_joined:
        less = {k for k in meant if rows[k][COVER] < best and not rows[k][VALUE]}
        chances = [MIN_RIVAL - 0.01 if k in less else chances[k] for k in places]
    elif len(meant) > 1 and topic.everything:
        close = {k for k in meant if topic.is_close(texts[k], texts)}
        chances = [MIN_UNLIKE - 0.01 if close and k in meant and k not in close else chances[k] for k in places]
    return chances


def _is_doubtful(
    topic: Topic,
    groups: Sequence[Sequence[Candidate]],
    rows: Sequence[Sequence[float]],
    chances: Sequence[float],
    best: int,
) -> bool:
    """Tell if the likeliest target may be another's, or only one of several."""
    texts, row = [one[0].text for one in groups], rows[best]
    text, full = texts[best], row[FULL]
    named = not set(topic.find_names(texts)).isdisjoint(tokenize(text))
    if not (full or named or row[VALUE] or row[SHAPE]) and not _is_nearest(topic, rows, best):
        return True
    if not (full or named or row[VALUE]) and not topic.fits_qualifiers(text):
        return True
    if not named and topic.is_of_other(text):
        return True
    if row[VALUE]:
        return False
    if topic.is_own and not full and is_of_nobody(text) and topic.people.isdisjoint(find_people(text)):
        return True
    if not named and is_also(text):
        return True
    return any(
        _is_rival(topic, (groups[best][0], row), (groups[k][0], rows[k]), chances[k], named=named)
        for k in range(len(texts))
        if k != best and not (topic.is_own and topic.is_of_other(texts[k]))
    )


def _is_nearest(topic: Topic, rows: Sequence[Sequence[float]], best: int) -> bool:
    """Tell if meaning agrees with words and kinds: no other text is nearer to the matter, and this one is near.

    An embedder without states of words has no part in this: some words of the matter or its kind are enough.
    """
    row = rows[best]
    if not any(one[COSINE] for one in rows):
        return row[COVER] > 0 or states_kind(row)
    least = MIN_OF_KIND if states_kind(row) else MIN_MEANING
    if row[COVER]:  # of "my middle name" a first name has one word; of all about a field few words are enough
        least = MIN_MEANING if topic.everything else MIN_WITH_WORDS
    return row[COSINE] >= max(least, *(one[COSINE] for one in rows))


def _is_rival(
    topic: Topic,
    best: tuple[Candidate, Sequence[float]],
    other: tuple[Candidate, Sequence[float]],
    chance: float,
    *,
    named: bool,
) -> bool:
    """Tell if another candidate may be meant as well: two numbers, two loans."""
    (one, row), (two, values) = best, other
    fits = values[COVER] > 0 or states_kind(values)
    close = fits and (len(topic.words) < 2 or values[COVER] >= row[COVER])
    if close and chance >= (MIN_RIVAL if topic.is_own or named else MIN_RIVAL_ANY):
        return True
    if named:
        return False
    cosine = 0.0 if one.vector is None or two.vector is None else float(one.vector @ two.vector)
    of_kind = not find_kinds(one.text).isdisjoint(find_kinds(two.text))
    # "the address": somebody else's may be meant as well.
    if not topic.is_own and len(topic.words) < 2 and states_kind(row) and states_kind(values):
        return True
    if of_kind and topic.is_own and not row[COVER] and cosine >= ALIKE_OWN:
        return True
    beside = is_beside(two.text) and values[COVER] > 0
    return beside or is_another_one(two.text) or (is_beside(one.text) and fits)


def _add_continued(topic: Topic, groups: Sequence[Sequence[Candidate]], meant: Sequence[int]) -> list[int]:
    """Add the statements that go on about somebody whom the request names: "she kept the house"."""
    texts, said = [one[0].text for one in groups], [one[0].message or one[0].item.id for one in groups]
    found = list(meant)
    of_name = set(topic.words) == set(topic.find_names(texts))  # and not only what a name does
    for k in range(1, len(texts)) if topic.everything or of_name else ():
        before = [place for place in range(k) if said[place] != said[k]]
        last = {place for place in before if said[place] == said[before[-1]]} | {k - 1}
        if k not in found and not last.isdisjoint(found) and is_continued(texts[k]):
            found.append(k)
    return sorted(found)


@dataclass(frozen=True, slots=True)
class TargetFinder:
    """Looks for the facts and messages of one speaker that a request means. `session` is the one it was made in."""

    scope: Scope
    services: Services
    speaker: str | None
    session: str

    def find(self, topic: str, *, everything: bool) -> tuple[list[Candidate], bool]:
        """Return what a matter means, and whether that is certain."""
        if not topic:
            return self._find_last(), True
        read, vectors = read_topic(topic, everything), self._embed(topic)
        found = self._read_candidates(topic, vectors)
        if everything:
            read = add_names(read, [one.text for one in found])
            found = self._read_candidates(f"{topic} {read.called}", vectors) if read.called else found
        fitting = [one for one in found if read.fits_time(one.text, ended=one.has_ended)]
        chosen, certain = choose_targets(read, vectors, fitting)
        return (chosen, certain) if chosen else (choose_targets(read, vectors, found)[0], False)

    def _find_last(self) -> list[Candidate]:
        rows = self.services.log.last(self.scope, self.session, MAX_ROWS_BACK)
        own = [row for row in rows if row.role == "user" and row.speaker == self.speaker]
        return [Candidate(one, (0, len(one.text))) for one in own[-1:]]

    def _embed(self, topic: str) -> TopicVectors | None:
        if find_span_pooling(self.services.embedder) is None:
            return None
        words = " ".join(list_matter_words(topic)) or topic
        try:
            rows = pin_embedder(self.services.embedder).embed([words, topic], "query")
        except EmbedderFailed:
            return None
        return TopicVectors(rows[0], rows[1])

    def _read_candidates(self, topic: str, vectors: TopicVectors | None) -> list[Candidate]:
        import numpy as np

        items, model = self.services.items, pin_embedder(self.services.embedder).model.key
        terms = tuple(dict.fromkeys(extract_terms(topic)))
        query = WordQuery(terms, self.scope, _SAID, limit=MAX_CANDIDATES)
        ids = [hit.id for hit in self.services.words.best(query).hits] if terms else []
        if vectors is not None:
            near = VectorQuery(vectors.words, model, self.scope, _SAID, limit=MAX_CANDIDATES)
            ids += self.services.vectors.nearest(near).ids
        found = [one for one in items.get_many(self.scope, list(dict.fromkeys(ids))) if self._is_own(one)]
        cited, became = self._list_cited([one.id for one in found if one.kind == "message"])
        rows = items.vectors(self.scope, [one.id for one in found], model) if found and vectors is not None else {}
        return [
            Candidate(
                one,
                span,
                np.frombuffer(rows[one.id].rows[0], np.float32) if one.id in rows else None,
                thing,
                one.id
                if one.kind == "message"
                else next((cite.item for source in one.sources for cite in source.cites), ""),
            )
            for one in found
            for spans in [_list_spans(one, cited.get(one.id, ()))]
            for span in spans
            for thing in [one.id if one.kind == "fact" else became.get(one.id) if len(spans) == 1 else None]
        ]

    def _is_own(self, item: Item) -> bool:
        if item.kind == "message":
            return item.role == "user" and item.speaker == self.speaker
        return item.metadata.get(SPEAKER_KEY) == self.speaker

    def _list_cited(self, messages: Sequence[str]) -> tuple[dict[str, list[Citation]], dict[str, str]]:
        """Return the spans of messages that facts stand for, and the current fact that others' statements became."""
        if not messages:
            return {}, {}
        links = [one for one in self.services.items.lineage(self.scope, messages) if one.cite.item in set(messages)]
        citing = self.services.items.get_many(self.scope, [one.item for one in links])
        facts = {item.id for item in citing if item.kind == "fact" and item.open}
        ended = {item.id: item.replaced_by for item in citing if item.kind == "fact" and item.replaced_by}
        found: dict[str, list[Citation]] = {}
        became: dict[str, str] = {}
        for one in links:
            if one.item in facts:
                found.setdefault(one.cite.item, []).append(one.cite)
            elif later := self._follow(ended.get(one.item)):
                became[one.cite.item] = later
        return found, became

    def _follow(self, id_: str | None) -> str | None:
        """Return the last value of a fact that was replaced."""
        for _ in range(MAX_VALUES_BACK):
            found = self.services.items.get_many(self.scope, [id_]) if id_ else []
            if not found or not found[0].replaced_by:
                break
            id_ = found[0].replaced_by
        return id_


def _list_spans(item: Item, cited: Sequence[Citation]) -> list[Span]:
    """Return a fact as a whole, and the sentences of a message that state something and that no fact stands for.

    An earlier request to forget states nothing, nor does what it left.
    """
    if item.kind != "message":
        return [(0, len(item.text))]
    asked = find_forget_topics(item.text)
    taken = [cite.find_span(len(item.text)) for cite in cited]
    sentences = [one for one in split_sentences(item.text)[:MAX_SENTENCES] if not one.is_question]
    # Two facts may stand for one sentence.
    return [
        (one.start, one.end)
        for one in sentences
        if not any(one.start < ask.end and ask.start < one.end for ask in asked)
        and _states_something(item.text[one.start : one.end])
        and sum(max(0, min(end, one.end) - max(start, one.start)) for start, end in taken)
        < MIN_TAKEN * (one.end - one.start)
    ]


def _states_something(text: str) -> bool:
    left = read_words(text.replace(FORGOTTEN, ""))
    return bool(left) and not (FORGOTTEN in text and is_candidate(left))
