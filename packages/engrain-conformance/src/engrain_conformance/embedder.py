"""A small embedder for tests: the same vectors in every process, and no weights."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

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
        return np.array([self._row(text) for text in texts], dtype=np.float32).reshape(len(texts), DIMENSION)

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

    def _row(self, text: str) -> npt.NDArray[np.float32]:
        row = np.zeros(DIMENSION)
        padded = f" {text[:LIMIT].casefold()} "
        for start in range(len(padded) - 2):
            number = zlib.crc32(padded[start : start + 3].encode("utf-8", "surrogatepass"))
            row[number % DIMENSION] += 1 if number & 0x1000 else -1
        length = float(np.sqrt(np.dot(row, row)))
        if length == 0:
            row[0] = length = 1.0
        return (row / length).astype(np.float32)
