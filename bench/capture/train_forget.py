"""Train the weights that find requests to forget, and those that tell which fact or message a request means.

    python bench/capture/train_forget.py            writes the weights into the package
    python bench/capture/train_forget.py --check    only scores each author's requests with the weights of the others

Made from the forget files of seven authors, forget-sentences.jsonl and, as sentences that ask for nothing, training
and the files of changes. Set-aside files are never read. Needs numpy alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import click
import numpy as np
from measure import CHANGES, FORGET_FILES, HERE, hash_forget_files, read_lines

from engrain.core.rules.forget_matters import read_topic
from engrain.core.rules.forget_requests import find_matter, is_candidate, list_matter_words, read_words
from engrain.core.text.passages import split_sentences, trim_span
from engrain.ingest import forget_intent, forget_targets
from engrain.ingest.forget_intent import FEATURES, list_columns, list_sentence_features
from engrain.ingest.forget_targets import WEIGHTS, Candidate, TopicVectors, choose_targets, compare_targets
from engrain.providers.local import LocalEmbedder

OUT = Path(__file__).parents[2] / "src" / "engrain" / "core" / "data" / WEIGHTS
ASKS = ("several", "none")  # requests that fit more than one thing, or nothing
TRAINED_WEIGHT = 0.6  # of a sentence of the training people
MAX_CHARACTERS = 600
# Of the training files: some of these do ask to forget something.
REQUESTS = ("requests",)
NURIA = "¿Lo de la terraza? Bórralo, anda."  # a request as well
STEPS, RATE, DECAY_INTENT, DECAY_STATE, DECAY_TARGET = 300, 0.3, 0.02, 1.0, 0.3
COMPONENTS, STATE_SCALE = 128, 3.0

Matrix = Any


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences of a text that may ask, each as columns of features, and whether the text asks."""

    author: str
    text: str
    columns: list[list[int]]
    states: Matrix  # of the same sentences
    asks: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request with what was said before it, and the places of what it means."""

    author: str
    text: str
    topic: str | None
    everything: bool
    vectors: TopicVectors | None
    found: list[Candidate]
    meant: list[int]
    certain: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true", help="list what goes wrong")
    options = parser.parse_args()
    embedder = LocalEmbedder()
    sentences, requests = list(read_sentences(embedder)), list(read_requests(embedder))
    for author in FORGET_FILES:
        weights = fit(
            [one for one in sentences if one.author != author], [one for one in requests if one.author != author]
        )
        with (
            patch.dict(forget_intent.__dict__, load_weights=partial(read_fitted, weights)),
            patch.dict(forget_targets.__dict__, load_weights=partial(read_fitted, weights)),
        ):
            report(author, sentences, requests, embedder, listed=options.list)
    if not options.check:
        np.savez_compressed(OUT, **fit(sentences, requests), data=np.array(hash_forget_files()))
        click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def read_fitted(weights: dict[str, Matrix], _: str) -> dict[str, Matrix]:
    return weights


def fit(sentences: Sequence[Sentences], requests: Sequence[Request]) -> dict[str, Matrix]:
    target, target_bias = fit_targets(requests)
    return fit_intent(sentences) | {"target": target, "target_bias": target_bias}


def read_sentences(embedder: LocalEmbedder) -> Iterator[Sentences]:
    for author, names in FORGET_FILES.items():
        for name in names:
            for one in read_lines(HERE / f"{name}.jsonl"):
                if one.get("type") == "note":
                    continue
                text = one.get("request") or one["text"]
                asks = one["asks"] if "asks" in one else one["certain"] or one["why"] in ASKS
                yield Sentences(author, text, *read_columns(text, embedder), asks)
    for path in sorted((HERE / "training").glob("*.jsonl")):
        for one in read_lines(path) if path.stem not in REQUESTS else ():
            text = one.get("text")
            if text and len(text) < MAX_CHARACTERS and text != NURIA:
                yield Sentences("training", text, *read_columns(text, embedder), False, TRAINED_WEIGHT)
    # News are close to requests: "sold the golf", "bin wieder in Deutschland".
    for name in (name for names in CHANGES.values() for name in names):
        for one in read_lines(HERE / f"{name}.jsonl"):
            for text in (one["first"], one["later"]) if "first" in one else ():
                yield Sentences("training", text, *read_columns(text, embedder), False, TRAINED_WEIGHT)


def read_columns(text: str, embedder: LocalEmbedder) -> tuple[list[list[int]], Matrix]:
    spans = [trim_span(text, one.start, one.end) for one in split_sentences(text)]
    words = [read_words(text[slice(*span)]) for span in spans]
    places = [k for k in range(len(words)) if is_candidate(words[k])]
    if not places:
        return [], np.zeros((0, 0))
    states = embedder.read_text(embedder.windows(text)[0]).pool_spans([spans[k] for k in places])
    return [list_columns(list_sentence_features(words, k)) for k in places], states


def read_requests(embedder: LocalEmbedder) -> Iterator[Request]:
    for author, names in FORGET_FILES.items():
        records = [one for name in names for one in read_lines(HERE / f"{name}.jsonl") if "request" in one]
        for one in records:
            if not one["certain"] and one["why"] not in ASKS:
                continue
            matter = find_matter(one["request"])
            topic = matter.text if matter else None
            every = any("every" in word.classes for word in read_words(one["request"]))
            texts = [message["text"] for message in one["messages"]]
            vectors = None
            if topic:
                rows = embedder.embed([" ".join(list_matter_words(topic)) or topic, topic], "query")
                vectors = TopicVectors(rows[0], rows[1])
            found = [
                Candidate(SimpleNamespace(id=f"{k:02}", text=text), (0, len(text)), row)  # type: ignore[arg-type]
                for k, (text, row) in enumerate(zip(texts, embedder.embed(texts, "document"), strict=True))
            ]
            meant = [k for k, message in enumerate(one["messages"]) if message["id"] in one["targets"]]
            yield Request(author, one["request"], topic, every, vectors, found, meant, one["certain"])


def fit_intent(sentences: Sequence[Sentences]) -> dict[str, Matrix]:
    """Fit one score that is linear in hashed features and in the main components of the states."""
    rows, states, wanted, weights = [], [], [], []
    for one in sentences:
        # Of a text that asks, the sentence with the first word for forgetting is the request.
        for found_in, state in list(zip(one.columns, one.states, strict=True))[: 1 if one.asks else None]:
            rows.append(found_in)
            states.append(state)
            wanted.append(float(one.asks))
            weights.append(one.weight)
    sizes = np.array([len(one) for one in rows])
    places, columns = np.repeat(np.arange(len(rows)), sizes), np.concatenate(rows)
    scale, labels, shares = 1 / np.sqrt(sizes), np.array(wanted), np.array(weights)
    mean, axes = find_components(np.stack(states))
    inner = (np.stack(states) - mean) @ axes

    def slope(found: Matrix) -> Matrix:
        words, own = found[:FEATURES], found[FEATURES:-1]
        scores = np.bincount(places, words[columns] * scale[places], minlength=len(rows)) + inner @ own + found[-1]
        errors = (1 / (1 + np.exp(-scores)) - labels) * shares
        hashed = np.bincount(columns, (errors * scale)[places], minlength=FEATURES) + DECAY_INTENT * words
        return np.concatenate([hashed, inner.T @ errors + DECAY_STATE * own, [errors.sum()]])

    found = descend(slope, FEATURES + COMPONENTS + 1, STEPS, RATE)
    return {
        "intent": found[:FEATURES].astype(np.float16), "intent_bias": np.float32(found[-1]),
        "intent_state": (axes @ found[FEATURES:-1]).astype(np.float32), "intent_mean": mean.astype(np.float16),
    }  # fmt: skip


def find_components(states: Matrix) -> tuple[Matrix, Matrix]:
    mean, spread = states.mean(0), states.std(0) + 1e-3
    scaled = (states - mean) / spread
    variances, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    return mean, STATE_SCALE * axes[:, -COMPONENTS:] / np.sqrt(variances[-COMPONENTS:] * COMPONENTS) / spread[:, None]


def fit_targets(requests: Sequence[Request]) -> tuple[Matrix, Matrix]:
    named = [one for one in requests if one.topic]
    rows = np.array([row for one in named for row in build_rows(one)])
    wanted = np.array([float(k in one.meant) for one in named for k in range(len(one.found))])
    mean, spread = rows.mean(0), rows.std(0) + 1e-6
    scaled = np.hstack([(rows - mean) / spread, np.ones((len(rows), 1))])

    def slope(found: Matrix) -> Matrix:
        errors = 1 / (1 + np.exp(-scaled @ found)) - wanted
        return scaled.T @ errors + DECAY_TARGET * np.append(found[:-1], 0)

    found = descend(slope, scaled.shape[1], STEPS, RATE / 3)
    weights = found[:-1] / spread
    return weights.astype(np.float32), np.float32(found[-1] - (mean * weights).sum())


def build_rows(one: Request) -> list[list[float]]:
    topic = read_topic(one.topic or "", one.everything)
    return compare_targets(topic, one.vectors, [(each.text, each.vector) for each in one.found])


def descend(slope: Any, size: int, steps: int, rate: float) -> Matrix:
    found, first, second = (np.zeros(size) for _ in range(3))
    for step in range(1, steps + 1):
        now = slope(found)
        first, second = 0.9 * first + 0.1 * now, 0.99 * second + 0.01 * now * now
        pace = rate * (1 - 0.9 * step / steps)
        found -= pace * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return found


def report(
    author: str, sentences: Sequence[Sentences], requests: Sequence[Request], embedder: LocalEmbedder, *, listed: bool
) -> None:
    """Score an author with the weights in use: which texts ask, and what is meant where they do."""
    counts: Counter[tuple[str, bool, str]] = Counter()
    for one in (each for each in sentences if each.author == author):
        asks = bool(forget_intent.find_forget_topics(one.text, embedder.read_text(embedder.windows(one.text)[0])))
        counts["asks", one.asks, "right" if asks == one.asks else "wrong"] += 1
        if listed and asks != one.asks:
            click.echo(f"  {'missed' if one.asks else 'no request'}: {one.text}")
    for each in (one for one in requests if one.author == author):
        cut = find_cut(each)
        wanted = set(each.meant) if each.certain else set()
        outcome = "right" if cut == wanted else "wrong" if cut - wanted else "missed"
        counts["means", each.certain, outcome] += 1
        if listed and outcome != "right":
            texts = [f"{'*' if k in each.meant else ''}{one.text}" for k, one in enumerate(each.found)]
            click.echo(f"  {outcome}: {each.text} | {each.topic} | {texts} -> {sorted(cut)}")
    for name in ("asks", "means"):
        for certain in (True, False):
            shown = ", ".join(f"{one} {counts[name, certain, one]}" for one in ("right", "wrong", "missed"))
            click.echo(f"{author:<6} {name}, {'something' if certain else 'nothing'} to cut: {shown}")


def find_cut(one: Request) -> set[int]:
    if one.topic is None:
        return set()
    if not one.topic:
        return {len(one.found) - 1}
    chosen, certain = choose_targets(read_topic(one.topic, one.everything), one.vectors, one.found)
    return {int(each.item.id) for each in chosen} if certain else set()


if __name__ == "__main__":
    main()
