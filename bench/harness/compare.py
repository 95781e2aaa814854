"""Ask engrain and other systems the same questions, with the same vectors, and compare their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from engrain.bench.recall import (
    BUDGET_HITS,
    TOP_HITS,
    Answer,
    Doc,
    Folder,
    FoundDocument,
    Progress,
    Question,
    answer_questions,
    summarize_answers,
    summarize_folder,
)
from engrain.core.model.queries import EmbeddingModel, EmbedKind

if TYPE_CHECKING:
    from engrain.ports.search import Embedder

Matrix = npt.NDArray[np.float32]
RESAMPLES = 10_000
SEED = 20_240_607
COMPARED_MEASURES = ("r10", "ndcg10", "rb1000")


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


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean difference between two systems over the same questions, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        return self.low > 0


class VectorCache:
    """An embedder with a cache, so that every system gets the same vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = self.unchecked = embedder
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


def compare_recall(
    folders: Iterable[Folder],
    embedder: Embedder,
    open_others: Callable[[Path], AbstractContextManager[Sequence[System]]],
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Return the report of `engrain bench recall`, with every other system and engrain's lead over it.

    `open_others` opens the systems to compare with; it is given a folder for their files.
    """
    from engrain import __version__

    vectors = VectorCache(embedder)
    report: dict[str, Any] = {"embedder": vectors.model.key, "folders": {}, "systems": {"engrain": __version__}}
    for folder in folders:
        ours = answer_questions(folder, vectors, progress)
        found = report["folders"][folder.name] = summarize_folder(folder, ours)
        found["engrain_minus"] = {}
        with TemporaryDirectory(prefix="engrain-bench-") as place, open_others(Path(place)) as others:
            report["systems"] |= {system.name: system.version for system in others}
            for name, answers in _ask_others(folder, others, vectors, progress).items():
                scored = [one for one in answers if one.question.gold]
                if scored:
                    found["systems"][name] = summarize_answers(scored)
                    found["engrain_minus"][name] = _compare([one for one in ours if one.question.gold], scored)
    return report


def _ask_others(
    folder: Folder, others: Sequence[System], vectors: VectorCache, progress: Progress
) -> dict[str, list[Answer]]:
    for space in folder.spaces:
        docs = folder.docs_of(space)
        batch = Batch(space, docs, vectors.embed([vectors.windows(doc.line)[0] for doc in docs], "document"))
        for system in others:
            system.add(batch)
    answers: dict[str, list[Answer]] = {system.name: [] for system in others}
    for number, question in enumerate(folder.questions, 1):
        asked = EmbeddedQuestion(question.text, vectors.embed([question.text], "query")[0])
        for system in others:
            answers[system.name].append(_answer(system, question, asked))
        progress(f"{folder.name}: asking the others", number, len(folder.questions))
    return answers


def _answer(system: System, question: Question, asked: EmbeddedQuestion) -> Answer:
    top = system.search(question.space, asked, TOP_HITS)
    long = system.search(question.space, asked, BUDGET_HITS)
    return Answer(question, tuple(one.doc for one in top), tuple(long))


def _compare(ours: Sequence[Answer], theirs: Sequence[Answer]) -> dict[str, Any]:
    lead = {}
    for measure in COMPARED_MEASURES:
        interval = paired_bootstrap(*([getattr(one.scores, measure) for one in side] for side in (ours, theirs)))
        lead[measure] = {**asdict(interval), "above": interval.above}
    return lead


def paired_bootstrap(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Estimate the interval by drawing questions with replacement, both systems' values together."""
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    means = _resample_means(differences)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(differences.mean()), float(low), float(high))


def _resample_means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    random = np.random.default_rng(SEED)
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 500):  # in parts: ten thousand by a thousand indexes would take 80 MB
        picked = random.integers(0, len(values), (500, len(values)))
        means[start : start + 500] = values[picked].mean(axis=1)
    return means
