"""Writing before and after: one remember, 32 threads, 6 processes, with two versions of engrain side by side.

    python bench/writer.py --old OTHER/src [--new src] [--rounds 40]

Both versions run at once, each in processes of its own, and take turns: a short burst of one, then of the other. The
ratio is the median of the rounds' own ratios, because a busy machine changes from one round to the next. The embedder
is a hash, so that writing is what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ONE, THREADS, EACH, PROCESSES, SECONDS = 40, 32, 8, 6, 0.5
Figures = dict[str, float]


def opened(path: str) -> Any:
    from engrain_conformance.embedder import HashEmbedder

    from engrain import Memory

    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


def measure_one(memory: Any, burst: str) -> Figures:
    """Milliseconds of one remember, by a single thread."""
    took = []
    for number in range(ONE):
        began = time.perf_counter()
        memory.remember(f"Fact {number} of {burst} is about a parcel.")
        took.append((time.perf_counter() - began) * 1000)
    # The tenth as well: with more programs than processors, the median is the system's time slice.
    return {"one remember, median ms": statistics.median(took), "one remember, best tenth ms": sorted(took)[ONE // 10]}


def measure_threads(memory: Any, burst: str) -> Figures:
    """Writes a second, by threads that share a memory; and the processor's time of a write."""
    ready = threading.Barrier(THREADS + 1)

    def work(name: int) -> None:
        ready.wait()
        for number in range(EACH):
            memory.remember(f"Fact {number} of thread {name} of {burst}.")

    running = [threading.Thread(target=work, args=(name,)) for name in range(THREADS)]
    for thread in running:
        thread.start()
    ready.wait()
    began, used = time.perf_counter(), time.process_time()
    for thread in running:
        thread.join()
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    writes = THREADS * EACH
    return {"32 threads, writes/s": writes / wall, "32 threads, CPU ms a write": cpu / writes * 1000}


def measure_writes(memory: Any, burst: str) -> Figures:
    """How many writes this process, one of several on a file, makes until the time that the burst names."""
    count, ends = 0, float(burst)
    while time.time() < ends:
        memory.remember(f"Fact {count} of {os.getpid()} until {burst}.")
        count += 1
    return {"writes": count}


def serve(what: str, path: str) -> None:
    """A burst for each line that comes in."""
    burst = {"one": measure_one, "threads": measure_threads, "processes": measure_writes}[what]
    with opened(path) as memory:
        memory.remember(f"Warm {os.getpid()}.")
        print("ready", flush=True)  # noqa: T201
        for line in sys.stdin:
            print(json.dumps(burst(memory, line.strip())), flush=True)  # noqa: T201


class Version:
    """The processes of one version of engrain."""

    def __init__(self, source: Path, what: str, folder: str) -> None:
        words = [sys.executable, __file__, "--serve", what, f"{folder}/store.db"]
        self._several = what == "processes"
        self._running = []
        for _ in range(PROCESSES if self._several else 1):
            process = subprocess.Popen(
                words, env={**os.environ, "PYTHONPATH": str(source)}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            self._running.append(process)

    def burst(self, number: int) -> Figures:
        line = repr(time.time() + SECONDS) if self._several else f"burst {number}"
        for process in self._running:
            assert process.stdin
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for process in self._running if process.stdout]
        if not self._several:
            return dict(found[0])
        counts = [one["writes"] for one in found]
        return {"6 processes, writes/s": sum(counts) / SECONDS, "6 processes, least/most": min(counts) / max(counts)}

    def end(self) -> None:
        for process in self._running:
            process.communicate()


def compare(what: str, old: Path, new: Path, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        versions = [Version(old, what, first), Version(new, what, second)]
        found = []
        for number in range(rounds):
            order = versions if number % 2 else versions[::-1]
            answers = {version: version.burst(number) for version in order}
            found.append([answers[version] for version in versions])
        for version in versions:
            version.end()
    for name in found[0][0]:
        before, after = ([one[side][name] for one in found] for side in (0, 1))
        ratio = statistics.median(b / a for a, b in zip(before, after, strict=True) if a)
        both = f"old {statistics.median(before):9.3f}   new {statistics.median(after):9.3f}"
        print(f"{name:28} {both}   new/old {ratio:.2f}", flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--new", type=Path, default=Path(__file__).resolve().parent.parent / "src")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--what", default="one,threads,processes")
    parser.add_argument("--serve", nargs=2)
    asked = parser.parse_args()
    if asked.serve:
        serve(*asked.serve)
        return
    for what in asked.what.split(","):
        compare(what, asked.old, asked.new, asked.rounds)


if __name__ == "__main__":
    main()
