"""Resolve a request to forget into the facts and messages that it means, and say how certain that is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engrain.core.errors import EmbedderFailed
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import Citation, Item
from engrain.core.model.queries import VectorQuery, WordQuery
from engrain.core.rules.change_cues import find_people, read_cues
from engrain.core.rules.forget_requests import list_own_words
from engrain.core.rules.slot_names import SPEAKER_KEY
from engrain.core.text.passages import Span, split_sentences
from engrain.core.text.tokenizer import extract_terms, tokenize
from engrain.ingest.changes import judge_aspects, load_weights
from engrain.ports import Services
from engrain.ports.search import find_span_pooling, pin_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

MIN_PREFIX = 5  # letters that two forms of a word share: "embarazo", "embarazada"
WEIGHTS = "forget.npz"
# The chance from which a target is certain, and from which one is proposed.
MIN_CHANCE, MIN_PROPOSED = 0.5, 0.1
# Another target with this chance, and as near to the likeliest one as this, makes it uncertain: two numbers, two loans.
MIN_RIVAL, RIVAL_COSINE, RIVAL_ASPECT = 0.05, 0.35, 0.6
MIN_TAKEN = 0.8  # share of a sentence from which its fact stands for it
MAX_CANDIDATES, MAX_SENTENCES, MAX_ROWS_BACK, MAX_VALUES_BACK = 30, 20, 8, 10
_SAID = Filter((Condition("kind", "in", ("fact", "message")),))
_GENERIC = frozenset(
    (
        "thing", "things", "stuff", "bit", "part", "business", "rule", "command", "code", "detail", "details", "status",
        "story", "matter", "info", "information", "decision", "number", "date", "problem", "issue", "topic",
        "conversation", "plan", "idea", "question", "address", "name", "sache", "zeug", "cosa", "asunto", "histoire",
        "chose",
    )
)  # fmt: skip


_NAME = re.compile(r"[^\W\d_a-zà-öø-ÿ][a-zß-öø-ÿ]+")
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
    """

    item: Item
    span: Span
    vector: Matrix | None = None
    thing: str | None = None

    @property
    def text(self) -> str:
        return self.item.text[slice(*self.span)]


def choose_targets(
    topic: str, vector: Matrix | None, found: Sequence[Candidate], *, everything: bool
) -> tuple[list[Candidate], bool]:
    """Return the candidates that a matter means, and whether that is certain. Uncertain ones are only proposed."""
    words = list_topic_words(topic)
    named = [one for one in found if words and measure_cover(words, one.text) == 1]
    if named and everything:
        return named, not any(_is_of_other(topic, words, one.text) for one in named)
    if vector is None or not found:
        return named, len({" ".join(tokenize(one.text)) for one in named}) == 1
    rows = [compare_target(topic, words, vector, one) for one in found]
    chances = judge_targets(rows)
    best = max(range(len(found)), key=chances.__getitem__)
    same = [one for one in found if tokenize(one.text) == tokenize(found[best].text)]
    things = {one.thing for one in same} - {None}
    same = [one for one in found if one in same or one.thing in things]  # earlier values of it as well
    chance = sum(one for one, other in zip(chances, found, strict=True) if other in same)
    rivals = [one for one, other in zip(found, chances, strict=True) if other >= MIN_RIVAL and one not in same]
    sure = rows[best][VALUE] == 1 or not any(_are_alike(found[best], one) for one in rivals)
    if chance >= MIN_CHANCE and sure and not _is_of_other(topic, words, found[best].text):
        return same, True
    return [one for one, chance in zip(found, chances, strict=True) if chance >= MIN_PROPOSED or one in named], False


def is_statement(text: str) -> bool:
    return _STATEMENT.search(text) is not None


def list_topic_words(topic: str) -> list[str]:
    """Return the words that name the matter, without those that may name any matter."""
    words = list_own_words(topic)
    return [word for word in words if word not in _GENERIC] or words


def measure_cover(words: Sequence[str], text: str) -> float:
    """Return the share of the words that a text has, in whatever form."""
    held = tokenize(text)
    return sum(any(_is_same(word, other) for other in held) for word in words) / len(words) if words else 0.0


def compare_target(topic: str, words: Sequence[str], vector: Matrix, one: Candidate) -> list[float]:
    """Return the features of a matter and something that it may mean."""
    import numpy as np

    cover, known = measure_cover(words, one.text), one.vector
    cosine = 0.0 if known is None else float(vector @ known)
    aspect = 0.0 if known is None else float(np.sqrt(judge_aspects(vector) * judge_aspects(known)).sum())
    asked, held = find_people(topic), read_cues(one.text).people
    other, missing = float(bool(held) and not held & asked), float(bool(asked) and not held & asked)
    values = {word for word in words if any(mark.isdigit() for mark in word)}
    value, full = float(not values.isdisjoint(tokenize(one.text))), float(cover == 1)
    return [cover, full, cosine, aspect, other, missing * (1 - cover), value, cover * cosine, other * full]


VALUE = 6  # the feature of a number that both have


def judge_targets(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the chance of each candidate. The rest to 1 is the chance that none is meant."""
    import numpy as np

    weights = load_weights(WEIGHTS)
    powers = np.exp(np.clip(np.array(rows, np.float32) @ weights["target"] + weights["target_bias"], -30, 30))
    return [float(one) for one in powers / (1 + powers.sum())]


def _is_of_other(topic: str, words: Sequence[str], text: str) -> bool:
    """Tell if a text is about somebody whom the matter does not name: "my divorce", and that of a sister."""
    asked, held = find_people(topic), read_cues(text).people
    names = {name.casefold() for name in _NAME.findall(text)}
    return bool(held) and held.isdisjoint(asked) and names.isdisjoint(words)


def _are_alike(one: Candidate, other: Candidate) -> bool:
    import numpy as np

    if one.vector is None or other.vector is None:
        return False
    aspect = float(np.sqrt(judge_aspects(one.vector) * judge_aspects(other.vector)).sum())
    return float(one.vector @ other.vector) >= RIVAL_COSINE or aspect >= RIVAL_ASPECT


def _is_same(word: str, other: str) -> bool:
    if word == other or word.rstrip("s") == other.rstrip("s"):
        return True
    return len(word) >= MIN_PREFIX and len(other) >= MIN_PREFIX and word[:MIN_PREFIX] == other[:MIN_PREFIX]


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
        vector = self._embed(topic)
        return choose_targets(topic, vector, self._read_candidates(topic, vector), everything=everything)

    def _find_last(self) -> list[Candidate]:
        rows = self.services.log.last(self.scope, self.session, MAX_ROWS_BACK)
        own = [row for row in rows if row.role == "user" and row.speaker == self.speaker]
        return [Candidate(one, (0, len(one.text))) for one in own[-1:]]

    def _embed(self, topic: str) -> Matrix | None:
        if find_span_pooling(self.services.embedder) is None:
            return None
        try:
            row: Matrix = pin_embedder(self.services.embedder).embed([topic], "query")[0]
        except EmbedderFailed:
            return None
        return row

    def _read_candidates(self, topic: str, vector: Matrix | None) -> list[Candidate]:
        import numpy as np

        items, model = self.services.items, pin_embedder(self.services.embedder).model.key
        terms = tuple(dict.fromkeys(extract_terms(topic)))
        query = WordQuery(terms, self.scope, _SAID, limit=MAX_CANDIDATES)
        ids = [hit.id for hit in self.services.words.best(query).hits] if terms else []
        if vector is not None:
            near = VectorQuery(vector, model, self.scope, _SAID, limit=MAX_CANDIDATES)
            ids += self.services.vectors.nearest(near).ids
        found = [one for one in items.get_many(self.scope, list(dict.fromkeys(ids))) if self._is_own(one)]
        cited, became = self._list_cited([one.id for one in found if one.kind == "message"])
        rows = items.vectors(self.scope, [one.id for one in found], model) if found and vector is not None else {}
        return [
            Candidate(one, span, np.frombuffer(rows[one.id].rows[0], np.float32) if one.id in rows else None, thing)
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
    """Return a fact as a whole, and the sentences of a message that state something and that no fact stands for."""
    if item.kind != "message":
        return [(0, len(item.text))]
    taken = [cite.find_span(len(item.text)) for cite in cited]
    sentences = [one for one in split_sentences(item.text)[:MAX_SENTENCES] if not one.is_question]
    return [
        (one.start, one.end)
        for one in sentences
        if not any(
            min(end, one.end) - max(start, one.start) >= MIN_TAKEN * (one.end - one.start) for start, end in taken
        )
    ]
