"""Score recall in other languages: facts and questions of a household and a club, and both of different languages.

Run: python bench/capture/score_languages.py [de:de] [en:fr] …   facts:questions; without any, all pairs with English
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from engrain.memory import Store

HERE = Path(__file__).parent
SETS = {"h": "household", "c": "club"}  # the first letter of an id
OTHERS = ("de", "es", "fr")
HITS = 5
Record = dict[str, Any]


class Score(NamedTuple):
    """Questions whose answer is among the hits, or is the first; off-topic questions without a hit."""

    found: int
    first: int
    questions: int
    empty: int
    off_topic: int


def main() -> int:
    pairs = [one.split(":") for one in sys.argv[1:]]
    for facts, questions in pairs or list_pairs():
        found, first, asked, empty, off_topic = score(facts, questions)
        sys.stdout.write(
            f"{facts} facts, {questions} questions: found {found} of {asked}, {first} of them first; off-topic empty"
            f" {empty} of {off_topic}\n"
        )
    return 0


def list_pairs() -> list[list[str]]:
    return [
        ["en", "en"],
        *([one, one] for one in OTHERS),
        *(["en", one] for one in OTHERS),
        *([one, "en"] for one in OTHERS),
    ]


def score(facts: str, questions: str) -> Score:
    found = first = asked = empty = off_topic = 0
    with TemporaryDirectory(prefix="engrain-languages-") as folder, Store(Path(folder) / "l.db") as store:
        memories = {letter: store.memory(user=letter) for letter in SETS}
        ids = {one["id"]: memories[one["id"][0]].remember(one["text"]) for one in read(facts) if one["type"] == "item"}
        for one in read(questions):
            if one["type"] != "question":
                continue
            hits = [hit.item.id for hit in memories[one["id"][0]].recall(one["question"], n=HITS)]
            answers = {ids[id] for id in one["answers"]}
            found, first = found + bool(answers & set(hits)), first + (hits[:1] != [] and hits[0] in answers)
            asked, off_topic, empty = (
                asked + bool(answers),
                off_topic + (not answers),
                empty + (not answers and not hits),
            )
    return Score(found, first, asked, empty, off_topic)


def read(language: str) -> Iterator[Record]:
    """Yield the records of both sets. The ids of English ones get the letter that those of other languages have."""
    if language != "en":
        yield from _read_lines(HERE / "languages" / f"{language}.jsonl")
        return
    for letter, name in SETS.items():
        for one in _read_lines(HERE / "floor" / f"{name}.jsonl"):
            yield one | {"id": f"{letter}-{one['id']}", "answers": [f"{letter}-{id}" for id in one.get("answers", ())]}


def _read_lines(path: Path) -> Iterator[Record]:
    for line in path.read_text("utf-8").splitlines():
        if (record := json.loads(line)).get("type") in ("item", "question"):
            yield record


if __name__ == "__main__":
    sys.exit(main())
