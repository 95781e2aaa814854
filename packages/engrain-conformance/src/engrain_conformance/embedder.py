"""A small embedder for tests: the same vectors in every process, and no weights."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from engrain.core.model.items import Vectors
from engrain.core.model.queries import EmbeddingModel, EmbedKind

DIMENSION = 64
LIMIT = 600  # characters


class HashEmbedder:
    """Counts character trigrams in 64 hashed places. Texts that share spelling are near, others are not."""

    def __init__(self, name: str = "hash-trigrams") -> None:
        self._model = EmbeddingModel(name, f"{zlib.crc32(name.encode()):08x}", DIMENSION, floor=0.25)

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> npt.NDArray[np.float32]:
        return np.array([_embed_text(text[:LIMIT]) for text in texts], dtype=np.float32).reshape(len(texts), DIMENSION)

    def windows(self, text: str) -> list[str]:
        pieces = []
        start = 0
        while len(text) - start > LIMIT:
            cut = text.rfind(" ", start + 1, start + LIMIT)
            cut = start + LIMIT if cut < 0 else cut
            pieces.append(text[start:cut])
            start = cut
        return [*pieces, text[start:]]

    def vectors(self, text: str) -> Vectors:
        """Return the vectors that a draft carries."""
        return Vectors(self.model.key, tuple(row.tobytes() for row in self.embed(self.windows(text), "document")))


# The same texts come again and again in tests, and so do most trigrams.
@lru_cache(4_096)
def _embed_text(text: str) -> npt.NDArray[np.float32]:
    counts = [0.0] * DIMENSION
    padded = f" {text.casefold()} "
    for start in range(len(padded) - 2):
        place, sign = _hash_trigram(padded[start : start + 3])
        counts[place] += sign
    row = np.array(counts)
    length = float(np.sqrt(np.dot(row, row)))
    if length == 0:
        row[0] = length = 1.0
    return (row / length).astype(np.float32)


@lru_cache(65_536)
def _hash_trigram(text: str) -> tuple[int, int]:
    number = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return number % DIMENSION, 1 if number & 0x1000 else -1
