"""Make the weights that tell general questions from questions to a memory.

    python bench/capture/train_questions.py            writes the weights into the package
    python bench/capture/train_questions.py --check    only scores each set with weights made without it

Questions to memories are those of the floor sets, personas, changes and facts. General ones are the off-topic ones of
these sets, and what people ask in `training`.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engrain.config import Settings
from engrain.core.text.languages import load_languages
from engrain.factory import open_embedder
from engrain.retrieval.general_questions import ABOUT_ME, WEIGHTS

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "src/engrain/core/data" / WEIGHTS
CHANGES = ("dev", "more", "validation", "third", "fourth")
BLIND = ("blind", "blind-2")
PARTS = 6  # of the training people: too few questions each
DECAY, STEPS = 3.0, 12
OFF_TOPIC_WEIGHT = 2.0  # of a question that was written to be off-topic; those of chats may be about something known
Floats = npt.NDArray[np.float64]


class Example(NamedTuple):
    group: str
    text: str
    asks_memory: bool
    weight: float = 1.0


def read_examples() -> list[Example]:
    """Read the questions to memories, those that were written to be off-topic, and those that people ask in chats."""
    found = {(one.text.lower(), one.asks_memory): one for one in _read_all()}
    return list(found.values())


def _read_all() -> Iterator[Example]:
    for path in sorted((HERE / "floor").glob("*.jsonl")):
        for one in _read(path, "question"):
            yield Example(path.stem, one["question"], not one["empty"], OFF_TOPIC_WEIGHT if one["empty"] else 1.0)
    personas = [("dev", HERE / "personas/dev", "*.jsonl"), *((name, HERE / name, "persona*.jsonl") for name in BLIND)]
    for name, folder, pattern in personas:
        for path in sorted(folder.glob(pattern)):
            for one in _read(path, "question"):
                general = one["kind"] == "off-topic"
                yield Example(f"personas, {name}", one["text"], not general, OFF_TOPIC_WEIGHT if general else 1.0)
    changes = [HERE / f"changes-{name}.jsonl" for name in CHANGES]
    for path in [*changes, *(HERE / name / f"changes-{name}.jsonl" for name in BLIND)]:
        for one in _read(path):
            if one.get("question"):
                yield Example(path.stem, one["question"], asks_memory=True)
    for one in _read(HERE / "facts.jsonl", "question"):
        yield Example("facts", one["question"], asks_memory=True)
    for path in sorted((HERE / "training").glob("*.jsonl")):
        group = f"training, {zlib.crc32(path.stem.encode()) % PARTS}"
        for one in _read(path, "message"):
            for part in one["parts"]:
                if part["kind"] == "question":
                    yield Example(group, part["text"], asks_memory=False)


def _read(path: Path, kind: str | None = None) -> Iterator[dict[str, Any]]:
    for line in path.read_text("utf-8").splitlines():
        if line.strip() and (record := json.loads(line)).get("type") == kind:
            yield record


def train(rows: Floats, examples: list[Example]) -> Floats:
    """Fit a logistic regression, in which both classes weigh alike, by Newton's method."""
    wanted = np.array([one.asks_memory for one in examples], dtype=np.float64)
    share = wanted.sum() / (1 - wanted).sum()
    weight = np.array([one.weight * (1.0 if one.asks_memory else share) for one in examples])
    decay = np.diag([*[DECAY] * (rows.shape[1] - 1), 1e-6])
    found = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(rows @ found, -30, 30)))
        slope = rows.T @ (weight * (chance - wanted)) + decay @ found
        curve = (rows * (weight * chance * (1 - chance))[:, None]).T @ rows + decay
        found -= np.linalg.solve(curve, slope)
    return found


def main() -> None:
    examples, embedder = read_examples(), open_embedder(Settings())
    own = load_languages().questions[ABOUT_ME]
    vectors = np.vstack(
        [embedder.embed([one.text for one in examples[n : n + 64]], "query") for n in range(0, len(examples), 64)]
    )
    about_me = [own.search(one.text.lower().replace("\u2019", "'")) is not None for one in examples]
    rows = np.hstack([vectors, np.array(about_me, dtype=np.float64)[:, None], np.ones((len(examples), 1))])
    if "--check" in sys.argv:
        check(examples, rows)
        return
    weights = train(rows, examples).astype(np.float32)
    np.savez_compressed(TARGET, question=weights, model=np.array(embedder.model.key))


def check(examples: list[Example], rows: Floats) -> None:
    """Score each set with weights that were made without it."""
    groups = np.array([one.group for one in examples])
    for group in sorted(set(groups)):
        inside = groups == group
        weights = train(rows[~inside], [one for one in examples if one.group != group])
        wanted = [one.asks_memory for one in examples if one.group == group]
        taken = list(zip(wanted, rows[inside] @ weights > 0, strict=True))
        asked, general = ([right for asks, right in taken if asks == which] for which in (True, False))
        sys.stdout.write(
            f"{group:<24} to a memory: {sum(asked)} of {len(asked)} recognised; "
            f"general: {len(general) - sum(general)} of {len(general)}\n"
        )


if __name__ == "__main__":
    main()
