"""Resolve a request to forget into the facts and messages that it means, and say how certain that is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engrain.core.errors import EmbedderFailed
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import Citation, Item
from engrain.core.model.queries import VectorQuery, WordQuery
from engrain.core.rules.slot_names import SPEAKER_KEY
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import Span, split_sentences
from engrain.core.text.tokenizer import extract_terms, hash_term, tokenize
from engrain.ingest.changes import judge_aspects
from engrain.ports import Services
from engrain.ports.search import find_span_pooling, pin_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

MIN_PREFIX = 5  # letters that two forms of a word share: "embarazo", "embarazada"
# A matter that no words name is certain if the best candidate is this good, and better than the next by this much.
MIN_SCORE, MIN_MARGIN, MIN_PROPOSED = 0.45, 0.12, 0.3
WORDS_WEIGHT, ASPECT_WEIGHT = 0.4, 0.25
MIN_TAKEN = 0.8  # share of a sentence from which its fact stands for it
MAX_CANDIDATES, MAX_SENTENCES, MAX_ROWS_BACK = 30, 20, 8
_SAID = Filter((Condition("kind", "in", ["fact", "message"]),))
_GENERIC = frozenset(
    (
        "thing", "things", "stuff", "bit", "part", "business", "rule", "command", "code", "detail", "details", "status",
        "story", "matter", "info", "information", "decision", "number", "date", "problem", "issue", "topic",
        "conversation", "plan", "idea", "question", "address", "name", "sache", "zeug", "cosa", "asunto", "histoire",
        "chose",
    )
)  # fmt: skip


# A whole statement, rather than a name of a matter.
_STATEMENT = re.compile(
    r"^(?:i|i'm|im|i've|we|we're|we've|he|she|they|it|you|ich|wir|yo|je|nous)\b|^j'|"
    r"\b(?:is|are|was|were|has|have|ist|sind|heißt|es|son|soy|est|suis|sont)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Something that may be meant: the words of a fact, or a sentence of a message, and the vector of the item."""

    item: Item
    span: Span
    vector: Matrix | None = None

    @property
    def text(self) -> str:
        return self.item.text[slice(*self.span)]


def choose_targets(
    topic: str, vector: Matrix | None, found: Sequence[Candidate], *, everything: bool
) -> tuple[list[Candidate], bool]:
    """Return the candidates that a matter means, and whether that is certain. Uncertain ones are only proposed."""
    words = list_topic_words(topic)
    named = [one for one in found if words and measure_cover(words, one.text) == 1]
    if named:
        same = len({" ".join(tokenize(one.text)) for one in named}) == 1
        return named, everything or same
    if vector is None:
        return [], False
    scores = [(score_candidate(words, vector, one), one) for one in found]
    ranked = sorted(scores, key=lambda pair: -pair[0])
    likely = [one for score, one in ranked if score >= MIN_PROPOSED]
    if not likely:
        return [], False
    best, second = ranked[0][0], ranked[1][0] if len(ranked) > 1 else 0.0
    if best >= MIN_SCORE and best - second >= MIN_MARGIN:
        return [ranked[0][1]], True
    return likely, False


def is_statement(text: str) -> bool:
    return _STATEMENT.search(text) is not None


def list_topic_words(topic: str) -> list[str]:
    """Return the words that name the matter, without those that may name any matter."""
    words = [word for word in tokenize(topic) if hash_term(word) not in _stop_terms()]
    return [word for word in words if word not in _GENERIC] or words


def measure_cover(words: Sequence[str], text: str) -> float:
    """Return the share of the words that a text has, in whatever form."""
    held = tokenize(text)
    return sum(any(_is_same(word, other) for other in held) for word in words) / len(words) if words else 0.0


def score_candidate(words: Sequence[str], vector: Matrix, one: Candidate) -> float:
    import numpy as np

    if one.vector is None:
        return WORDS_WEIGHT * measure_cover(words, one.text)
    cosine = float(vector @ one.vector)
    aspect = float(np.sqrt(judge_aspects(vector) * judge_aspects(one.vector)).sum())
    return cosine + WORDS_WEIGHT * measure_cover(words, one.text) + ASPECT_WEIGHT * aspect


def _is_same(word: str, other: str) -> bool:
    if word == other or word.rstrip("s") == other.rstrip("s"):
        return True
    return len(word) >= MIN_PREFIX and len(other) >= MIN_PREFIX and word[:MIN_PREFIX] == other[:MIN_PREFIX]


@cache
def _stop_terms() -> frozenset[int]:
    return frozenset().union(*(one.stop_terms for one in load_languages().by_name.values()))


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
        cited = self._list_cited([one.id for one in found if one.kind == "message"])
        rows = items.vectors(self.scope, [one.id for one in found], model) if found and vector is not None else {}
        return [
            Candidate(one, span, np.frombuffer(rows[one.id].rows[0], np.float32) if one.id in rows else None)
            for one in found
            for span in _list_spans(one, cited.get(one.id, ()))
        ]

    def _is_own(self, item: Item) -> bool:
        if item.kind == "message":
            return item.role == "user" and item.speaker == self.speaker
        return item.metadata.get(SPEAKER_KEY) == self.speaker

    def _list_cited(self, messages: Sequence[str]) -> dict[str, list[Citation]]:
        """Return the spans of messages that facts stand for."""
        if not messages:
            return {}
        links = [one for one in self.services.items.lineage(self.scope, messages) if one.cite.item in set(messages)]
        citing = self.services.items.get_many(self.scope, [one.item for one in links])
        facts = {item.id for item in citing if item.kind == "fact" and item.open}
        found: dict[str, list[Citation]] = {}
        for one in links:
            if one.item in facts:
                found.setdefault(one.cite.item, []).append(one.cite)
        return found


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
