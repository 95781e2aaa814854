"""Train the model that tells what a sentence of a coding session leaves behind, and write its weights.

    python bench/capture/train_events.py                  measures as below, then trains on all and writes the weights
    python bench/capture/train_events.py --check --list   only measures

An author is scored with weights that were made without them. The held-out and the validation file are never read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # beside other programs, threads that wait for each other cost most
import numpy as np
from score_events import Score, score_event
from states import KeptStates

from engrain.connect import sentence_kinds
from engrain.connect.sentence_kinds import KINDS, Judged, SentenceJudge, list_inputs, score_inputs
from engrain.connect.spool import remove_private
from engrain.connect.what_to_keep import find_prompt_sentences
from engrain.core.model_weights import find_weights
from engrain.core.text.passages import Sentence, split_sentences

HERE = Path(__file__).parent
EVENT_FILES = (
    HERE / "coding-events-dev.jsonl",
    HERE / "coding-events-more.jsonl",
    HERE / "coding-events-train.jsonl",
    HERE / "coding-events-sessions.jsonl",
    HERE / "coding-events-kinds.jsonl",
    HERE / "coding-events-voices.jsonl",
    HERE / "blind" / "coding-events-blind.jsonl",
    HERE / "blind-2" / "coding-events-blind-2.jsonl",
    HERE.parents[1] / "tests" / "connect" / "coding_events.jsonl",
)
OUT = find_weights(sentence_kinds.WEIGHTS, "engrain.connect")
NOTHING = len(KINDS)
# What people tell of their lives is no note of a repository.
KIND_OF = {**{kind: kind for kind in KINDS}, "instruction": "wish"}
SKIPPED = ("file", "command", "fact", "preference")
NEAR_WEIGHT, LIFE_WEIGHT, KEPT_WEIGHT = 0.3, 0.1, 2.0
MIN_OVERLAP = 0.5
COMPONENTS, STATES_SCALE, EPOCHS, BATCH, RATE, DECAY = 96, 0.8, 14, 128, 0.02, 3e-4
MAX_FALSE = 0.015
LONG_SET = "event-session"
CLOSE_PAIRS = (LONG_SET, "event-voices")
LEAST = 0.4  # a rule that keeps a sentence with a lower score is wrong more often than right

Matrix = Any
Weights = dict[str, Matrix]


@dataclass(frozen=True, slots=True)
class Row:
    author: str
    label: int
    weight: float
    inputs: Matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--states", type=Path, help="a file that keeps the embedder's passes for the next script")
    options = parser.parse_args()
    kept = KeptStates(options.states)
    read = kept.read_text
    events = [(name_author(event["id"]), event) for path in EVENT_FILES for event in read_lines(path)]
    known: dict[str, Matrix] = {}
    rows = [*read_event_rows(events, read, known), *read_message_rows(read)]
    kept.save()
    click.echo(f"{len(rows):,} sentences, {sum(row.label != NOTHING for row in rows):,} to keep")
    basis = find_basis(rows)
    authors = sorted({author for author, _ in events})
    found = {author: train([row for row in rows if row.author != author], basis) for author in authors}
    threshold = choose_threshold(events, known, found, options.list)
    if not options.check:
        save(train(rows, basis) | {"threshold": threshold, "least": LEAST})


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text("utf-8").splitlines())


def name_author(id: str) -> str:
    """Name who wrote an event: a long set of one author counts as two, so that half of it stays for training."""
    name, _, number = id.rpartition("-")
    return f"{name}-{int(number) % 2}" if name == LONG_SET else name or id[0]


def read_event_rows(events: Sequence[tuple[str, dict[str, Any]]], read: Any, known: dict[str, Matrix]) -> Iterator[Row]:
    for author, event in events:
        if event["event"] not in ("prompt", "answer", "note"):
            continue
        text, of_agent = remove_private(event["text"]), event["event"] == "answer"
        sentences = split_sentences(text) if of_agent else find_prompt_sentences(text)
        if not sentences:
            continue
        known[text] = list_inputs(text, sentences, of_agent, read)
        spans = [(text.find(one["text"]), len(one["text"]), one["kind"]) for one in event["keep"]]
        for sentence, inputs in zip(sentences, known[text], strict=True):
            kind = choose_kind(spans, sentence, "none")
            near = kind == "none" and bool(event["keep"])
            if kind not in SKIPPED:
                yield make_row(author, kind, NEAR_WEIGHT if near else 1.0, inputs)


def read_message_rows(read: Any) -> Iterator[Row]:
    """Yield sentences of everyday messages. Those about a repository weigh as much as events."""
    for path in sorted((HERE / "training").glob("*.jsonl")):
        of_repository = path.stem == "reponotes"
        for record in read_lines(path):
            text, parts = record.get("text", ""), record.get("parts", ())
            sentences = find_prompt_sentences(text) if parts else []
            if not sentences:
                continue
            spans = [(text.find(one["text"]), len(one["text"]), read_kind(one, of_repository)) for one in parts]
            kinds = [choose_kind(spans, sentence, "fact") for sentence in sentences]
            if all(kind in SKIPPED for kind in kinds):
                continue
            for kind, inputs in zip(kinds, list_inputs(text, sentences, False, read), strict=True):
                if kind not in SKIPPED:
                    yield make_row(path.stem, kind, 1.0 if of_repository else LIFE_WEIGHT, inputs)


def read_kind(part: dict[str, Any], of_repository: bool) -> str:
    if of_repository and part["kind"] in ("fact", "instruction"):
        return "cause" if "cause" in part["text"].lower() else "wish" if part["aspect"] == "style" else "rule"
    return str(part["kind"])


def make_row(author: str, kind: str, weight: float, inputs: Matrix) -> Row:
    label = KINDS.index(KIND_OF[kind]) if kind in KIND_OF else NOTHING
    return Row(author, label, weight * (KEPT_WEIGHT if label != NOTHING else 1.0), inputs)


def choose_kind(spans: Sequence[tuple[int, int, str]], sentence: Sentence, default: str) -> str:
    """Return the kind of the span that fills most of the sentence."""
    best, found = 0, default
    for start, length, kind in spans:
        overlap = min(start + length, sentence.end) - max(start, sentence.start)
        if start >= 0 and overlap > best and overlap >= MIN_OVERLAP * min(length, sentence.end - sentence.start):
            best, found = overlap, kind
    return found


def count_states(rows: Sequence[Row]) -> int:
    return len(rows[0].inputs) - sentence_kinds.BUCKETS - sentence_kinds.VERDICT_INPUTS


def find_basis(rows: Sequence[Row]) -> Weights:
    """Return the main components of the states, so that the first do not outweigh the others. Labels have no part."""
    states = np.stack([row.inputs[: count_states(rows)] for row in rows])
    mean, spread = states.mean(0), states.std(0) + 1e-3
    scaled = (states - mean) / spread
    variances, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    axes = (axes / np.sqrt(np.sqrt(np.maximum(variances, 1e-6))))[:, -COMPONENTS:]
    return {"mean": mean, "spread": spread, "axes": axes * (STATES_SCALE / (scaled @ axes).std())}


def train(rows: Sequence[Row], basis: Weights) -> Weights:
    """Fit one linear layer with softmax, by Adam with a rate that falls to zero."""
    size = len(basis["mean"])
    inputs = np.stack([row.inputs for row in rows])
    states = ((inputs[:, :size] - basis["mean"]) / basis["spread"]) @ basis["axes"]
    inputs = np.hstack([states, inputs[:, size:], np.ones((len(rows), 1))]).astype(np.float32)
    wanted = np.eye(NOTHING + 1, dtype=np.float32)[[row.label for row in rows]]
    shares = np.array([row.weight for row in rows], np.float32)
    shares /= shares.mean()
    random = np.random.default_rng(0)
    layer = np.zeros((inputs.shape[1], NOTHING + 1), np.float32)
    first, second = np.zeros_like(layer), np.zeros_like(layer)
    steps, step = EPOCHS * (len(rows) // BATCH), 0
    for _ in range(EPOCHS):
        order = random.permutation(len(rows))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            some, step = order[start : start + BATCH], step + 1
            error = (softmax(inputs[some] @ layer) - wanted[some]) * shares[some, None]
            slope = inputs[some].T @ error / BATCH + np.float32(DECAY) * layer
            first += np.float32(0.1) * (slope - first)
            second += np.float32(0.01) * (slope * slope - second)
            scaled = np.sqrt(second / np.float32(1 - 0.99**step)) + np.float32(1e-8)
            layer -= np.float32(RATE * (1 - step / steps) / (1 - 0.9**step)) * first / scaled
    linear = np.vstack([basis["axes"] @ layer[:COMPONENTS], layer[COMPONENTS:-1]]).astype(np.float32)
    return {"mean": basis["mean"], "spread": basis["spread"], "linear": linear, "bias": layer[-1]}


def softmax(values: Matrix) -> Matrix:
    powers = np.exp(values - values.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@dataclass(frozen=True)
class KnownJudge(SentenceJudge):
    """Judges texts whose inputs are known already."""

    known: dict[str, Matrix] | None = None

    def judge(self, text: str, sentences: Sequence[Sentence], of_agent: bool) -> list[Judged]:
        assert self.known is not None
        assert self.weights is not None
        scores = score_inputs(self.known[text], self.weights) if sentences else []
        threshold, least = self.weights["threshold"], self.weights["least"]
        return [
            Judged(KINDS[int(np.argmax(one[:-1]))], bool(1 - one[-1] >= threshold), bool(1 - one[-1] < least))
            for one in scores
        ]


def choose_threshold(
    events: Sequence[tuple[str, dict[str, Any]]], known: dict[str, Matrix], found: dict[str, Weights], shows: bool
) -> float:
    """Return the lowest score at which few events with nothing to keep leave something, of authors not seen.

    Authors of close pairs of what lasts and what passes do not count: most sessions hold few of them.
    """
    chosen, scores = 1.0, {author: Score() for author in found}
    for threshold in np.arange(0.5, 1.0, 0.05):
        scores = {author: Score() for author in found}
        for author, event in events:
            judge = KnownJudge(lambda *_: None, found[author] | {"threshold": threshold, "least": LEAST}, known)
            scores[author].add(event, score_event(event, judge))
        usual = [score for author, score in scores.items() if not author.startswith(CLOSE_PAIRS)]
        false, empty = sum(one.false for one in usual), sum(one.empty for one in usual)
        kept, wanted = sum(one.kept for one in usual), sum(one.wanted for one in usual)
        click.echo(f"{threshold:.2f} kept {kept} of {wanted}, false {false} of {empty}")
        if false <= MAX_FALSE * empty:
            chosen = float(threshold)
            break
    for author, score in scores.items():
        click.echo(f"  {author:16} {score}")
        if shows:
            score.print_errors()
    return chosen


def save(weights: Weights) -> None:
    small = {name: np.asarray(value, np.float16 if np.ndim(value) else np.float32) for name, value in weights.items()}
    np.savez_compressed(OUT, **small)
    click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
