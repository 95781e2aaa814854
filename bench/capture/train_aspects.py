"""Train the weights that tell the aspect of a statement, and which older statement a new one ends.

    python bench/capture/train_aspects.py            writes the weights into the package
    python bench/capture/train_aspects.py --check    only scores each author's changes with the weights of the others

Aspects come from training/, the changes and the dev personas; changes from those of nine authors and from the dev
personas. One model learns which of many statements is about the same matter, from each change among facts of training
people. Another learns from the pairs alone whether the older one still holds. Together in one model each is worse.
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
from states import Adam, KeptStates, draw_mask, fit_in_processes

from engrain.core.model.items import Statement
from engrain.core.model_weights import pack_table
from engrain.core.rules.change_cues import find_signs, read_cues
from engrain.core.text.passages import Sentence
from engrain.ingest.change_finder import MAX_CANDIDATES
from engrain.ingest.changes import BUCKETS, WEIGHTS, Chances, JudgedStatement, compare, hash_statement, read_statement
from engrain.ingest.gate import find_statements
from engrain.ingest.sentence_model import KEPT_KINDS, VECTOR_SCALE, Verdict, scale_words

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "src" / "engrain" / "core" / "data" / WEIGHTS
AUTHORS = (*CHANGES, "personas")
RIDGE, DECAY, STEPS, RATE_PAIRS = 30.0, 2.0, 200, 0.1
AXES, EPOCHS, BATCH, DROPPED_AXES = 32, 8, 128, 0.3  # of the model of what is about the same matter
COMPONENTS, STATE_SCALE = 64, 2.8
# Facts of a training person around a change, and how many of what is known are compared.
BACKGROUND, CANDIDATES, LEAST_FACTS, DRAWS = 30, MAX_CANDIDATES, 30, 2
ALONE, PEOPLE = "alone", "people, both"
SMALL_MEMORIES = (1, 2, 4, CANDIDATES)
WEIGHT_NO_CHANGE, MIN_LIKENESS = 0.5, 0.35
# A change among statements of other aspects, in memories of these sizes: nothing there is about the same matter.
OTHER_SIZES, WEIGHT_OTHERS = (1, 2, 4), 0.2
WEIGHT_OTHER_MATTER = 0.1  # of a pair of statements about two matters, where the question is if both hold
MIN_LABELS, FOLDS = 8, 4
BIAS_SCALE = 10.0  # the bias is hardly shrunk
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
    """A new statement and what it may end. `same` is the place of the one about the same matter, -1 for none."""

    author: str
    title: str
    rows: Matrix
    new: Unit
    known: Sequence[Unit]
    state: Matrix  # of the new statement, as components
    same: int
    ends: bool
    weight: float = 1.0

    @property
    def right(self) -> int:
        return self.same if self.ends else -1


@dataclass(frozen=True, slots=True)
class Same:
    """Scores of pairs: linear in their features, and the product of both vectors along the axes of a matter."""

    rows: Matrix  # with the bias at the end
    axes: Matrix

    def score(self, one: Choice) -> Matrix:
        near = np.stack([old.vector for old in one.known]) @ self.axes
        return one.rows @ self.rows[:-1] + self.rows[-1] + near @ (one.new.vector @ self.axes)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model of what is about the same matter, and a linear one of what is ended, with its bias at the end."""

    same: Same
    ended: Matrix  # of the components of the state, then of the pair

    def judge(self, one: Choice) -> list[Chances]:
        powers = np.exp(np.clip(self.same.score(one), -30, 30))
        own = one.state @ self.ended[:COMPONENTS] + self.ended[-1]
        scores = one.rows[:, :-1] @ self.ended[COMPONENTS:-1] + own
        same, ended = powers / (1 + powers.sum()), 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
        return [Chances(float(a), float(b)) for a, b in zip(same, ended, strict=True)]


@dataclass(frozen=True, slots=True)
class Sets:
    changes: dict[str, list[tuple[Unit, Unit]]]
    personas: list[list[Unit]]
    people: list[list[Unit]]
    passing: list[list[Unit]]  # of the people, what is not worth keeping


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--states", type=Path, help="a file that keeps the embedder's passes for the next script")
    options = parser.parse_args()
    kept = KeptStates(options.states)
    sets = read_sets(kept)
    kept.save()
    aspects = Aspects.train(sets)
    basis = find_basis(sets)
    choices = list(build_choices(sets, basis, aspects))
    click.echo(f"{len(choices):,} choices, {sum(one.ends for one in choices)} of them with a change")
    # The last weights are of all choices: nobody has that name.
    *others, found = fit_in_processes(lambda name: fit([one for one in choices if one.author != name]), (*AUTHORS, ""))
    for author, without in zip(AUTHORS, others, strict=True):
        report([one for one in choices if one.author == author], without)
    report(choices, found)
    if not options.check:
        save(aspects.weights, found, basis)


def save(weights: dict[str, Any], found: Fitted, basis: Basis) -> None:
    state = basis.axes @ found.ended[:COMPONENTS] * STATE_SCALE
    weights = weights | {
        "same": found.same.rows[:-1], "same_bias": found.same.rows[-1], "axes": found.same.axes,
        "ended": found.ended[COMPONENTS:-1], "state": state,
        "ended_bias": found.ended[-1] - basis.mean @ state,
    }  # fmt: skip
    small = {"aspects": np.float16, "axes": np.float16, "names": None}
    plain = {name: np.asarray(one, small.get(name, np.float32)) for name, one in weights.items() if name != "words"}
    np.savez_compressed(
        OUT, **plain, **pack_table("words", weights["words"]), data=np.array(hash_files(*CHANGES.values()))
    )
    click.echo(f"wrote {OUT.name}: {OUT.stat().st_size:,} bytes")


def read_sets(embedder: KeptStates) -> Sets:
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


@dataclass(frozen=True, slots=True)
class Aspects:
    """The weights of the aspects, and for each person or author the weights that were made without them."""

    weights: dict[str, Any]
    without: dict[int, dict[str, Any]]  # by the id of a unit

    @classmethod
    def train(cls, sets: Sets) -> Aspects:
        """Fit one linear score per aspect, by ridge regression over the vectors and the hashed words of statements.

        What the next models learn from is judged by weights that have not seen it, as a new statement will be.
        """
        groups = [*sets.people, *sets.personas, *map(flatten, sets.changes.values())]
        counts = Counter(name_aspect(one) for some in groups for one in some)
        names = sorted(name for name in counts if name not in DROPPED and counts[name] >= MIN_LABELS)
        folds = [[one for some in groups[fold::FOLDS] for one in some] for fold in range(FOLDS)]
        sums = [sum_products([one for one in some if name_aspect(one) in names], names) for some in folds]
        click.echo(f"{sum(counts[name] for name in names):,} statements, {len(names)} aspects")
        passing = [[one for some in sets.passing[fold::FOLDS] for one in some] for fold in range(FOLDS)]
        without: dict[int, dict[str, Any]] = {}
        for fold in range(FOLDS):
            fitted = solve_ridge([one for place, one in enumerate(sums) if place != fold], names)
            without |= {id(one): fitted for one in (*folds[fold], *passing[fold])}
        return cls(solve_ridge(sums, names), without)

    def read(self, one: Unit) -> JudgedStatement:
        return read_statement(one.text, one.vector, one.slot, self.without[id(one)])


def sum_products(said: Sequence[Unit], names: Sequence[str]) -> tuple[Matrix, Matrix]:
    """Return the products of the inputs with themselves and with the wanted answers. The last input is always 1."""
    inputs = np.zeros((len(said), BUCKETS + len(said[0].vector) + 1), np.float32)
    for row, one in zip(inputs, said, strict=True):
        words = hash_statement(one.text)
        row[words] = scale_words(len(words))
        row[BUCKETS:-1] = one.vector * VECTOR_SCALE
        row[-1] = BIAS_SCALE
    wanted = np.array([[name_aspect(one) == name for name in names] for one in said], np.float32)
    return inputs.T @ inputs, inputs.T @ wanted


def solve_ridge(sums: Sequence[tuple[Matrix, Matrix]], names: Sequence[str]) -> dict[str, Any]:
    square = np.sum([one for one, _ in sums], axis=0)
    square[np.diag_indices(len(square))] += RIDGE
    scores = np.linalg.solve(square, np.sum([one for _, one in sums], axis=0))
    vector, bias = scores[BUCKETS:-1] * VECTOR_SCALE, scores[-1] * BIAS_SCALE
    return {"names": np.array(names), "words": scores[:BUCKETS], "aspects": vector, "aspects_bias": bias}


def name_aspect(one: Unit) -> str:
    label = str(one.record["aspect"])
    return ASPECT_OF.get(label, label)


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


def build_choices(sets: Sets, basis: Basis, aspects: Aspects) -> Iterator[Choice]:
    read = make_reader(aspects)
    random = np.random.RandomState(1)
    large = [some for some in sets.people if len(some) >= LEAST_FACTS]

    def build(
        author: str, title: str, new: Unit, known: Sequence[Unit], same: Unit | None, weight: float, ends: bool = False
    ) -> Choice:
        near = sorted(known, key=lambda one: -float(new.vector @ one.vector))[:CANDIDATES]
        rows = compare(read(new), [read(one) for one in near])
        place = next((place for place, one in enumerate(near) if one is same), -1)
        return Choice(author, title, rows, new, near, basis.project(new.state), place, ends, weight)

    for author, pairs in sets.changes.items():
        for first, later in pairs:
            expect = later.record["expect"]
            ends = expect == "new"
            yield build(author, f"{ALONE}, {expect}", later, [first], first, 1.0, ends)
            for _ in range(DRAWS):
                around = draw(random, large[random.randint(len(large))], BACKGROUND)
                yield build(author, f"among, {expect}", later, [first, *around], first, 1 / DRAWS, ends)
            drawn = [pairs[place][0] for place in random.permutation(len(pairs))[:12]]
            others = [one for one in drawn if name_aspect(one) != name_aspect(later)]
            for size in OTHER_SIZES:
                some, others = others[:size], others[size:]
                if some:
                    yield build(author, "others", later, some, None, WEIGHT_OTHERS)
    for some in sets.personas:
        for place, new in enumerate(some):
            earlier = [one for one in some[:place] if one.message != new.message]
            right = next((one for one in earlier if one.record["id"] == new.record["replaces"]), None)
            if earlier and (right or new.record["replaces"] is None):
                title = "persona, new" if right else "persona, both"
                yield build("personas", title, new, earlier, right, 1.0, right is not None)
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
                yield build("people", PEOPLE, some[place], known, None, WEIGHT_NO_CHANGE)
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


def make_reader(aspects: Aspects) -> Callable[[Unit], JudgedStatement]:
    known: dict[int, JudgedStatement] = {}

    def read(one: Unit) -> JudgedStatement:
        if id(one) not in known:
            known[id(one)] = aspects.read(one)
        return known[id(one)]

    return read


def draw(random: np.random.RandomState, some: Sequence[Unit], number: int) -> list[Unit]:
    return [some[place] for place in random.permutation(len(some))[:number]]


def read_lines(path: Path) -> Iterator[Record]:
    records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return (one for one in records if one.get("type") != "note")


def fit(choices: Sequence[Choice]) -> Fitted:
    same = fit_same(choices)
    return Fitted(same, fit_ended(choices, same))


@dataclass(frozen=True, slots=True)
class Padded:
    """Choices as arrays: each has room for all candidates, and `used` tells which of them there are."""

    rows: Matrix
    new: Matrix
    known: Matrix
    used: Matrix
    wanted: Matrix
    weight: Matrix

    @classmethod
    def collect(cls, choices: Sequence[Choice]) -> Padded:
        shape = len(choices), CANDIDATES
        rows = np.zeros((*shape, choices[0].rows.shape[1]), np.float32)
        known = np.zeros((*shape, len(choices[0].new.vector)), np.float32)
        used, wanted = np.zeros(shape, bool), np.zeros(shape, np.float32)
        for place, one in enumerate(choices):
            count = len(one.known)
            rows[place, :count], used[place, :count] = one.rows, True
            known[place, :count] = [old.vector for old in one.known]
            if one.same >= 0:
                wanted[place, one.same] = 1
        weight = np.array([[one.weight] for one in choices], np.float32)
        return cls(rows, np.stack([one.new.vector for one in choices]), known, used, wanted, weight)


def fit_same(choices: Sequence[Choice]) -> Same:
    """Fit a multinomial choice: each candidate has a score, and "none of them" has the score 0."""
    all_rows = np.vstack([one.rows for one in choices])
    mean, spread = all_rows.mean(0), all_rows.std(0) + 1e-3
    random, size = np.random.default_rng(1), len(choices[0].new.vector)
    axes = random.normal(0, 1 / np.sqrt(size), (size, AXES)).astype(np.float32)
    weights = {"rows": np.zeros((len(mean), 1), np.float32), "bias": np.zeros(1, np.float32), "axes": axes}
    optimizer = Adam(weights, EPOCHS * (len(choices) // BATCH))
    for _ in range(EPOCHS):
        order = random.permutation(len(choices))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            some = Padded.collect([choices[place] for place in order[start : start + BATCH]])
            mask = draw_mask(random, (BATCH, CANDIDATES, AXES), DROPPED_AXES)
            optimizer.step(find_slopes(weights, some, (some.rows - mean) / spread, mask))
    scaled = weights["rows"][:, 0] / spread
    return Same(np.append(scaled, weights["bias"] - mean @ scaled).astype(np.float32), weights["axes"])


def find_slopes(weights: dict[str, Matrix], some: Padded, rows: Matrix, mask: Matrix) -> dict[str, Matrix]:
    new, known = (some.new @ weights["axes"])[:, None], some.known @ weights["axes"]
    scores = (rows @ weights["rows"])[..., 0] + weights["bias"] + (new * known * mask).sum(2)
    powers = np.exp(np.clip(scores, -30, 30)) * some.used
    error = (powers / (1 + powers.sum(1, keepdims=True)) - some.wanted) * some.weight / len(rows)
    shared = error[..., None] * mask
    of_new = some.new.T @ (shared * known).sum(1)
    return {
        "rows": np.einsum("nk,nkr->r", error, rows)[:, None],
        "bias": error.sum(keepdims=True)[0],
        "axes": of_new + np.einsum("nkv,nka->va", some.known, shared * new, optimize=True),
    }


def fit_ended(choices: Sequence[Choice], same: Same) -> Matrix:
    """Fit whether an older statement of the same matter no longer holds, by pairs alone.

    Of the training people the pair that looks most like one matter is a pair in which both hold.
    """
    pairs = [one for one in choices if one.title.startswith(ALONE)]
    others = [one for one in choices if one.title == PEOPLE]
    picked = [int(same.score(one).argmax()) for one in others]
    rows = [np.append(one.state, one.rows[0, :-1]) for one in pairs]
    rows += [np.append(one.state, one.rows[at, :-1]) for one, at in zip(others, picked, strict=True)]
    inputs = add_ones(np.stack(rows))
    wanted = np.array([one.ends for one in (*pairs, *others)], np.float32)
    share = float(wanted[: len(pairs)].mean())
    weight = np.where(wanted == 1, 1.0, share / (1 - share))
    weight[len(pairs) :] = WEIGHT_OTHER_MATTER

    def slope(found: Matrix) -> Matrix:
        errors = (1 / (1 + np.exp(-inputs @ found)) - wanted) * weight
        return (inputs.T @ errors + DECAY * np.append(found[:-1], 0)) / len(wanted)

    return descend(slope, inputs.shape[1])


def add_ones(rows: Matrix) -> Matrix:
    return np.hstack([rows, np.ones((len(rows), 1))]).astype(np.float32)


def descend(slope: Callable[[Matrix], Matrix], size: int) -> Matrix:
    found, first, second = (np.zeros(size, np.float32) for _ in range(3))
    for step in range(1, STEPS + 1):
        now = slope(found)
        first, second = 0.9 * first + 0.1 * now, 0.99 * second + 0.01 * now * now
        rate = RATE_PAIRS * (1 - 0.9 * step / STEPS)
        found -= (rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)).astype(np.float32)
    return found


def report(choices: Sequence[Choice], found: Fitted) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in choices:
        chances = found.judge(one)
        best = max(range(len(chances)), key=lambda place: chances[place].same)
        answer = best if chances[best].is_ended else -1
        outcome = "right" if answer == one.right else "wrong" if answer >= 0 else "missed"
        counts[one.author, one.title, outcome] += 1
        counts[one.author, one.title, "earlier"] += answer < 0 and chances[best].is_earlier
    for author, title in sorted({key[:2] for key in counts}):
        shown = ", ".join(f"{name} {counts[author, title, name]}" for name in ("right", "wrong", "missed", "earlier"))
        click.echo(f"{author:<14} {title:<16} {shown}")


if __name__ == "__main__":
    sys.exit(main())
