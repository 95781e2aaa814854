"""Train the model that tells which sentences of a message last, and write its weights into the package.

    python bench/capture/train.py                  trains on training/, the dev files and the released sets
    python bench/capture/train.py --check          only measures: people are scored with weights made without them
    python bench/capture/train.py --check --list   also lists what was missed and what was kept wrongly

Set-aside files are never read. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: eight times the CPU time with several

import click
import numpy as np
from measure import DEV, Measured, Message, hash_files, measure_messages, read_messages
from states import Adam, KeptStates, draw_mask, fit_in_processes

from engrain.core.model_weights import find_weights, pack_table
from engrain.core.text.passages import Sentence
from engrain.ingest import sentence_model
from engrain.ingest.gate import find_statements
from engrain.ingest.sentence_model import BUCKETS, KEPT_KINDS, VECTOR_SCALE, Verdict, hash_words, scale_words
from engrain.ports.search import TextStates

OUT = find_weights(sentence_model.WEIGHTS)
KINDS = (*KEPT_KINDS, "transient", "question", "hypothetical", "quoted", "sarcasm", "smalltalk", "other")
OUTPUTS = 1 + len(KEPT_KINDS)  # of the saved model: the other kinds only help the hidden layer to learn
# A span decides the label of a sentence if it covers half of one of the two.
MIN_OVERLAP = 0.5
FOLDS = 5
# Scores from which a sentence is kept. The lowest is chosen with which people not seen keep these limits: the share of
# right facts in single sentences, and the share of a chat's messages with nothing to keep that leave a fact.
THRESHOLDS = tuple(round(0.66 + 0.03 * step, 2) for step in range(8))
# 1 / 25 would choose .84, with which more changes lose one of two statements that both hold: see docs/capture.md.
MIN_PRECISION, MAX_BROKEN = 0.97, 1 / 25
CHOOSING = ("sentences", DEV, "people")  # parts by whose messages the threshold is chosen
# Below this score a statement of the rules is wrong more often than right: 9 right and 31 wrong of people not seen.
LEAST = 0.25
# From this score a statement is part of the profile.
SURE = 0.9
COMPONENTS, HIDDEN, MEMBERS, EPOCHS, BATCH = 256, 48, 3, 10, 128
DROPPED_INPUT, DROPPED_HIDDEN, KIND_SHARE = 0.2, 0.5, 0.3

Matrix = Any
ReadText = Callable[[str], TextStates]
Weights = dict[str, Matrix]


@dataclass(frozen=True, slots=True)
class Row:
    group: str
    kind: str
    states: Matrix
    vector: Matrix  # of the message
    words: list[int]

    @property
    def kept(self) -> bool:
        return self.kind in KEPT_KINDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--states", type=Path, help="a file that keeps the embedder's passes for the next script")
    options = parser.parse_args()
    kept = KeptStates(options.states)
    read = kept.read_text
    messages = list(read_messages())
    rows = list(read_rows(messages, read))
    kept.save()
    click.echo(f"{len(rows):,} sentences, {sum(row.kept for row in rows):,} to keep")
    folds = split_people(rows)
    basis = Basis.find(rows)
    # The last weights are of all rows: no fold has that number.
    numbers = range(FOLDS if options.check else FOLDS + 1)
    found = fit_in_processes(lambda fold: train([row for row in rows if folds[row.group] != fold], basis), numbers)
    found, whole = found[:FOLDS], found[-1]
    states = lru_cache(1_000)(read)

    def find_judge(group: str) -> Callable[[str, Sequence[Sentence]], list[Verdict]]:
        weights = found[folds[group]]
        return lambda text, sentences: sentence_model.judge_sentences(states(text), sentences, weights)

    def measure(threshold: float) -> dict[str, Measured]:
        for weights in found:
            weights |= {"threshold": threshold, "least": LEAST, "sure": SURE}
        return measure_messages([one for one in messages if one.part.endswith(CHOOSING)], find_judge)

    limits = {"threshold": choose_threshold(measure), "least": LEAST, "sure": SURE}
    for weights in found:
        weights |= limits
    if not options.check:
        save(whole | limits)
    for title, measured in measure_messages(messages, find_judge).items():
        click.echo(f"{title:10} {measured}")
        if options.list:
            measured.print_errors()


def save(weights: Weights) -> None:
    small = {name: np.asarray(value, np.float16 if np.ndim(value) else np.float32) for name, value in weights.items()}
    small |= pack_table("words", weights["words"]) | pack_table("hidden", weights["hidden"])
    np.savez_compressed(OUT, **small, data=np.array(hash_files()))
    click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def read_rows(messages: Sequence[Message], read: ReadText) -> Iterator[Row]:
    """Yield the sentences that the gate asks to judge, with the kind of the span that fills most of each."""
    for message in messages:
        asked: list[Sentence] = []

        def note(_: str, sentences: Sequence[Sentence], asked: list[Sentence] = asked) -> list[Verdict]:
            asked.extend(sentences)
            return []

        find_statements(message.text, message.before, note)
        if not asked:
            continue
        passed = read(message.text)
        states = passed.pool_spans([(one.start, one.end) for one in asked])
        words = hash_words(message.text, asked)
        for number, sentence in enumerate(asked):
            kind = choose_kind(message, sentence)
            if kind:
                yield Row(message.group, kind, states[number], passed.vector, words[number])


def choose_kind(message: Message, sentence: Sentence) -> str | None:
    """Return the kind of the span that fills most of the sentence; a span to keep comes first."""
    found: list[tuple[bool, int, str]] = []
    for start, end, kind in message.spans:
        overlap = min(end, sentence.end) - max(start, sentence.start)
        if overlap >= MIN_OVERLAP * min(end - start, sentence.end - sentence.start):
            found.append((kind in KEPT_KINDS, overlap, kind))
    return max(found)[2] if found else message.default


def split_people(rows: Sequence[Row]) -> dict[str, int]:
    """Return the fold of each person. Nobody is in two folds."""
    groups = sorted({row.group for row in rows}, key=lambda group: (group[::-1], group))
    return {group: number % FOLDS for number, group in enumerate(groups)}


@dataclass(frozen=True, slots=True)
class Basis:
    """The main components of the states, scaled so that the first do not outweigh the others. Labels have no part."""

    mean: Matrix
    spread: Matrix
    axes: Matrix

    @classmethod
    def find(cls, rows: Sequence[Row]) -> Basis:
        states = np.stack([row.states for row in rows]).astype(np.float32)
        mean, spread = states.mean(0), states.std(0) + 1e-3
        scaled = sentence_model.scale_states(states, mean, spread)
        variances, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
        return cls(mean, spread, (axes / np.sqrt(np.sqrt(np.maximum(variances, 1e-6))))[:, -COMPONENTS:])

    def project(self, rows: Sequence[Row]) -> Matrix:
        states = np.stack([row.states for row in rows]).astype(np.float32)
        parts = sentence_model.scale_states(states, self.mean, self.spread) @ self.axes
        return np.hstack([parts, np.stack([row.vector for row in rows]) * VECTOR_SCALE])

    def unfold(self, weights: Matrix) -> Matrix:
        """Return weights of the components and the vector as weights of the states and the vector."""
        return np.vstack([self.axes @ weights[:COMPONENTS], weights[COMPONENTS:]])


def train(rows: Sequence[Row], basis: Basis) -> Weights:
    """Train several networks that differ in their random start, and join them into one."""
    inputs, words = basis.project(rows), Words.collect(rows)
    wanted = np.array([[row.kept, *(row.kind == kind for kind in KINDS)] for row in rows], np.float32)
    members = [fit(inputs, words, wanted, seed) for seed in range(MEMBERS)]
    joined = {name: sum(one[name] for one in members) / MEMBERS for name in ("straight", "words", "bias")}
    return {
        "mean": basis.mean,
        "spread": basis.spread,
        "hidden": basis.unfold(np.hstack([one["hidden"] for one in members])),
        "hidden_bias": np.hstack([one["hidden_bias"] for one in members]),
        "out": np.vstack([one["out"] for one in members])[:, :OUTPUTS] / MEMBERS,
        "straight": basis.unfold(joined["straight"][:, :OUTPUTS]),
        "words": joined["words"][:-1],
        "bias": joined["bias"][:OUTPUTS],
    }


@dataclass(frozen=True, slots=True)
class Words:
    """The hashed words of rows: places in a table whose last row is for none, and the value of each word of a row."""

    places: Matrix
    values: Matrix

    @classmethod
    def collect(cls, rows: Sequence[Row]) -> Words:
        places = np.full((len(rows), max(len(row.words) for row in rows)), BUCKETS, np.int32)
        for some, row in zip(places, rows, strict=True):
            some[: len(row.words)] = row.words
        return cls(places, np.array([[scale_words(len(row.words))] for row in rows], np.float32))

    def choose(self, chosen: Matrix) -> Words:
        longest = int((self.places[chosen] < BUCKETS).sum(1).max())
        return Words(self.places[chosen, :longest], self.values[chosen])

    def score(self, table: Matrix) -> Matrix:
        return table[self.places].sum(1) * self.values

    def find_slope(self, error: Matrix, table: Matrix) -> Matrix:
        shares = np.repeat(error * self.values, self.places.shape[1], axis=0)
        flat = self.places.ravel()
        slope = np.stack([np.bincount(flat, share, len(table)) for share in shares.T], 1).astype(np.float32)
        slope[BUCKETS] = 0
        return slope


def fit(inputs: Matrix, words: Words, wanted: Matrix, seed: int) -> Weights:
    """Train one hidden layer over the states, beside a linear layer over states and words, by Adam with decay."""
    random = np.random.default_rng(seed)
    size, outputs = inputs.shape[1], wanted.shape[1]
    weights: Weights = {
        "hidden": random.normal(0, 1 / np.sqrt(size), (size, HIDDEN)),
        "hidden_bias": np.zeros(HIDDEN),
        "out": random.normal(0, 0.5 / np.sqrt(HIDDEN), (HIDDEN, outputs)),
        "straight": np.zeros((size, outputs)),
        "words": np.zeros((BUCKETS + 1, OUTPUTS)),
        "bias": np.zeros(outputs),
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    optimizer = Adam(weights, EPOCHS * (len(inputs) // BATCH))
    for _ in range(EPOCHS):
        order = random.permutation(len(inputs))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            some = inputs[chosen] * draw_mask(random, (BATCH, size), DROPPED_INPUT)
            mask = draw_mask(random, (BATCH, HIDDEN), DROPPED_HIDDEN)
            optimizer.step(find_slopes(weights, some, words.choose(chosen), wanted[chosen], mask))
    return weights


def find_slopes(weights: Weights, some: Matrix, words: Words, wanted: Matrix, mask: Matrix) -> Weights:
    before = some @ weights["hidden"] + weights["hidden_bias"]
    hidden = np.maximum(before, 0) * mask
    scores = hidden @ weights["out"] + some @ weights["straight"] + weights["bias"]
    scores[:, :OUTPUTS] += words.score(weights["words"])
    error = np.hstack([sigmoid(scores[:, :1]), softmax(scores[:, 1:])]) - wanted
    error[:, 1:] *= KIND_SHARE
    error /= len(some)
    back = (error @ weights["out"].T) * mask * (before > 0)
    return {
        "hidden": some.T @ back,
        "hidden_bias": back.sum(0),
        "out": hidden.T @ error,
        "straight": some.T @ error,
        "words": words.find_slope(error[:, :OUTPUTS], weights["words"]),
        "bias": error.sum(0),
    }


def sigmoid(values: Matrix) -> Matrix:
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def softmax(values: Matrix) -> Matrix:
    powers = np.exp(values - values.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def choose_threshold(measure: Callable[[float], dict[str, Measured]]) -> float:
    """Choose the lowest threshold that keeps both limits for authors whose texts the weights have not seen."""
    for threshold in THRESHOLDS:
        parts = measure(threshold)
        sentences = [one for name, one in parts.items() if name.endswith("sentences")]
        chats = [one for name, one in parts.items() if name == DEV or name.endswith("people")]
        precision = 1 - sum(len(one.false) for one in sentences) / sum(one.facts for one in sentences)
        broken = sum(len(one.broken) for one in chats) / sum(one.empty for one in chats)
        kept = 1 - sum(len(one.missed) for one in chats) / sum(one.wanted for one in chats)
        found = 1 - sum(len(one.missed) for one in sentences) / sum(one.wanted for one in sentences)
        click.echo(
            f"threshold {threshold}: sentences found {found:.3f}, precision {precision:.3f};"
            f" chats kept {kept:.3f}, messages with nothing to keep that left a fact {broken:.3f}"
        )
        if precision >= MIN_PRECISION and broken <= MAX_BROKEN:
            return threshold
    return THRESHOLDS[-1]


if __name__ == "__main__":
    sys.exit(main())
