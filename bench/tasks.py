"""Measure durable tasks: python bench/tasks.py [--peers PYTHON] [--out FILE].

PYTHON is one that has bench/peers/tasks_requirements.txt.

Ratios are of alternating pairs in one run: the machine is the same for both sides, whatever else it does meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
from engrain_conformance.embedder import HashEmbedder
from harness.syncs import watched_syncs
from harness.twin import Twin

from engrain import Memory, StepAmbiguous, TaskWaiting

CHILD = Path(__file__).parent / "peers" / "tasks_child.py"
BYTES, STEPS, LONG = 1024, 400, 10_000


def payload(number: int) -> str:
    return (f"{number:06d}" * (BYTES // 6 + 1))[:BYTES]


def opened(path: Path) -> Memory:
    return Memory(path, user="bench", embedder=HashEmbedder(), background=False)


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class Bare:
    """A bare FULL commit of one row into a log."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        for statement in (
            "pragma journal_mode=wal",
            "pragma synchronous=full",
            "create table row (n integer primary key, text text)",
        ):
            self._db.execute(statement).fetchall()

    def commit(self, text: str) -> None:
        self._db.execute("begin immediate")
        self._db.execute("insert into row (text) values (?)", (text,))
        self._db.execute("commit")


Rows = list[tuple[str, list[tuple[Any, ...]]]]


def pairs(folder: Path, count: int) -> dict[str, Any]:
    """Alternately a step, its row once more as a bare commit, an effect, and two bare commits of its row."""
    times: dict[str, list[float]] = {"step": [], "bare": [], "effect": [], "two_bare": []}
    with opened(folder / "pairs.db") as memory, memory.task("pairs") as run:
        text = payload(0)
        run.step("warm", lambda: text)
        with Twin(folder / "pairs.db", folder / "twin.db") as twin:
            run.step("step", lambda: text)
            of_step = twin.new_rows()
            run.effect("effect", lambda: text)
            of_effect = twin.new_rows()
            for number in range(10**6, 10**6 + 3 * count, 3):
                rows, first, second = again(of_step, number), again(of_effect, number + 1), again(of_effect, number + 2)
                times["step"].append(seconds(lambda: run.step("step", lambda: text)))
                times["bare"].append(seconds(lambda: twin.commit(rows)))  # noqa: B023
                times["effect"].append(seconds(lambda: run.effect("effect", lambda: text)))
                times["two_bare"].append(seconds(lambda: (twin.commit(first), twin.commit(second))))  # noqa: B023
    report: dict[str, Any] = {"pairs": count}
    # The tenth percentile is nearer to the work itself where other programs make everybody wait for a turn.
    for name, share in (("p50", 0.5), ("p10", 0.1)):
        at = {side: sorted(took)[int(share * count)] for side, took in times.items()}
        report[name] = {
            "step_ms": 1e3 * at["step"],
            "effect_ms": 1e3 * at["effect"],
            "bare_ms": 1e3 * at["bare"],
            "step_ratio": at["step"] / at["bare"],
            "effect_ratio": 2 * at["effect"] / at["two_bare"],
        }
    return report


def again(rows: Rows, number: int) -> Rows:
    """The row of a step once more, as another occurrence."""
    return [(insert, [(number, one[1], number, *one[3:]) for one in some]) for insert, some in rows]


def drawn_out(folder: Path, count: int) -> dict[str, Any]:
    """The same where a sync takes 2 ms, as on a disk that really writes through: both sides go through the layer."""
    place = folder / "drawn-out"
    place.mkdir()
    with watched_syncs(0.002):
        return pairs(place, count)


def growth(folder: Path) -> dict[str, Any]:
    path = folder / "growth.db"
    with opened(path):
        pass
    empty = path.stat().st_size
    with opened(path) as memory, memory.task("growth") as run:
        for number in range(STEPS):
            run.step("step", payload, number)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.name.startswith("growth.db"))
    return {"payload": STEPS * BYTES, "bytes": size, "empty_store": empty, "ratio": size / (STEPS * BYTES)}


def long_task(folder: Path) -> dict[str, Any]:
    """10,000 steps: the cost of the first and of the last hundred, and the time to be back where it stopped."""
    took: list[float] = []
    with opened(folder / "long.db") as memory:
        try:
            with memory.task("long") as run:
                for number in range(LONG):
                    took.append(seconds(lambda: run.step("step", lambda: number)))  # noqa: B023
                run.sleep(3_600, block=False)
        except TaskWaiting:
            pass
        resumes, cpu = [], []
        for _ in range(5):
            began, used = time.perf_counter(), time.process_time()
            try:
                with memory.task("long") as run:
                    for number in range(LONG):
                        run.step("step", lambda: number)  # noqa: B023
                    resumes.append(time.perf_counter() - began)
                    cpu.append(time.process_time() - used)
                    run.sleep(3_600, block=False)
            except TaskWaiting:
                pass
    first, last = statistics.median(took[5:105]), statistics.median(took[-100:])
    return {
        "steps": LONG,
        "first_100_ms": 1e3 * first,
        "last_100_ms": 1e3 * last,
        "ratio": last / first,
        "resume_ms_best": 1e3 * min(resumes),
        "resume_ms_median": 1e3 * statistics.median(resumes),
        "resume_cpu_ms": 1e3 * min(cpu),
    }


def ours_as_a_peer(folder: Path) -> dict[str, Any]:
    """The same 400 steps as the peers run, with a bare commit after each."""
    took: list[float] = []
    beside: list[float] = []
    bare = Bare(folder / "bare.db")
    with opened(folder / "engrain.db") as memory, memory.task("task") as run:
        for number in range(STEPS):
            took.append(seconds(lambda: run.step("one", payload, number)))  # noqa: B023
            beside.append(seconds(lambda: bare.commit(payload(number))))  # noqa: B023
    size = sum(file.stat().st_size for file in folder.iterdir() if file.name.startswith("engrain.db"))
    return {"step_s": statistics.median(took), "bytes": size, "bare_s": statistics.median(beside)}


def our_window(folder: Path) -> dict[str, Any]:
    """The effect happens and its process is killed before the record; then another worker starts the task."""
    effects = folder / "effects"

    def effect() -> None:
        with effects.open("a") as file:
            file.write("sent\n")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        with opened(folder / "window.db") as memory, memory.task("task") as run:
            run.effect("effect", effect)
    os.waitpid(child, 0)
    reported = False
    try:
        with opened(folder / "window.db") as memory, memory.task("task") as run:
            run.effect("effect", effect)
    except StepAmbiguous:
        reported = True
    return {"effects_after_a_kill_in_the_window": effects.read_text().count("\n"), "reported": reported}


def peers(python: str, folder: Path, rounds: int) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {"engrain": [], "dbos": [], "langgraph": []}
    for number in range(rounds):
        for system in found:
            place = folder / f"{system}-{number}"
            place.mkdir()
            found[system].append(
                ours_as_a_peer(place) if system == "engrain" else _child(python, system, "steps", place)
            )
    answer: dict[str, Any] = {}
    for system, reports in found.items():
        middle = {key: statistics.median(report[key] for report in reports) for key in ("step_s", "bytes", "bare_s")}
        answer[system] = {
            "step_ms": 1e3 * middle["step_s"],
            "bare_ms": 1e3 * middle["bare_s"],
            "ratio": statistics.median(report["step_s"] / report["bare_s"] for report in reports),
            "bytes_400_steps": middle["bytes"],
        }
        if system != "engrain":
            place = folder / f"{system}-window"
            place.mkdir()
            _child(python, system, "window", place, killed=True)
            answer[system]["effects_after_a_kill_in_the_window"] = _child(python, system, "window", place)["effects"]
    place = folder / "dbos-resume"
    place.mkdir()
    _child(python, "dbos", "resume", place, killed=True)
    answer["dbos"]["resume_1000_steps_ms"] = 1e3 * _child(python, "dbos", "resume", place)["resume_s"]
    answer["engrain"].update(our_window(folder))
    return answer


def _child(python: str, system: str, what: str, place: Path, killed: bool = False) -> dict[str, Any]:
    done = subprocess.run([python, str(CHILD), system, what, str(place)], capture_output=True, text=True)
    if killed:
        return {}
    if done.returncode:
        raise SystemExit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--peers", metavar="PYTHON", help="a Python that has DBOS and LangGraph")
    options.add_argument("--pairs", type=int, default=300)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    with TemporaryDirectory(prefix="engrain-bench-") as name:
        folder = Path(name)
        report: dict[str, Any] = {
            "machine": {
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
                "sqlite": apsw.sqlite_lib_version(),
            },
            "load_average": os.getloadavg()[0],
            "pairs": pairs(folder, given.pairs),
            "pairs_with_syncs_of_2_ms": drawn_out(folder, given.pairs),
            "growth": growth(folder),
            "long": long_task(folder),
        }
        if given.peers:
            report["peers"] = peers(given.peers, folder, given.rounds)
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
