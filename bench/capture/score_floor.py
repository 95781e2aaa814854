"""Score the relevance floor: questions whose answer is cut or missed, and hits that answer nothing.

Run: python bench/capture/score_floor.py [FILE …] [--misses]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from engrain import Memory, Store
from engrain.config import Settings
from engrain.factory import open_embedder

HERE = Path(__file__).parent
HITS = 5


def score_file(path: Path, memory: Memory) -> str:
    """Return a row of the table: the misses among the first HITS, with and without the floor, and the noise."""
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    items = [one for one in records if one["type"] == "item"]
    outcomes = memory.remember_many([one["text"] for one in items])
    ids = {one["id"]: outcome.id for one, outcome in zip(items, outcomes, strict=True)}
    missed, missed_anyway, extra, off_topic = [], 0, 0, []
    questions = [one for one in records if one["type"] == "question"]
    for one in questions:
        wanted = {ids[answer] for answer in one["answers"]}
        found = [hit.item.id for hit in memory.recall(one["question"], n=HITS)]
        if one["empty"]:
            off_topic += [one["question"]] if found else []
            continue
        missed += [one["question"]] if wanted.isdisjoint(found) else []
        extra += len([id for id in found if id not in wanted])
        anyway = [hit.item.id for hit in memory.recall(one["question"], n=HITS, min_relevance=0)]
        missed_anyway += wanted.isdisjoint(anyway)
    asked = sum(not one["empty"] for one in questions)
    wrong = [*(f"  missed: {one}" for one in missed), *(f"  not empty: {one}" for one in off_topic)]
    row = (
        f"{path.stem}, {len(items)} items: {len(missed)} of {asked} missed, {missed_anyway} without a floor; "
        f"{extra / asked:.2f} other hits a question; "
        f"{len(off_topic)} of {len(questions) - asked} off-topic ones not empty"
    )
    return "\n".join((row, *(wrong if "--misses" in sys.argv else ())))


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:] if not name.startswith("-")]
    embedder = open_embedder(Settings())
    for path in paths or sorted((HERE / "floor").glob("*.jsonl")):
        with TemporaryDirectory() as folder, Store(Path(folder) / "floor.db", embedder=embedder) as store:
            sys.stdout.write(score_file(path, store.memory(user=path.stem)) + "\n")


if __name__ == "__main__":
    main()
