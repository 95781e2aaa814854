"""Train the weights that tell which fact or message a request to forget means. Run it after train_aspects.py.

    python bench/capture/train_forget.py            writes the weights into the package
    python bench/capture/train_forget.py --check    only scores each author's requests with the weights of the other

Made from forget-dev.jsonl and forget-more.jsonl. Set-aside files are never read. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from measure import HERE, hash_files, read_lines

from engrain.core.rules.forget_requests import find_forget_topics
from engrain.ingest.forget_targets import WEIGHTS, Candidate, compare_target, list_topic_words
from engrain.providers.local import LocalEmbedder

OUT = Path(__file__).parents[2] / "src" / "engrain" / "core" / "data" / WEIGHTS
AUTHORS = ("forget-dev", "forget-more")
NAMED = ("topic", "aspect", "entity", "value", "several")  # requests with targets that they name
DECAY, STEPS, RATE, MIN_CHANCE = 0.3, 500, 0.05, 0.5

Matrix = Any


@dataclass(frozen=True, slots=True)
class Request:
    """The features of a request and each message before it, and the places of the messages that it means."""

    author: str
    rows: Matrix
    meant: list[int]
    certain: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    embedder = LocalEmbedder()
    requests = [one for author in AUTHORS for one in read_requests(author, embedder)]
    for author in AUTHORS:
        found = fit([one for one in requests if one.author != author])
        report(author, [one for one in requests if one.author == author], found)
    found = fit(requests)
    report("all, seen", requests, found)
    if not options.check:
        weights = {"target": found[:-1].astype(np.float32), "target_bias": np.float32(found[-1])}
        np.savez_compressed(OUT, **weights, data=np.array(hash_files()))
        click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def read_requests(author: str, embedder: LocalEmbedder) -> list[Request]:
    requests = []
    for record in read_lines(HERE / f"{author}.jsonl"):
        topics = [] if record.get("type") == "note" else find_forget_topics(record["request"])
        if len(topics) != 1 or not topics[0].topic:
            continue
        topic = topics[0].topic
        vector = embedder.embed([topic], "query")[0]
        texts = [one["text"] for one in record["messages"]]
        rows = [
            compare_target(topic, list_topic_words(topic), vector, build_candidate(text, row))
            for text, row in zip(texts, embedder.embed(texts, "document"), strict=True)
        ]
        places = {one["id"]: place for place, one in enumerate(record["messages"])}
        meant = [places[id] for id in record["targets"]] if record["why"] in NAMED else []
        requests.append(Request(author, np.array(rows, np.float32), meant, record["certain"]))
    return requests


def build_candidate(text: str, vector: Matrix) -> Candidate:
    return Candidate(SimpleNamespace(text=text), (0, len(text)), vector)  # type: ignore[arg-type]


def fit(requests: Sequence[Request]) -> Matrix:
    """Fit a multinomial choice: each message has a score, and "none of them" has the score 0. The bias comes last."""
    found, first, second = (np.zeros(requests[0].rows.shape[1] + 1) for _ in range(3))
    for step in range(1, STEPS + 1):
        slope = DECAY * np.append(found[:-1], 0)
        for one in requests:
            rows = np.hstack([one.rows, np.ones((len(one.rows), 1))])
            powers = np.exp(np.clip(rows @ found, -30, 30))
            wanted = np.zeros(len(rows))
            wanted[one.meant] = 1 / max(1, len(one.meant))
            slope += rows.T @ (powers / (1 + powers.sum()) - wanted)
        slope /= len(requests)
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope * slope
        rate = RATE * (1 - 0.9 * step / STEPS)
        found -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return found


def report(title: str, requests: Sequence[Request], found: Matrix) -> None:
    counts: Counter[tuple[bool, str]] = Counter()
    for one in requests:
        powers = np.exp(np.clip(one.rows @ found[:-1] + found[-1], -30, 30))
        chance = powers / (1 + powers.sum())
        best = int(chance.argmax())
        certain = chance[best] >= MIN_CHANCE
        outcome = (
            "right"
            if certain == one.certain and (not certain or best in one.meant)
            else "wrong"
            if certain
            else "missed"
        )
        counts[one.certain, outcome] += 1
    for certain in (True, False):
        shown = ", ".join(f"{name} {counts[certain, name]}" for name in ("right", "wrong", "missed"))
        click.echo(f"{title:<12} {'one is meant' if certain else 'several or none'}: {shown}")


if __name__ == "__main__":
    sys.exit(main())
