"""Time many writers at once: threads of one process, and processes on one file."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from engrain.memory import Memory
from harness.syncs import watched_syncs
from harness.synthetic import PreparedEmbedder
from harness.timing import median

THREADS = 32
BENCH = Path(__file__).parents[1]  # where `harness` is found by a child process
PROCESSES = 6
SLOW_DISK = 0.002


def threads_against_one(
    folder: Path, prepared: PreparedEmbedder, bare_ms: float, plan: tuple[float, int]
) -> dict[str, Any]:
    """Commits a second of 32 threads over those of one, alternately; `plan` is (seconds, rounds).

    Sharing a sync pays where a sync costs something: on a disk faster than 2 ms each is drawn out to 2 ms, and the
    figure for the disk as it is stands beside it.
    """
    report = {"as_it_is": _rates(folder / "fast", prepared, 0.0, plan)}
    if bare_ms < SLOW_DISK * 1e3:
        report["syncs_of_2_ms"] = _rates(folder / "slow", prepared, SLOW_DISK, plan)
    chosen = report.get("syncs_of_2_ms", report["as_it_is"])
    return {**report, "bare_commit_ms": bare_ms, "ratio": chosen["ratio"], "slowed": "syncs_of_2_ms" in report}


def _rates(folder: Path, prepared: PreparedEmbedder, least: float, plan: tuple[float, int]) -> dict[str, Any]:
    folder.mkdir()
    names = count()
    one: list[float] = []
    many: list[float] = []
    with watched_syncs(least), Memory(folder / "threads.db", user="bench", embedder=prepared) as memory:
        memory.remember("the first of all")
        for _ in range(plan[1]):
            one.append(_commits(memory, 1, plan[0], names))
            many.append(_commits(memory, THREADS, plan[0], names))
    alone, together = median(one), median(many)
    return {"one_thread_per_second": alone, "threads_per_second": together, "ratio": together / alone}


def _commits(memory: Memory, threads: int, seconds: float, names: count[int]) -> float:
    done = [0] * threads
    errors: list[BaseException] = []
    start = threading.Barrier(threads + 1)

    def write(me: int) -> None:
        start.wait()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                memory.remember(f"note {next(names)} of thread {me}")
                done[me] += 1
        except Exception as exc:  # noqa: BLE001  # shown to the caller below
            errors.append(exc)

    workers = [threading.Thread(target=write, args=(me,)) for me in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return sum(done) / (time.perf_counter() - began)


def processes(folder: Path, seconds: float) -> dict[str, Any]:
    """Six processes write to one file as fast as they can: who got how many commits, and who waited longest."""
    store = folder / "processes.db"
    command = [sys.executable, "-m", "harness.child", "write", str(store), str(seconds)]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, cwd=BENCH, stdin=pipe, stdout=pipe, stderr=pipe) for _ in range(PROCESSES)]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()  # it has opened the store
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    answers = [_answer(*process.communicate()) for process in running]
    commits = [answer["commits"] for answer in answers]
    return {
        "commits": sorted(commits),
        "slowest_over_fastest": min(commits) / max(max(commits), 1),
        "longest_wait_seconds": max(answer["longest"] for answer in answers),
        "errors": [answer["error"] for answer in answers if answer["error"]],
    }


def _answer(out: bytes, errors: bytes) -> dict[str, Any]:
    if out:
        return orjson.loads(out)  # type: ignore[no-any-return]
    return {"commits": 0, "longest": 0.0, "error": errors.decode(errors="replace")[-300:] or "it ended without a word"}
