"""Train the weights that tell the aspect of a statement, and which older statement a new one ends.

    python bench/capture/train_aspects.py            writes the weights into the package
    python bench/capture/train_aspects.py --check    only scores each fold with the weights of the others

Aspects come from training/, the dev sentences and the dev personas; changes from the dev changes and the dev personas.
Set-aside files are never read. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from engrain.core.model.items import Statement
from engrain.ingest import changes
from engrain.ingest.changes import WEIGHTS, Said, compare, read_statement
from engrain.ingest.gate import find_statements
from engrain.providers.local import LocalEmbedder

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "src" / "engrain" / "core" / "data" / WEIGHTS
RIDGE, DECAY, STEPS, RATE, FOLDS = 1.0, 1.0, 400, 0.1, 6
# A change alone in its memory, and among facts of somebody: how many of these, and how much each kind of set counts.
OTHERS, CANDIDATES = 12, 20
WEIGHT_ALONE, WEIGHT_AMONG, WEIGHT_BOTH = 1.0, 0.7, 2.0
# Labels of the sets that mean one aspect. Those of DROPPED say how something is said, not what about.
MERGED = {
    "age": "birthday", "home": "address", "origin": "nationality", "contact": "phone email account",
    "family": "children friend", "health": "medication status", "leisure": "sport music media hobby", "travel": "trip",
    "date": "appointment deadline event", "plan": "goal", "vehicle": "transport", "money": "price budget",
    "routine": "schedule", "tool": "stack library version architecture config", "workflow": "command deploy",
    "team": "manager", "style": "answer-style instruction",
}  # fmt: skip
DROPPED = frozenset(("none", "other", "decision", "preference", "cause", "supplier", "achievement", "membership"))
ASPECT_OF = {label: aspect for aspect, labels in MERGED.items() for label in labels.split()}

Matrix = Any


@dataclass(frozen=True, slots=True)
class Choice:
    """A new statement and what it may end: `right` is the place of the right one, -1 for none."""

    group: str
    title: str
    rows: Matrix
    right: int
    weight: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    embedder = LocalEmbedder()
    weights = train_aspects(embedder)
    changes.load_weights = lambda: weights  # type: ignore[assignment]  # the features use the new aspects
    choices = list(read_choices(embedder))
    click.echo(f"{len(choices)} choices, {sum(one.right >= 0 for one in choices)} of them with a change")
    report(choices)
    found = fit(choices)
    weights |= {"change": found[:-1].astype(np.float32), "change_bias": np.float32(found[-1])}
    if not options.check:
        plain = {name: value.astype(np.float16) if name == "aspects" else value for name, value in weights.items()}
        np.savez_compressed(OUT, **plain)
        click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def train_aspects(embedder: LocalEmbedder) -> dict[str, Any]:
    """Fit one linear score per aspect, by ridge regression over the vectors of statements."""
    labelled = [(text, ASPECT_OF.get(label, label)) for text, label in read_statements() if label not in DROPPED]
    names = sorted({aspect for _, aspect in labelled})
    vectors = embedder.embed([text for text, _ in labelled], "document")
    wanted = np.array([[aspect == name for name in names] for _, aspect in labelled], np.float32)
    middle, share = vectors.mean(0), wanted.mean(0)
    spread = vectors - middle
    scores = np.linalg.solve(spread.T @ spread + RIDGE * np.eye(spread.shape[1]), spread.T @ (wanted - share))
    click.echo(f"{len(labelled):,} statements, {len(names)} aspects")
    return {
        "names": np.array(names), "aspects": scores.astype(np.float32),
        "aspects_bias": (share - middle @ scores).astype(np.float32),
    }  # fmt: skip


def read_statements() -> Iterator[tuple[str, str]]:
    for path in sorted((HERE / "training").glob("*.jsonl")):
        for record in read_lines(path):
            yield from ((part["text"], part["aspect"]) for part in record.get("parts", ()))
    yield from ((one["text"], one["aspect"]) for one in read_lines(HERE / "sentences-dev.jsonl") if one.get("keep"))
    for path in list_personas():
        yield from ((one["text"], one["aspect"]) for one, _ in read_keeps(path))


def read_choices(embedder: LocalEmbedder) -> Iterator[Choice]:
    known: dict[str, Said] = {}

    def read(text: str) -> Said:
        if text not in known:
            slot = next((one.slot for one in find_statements(text) if isinstance(one, Statement)), None)
            known[text] = read_statement(text, embedder.embed([text], "document")[0], slot)
        return known[text]

    def build(group: str, title: str, new: str, old: Sequence[str], right: int, weight: float) -> Choice:
        return Choice(group, title, np.stack([compare(read(new), read(one)) for one in old]), right, weight)

    people = {path.stem: [one for one, _ in read_keeps(path)] for path in list_personas()}
    english = [[one["text"] for one in people[name]] for name in ("harold", "kit", "nora")]
    random = np.random.RandomState(1)
    for number, record in enumerate(read_lines(HERE / "changes-dev.jsonl")):
        right, factor = (0, 1.0) if record["expect"] == "new" else (-1, WEIGHT_BOTH)
        group, new, old = record["id"], record["later"], record["first"]
        yield build(group, f"alone, {record['expect']}", new, [old], right, WEIGHT_ALONE * factor)
        others = random.choice(english[number % 3], OTHERS, replace=False)
        yield build(group, f"among, {record['expect']}", new, [old, *others], right, WEIGHT_AMONG * factor)
    for path in list_personas():
        yield from read_persona_choices(path, read, build)


def read_persona_choices(path: Path, read: Any, build: Any) -> Iterator[Choice]:
    said: list[tuple[dict[str, Any], str]] = []
    for one, message in read_keeps(path):
        earlier = [other for other, where in said if where != message]
        said.append((one, message))
        new = read(one["text"])
        earlier.sort(key=lambda other: -float(new.vector @ read(other["text"]).vector))
        near = earlier[:CANDIDATES]
        right = next((place for place, other in enumerate(near) if other["id"] == one["replaces"]), -1)
        if near and (right >= 0 or one["replaces"] is None):
            title = "persona, new" if right >= 0 else "persona, both"
            yield build(path.stem, title, one["text"], [other["text"] for other in near], right, 1.0)


def list_personas() -> list[Path]:
    return sorted((HERE / "personas" / "dev").glob("*.jsonl"))


def read_keeps(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    for record in read_lines(path):
        yield from ((one, record["id"]) for one in record.get("keeps", ()) if record.get("role") == "user")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return (one for one in records if one.get("type") != "note")


def fit(choices: Sequence[Choice]) -> Matrix:
    """Fit a multinomial choice: each candidate has a score, and "none of them" has the score 0. The bias comes last."""
    rows = np.vstack([one.rows for one in choices])
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    sizes = np.array([len(one.rows) for one in choices])
    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(choices)), sizes)
    weight = np.array([one.weight for one in choices])[owner]
    wanted = np.zeros(len(rows))
    wanted[[start + one.right for start, one in zip(starts, choices, strict=True) if one.right >= 0]] = 1
    found, first, second = (np.zeros(rows.shape[1]) for _ in range(3))
    for step in range(1, STEPS + 1):
        powers = np.exp(np.clip(rows @ found, -30, 30))
        chance = powers / (1 + np.add.reduceat(powers, starts))[owner]
        slope = (rows.T @ ((chance - wanted) * weight) + DECAY * np.append(found[:-1], 0)) / len(choices)
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope * slope
        rate = RATE * (1 - 0.9 * step / STEPS)
        found -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return found


def report(choices: Sequence[Choice]) -> None:
    """Score each group with the weights of the other folds."""
    groups = sorted({one.group for one in choices})
    order = np.random.RandomState(0).permutation(len(groups))
    fold = {group: place % FOLDS for group, place in zip(groups, order, strict=True)}
    counts: Counter[tuple[str, float, str]] = Counter()
    for number in range(FOLDS):
        found = fit([one for one in choices if fold[one.group] != number])
        for one in choices:
            if fold[one.group] == number:
                powers = np.exp(one.rows @ found[:-1] + found[-1])
                chance = powers / (1 + powers.sum())
                best = int(chance.argmax())
                for least in (0.25, 0.32, 0.4, 0.5):
                    answer = -1 if chance[best] < least else best
                    outcome = "right" if answer == one.right else "wrong" if answer >= 0 else "missed"
                    counts[one.title, least, outcome] += 1
    for title, least in sorted({key[:2] for key in counts}):
        shown = ", ".join(f"{name} {counts[title, least, name]}" for name in ("right", "wrong", "missed"))
        click.echo(f"{title:<16} chance >= {least:.2f}: {shown}")


if __name__ == "__main__":
    sys.exit(main())
