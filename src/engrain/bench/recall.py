"""Load the documents of a folder into each system, ask every question, and score what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from engrain.bench.folders import Doc, Folder, Question
from engrain.bench.measures import FoundDocument, Scores, mean, paired_bootstrap, recall_at, score
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.memory import Memory, Store

if TYPE_CHECKING:
    from engrain.core.model.recall import Recall
    from engrain.ports.search import Embedder


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
        from engrain import __version__

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


TOP_HITS = 10
# About 60 of the shortest turns fill 1,000 tokens; systems are asked for more than that.
BUDGET_HITS = 100
COMPARED_MEASURES = ("r10", "ndcg10", "rb1000")

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """A system's answer to one question: the best ten, and enough hits to fill the budget."""

    question: Question
    top: tuple[str, ...]
    long: tuple[FoundDocument, ...]

    @property
    def scores(self) -> Scores:
        return score(self.top, self.long, self.question.gold)


@dataclass(frozen=True, slots=True)
class FlooredAnswer:
    """The hits for a question with the relevance floor on."""

    question: Question
    top: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FolderRun:
    answers: Mapping[str, Sequence[Answer]]
    floored: Sequence[FlooredAnswer]


def run_recall(
    folders: Iterable[Folder],
    embedder: Embedder,
    *,
    open_others: Callable[[Path], AbstractContextManager[Sequence[System]]] = lambda _: nullcontext(()),
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Return the whole report, ready for JSON: figures only, no text of any document or question.

    `open_others` opens the systems to compare with; it is given a folder for their files.
    """
    vectors = VectorCache(embedder)
    report: dict[str, Any] = {"embedder": vectors.model.key, "folders": {}, "systems": {}}
    for folder in folders:
        with TemporaryDirectory(prefix="engrain-bench-") as place, ExitStack() as stack:
            engrain = Engrain(Path(place) / "bench.db", vectors)
            stack.callback(engrain.close)
            others = stack.enter_context(open_others(Path(place)))
            report["systems"] |= {system.name: system.version for system in (engrain, *others)}
            run = _run_folder(folder, engrain, others, vectors, progress)
        report["folders"][folder.name] = summarize_run(folder, run)
    return report


def _run_folder(
    folder: Folder, engrain: Engrain, others: Sequence[System], vectors: VectorCache, progress: Progress
) -> FolderRun:
    systems: list[System] = [engrain, *others]
    answers: dict[str, list[Answer]] = {system.name: [] for system in systems}
    floored: list[FlooredAnswer] = []
    done = 0
    for space in folder.spaces:
        docs = folder.docs_of(space)
        engrain.add_docs(space, docs)
        batch = Batch(space, docs, vectors.embed([vectors.windows(doc.line)[0] for doc in docs], "document"))
        for system in others:
            system.add(batch)
        done += len(docs)
        progress(f"{folder.name}: loading", done, len(folder.docs))
    for number, question in enumerate(folder.questions, 1):
        asked = EmbeddedQuestion(question.text, vectors.embed([question.text], "query")[0])
        for system in systems:
            answers[system.name].append(_answer(system, question, asked))
        on = engrain.search_with_floor(question.space, asked, TOP_HITS)
        floored.append(FlooredAnswer(question, tuple(one.doc for one in on)))
        progress(f"{folder.name}: asking", number, len(folder.questions))
    return FolderRun(answers, floored)


def _answer(system: System, question: Question, asked: EmbeddedQuestion) -> Answer:
    top = system.search(question.space, asked, TOP_HITS)
    long = system.search(question.space, asked, BUDGET_HITS)
    return Answer(question, tuple(one.doc for one in top), tuple(long))


def summarize_run(folder: Folder, run: FolderRun) -> dict[str, Any]:
    """Means over the questions with gold, for all and for each category, and engrain's lead over each other system."""
    scored = {name: [one for one in answers if one.question.gold] for name, answers in run.answers.items()}
    return {
        "items": len(folder.docs),
        "spaces": len(folder.spaces),
        "questions": len(folder.questions),
        "with_gold": sum(bool(question.gold) for question in folder.questions),
        "systems": {name: _summarize_system(answers) for name, answers in scored.items() if answers},
        "engrain_minus": {
            name: _compare(scored["engrain"], answers)
            for name, answers in scored.items()
            if name != "engrain" and answers
        },
        "floor": _measure_floor(run),
    }


def _summarize_system(answers: Sequence[Answer]) -> dict[str, Any]:
    categories: dict[str, list[Scores]] = {}
    for answer in answers:
        categories.setdefault(answer.question.category, []).append(answer.scores)
    return {
        "all": asdict(mean([answer.scores for answer in answers])),
        "categories": {
            name: {"questions": len(scores), **asdict(mean(scores))} for name, scores in sorted(categories.items())
        },
    }


def _compare(ours: Sequence[Answer], theirs: Sequence[Answer]) -> dict[str, Any]:
    lead = {}
    for measure in COMPARED_MEASURES:
        interval = paired_bootstrap(*([getattr(one.scores, measure) for one in side] for side in (ours, theirs)))
        lead[measure] = {**asdict(interval), "above": interval.above}
    return lead


def _measure_floor(run: FolderRun) -> dict[str, Any]:
    """Measure how often the floor returns nothing for unanswerable questions, and its cost for the others."""
    without = [one for one in run.floored if not one.question.gold]
    having = [one for one in run.floored if one.question.gold]
    off = [one for one in run.answers["engrain"] if one.question.gold]
    on = [recall_at(one.top, one.question.gold, TOP_HITS) for one in having]
    cost = mean([one.scores for one in off]).r10 - sum(on) / len(on) if on else 0.0
    return {
        "without_gold": len(without),
        "returned_nothing": sum(not one.top for one in without) / len(without) if without else None,
        "hits_per_question_without_gold": sum(len(one.top) for one in without) / len(without) if without else None,
        "cost_r10": cost,
        "silenced_with_gold": sum(not one.top for one in having) / len(having) if having else None,
    }
