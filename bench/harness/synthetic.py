"""Made-up texts, vectors and queries, the same on every machine, so that only engrain is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.core.model.items import Note, SessionPosition
from engrain.core.model.queries import EmbeddingModel, EmbedKind

SEED = 7
WORDS = 30_000
CONTENT_WORDS = 14
CLUSTERS = 200
SPREAD = 1.0  # in-cluster cosine about .5, as between MiniLM vectors of one subject
BLOCK = 1_000
TURNS = 25
COMMON_RANKS = 60
RARE_RANK = 2_000
# Every other word of a real sentence is one of these; search drops them from a query.
SMALL = (
    *("the", "a", "of", "and", "to", "in", "is", "was", "for", "on", "with", "that"),
    *("it", "at", "by", "from", "as", "this", "we", "have", "you", "not", "are", "be"),
)
SPEAKERS = ("Ana", "Ben")

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    text: str
    vector: Matrix
    words: str  # "common", "rare" or "mixed"


class Corpus:
    """Item number i is the same text and the same unit vector whatever is asked for before it."""

    def __init__(self, dimension: int, seed: int = SEED) -> None:
        self._seed = seed
        self._dimension = dimension
        random = np.random.default_rng((seed, 1))
        self.vocabulary = _vocabulary(random)
        self._ranks = {word: rank for rank, word in enumerate(self.vocabulary)}
        # Zipf with an offset: the commonest content word is in one text of seven, as in plain English.
        weights = 1 / (np.arange(WORDS) + 11.0)
        self._odds = weights / weights.sum()
        self._centres = _unit(random.standard_normal((CLUSTERS, dimension)))

    def items(self, start: int, count: int) -> tuple[list[str], Matrix]:
        texts: list[str] = []
        vectors: list[Matrix] = []
        for block in range(start // BLOCK, (start + count - 1) // BLOCK + 1):
            some, rows = self._block(block)
            part = slice(max(0, start - block * BLOCK), min(BLOCK, start + count - block * BLOCK))
            texts += some[part]
            vectors.append(rows[part])
        return texts, np.concatenate(vectors)

    def queries(self, count: int, items: int) -> list[Query]:
        """Each is near one of the items: a third asks with common words, a third with rare ones, a third with both."""
        random = np.random.default_rng((self._seed, 2))
        made = []
        texts, vectors = self.items(0, min(items, BLOCK))
        for number, target in enumerate(random.integers(0, len(texts), count)):
            kind = ("common", "rare", "mixed")[number % 3]
            words = self._query_words(kind, texts[target], random)
            noise = _unit(random.standard_normal((1, self._dimension)))[0]
            made.append(Query(f"What about {' '.join(words)}?", _unit(vectors[target] + 0.5 * noise), kind))
        return made

    def _query_words(self, kind: str, text: str, random: np.random.Generator) -> list[str]:
        common = [self.vocabulary[rank] for rank in random.integers(0, COMMON_RANKS, 4)]
        rare = [word for word in text.rstrip(".").split() if self._ranks.get(word, 0) >= RARE_RANK][:3]
        rare = rare or [self.vocabulary[RARE_RANK + int(random.integers(0, 1_000))]]
        return {"common": common, "rare": rare, "mixed": common[:2] + rare[:2]}[kind]

    def _block(self, block: int) -> tuple[list[str], Matrix]:
        random = np.random.default_rng((self._seed, 3, block))
        content = random.choice(WORDS, (BLOCK, CONTENT_WORDS), p=self._odds)
        small = random.integers(0, len(SMALL), (BLOCK, CONTENT_WORDS - 3))
        texts = []
        for some, others in zip(content, small, strict=True):
            words = [self.vocabulary[rank] for rank in some]
            for place, other in enumerate(others):
                words.insert(2 * place, SMALL[other])
            texts.append(" ".join(words) + ".")
        noise = random.standard_normal((BLOCK, self._dimension)) * (SPREAD / np.sqrt(self._dimension))
        return texts, _unit(self._centres[random.integers(0, CLUSTERS, BLOCK)] + noise)


class PreparedEmbedder:
    """An embedder that costs nothing: it hands out vectors made before, so that embedding is aside.

    It goes by the local model's name, so that the stores it fills can be opened with that one.
    """

    def __init__(self, model: EmbeddingModel) -> None:
        self.model = model
        self._rows: dict[str, Matrix] = {}

    def prepare(self, texts: Sequence[str], vectors: Matrix) -> None:
        self._rows.update(zip(texts, vectors, strict=True))

    def clear(self) -> None:
        self._rows.clear()

    def windows(self, text: str) -> list[str]:
        return [text]

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        rows = self._rows
        return np.stack([rows[text] if text in rows else self._made(text) for text in texts])

    def _made(self, text: str) -> Matrix:
        """A text that was not prepared, such as a query with words taken out, gets a vector of its own, for good."""
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        row = _unit(np.random.default_rng(seed).standard_normal(self.model.dimension))
        self._rows[text] = row
        return row


def turns(texts: Sequence[str], first: int = 0) -> list[Note]:
    """As turns of conversations, the dearer kind: neighbours, session and speaker take part in ranking."""
    return [
        Note(text, position=SessionPosition(f"session-{n // TURNS}", n % TURNS, SPEAKERS[n % 2]))
        for n, text in enumerate(texts, first)
    ]


def _vocabulary(random: np.random.Generator) -> list[str]:
    """Words that can be pronounced and that no stemmer or stop list knows; the commonest are short."""
    consonants, vowels = "bdfgklmnprtvz", "aiou"
    found: dict[str, None] = {}
    while len(found) < WORDS:
        length = 2 + min(2, len(found) // 400)
        syllables = [consonants[random.integers(len(consonants))] + vowels[random.integers(4)] for _ in range(length)]
        found["".join(syllables)] = None
    return list(found)


def _unit(rows: npt.NDArray[np.floating]) -> Matrix:
    made: Matrix = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return made
