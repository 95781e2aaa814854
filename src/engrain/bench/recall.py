"""Load the documents of a folder into a store, ask every question, and score what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from engrain import __version__
from engrain.bench.folders import Folder, Question
from engrain.bench.measures import FoundDocument, Scores, mean, recall_at, score
from engrain.memory import Store

if TYPE_CHECKING:
    from engrain.core.model.recall import Recall
    from engrain.ports.search import Embedder

TOP_HITS = 10
# About 60 of the shortest turns fill 1,000 tokens; recall is asked for more than that.
BUDGET_HITS = 100

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question: the best ten, enough hits to fill the budget, and the best above the floor."""

    question: Question
    top: tuple[str, ...]
    long: tuple[FoundDocument, ...]
    above_floor: tuple[str, ...] = ()

    @property
    def scores(self) -> Scores:
        return score(self.top, self.long, self.question.gold)


def run_recall(
    folders: Iterable[Folder], embedder: Embedder, *, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Return the whole report, ready for JSON: figures only, no text of any document or question."""
    report: dict[str, Any] = {"embedder": embedder.model.key, "folders": {}, "systems": {"engrain": __version__}}
    for folder in folders:
        report["folders"][folder.name] = summarize_folder(folder, answer_questions(folder, embedder, progress))
    return report


def answer_questions(folder: Folder, embedder: Embedder, progress: Progress) -> list[Answer]:
    """Use engrain as a program does: remember_many and recall, one user for each space, one store."""
    answers, done = list[Answer](), 0
    with TemporaryDirectory(prefix="engrain-bench-") as place, Store(Path(place) / "b.db", embedder=embedder) as store:
        memories = {space: store.memory(user=space) for space in folder.spaces}
        for space, memory in memories.items():
            memory.remember_many([doc.note for doc in folder.docs_of(space)])
            done += len(folder.docs_of(space))
            progress(f"{folder.name}: loading", done, len(folder.docs))
        for number, question in enumerate(folder.questions, 1):
            recall = memories[question.space].recall
            top, long = (list_found(recall(question.text, n=n, min_relevance=0)) for n in (TOP_HITS, BUDGET_HITS))
            above = list_found(recall(question.text, n=TOP_HITS))
            answers.append(
                Answer(question, tuple(one.doc for one in top), tuple(long), tuple(one.doc for one in above))
            )
            progress(f"{folder.name}: asking", number, len(folder.questions))
    return answers


def list_found(recall: Recall) -> list[FoundDocument]:
    return [FoundDocument(str(hit.item.metadata["doc"]), len(hit.text), len(hit.item.text)) for hit in recall.hits]


def summarize_folder(folder: Folder, answers: Sequence[Answer]) -> dict[str, Any]:
    scored = [one for one in answers if one.question.gold]
    return {
        "items": len(folder.docs),
        "spaces": len(folder.spaces),
        "questions": len(folder.questions),
        "with_gold": len(scored),
        "systems": {"engrain": summarize_answers(scored)} if scored else {},
        "floor": _measure_floor(answers),
    }


def summarize_answers(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the means over questions with gold, for all and for each category."""
    categories: dict[str, list[Scores]] = {}
    for answer in answers:
        categories.setdefault(answer.question.category, []).append(answer.scores)
    return {
        "all": asdict(mean([answer.scores for answer in answers])),
        "categories": {
            name: {"questions": len(scores), **asdict(mean(scores))} for name, scores in sorted(categories.items())
        },
    }


def _measure_floor(answers: Sequence[Answer]) -> dict[str, Any]:
    """Measure how often the floor returns nothing for unanswerable questions, and its cost for the others."""
    without = [one for one in answers if not one.question.gold]
    having = [one for one in answers if one.question.gold]
    on = [recall_at(one.above_floor, one.question.gold, TOP_HITS) for one in having]
    cost = mean([one.scores for one in having]).r10 - sum(on) / len(on) if on else 0.0
    hits = sum(len(one.above_floor) for one in without)
    return {
        "without_gold": len(without),
        "returned_nothing": sum(not one.above_floor for one in without) / len(without) if without else None,
        "hits_per_question_without_gold": hits / len(without) if without else None,
        "cost_r10": cost,
        "silenced_with_gold": sum(not one.above_floor for one in having) / len(having) if having else None,
    }
