"""Read a folder of documents and questions, load it into a store, ask every question, and score the answers."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from engrain import __version__
from engrain.core.errors import InvalidInput, NotFound
from engrain.core.model.items import ROLES, Note, SessionPosition
from engrain.memory import Store
from engrain.ports.plain_files import open_plain
from engrain.transfer.export import MAX_LINE_BYTES, parse_line, read_lines

if TYPE_CHECKING:
    from engrain.core.model.recall import Effort, Recall
    from engrain.ports.search import Embedder

CHARACTERS_PER_TOKEN = 4
TOP_HITS = 10
# About 60 of the shortest turns fill 1,000 tokens; recall is asked for more than that.
BUDGET_HITS = 100

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Doc:
    space: str
    id: str
    text: str
    session: str | None = None
    turn: int | None = None
    ts: str | None = None
    speaker: str | None = None
    role: str | None = None

    @property
    def name(self) -> str | None:
        """The speaker's name; None if it is only a role."""
        return None if self.speaker is None or self.speaker.casefold() in ROLES else self.speaker

    @property
    def line(self) -> str:
        """The line of a transcript, for systems that keep only texts. Without the name they find far less."""
        return f"{self.name}: {self.text}" if self.name else self.text

    @property
    def note(self) -> Note:
        """The note that an importer of chats would make."""
        return Note(self.text, occurred_at=self.ts, position=self._place, metadata={"doc": self.id})

    @property
    def _place(self) -> SessionPosition | None:
        if self.session is None:
            return None
        return SessionPosition(self.session, self.turn, self.name, self.role if self.role in ROLES else None)


@dataclass(frozen=True, slots=True)
class Question:
    space: str
    id: str
    text: str
    category: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Folder:
    name: str
    docs: tuple[Doc, ...]
    questions: tuple[Question, ...]

    @property
    def spaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(doc.space for doc in self.docs))

    def docs_of(self, space: str) -> list[Doc]:
        return [doc for doc in self.docs if doc.space == space]


def read_folder(path: Path) -> Folder:
    """Read docs.jsonl.gz and questions.jsonl.gz, as bench/README.md describes them."""
    docs = tuple(_parse_doc(row) for row in _read_rows(path / "docs.jsonl.gz"))
    questions = tuple(_parse_question(row) for row in _read_rows(path / "questions.jsonl.gz"))
    known = {(doc.space, doc.id) for doc in docs}
    for question in questions:
        if any((question.space, doc) not in known for doc in question.gold):
            raise InvalidInput(f"{path}: question {question.id} cites a document that is not in docs.jsonl.gz.")
    return Folder(path.name, docs, questions)


def _read_rows(path: Path) -> list[Mapping[str, Any]]:
    try:
        with open_plain(path) as packed, gzip.open(packed, "rb") as file:
            lines = read_lines(file, MAX_LINE_BYTES)  # type: ignore[arg-type]
            return [parse_line(raw, MAX_LINE_BYTES) for _, raw in lines if raw is None or raw.strip()]  # type: ignore[misc]
    except NotFound as exc:
        raise InvalidInput(f"there is no {path}. A folder has docs.jsonl.gz and questions.jsonl.gz.") from exc
    except (OSError, EOFError, zlib.error) as exc:
        raise InvalidInput(f"{path} is not gzipped JSON lines: {exc}.") from exc


def _parse_doc(row: Mapping[str, Any]) -> Doc:
    # A picture is part of the message: importers without a field for it append its caption to the text.
    text = f"{row['text']} [shares {row['caption']}]" if row.get("caption") else str(row["text"])
    fields = {name: row.get(name) for name in ("session", "turn", "ts", "speaker", "role")}
    return Doc(str(row["space"]), str(row["id"]), text, **fields)


def _parse_question(row: Mapping[str, Any]) -> Question:
    gold = frozenset(str(id) for id in row.get("gold") or ())
    return Question(str(row["space"]), str(row["id"]), str(row["question"]), str(row.get("category") or "all"), gold)


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """One returned item: its document, the characters returned and of the whole text, the share of words kept."""

    doc: str
    size: int
    whole: int
    kept: float = 1.0


@dataclass(frozen=True, slots=True)
class Scores:
    """One question's measures, or the means over many.

    `rb1000_whole` counts every document in full. `kept1000` counts a document by the share of its words that came back.
    """

    r5: float
    r10: float
    ndcg10: float
    mrr: float
    rb1000: float
    rb1000_whole: float
    kept1000: float


def recall_at(docs: Sequence[str], gold: frozenset[str], k: int) -> float:
    """The share of the gold among the first k documents."""
    return len(gold.intersection(docs[:k])) / len(gold)


def ndcg_at(docs: Sequence[str], gold: frozenset[str], k: int) -> float:
    gain = sum(1 / math.log2(rank + 2) for rank, doc in enumerate(list(dict.fromkeys(docs))[:k]) if doc in gold)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(k, len(gold))))


def reciprocal_rank(docs: Sequence[str], gold: frozenset[str]) -> float:
    return next((1 / rank for rank, doc in enumerate(docs, 1) if doc in gold), 0.0)


def recall_in_budget(sizes: Iterable[tuple[str, int]], gold: frozenset[str], tokens: int) -> float:
    """The share of the gold whose text lies within the first `tokens`, in rank order; `sizes` are in characters."""
    return len(gold.intersection(list_inside(sizes, tokens))) / len(gold)


def list_inside(sizes: Iterable[tuple[str, int]], tokens: int) -> list[str]:
    """List the documents that fit into the tokens, one after the other."""
    left = tokens * CHARACTERS_PER_TOKEN
    inside: list[str] = []
    for doc, size in sizes:
        left -= size
        if left < 0:
            break
        inside.append(doc)
    return inside


def evidence_kept(long: Sequence[FoundDocument], gold: frozenset[str], tokens: int) -> float:
    """The share of the gold's words that the first `tokens` hold. Unlike recall, cutting a text lowers it."""
    inside = long[: len(list_inside([(document.doc, document.size) for document in long], tokens))]
    return math.fsum({found.doc: found.kept for found in inside if found.doc in gold}.values()) / len(gold)


def score(top: Sequence[str], long: Sequence[FoundDocument], gold: frozenset[str]) -> Scores:
    """`top` are the documents of a call for ten; `long` those of a call for enough to fill the budget."""
    return Scores(
        r5=recall_at(top, gold, 5),
        r10=recall_at(top, gold, 10),
        ndcg10=ndcg_at(top, gold, 10),
        mrr=reciprocal_rank(top, gold),
        rb1000=recall_in_budget([(document.doc, document.size) for document in long], gold, 1_000),
        rb1000_whole=recall_in_budget([(document.doc, document.whole) for document in long], gold, 1_000),
        kept1000=evidence_kept(long, gold, 1_000),
    )


def mean(scores: Sequence[Scores]) -> Scores:
    names = Scores.__slots__
    return Scores(**{name: math.fsum(getattr(score, name) for score in scores) / len(scores) for name in names})


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
    folders: Iterable[Folder],
    embedder: Embedder,
    *,
    effort: Effort = "quick",
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Return the whole report, ready for JSON: figures only, no text of any document or question."""
    report: dict[str, Any] = {"embedder": embedder.model.key, "folders": {}, "systems": {"engrain": __version__}}
    for folder in folders:
        report["folders"][folder.name] = summarize_folder(folder, answer_questions(folder, embedder, progress, effort))
    return report


def answer_questions(folder: Folder, embedder: Embedder, progress: Progress, effort: Effort = "quick") -> list[Answer]:
    """Use engrain as a program does: remember_many and recall, one user for each space, one store."""
    answers, done = list[Answer](), 0
    with TemporaryDirectory(prefix="engrain-bench-") as place, Store(Path(place) / "b.db", embedder=embedder) as store:
        memories = {space: store.memory(user=space) for space in folder.spaces}
        for space, memory in memories.items():
            memory.remember_many([doc.note for doc in folder.docs_of(space)])
            done += len(folder.docs_of(space))
            progress(f"{folder.name}: loading", done, len(folder.docs))
        for number, question in enumerate(folder.questions, 1):
            recall = partial(memories[question.space].recall, effort=effort)
            top, long = (list_found(recall(question.text, n=n, min_relevance=0)) for n in (TOP_HITS, BUDGET_HITS))
            above = list_found(recall(question.text, n=TOP_HITS))
            best, above_floor = (tuple(document.doc for document in found) for found in (top, above))
            answers.append(Answer(question, best, tuple(long), above_floor))
            progress(f"{folder.name}: asking", number, len(folder.questions))
    return answers


def list_found(recall: Recall) -> list[FoundDocument]:
    return [
        FoundDocument(
            str(hit.item.metadata["doc"]),
            len(hit.text),
            len(hit.item.text),
            len(hit.text.split()) / max(1, len(hit.item.text.split())),
        )
        for hit in recall.hits
    ]


def summarize_folder(folder: Folder, answers: Sequence[Answer]) -> dict[str, Any]:
    scored = [answer for answer in answers if answer.question.gold]
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
    without = [answer for answer in answers if not answer.question.gold]
    having = [answer for answer in answers if answer.question.gold]
    on = [recall_at(answer.above_floor, answer.question.gold, TOP_HITS) for answer in having]
    cost = mean([answer.scores for answer in having]).r10 - sum(on) / len(on) if on else 0.0
    hits = sum(len(answer.above_floor) for answer in without)
    return {
        "without_gold": len(without),
        "returned_nothing": sum(not answer.above_floor for answer in without) / len(without) if without else None,
        "hits_per_question_without_gold": hits / len(without) if without else None,
        "cost_r10": cost,
        "silenced_with_gold": sum(not answer.above_floor for answer in having) / len(having) if having else None,
    }
