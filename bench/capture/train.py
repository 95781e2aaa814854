"""Train the model that tells which sentences of a message last, and write its weights into the package.

    python bench/capture/train.py            trains on training/, dev personas and dev sentences
    python bench/capture/train.py --check    also scores half of the personas with the weights of the other half

Set-aside files are never read. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from engrain.core.text.passages import Sentence, split_sentences
from engrain.ingest.sentence_model import KEPT_KINDS, WEIGHTS, hash_words, join_fragments, scale_states
from engrain.providers.local import LocalEmbedder

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "src" / "engrain" / "core" / "data" / WEIGHTS
# A span decides the label of a sentence if it covers half of one of the two.
MIN_OVERLAP = 0.5
STEPS, RATE, DECAY = 250, 0.05, 3e-4
# Share of the sentences of dev personas to leave out that may pass the threshold, with the weights of half the people.
MAX_FALSE = 0.05

Matrix = Any


@dataclass(frozen=True, slots=True)
class Row:
    group: str
    kind: str
    states: Matrix
    words: Matrix

    @property
    def kept(self) -> bool:
        return self.kind in KEPT_KINDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = list(read_rows())
    click.echo(f"{len(rows):,} sentences, {sum(row.kept for row in rows):,} to keep")
    weights = train(rows)
    scores = cross_validate(rows)
    weights["threshold"] = np.float32(choose_threshold(rows, scores))
    report(rows, scores, float(weights["threshold"]))
    if not options.check:
        np.savez_compressed(
            OUT,
            **{
                name: np.asarray(value, np.float16 if np.ndim(value) else np.float32) for name, value in weights.items()
            },
        )
        click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def read_rows() -> Iterator[Row]:
    embedder = LocalEmbedder()
    for group, text, parts, default in read_messages():
        sentences = join_fragments(text, split_sentences(text))
        states = embedder.pool_spans(text, [(one.start, one.end) for one in sentences])
        words = hash_words(text, sentences)
        for number, sentence in enumerate(sentences):
            kind = choose_kind(text, parts, sentence) or default
            if kind:
                yield Row(group, kind, states[number], words[number])


def read_messages() -> Iterator[tuple[str, str, list[tuple[str, str]], str | None]]:
    """Yield (persona, text, [(span, kind)], kind of a sentence with no span)."""
    for path in sorted((HERE / "training").glob("*.jsonl")):
        for record in read_lines(path):
            if record["type"] == "message":
                yield path.stem, record["text"], [(part["text"], part["kind"]) for part in record["parts"]], None
    for record in read_lines(HERE / "sentences-dev.jsonl"):
        if "kind" in record:
            yield (
                f"sentences {zlib.crc32(record['id'].encode()) % 8}",
                record["text"],
                [(record["text"], record["kind"])],
                None,
            )
    for path in sorted((HERE / "personas" / "dev").glob("*.jsonl")):
        for record in read_lines(path):
            if record["type"] == "message" and record["role"] == "user":
                spans = [(one["text"], guess_kind(one["aspect"])) for one in record["keeps"]]
                default = None if spans or record["may"] else "other"
                yield path.stem, record["text"], spans, default


def guess_kind(aspect: str) -> str:
    return "instruction" if any(word in aspect for word in ("style", "instruction", "rule", "wish")) else "fact"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def choose_kind(text: str, parts: Sequence[tuple[str, str]], sentence: Sentence) -> str | None:
    """Return the kind of the span that fills most of the sentence; a span to keep comes first."""
    found: list[tuple[bool, int, str]] = []
    position = 0
    for part, kind in parts:
        start = max(text.find(part, position), text.find(part) if text.find(part, position) < 0 else 0)
        end = position = start + len(part)
        overlap = min(end, sentence.end) - max(start, sentence.start)
        if overlap >= MIN_OVERLAP * min(end - start, sentence.end - sentence.start):
            found.append((kind in KEPT_KINDS, overlap, kind))
    return max(found)[2] if found else None


def build_matrix(rows: Sequence[Row], mean: Matrix, spread: Matrix) -> Matrix:
    states = scale_states(np.stack([row.states for row in rows]), mean, spread)
    return np.hstack([states, np.stack([row.words for row in rows])])


def measure_states(rows: Sequence[Row]) -> tuple[Matrix, Matrix]:
    states = np.stack([row.states for row in rows])
    return states.mean(0), states.std(0) + 1e-3


def train(rows: Sequence[Row]) -> dict[str, Matrix]:
    mean, spread = measure_states(rows)
    matrix = build_matrix(rows, mean, spread)
    kept = np.array([row.kept for row in rows])
    keep, bias = fit(matrix, kept[:, None].astype(np.float32), sigmoid)
    classes = np.array([[row.kind == kind for kind in KEPT_KINDS] for row in rows], np.float32)
    kinds, kind_bias = fit(matrix[kept], classes[kept], softmax)
    return {
        "mean": mean, "spread": spread, "keep": keep[:, 0], "keep_bias": bias[0], "kind": kinds, "kind_bias": kind_bias,
    }  # fmt: skip


def fit(rows: Matrix, wanted: Matrix, link: Callable[[Matrix], Matrix]) -> tuple[Matrix, Matrix]:
    """Logistic regression by Adam, over all rows at once; repeatable, because it starts from zero."""
    weights = np.zeros((rows.shape[1], wanted.shape[1]), np.float32)
    bias = np.zeros(wanted.shape[1], np.float32)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        error = (link(rows @ weights + bias) - wanted) / len(rows)
        slope = rows.T @ error + DECAY * weights
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope * slope
        rate = RATE * (1 - 0.9 * step / STEPS)
        weights -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        bias -= error.sum(0)
    return weights, bias


def sigmoid(values: Matrix) -> Matrix:
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def softmax(values: Matrix) -> Matrix:
    powers = np.exp(values - values.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def cross_validate(rows: Sequence[Row]) -> Matrix:
    """Score each persona with weights that were made without it, and without its half of the others."""
    groups = sorted({row.group for row in rows})
    half = np.array([groups.index(row.group) % 2 for row in rows])
    scores = np.zeros(len(rows))
    for side in (0, 1):
        known = [row for row, other in zip(rows, half, strict=True) if other != side]
        mean, spread = measure_states(known)
        keep, bias = fit(
            build_matrix(known, mean, spread), np.array([[row.kept] for row in known], np.float32), sigmoid
        )
        unknown = [row for row, other in zip(rows, half, strict=True) if other == side]
        scores[half == side] = sigmoid(build_matrix(unknown, mean, spread) @ keep + bias)[:, 0]
    return scores


def choose_threshold(rows: Sequence[Row], scores: Matrix) -> float:
    """Return the score that only few of the sentences to leave out reach.

    Of the dev personas: the other files have far more near misses than people write.
    """
    wrong = np.sort([score for row, score in zip(rows, scores, strict=True) if not row.kept and is_persona(row)])
    return float(wrong[int(len(wrong) * (1 - MAX_FALSE))])


def report(rows: Sequence[Row], scores: Matrix, threshold: float) -> None:
    for title, belongs in (("all", lambda _: True), ("personas", is_persona)):
        chosen = [(row, score >= threshold) for row, score in zip(rows, scores, strict=True) if belongs(row)]
        kept = [passed for row, passed in chosen if row.kept]
        wrong = [passed for row, passed in chosen if not row.kept]
        counts = f"kept {sum(kept)}/{len(kept)}, false {sum(wrong)}/{len(wrong)}"
        click.echo(f"{title:10} {counts}, threshold {threshold:.2f}")


def is_persona(row: Row) -> bool:
    return row.group in DEV


DEV = frozenset(path.stem for path in (HERE / "personas" / "dev").glob("*.jsonl"))

if __name__ == "__main__":
    sys.exit(main())
