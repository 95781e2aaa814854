"""A thorough recall next to a quick one on the same questions: what it gains, paired, and what it costs.

    python bench/efforts.py FOLDER… --work PLACE

A folder is one of `engrain bench recall`. Its store is made in PLACE if it is not there yet, and kept. Each question is
asked both ways in turns, after a first pass over nothing: the vectors of words start out unknown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import asdict
from pathlib import Path

from harness.compare import paired_bootstrap

from engrain import Store
from engrain.bench.recall import BUDGET_HITS, TOP_HITS, Folder, Scores, list_found, read_folder, score
from engrain.core.model.recall import Effort

EFFORTS: tuple[Effort, Effort] = ("quick", "thorough")


def open_filled(folder: Folder, place: Path) -> Store:
    path = place / f"{folder.name}-efforts.db"
    is_new = not path.exists()
    store = Store(path, background=False)
    for space in folder.spaces if is_new else ():
        store.memory(user=space).remember_many([doc.note for doc in folder.docs_of(space)])
    return store


def ask(store: Store, folder: Folder) -> tuple[dict[str, list[Scores]], dict[str, list[float]]]:
    scores: dict[str, list[Scores]] = {effort: [] for effort in EFFORTS}
    cpu: dict[str, list[float]] = {effort: [] for effort in EFFORTS}
    for question in (one for one in folder.questions if one.gold):
        memory = store.memory(user=question.space)
        for effort in EFFORTS:
            began = time.process_time()
            top = memory.recall(question.text, n=TOP_HITS, min_relevance=0, effort=effort)
            cpu[effort].append(1e3 * (time.process_time() - began))
            long = memory.recall(question.text, n=BUDGET_HITS, min_relevance=0, effort=effort)
            docs = [one.doc for one in list_found(top)]
            scores[effort].append(score(docs, list_found(long), question.gold))
    return scores, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    for folder in map(read_folder, given.folders):
        with open_filled(folder, given.work) as store:
            scores, cpu = ask(store, folder)
        print(f"{folder.name}, {len(scores['quick'])} questions")  # noqa: T201
        for name in ("r10", "ndcg10", "rb1000", "kept1000"):
            quick, thorough = ([asdict(one)[name] for one in scores[effort]] for effort in EFFORTS)
            gain = paired_bootstrap(thorough, quick)
            print(f"  {name:<10}{statistics.fmean(quick):.4f} → {statistics.fmean(thorough):.4f}", end="")  # noqa: T201
            print(f"  {gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]")  # noqa: T201
        for effort, times in cpu.items():
            first = statistics.fmean(times[:20])
            line = f"p50 {statistics.median(times):.0f}, mean {statistics.fmean(times):.0f}, first 20 {first:.0f}"
            print(f"  {effort:<10}ms of CPU: {line}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
