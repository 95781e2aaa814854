"""Train the model that tells whose words the parts of a message are, and write its weights into the package.

    python bench/hostile/train_whose_words.py            scores authors with weights of others, then writes
    python bench/hostile/train_whose_words.py --check    only scores

`whose_texts.py` reads and mixes the texts. Set-aside files are never read. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: several threads take more time than one

import click
import numpy as np
from whose_texts import FOLDS, OWN, UNKNOWN, Text, hash_texts, read_texts

from engrain.core.model_weights import find_weights, pack_table
from engrain.ingest import whose_words
from engrain.ingest.whose_words import (
    BUCKETS,
    MIN_OWN,
    MIN_PLAIN,
    MIN_SURE,
    describe_parts,
    hash_parts,
    join_inputs,
    scale_words,
    score_parts,
)
from engrain.providers.local import local_embedder

OUT = find_weights(whose_words.WEIGHTS)
COMPONENTS, HIDDEN, MEMBERS, EPOCHS, BATCH = 96, 32, 3, 10, 128
RATE, DECAY, DROPPED_INPUT, DROPPED_HIDDEN = 4e-3, 0.05, 0.25, 0.4
BASIS_ROWS = 8_000
# How much a part of a text of each kind counts: of others, own.
SHARES = {
    "paste": (2.5, 3.0),
    "ordinary": (2.0, 2.0),
    "plain": (1.0, 1.0),
    "framed": (0.6, 0.6),
    "beside": (0.5, 1.0),
    "joined": (0.7, 0.7),
}

Matrix = Any
Weights = dict[str, Matrix]


@dataclass(slots=True)
class Row:
    """A text with the inputs of its parts that the embedder reads."""

    text: Text
    states: Matrix
    vector: Matrix
    shape: Matrix
    words: list[list[int]]
    inputs: Matrix = None

    @property
    def labels(self) -> Sequence[int]:
        return self.text.labels[: len(self.words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that read texts")
    options = parser.parse_args()
    rows = read_rows(read_texts(), options.jobs)
    mean, axes = find_basis(rows)
    for row in rows:
        row.inputs = join_inputs((row.states - mean) @ axes, row.vector, row.shape)
    click.echo(f"{len(rows):,} texts, {sum(len(row.words) for row in rows):,} parts")
    scores: dict[str, list[float]] = defaultdict(list)
    for number in range(len(FOLDS)):
        aside = [is_set_aside(row.text, number) for row in rows]
        weights = train([row for row, one in zip(rows, aside, strict=True) if not one])
        found = score_rows([row for row, one in zip(rows, aside, strict=True) if one], weights)
        for name, some in found.items():
            scores[name] += some
        click.echo(f"{', '.join(FOLDS[number])}: {describe_scores(found)}")
    click.echo(f"all: {describe_scores(scores)}")
    if not options.check:
        made = train(rows) | {"mean": mean, "axes": axes}
        small = {name: np.asarray(value, np.float16) for name, value in made.items()}
        small |= pack_table("words", made["words"]) | pack_table("hidden", made["hidden"])
        np.savez_compressed(OUT, **small, data=np.array(hash_texts()))
        click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def read_rows(texts: Sequence[Text], jobs: int) -> list[Row]:
    """Read each text alone, in several processes: the rows do not depend on their number."""
    with get_context("spawn").Pool(jobs) as pool:
        read = pool.imap(read_row, texts, chunksize=50)
        return [Row(text, *found) for text, found in zip(texts, read, strict=True) if found]


def read_row(text: Text) -> tuple[Matrix, Matrix, Matrix, list[list[int]]] | None:
    embedder = local_embedder()
    passed = embedder.read_text(embedder.windows(text.text)[0])
    parts = [one for one in text.parts if one.end <= len(passed.text)]
    if not parts:
        return None
    pooled = passed.pool_spans([(one.start, one.end) for one in parts])
    shape = describe_parts(text.text, text.shown, parts)
    return pooled, passed.vector, shape, hash_parts(text.shown, parts)


def is_set_aside(text: Text, number: int) -> bool:
    """Tell if a text is of a fold: of its authors of pastes, or of a share of the people."""
    if text.kind in ("plain", "joined"):
        return zlib.crc32(text.author.encode()) % len(FOLDS) == number
    return text.author in FOLDS[number]


def find_basis(rows: Sequence[Row]) -> tuple[Matrix, Matrix]:
    """Return the mean of the states and their main components, scaled so that the first do not outweigh the others."""
    states = np.vstack([row.states for row in rows]).astype(np.float32)
    some = states[np.random.default_rng(0).permutation(len(states))[:BASIS_ROWS]]
    mean, spread = some.mean(0), some.std(0) + 1e-3
    scaled = (some - mean) / spread
    variances, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    axes = axes[:, -COMPONENTS:] / np.maximum(variances[-COMPONENTS:], 1e-6) ** 0.25
    return mean, (axes / spread[:, None] * (8 / np.sqrt(len(mean)))).astype(np.float32)


def train(rows: Sequence[Row]) -> Weights:
    """Train several networks that differ in their random start, and join them into one."""
    samples = Samples.collect(rows)
    members = [fit(samples, seed) for seed in range(MEMBERS)]
    return {
        "hidden": np.hstack([one["hidden"] for one in members]),
        "hidden_bias": np.hstack([one["hidden_bias"] for one in members]),
        "out": np.vstack([one["out"] for one in members]) / MEMBERS,
        "straight": sum(one["straight"] for one in members) / MEMBERS,
        "words": sum(one["words"] for one in members)[:-1] / MEMBERS,
        "bias": sum(one["bias"] for one in members) / MEMBERS,
    }


@dataclass(frozen=True, slots=True)
class Samples:
    """Labelled parts. `places` are hashed words in a table whose last row is for none."""

    inputs: Matrix
    places: Matrix
    values: Matrix
    wanted: Matrix
    shares: Matrix

    @classmethod
    def collect(cls, rows: Sequence[Row]) -> Samples:
        known = [(row, k, label) for row in rows for k, label in enumerate(row.labels) if label != UNKNOWN]
        words = [row.words[k] for row, k, _ in known]
        places = np.full((len(words), max(map(len, words))), BUCKETS, np.int32)
        for some, found in zip(places, words, strict=True):
            some[: len(found)] = found
        return cls(
            np.stack([row.inputs[k] for row, k, _ in known]),
            places,
            np.array([[scale_words(len(one))] for one in words], np.float32),
            np.array([[label] for *_, label in known], np.float32),
            np.array([[SHARES[row.text.kind][label]] for row, _, label in known], np.float32),
        )


def fit(samples: Samples, seed: int) -> Weights:
    """Train one hidden layer beside a linear layer over inputs and words, by Adam with decay."""
    random = np.random.default_rng(seed)
    count, size = samples.inputs.shape
    weights: Weights = {
        "hidden": random.normal(0, 1 / np.sqrt(size), (size, HIDDEN)),
        "hidden_bias": np.zeros(HIDDEN),
        "out": random.normal(0, 0.5 / np.sqrt(HIDDEN), (HIDDEN, 1)),
        "straight": np.zeros((size, 1)),
        "words": np.zeros((BUCKETS + 1, 1)),
        "bias": np.zeros(1),
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    first = {name: np.zeros_like(value) for name, value in weights.items()}
    second = {name: np.zeros_like(value) for name, value in weights.items()}
    step, steps = 0, EPOCHS * (count // BATCH)
    for _ in range(EPOCHS):
        order = random.permutation(count)
        for start in range(0, count - BATCH + 1, BATCH):
            step += 1
            slopes = find_slopes(weights, samples, order[start : start + BATCH], random)
            for name, slope in slopes.items():
                first[name] += 0.1 * (slope - first[name])
                second[name] += 0.01 * (slope * slope - second[name])
                scaled = first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.99**step)) + 1e-8)
                decay = DECAY * weights[name] * (weights[name].ndim > 1)
                weights[name] -= RATE * (1 - (step - 1) / steps) * (scaled + decay)
    return weights


def find_slopes(weights: Weights, samples: Samples, chosen: Matrix, random: np.random.Generator) -> Weights:
    inputs, places, values = samples.inputs[chosen], samples.places[chosen], samples.values[chosen]
    places = places[:, : int((places < BUCKETS).sum(1).max())]
    inputs = inputs * draw_mask(random, inputs.shape, DROPPED_INPUT)
    before = inputs @ weights["hidden"] + weights["hidden_bias"]
    mask = draw_mask(random, before.shape, DROPPED_HIDDEN)
    hidden = np.maximum(before, 0) * mask
    known = weights["words"][places].sum(1) * values
    scores = hidden @ weights["out"] + inputs @ weights["straight"] + known + weights["bias"]
    error = (sigmoid(scores) - samples.wanted[chosen]) * samples.shares[chosen] / len(chosen)
    back = (error @ weights["out"].T) * mask * (before > 0)
    words = np.bincount(places.ravel(), np.repeat(error * values, places.shape[1]), BUCKETS + 1)
    words[BUCKETS] = 0
    return {
        "hidden": inputs.T @ back,
        "hidden_bias": back.sum(0),
        "out": hidden.T @ error,
        "straight": inputs.T @ error,
        "words": words.astype(np.float32)[:, None],
        "bias": error.sum(0),
    }


def draw_mask(random: np.random.Generator, shape: tuple[int, ...], dropped: float) -> Matrix:
    return (random.random(shape, np.float32) >= dropped).astype(np.float32) / (1 - dropped)


def sigmoid(values: Matrix) -> Matrix:
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def score_rows(rows: Sequence[Row], weights: Weights) -> dict[str, list[float]]:
    """Return the chances of the parts, by what they are: of others, own beside a paste, or in an ordinary message."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.text.kind in ("framed", "beside"):
            continue
        chances = sigmoid(score_parts(row.inputs, row.words, weights))
        for label, chance in zip(row.labels, chances, strict=True):
            if label != UNKNOWN:
                name = row.text.kind if label == OWN else "others"
                found["own" if name == "paste" else name].append(float(chance))
    return found


def describe_scores(scores: dict[str, list[float]]) -> str:
    """Say which share of the parts of each kind reaches the three limits."""
    return "; ".join(
        f"{name} {len(some)}: " + " ".join(f"{np.mean(np.array(some) >= limit):.3f}" for limit in LIMITS)
        for name, some in sorted(scores.items())
    )


LIMITS = (MIN_PLAIN, MIN_OWN, MIN_SURE)

if __name__ == "__main__":
    sys.exit(main())
