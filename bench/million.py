"""A million items with given vectors, in one scope or in a thousand: what it takes to load, open and recall.

    python bench/million.py FOLDER [--scopes 1|1000] [--items 1000000] [--cap BYTES] [--part ITEMS]

The store is made in FOLDER if it is not there yet, and kept. With --part a run loads so many items and ends; the next
run goes on from there. Recall is measured in a process of its own: CPU of the
whole process, queries not asked before. With --cap the memory that search may hold is limited.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.synthetic import BLOCK, Corpus, PreparedEmbedder, turns
from two_versions import ask_turns

from engrain import Store
from engrain.config import Settings
from engrain.factory import open_embedder

BATCH = 5_000
QUERIES = 200


def fill(path: Path, start_at: int, end: int, scopes: int) -> tuple[float, float]:
    """Remember these items, a thousand of one scope after the other: seconds, and seconds of CPU."""
    embedder = PreparedEmbedder(open_embedder(Settings()).model)
    corpus, began, cpu = Corpus(embedder.model.dimension), time.perf_counter(), time.process_time()
    with Store(path, embedder=embedder, background=False) as store:
        for first in range(start_at, end, BATCH):
            texts, vectors = corpus.items(first, BATCH)
            embedder.prepare(texts, vectors)
            notes = turns(texts, first)
            for start in range(0, BATCH, BLOCK):
                user = str((first + start) // BLOCK % scopes)
                store.memory(user=user).remember_many(notes[start : start + BLOCK])
            embedder.clear()
    return time.perf_counter() - began, time.process_time() - cpu


def read_memory() -> dict[str, float]:
    """Megabytes in memory: of the process alone, and of files, which the system can take back."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: float(line.split()[1]) / 1e3 for line in lines if line.startswith("Rss")}
    return {"anonymous": found["RssAnon"], "files": found["RssFile"] + found["RssShmem"]}


def measure(path: str, scopes: int, cap: int) -> None:
    embedder = PreparedEmbedder(open_embedder(Settings()).model)
    corpus = Corpus(embedder.model.dimension)
    asked = ask_turns(corpus, max(QUERIES, scopes), 4_711 + scopes)
    embedder.prepare([one["query"] for one in asked], np.array([one.pop("vector") for one in asked], np.float32))
    report: dict[str, Any] = {"before": read_memory()}
    began = time.perf_counter()
    with Store(path, embedder=embedder, background=False, settings={"stores": {"cache_bytes": cap}}) as store:
        report["open_s"] = time.perf_counter() - began
        times: dict[str, list[float]] = {"first": [], "warm": []}
        views = [store.memory(user=str(number % scopes)) for number in range(len(asked))]
        for number, one in enumerate(asked):
            # In many scopes each is asked twice: the first time its index is read.
            for kind in ("first", "warm") if scopes > 1 or not number else ("warm",):
                wall, cpu = time.perf_counter(), time.process_time()
                views[number].recall(**{**one, "query": f"{one['query']} {kind}"})
                times[kind].append(time.process_time() - cpu)
                if not number and kind == "first":
                    report["first_recall_s"] = time.perf_counter() - wall
        for kind, found in times.items():
            report[f"{kind}_cpu_ms"] = {
                "p50": 1e3 * statistics.median(found),
                "max": 1e3 * max(found),
            }
        report["index"] = store.services.items.index.usage()  # type: ignore[attr-defined]
        report["after"] = read_memory()
    print(json.dumps(report, indent=1))  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scopes", type=int, default=1)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--cap", type=int, default=1 << 30)
    parser.add_argument("--part", type=int, default=1_000_000)
    parser.add_argument("--measure", action="store_true", help="only measure, in this process")
    given = parser.parse_args()
    path = given.folder / f"{given.items}-in-{given.scopes}.db"
    if given.measure:
        measure(str(path), given.scopes, given.cap)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    state = path.with_suffix(".loaded")
    loaded = int(state.read_text()) if state.exists() else 0
    if loaded < given.items:
        end = min(loaded + given.part, given.items)
        wall, cpu = fill(path, loaded, end, given.scopes)
        state.write_text(str(end))
        print(f"{end:,} loaded, the last {end - loaded:,} in {wall:,.0f} s, {cpu:,.0f} s of CPU", flush=True)  # noqa: T201
        if end < given.items:
            return
    print(f"file: {path.stat().st_size / 1e9:.2f} GB")  # noqa: T201
    subprocess.run([sys.executable, __file__, *sys.argv[1:], "--measure"], check=True)


if __name__ == "__main__":
    main()
