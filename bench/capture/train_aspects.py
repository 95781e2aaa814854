"""Train the weights that tell the aspect of a statement, and which older statement a new one ends.

    python bench/capture/train_aspects.py            writes the weights into the package
    python bench/capture/train_aspects.py --check    only scores each author's changes with the weights of the others

Aspects come from training/, the changes and the dev personas; changes from those of four authors and from the dev
personas, each alone and among facts of training people. Statements of the training people end nothing.
Set-aside files are never read. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from measure import CHANGES, hash_files

from engrain.core.model.items import Statement
from engrain.core.rules.change_cues import find_signs, read_cues
from engrain.core.text.passages import Sentence
from engrain.ingest import changes
from engrain.ingest.change_finder import MIN_CHANCE_OF_LATER
from engrain.ingest.changes import MIN_CHANCE, MIN_CHANCE_SAID, WEIGHTS, Said, compare, read_statement
from engrain.ingest.gate import find_statements
from engrain.ingest.sentence_model import KEPT_KINDS, Verdict
from engrain.providers.local import LocalEmbedder

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "src" / "engrain" / "core" / "data" / WEIGHTS
AUTHORS = (*CHANGES, "personas")
RIDGE, DECAY, STEPS, RATE = 1.0, 2.0, 150, 0.05
COMPONENTS, STATE_SCALE = 128, 2.0
# Facts of a training person around a change, and how many of what is known are compared.
BACKGROUND, CANDIDATES, LEAST_FACTS, DRAWS = 30, 14, 30, 2
SMALL_MEMORIES = (1, 2, 4, CANDIDATES)
WEIGHT_NO_CHANGE, MIN_LIKENESS = 0.5, 0.35
MIN_LABELS = 8
# Labels of the sets that mean one aspect. Those of DROPPED say how something is said, not what about.
MERGED = {
    "age": "birthday", "home": "address", "origin": "nationality", "contact": "phone email account",
    "family": "children friend", "health": "medication status", "leisure": "sport music media hobby club",
    "travel": "trip", "date": "appointment deadline event", "plan": "goal", "vehicle": "transport car",
    "money": "price budget finance", "routine": "schedule habit", "education": "school", "job": "work",
    "tool": "stack library version architecture config", "workflow": "command deploy", "team": "manager owner",
    "style": "answer-style instruction", "belief": "religion",
}  # fmt: skip
DROPPED = frozenset(("none", "other", "decision", "preference", "cause", "supplier", "achievement", "membership"))
ASPECT_OF = {label: aspect for aspect, labels in MERGED.items() for label in labels.split()}

Matrix = Any
Record = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """A part of a message as the product compares it. `record` has its labels."""

    record: Record
    message: str
    text: str
    vector: Matrix
    state: Matrix
    slot: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A new statement and what it may end: `right` is the place of the right one, -1 for none."""

    author: str
    title: str
    rows: Matrix
    right: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Sets:
    changes: dict[str, list[tuple[Unit, Unit]]]
    personas: list[list[Unit]]
    people: list[list[Unit]]
    passing: list[list[Unit]]  # of the people, what is not worth keeping


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    sets = read_sets(LocalEmbedder())
    weights = train_aspects(sets)
    changes.load_weights = lambda file=WEIGHTS: weights  # type: ignore[assignment]  # the features use the new aspects
    basis = find_basis(sets)
    choices = list(build_choices(sets, basis))
    click.echo(f"{len(choices):,} choices, {sum(one.right >= 0 for one in choices)} of them with a change")
    for author in AUTHORS:
        others = fit([one for one in choices if one.author != author])
        report([one for one in choices if one.author == author], others)
    found = fit(choices)
    report(choices, found)
    if not options.check:
        save(weights, found, basis)


def save(weights: dict[str, Any], found: Matrix, basis: Basis) -> None:
    own, pair = found[:COMPONENTS], found[COMPONENTS:-1]
    state = basis.axes @ own * STATE_SCALE
    bias = found[-1] - basis.mean @ state
    small = {"aspects": np.float16, "state": np.float32}
    weights = weights | {"state": state, "change": pair, "change_bias": bias}
    plain = {
        name: np.asarray(one, small.get(name, None if name == "names" else np.float32)) for name, one in weights.items()
    }
    np.savez_compressed(OUT, **plain, data=np.array(hash_files(*CHANGES.values())))
    click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def read_sets(embedder: LocalEmbedder) -> Sets:
    def read(text: str, parts: Sequence[tuple[Record, str]], where: str) -> list[Unit]:
        states = embedder.read_text(embedder.windows(text)[0])
        asked, slots = list_asked(text)
        units = []
        for record, part in parts:
            start = text.find(part)
            span = choose_part(asked, (start, start + len(part)))
            slot = next((one.slot for one in slots if one.start < span[1] and span[0] < one.end), None)
            vector, state = states.embed_spans([span])[0], states.pool_spans([span])[0]
            units.append(Unit(record, where, text[slice(*span)], vector, state, slot))
        return units

    def read_pair(record: Record) -> tuple[Unit, Unit]:
        (first,) = read(record["first"], [(record, record["old_value"])], "first")
        (later,) = read(record["later"], [(record, record["new_value"])], "later")
        return first, later

    pairs = {
        author: [read_pair(one) for name in names for one in read_lines(HERE / f"{name}.jsonl")]
        for author, names in CHANGES.items()
    }
    personas = [
        [
            unit
            for record in read_lines(path)
            if record.get("role") == "user" and record["keeps"]
            for unit in read(record["text"], [(one, one["text"]) for one in record["keeps"]], record["id"])
        ]
        for path in sorted((HERE / "personas" / "dev").glob("*.jsonl"))
    ]
    people = [
        [
            unit
            for record in read_lines(path)
            if record["type"] == "message"
            for unit in read(record["text"], [(one, one["text"]) for one in record["parts"]], record["id"])
        ]
        for path in sorted((HERE / "training").glob("*.jsonl"))
    ]
    kept = [[one for one in some if one.record["kind"] in KEPT_KINDS] for some in people]
    passing = [[one for one in some if one.record["kind"] not in KEPT_KINDS] for some in people]
    return Sets(pairs, personas, kept, passing)


def list_asked(text: str) -> tuple[list[Sentence], list[Statement]]:
    """Return the parts of a message that the gate judges, and the statements that fill slots."""
    asked: list[Sentence] = []

    def note(_: str, sentences: Sequence[Sentence]) -> list[Verdict]:
        asked.extend(sentences)
        return []

    found = find_statements(text, (), note)
    return asked, [one for one in found if isinstance(one, Statement) and one.slot]


def choose_part(asked: Sequence[Sentence], span: tuple[int, int]) -> tuple[int, int]:
    """Return the part of a message that holds most of a span, or the span."""
    best = max(asked, key=lambda one: min(one.end, span[1]) - max(one.start, span[0]), default=None)
    return (best.start, best.end) if best and best.start < span[1] and span[0] < best.end else span


def train_aspects(sets: Sets) -> dict[str, Any]:
    """Fit one linear score per aspect, by ridge regression over the vectors of statements."""
    said = [one for some in (*sets.people, *sets.personas, *map(flatten, sets.changes.values())) for one in some]
    labels = [ASPECT_OF.get(one.record["aspect"], one.record["aspect"]) for one in said]
    counts = Counter(labels)
    names = sorted(name for name in counts if name not in DROPPED and counts[name] >= MIN_LABELS)
    known = [place for place, label in enumerate(labels) if label in names]
    vectors = np.stack([said[place].vector for place in known])
    wanted = np.array([[labels[place] == name for name in names] for place in known], np.float32)
    middle, share = vectors.mean(0), wanted.mean(0)
    spread = vectors - middle
    scores = np.linalg.solve(spread.T @ spread + RIDGE * np.eye(spread.shape[1]), spread.T @ (wanted - share))
    click.echo(f"{len(known):,} statements, {len(names)} aspects")
    return {
        "names": np.array(names), "aspects": scores.astype(np.float32),
        "aspects_bias": (share - middle @ scores).astype(np.float32),
    }  # fmt: skip


def flatten(pairs: Sequence[tuple[Unit, Unit]]) -> list[Unit]:
    return [one for pair in pairs for one in pair]


@dataclass(frozen=True, slots=True)
class Basis:
    """The main components of the states of statements, each with the same spread."""

    mean: Matrix
    axes: Matrix

    def project(self, state: Matrix) -> Matrix:
        return STATE_SCALE * ((state - self.mean) @ self.axes)


def find_basis(sets: Sets) -> Basis:
    states = np.stack([one.state for some in (*sets.people, *sets.passing) for one in some])
    mean, spread = states.mean(0), states.std(0) + 1e-3
    scaled = (states - mean) / spread
    variances, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    chosen = axes[:, -COMPONENTS:] / np.sqrt(variances[-COMPONENTS:] * COMPONENTS)
    return Basis(mean, chosen / spread[:, None])


def build_choices(sets: Sets, basis: Basis) -> Iterator[Choice]:
    read: Callable[[Unit], Said] = make_reader()
    random = np.random.RandomState(1)
    large = [some for some in sets.people if len(some) >= LEAST_FACTS]

    def build(author: str, title: str, new: Unit, known: Sequence[Unit], right: Unit | None, weight: float) -> Choice:
        near = sorted(known, key=lambda one: -float(new.vector @ one.vector))[:CANDIDATES]
        rows = np.stack([compare(read(new), read(one), len(near)) for one in near])
        own = np.tile(basis.project(new.state), (len(near), 1))
        place = next((place for place, one in enumerate(near) if one is right), -1)
        return Choice(author, title, np.hstack([own, rows]), place, weight)

    for author, pairs in sets.changes.items():
        for first, later in pairs:
            expect = later.record["expect"]
            right = first if expect == "new" else None
            yield build(author, f"alone, {expect}", later, [first], right, 1.0)
            for _ in range(DRAWS):
                around = draw(random, large[random.randint(len(large))], BACKGROUND)
                yield build(author, f"among, {expect}", later, [first, *around], right, 1 / DRAWS)
    for some in sets.personas:
        for place, new in enumerate(some):
            earlier = [one for one in some[:place] if one.message != new.message]
            right = next((one for one in earlier if one.record["id"] == new.record["replaces"]), None)
            if earlier and (right or new.record["replaces"] is None):
                yield build("personas", "persona, new" if right else "persona, both", new, earlier, right, 1.0)
    for some, passing in zip(sets.people, sets.passing, strict=True):
        if len(some) < LEAST_FACTS:
            continue
        places = [place for place in range(15, len(some)) if some[place].record["kind"] in ("fact", "preference")]
        for number, place in enumerate(random.permutation(places)[:12]):
            earlier = [one for one in some[:place] if one.message != some[place].message]
            # Facts in a row are often about one thing, and yet none ends another.
            near = sorted(earlier, key=lambda one: -float(some[place].vector @ one.vector))
            known = near[: SMALL_MEMORIES[number % 4]] if number % 2 else draw(random, earlier, BACKGROUND)
            known = [one for one in known if not may_change(some[place], one)]
            if known:
                yield build("people", "people, both", some[place], known, None, WEIGHT_NO_CHANGE)
        for number, new in enumerate(draw(random, passing, 16)):
            others = draw(random, [one for one in some if one.message != new.message], len(some))
            near = sorted(others, key=lambda one: -float(new.vector @ one.vector)) if number % 4 == 3 else others
            known = near[: SMALL_MEMORIES[number % 4]]
            yield build("people", "people, passing", new, known, None, WEIGHT_NO_CHANGE)


def may_change(new: Unit, old: Unit) -> bool:
    """Tell if a person may have changed what they said: the sets do not say whether they did."""
    if find_signs(new.text).isdisjoint(("ended", "changed")):
        return False
    this, that = read_cues(new.text), read_cues(old.text)
    return bool(this.core & that.core or this.names & that.names) or float(new.vector @ old.vector) >= MIN_LIKENESS


def make_reader() -> Callable[[Unit], Said]:
    known: dict[int, Said] = {}

    def read(one: Unit) -> Said:
        if id(one) not in known:
            known[id(one)] = read_statement(one.text, one.vector, one.slot)
        return known[id(one)]

    return read


def draw(random: np.random.RandomState, some: Sequence[Unit], number: int) -> list[Unit]:
    return [some[place] for place in random.permutation(len(some))[:number]]


def read_lines(path: Path) -> Iterator[Record]:
    records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return (one for one in records if one.get("type") != "note")


def fit(choices: Sequence[Choice]) -> Matrix:
    """Fit a multinomial choice: each candidate has a score, and "none of them" has the score 0. The bias comes last."""
    rows = np.vstack([one.rows for one in choices]).astype(np.float32)
    rows = np.hstack([rows, np.ones((len(rows), 1), np.float32)])
    sizes = np.array([len(one.rows) for one in choices])
    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(choices)), sizes)
    weight = np.array([one.weight for one in choices], np.float32)[owner]
    wanted = np.zeros(len(rows), np.float32)
    wanted[[start + one.right for start, one in zip(starts, choices, strict=True) if one.right >= 0]] = 1
    found, first, second = (np.zeros(rows.shape[1], np.float32) for _ in range(3))
    for step in range(1, STEPS + 1):
        powers = np.exp(np.clip(rows @ found, -30, 30))
        chance = powers / (1 + np.add.reduceat(powers, starts))[owner]
        slope = (rows.T @ ((chance - wanted) * weight) + DECAY * np.append(found[:-1], 0)) / len(choices)
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope * slope
        rate = RATE * (1 - 0.9 * step / STEPS)
        found -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return found


def report(choices: Sequence[Choice], found: Matrix) -> None:
    counts: Counter[tuple[str, str, float, str]] = Counter()
    for one in choices:
        powers = np.exp(np.clip(one.rows @ found[:-1] + found[-1], -30, 30))
        chance = powers / (1 + powers.sum())
        best = int(chance.argmax())
        for least in (MIN_CHANCE_OF_LATER, MIN_CHANCE_SAID, MIN_CHANCE):
            answer = -1 if chance[best] < least else best
            outcome = "right" if answer == one.right else "wrong" if answer >= 0 else "missed"
            counts[one.author, one.title, least, outcome] += 1
    for author, title, least in sorted({key[:3] for key in counts}):
        shown = ", ".join(f"{name} {counts[author, title, least, name]}" for name in ("right", "wrong", "missed"))
        click.echo(f"{author:<14} {title:<16} chance >= {least:.2f}: {shown}")


if __name__ == "__main__":
    sys.exit(main())
