"""What checksums and digests cost: two stores take turns in one process, one of them without any.

    python bench/checksums.py [ROUNDS]

The figure is processor time, because a busy machine changes the time on the clock. The embedder is a hash, so that
writing is what is measured. Ratios are medians of the rounds' own ratios.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.stores.sqlite import connection
from engrain.stores.sqlite.connection import NO_CHECKSUM, Connection, compute_checksum

ONE, BATCHES, BATCH, STEPS = 60, 4, 100, 60
_numbers = count()


def write_text() -> str:
    number = next(_numbers)
    return f"Fact {number} is about a parcel that came on day {number % 31}."


def remember(memory: Memory) -> float:
    began = time.process_time()
    for _ in range(ONE):
        memory.remember(write_text())
    return (time.process_time() - began) / ONE


def remember_many(memory: Memory) -> float:
    began = time.process_time()
    for _ in range(BATCHES):
        memory.remember_many([write_text() for _ in range(BATCH)])
    return (time.process_time() - began) / BATCHES


def run_steps(memory: Memory) -> float:
    with memory.task(f"task {next(_numbers)}") as run:
        began = time.process_time()
        for number in range(STEPS):
            run.step("step", lambda: number)  # noqa: B023
        return (time.process_time() - began) / STEPS


MEASURED: dict[str, Callable[[Memory], float]] = {
    "remember": remember,
    f"remember_many of {BATCH}": remember_many,
    "step of a task": run_steps,
}


def open_memory(path: Path, plain: bool) -> Memory:
    memory = Memory(path, user="ana", embedder=HashEmbedder(), background=False)
    if plain:
        store: Any = memory.store.services.items
        connect = store._pool._connect
        store._pool._connect = lambda: accept_all(connect())
        accept_all(store._writer.connection())._has_triggers = True
        for idle in store._pool._idle:
            accept_all(idle)
    return memory


def accept_all(db: Connection) -> Connection:
    """Let reads check nothing."""
    db._add_function("checked_row", lambda value, *_: value)
    return db


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURED}
    with tempfile.TemporaryDirectory(prefix="engrain-bench-") as name:
        folder = Path(name)
        memories = open_memory(folder / "checked.db", False), open_memory(folder / "plain.db", True)
        for number in range(rounds + 2):
            for what, measure in MEASURED.items():
                pair = [0.0, 0.0]
                for which in (0, 1) if number % 2 else (1, 0):
                    connection.compute_checksum = (lambda *_: NO_CHECKSUM) if which else compute_checksum
                    pair[which] = measure(memories[which])
                if number >= 2:  # the first rounds warm up
                    took[what].append((pair[0], pair[1]))
    for what, pairs in took.items():
        checked, plain = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
        ratio = statistics.median(first / second for first, second in pairs)
        sys.stdout.write(f"{what:22} {plain:7.3f} ms plain, {checked:7.3f} ms with, ratio {ratio:.3f}\n")


if __name__ == "__main__":
    main()
