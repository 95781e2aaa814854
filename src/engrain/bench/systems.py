"""The systems that are measured: each takes documents and answers questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from engrain.bench.folders import Doc
from engrain.bench.measures import FoundDocument
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.memory import Memory, Store

if TYPE_CHECKING:
    from engrain.core.model.recall import Recall
    from engrain.ports import Embedder

Matrix = npt.NDArray[np.float32]
Tick = Callable[[int], None]


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedQuestion:
    """A question with its vector, for systems that cannot embed."""

    text: str
    vector: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The documents of one space, with the vectors that all systems but engrain use."""

    space: str
    docs: Sequence[Doc]
    vectors: Matrix


class System(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def add(self, batch: Batch) -> None:
        """Add the documents of a space, once for each space."""

    def search(self, space: str, asked: EmbeddedQuestion, n: int) -> list[FoundDocument]:
        """At most n, best first, with no floor."""

    def close(self) -> None: ...


class VectorCache:
    """An embedder with a cache, so that every system gets the same vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._rows: dict[tuple[EmbedKind, str], Matrix] = {}

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    def windows(self, text: str) -> list[str]:
        return self._embedder.windows(text)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        missing = list(dict.fromkeys(text for text in texts if (kind, text) not in self._rows))
        if missing:
            for text, row in zip(missing, self._embedder.embed(missing, kind), strict=True):
                self._rows[kind, text] = row
        if not texts:
            return np.empty((0, self.model.dimension), dtype=np.float32)
        return np.stack([self._rows[kind, text] for text in texts])


class Engrain:
    """Engrain as a program uses it: remember_many and recall, one user for each space, one store."""

    name = "engrain"

    def __init__(self, store: Path, embedder: Embedder, tick: Tick = lambda _: None) -> None:
        from engrain.version import __version__

        self.version = __version__
        self._store = store
        self._embedder = embedder
        self._tick = tick
        self._opened: Store | None = None
        self._memories: dict[str, Memory] = {}

    def add(self, batch: Batch) -> None:
        self.add_docs(batch.space, batch.docs)

    def add_docs(self, space: str, docs: Sequence[Doc]) -> None:
        if self._opened is None:
            self._opened = Store(self._store, embedder=self._embedder)
        memory = self._memories[space] = self._opened.memory(user=space)
        before = 0

        def count(_: str, done: int, __: int | None) -> None:
            nonlocal before
            self._tick(done - before)
            before = done

        memory.remember_many([doc.note for doc in docs], progress=count)

    def search(self, space: str, asked: EmbeddedQuestion, n: int) -> list[FoundDocument]:
        return list_found(self._memories[space].recall(asked.text, n=n, min_relevance=0))

    def search_with_floor(self, space: str, asked: EmbeddedQuestion, n: int) -> list[FoundDocument]:
        return list_found(self._memories[space].recall(asked.text, n=n))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None
        self._memories.clear()


def list_found(recall: Recall) -> list[FoundDocument]:
    return [FoundDocument(_doc(hit.item.metadata), len(hit.text), len(hit.item.text)) for hit in recall.hits]


def _doc(metadata: Mapping[str, object]) -> str:
    return str(metadata["doc"])
