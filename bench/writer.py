"""Writing before and after, with two versions of engrain side by side: CPU of the whole process.

    python bench/writer.py --old OTHER/src [--new src] [--rounds 40] [--what one,bulk,repeat,turn,task,threads]

Both versions run at once, each in processes of its own, and take turns: a short burst of one, then of the other. The
ratio is the median of the rounds' own ratios, because a busy machine changes from one round to the next. Vectors are
made before a burst, so that writing is what is measured; only `repeat` uses the local model.
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
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from harness.synthetic import Corpus, PreparedEmbedder, turns
from harness.timing import timed
from harness.twin import Twin

ONE, THREADS, EACH, PROCESSES, SECONDS = 40, 32, 8, 6, 0.5
BULK, BATCH, REPEATED = 1_024, 256, 64
Figures = dict[str, float]


class Bench:
    """A memory, and texts that it has not seen, with their vectors."""

    def __init__(self, path: str, real: bool) -> None:
        from engrain import Memory
        from engrain.providers.local import LocalEmbedder

        local = LocalEmbedder()
        self.prepared = PreparedEmbedder(local.model)
        self.path = path
        self.memory: Any = Memory(path, user="ana", embedder=local if real else self.prepared, background=False)
        self._corpus = Corpus(local.model.dimension)
        self.next = os.getpid() % 1_000 * 1_000_000  # processes that share a file write other texts

    def take_texts(self, number: int) -> list[str]:
        texts, vectors = self._corpus.items(self.next, number)
        self.next += number
        self.prepared.clear()
        self.prepared.prepare(texts, vectors)
        return texts


def measure_each(name: str, calls: list[Callable[[], object]]) -> Figures:
    took = [timed(call) for call in calls]
    # The tenth as well: with more programs than processors, the median is the system's time slice.
    return {
        f"{name}, CPU ms": statistics.median(cpu for _, cpu in took) * 1e3,
        f"{name}, best tenth ms": sorted(wall for wall, _ in took)[len(took) // 10] * 1e3,
    }


def measure_one(bench: Bench, _: str) -> Figures:
    """One remember, by a single thread."""
    return measure_each("remember", [lambda t=text: bench.memory.remember(t) for text in bench.take_texts(ONE)])


def measure_turns(bench: Bench, burst: str) -> Figures:
    """A message of the user and its answer."""
    texts = bench.take_texts(2 * ONE)
    session = f"session {burst}"

    def add(asked: str, answered: str) -> None:
        bench.memory.add_message("user", asked, session=session)
        bench.memory.add_message("assistant", answered, session=session)

    return measure_each(
        "agent turn", [lambda a=a, b=b: add(a, b) for a, b in zip(texts[::2], texts[1::2], strict=True)]
    )


def measure_tasks(bench: Bench, burst: str) -> Figures:
    with bench.memory.task(f"task {burst}") as run:
        run.step("warm", lambda: burst)
        steps = measure_each("step", [lambda: run.step("step", lambda: burst) for _ in range(ONE)])
        return steps | measure_each("effect", [lambda: run.effect("effect", lambda: burst) for _ in range(ONE)])


def measure_bulk(bench: Bench, _: str, twins: list[Twin] = []) -> Figures:  # noqa: B006  (one twin for all bursts)
    """Many notes, and their rows once more by a bare executemany in transactions of the same size."""
    first = bench.next
    notes = turns(bench.take_texts(BULK), first)
    if not twins:
        bench.memory.remember("The first of all items.")
        twins.append(Twin(Path(bench.path), Path(f"{bench.path}-twin")))
    bulk = timed(lambda: bench.memory.remember_many(notes))[1]
    rows = twins[0].new_rows()
    floor = 0.0
    for start in range(0, BULK, BATCH):
        part = [(insert, some[start : start + BATCH]) for insert, some in rows]
        floor += timed(lambda part=part: twins[0].commit(part))[1]
    each = 1e6 / BULK
    return {"bulk, CPU µs a row": bulk * each, "floor, CPU µs a row": floor * each, "bulk / floor": bulk / floor}


def measure_repeat(bench: Bench, burst: str) -> Figures:
    """The same import once more, with the local model."""
    texts = bench.take_texts(REPEATED)
    notes = turns(texts, bench.next)
    first = timed(lambda: bench.memory.remember_many(notes, request_id=burst))[1]
    again = timed(lambda: bench.memory.remember_many(notes, request_id=burst))[1]
    each = 1e3 / REPEATED
    return {"import, CPU ms a row": first * each, "repeat, CPU ms a row": again * each}


def measure_threads(bench: Bench, _: str) -> Figures:
    """Writes a second, by threads that share a memory; and the processor's time of a write."""
    ready = threading.Barrier(THREADS + 1)
    texts = bench.take_texts(THREADS * EACH)

    def work(name: int) -> None:
        ready.wait()
        for text in texts[name::THREADS]:
            bench.memory.remember(text)

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


def measure_writes(bench: Bench, burst: str) -> Figures:
    """How many writes this process, one of several on a file, makes until the time that the burst names."""
    ends, texts = float(burst), bench.take_texts(1_000)
    for written in count():
        if time.time() >= ends:
            return {"writes": written}
        bench.memory.remember(texts[written])
    raise AssertionError


MEASURES = {
    "one": measure_one, "bulk": measure_bulk, "repeat": measure_repeat, "turn": measure_turns, "task": measure_tasks,
    "threads": measure_threads, "processes": measure_writes,
}  # fmt: skip


def serve(what: str, path: str) -> None:
    """A burst for each line that comes in."""
    bench = Bench(path, real=what == "repeat")
    with bench.memory as memory:
        memory.remember(f"Warm {os.getpid()}.")
        print("ready", flush=True)  # noqa: T201
        for line in sys.stdin:
            print(json.dumps(MEASURES[what](bench, line.strip())), flush=True)  # noqa: T201


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
        print(f"{name:30} {both}   new/old {ratio:.2f}", flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--new", type=Path, default=Path(__file__).resolve().parent.parent / "src")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--what", default=",".join(MEASURES))
    parser.add_argument("--serve", nargs=2)
    asked = parser.parse_args()
    if asked.serve:
        serve(*asked.serve)
        return
    for what in asked.what.split(","):
        compare(what, asked.old, asked.new, asked.rounds)


if __name__ == "__main__":
    main()
