"""Small tasks that note in an outside file what they did, and that die at the point they are told to."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from engrain import LeaseLost, Memory, Run, TaskClaimed
from engrain.conformance.embedder import HashEmbedder
from engrain.tasks.lease import Tenure

TASK = "order"


class Points:
    """Every point at which this process may die: each call of SQLite to the file system, and around each effect."""

    def __init__(self, fatal: int | None = None) -> None:
        self.fatal = fatal
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()


class DyingVfs(apsw.VFS):
    def __init__(self, points: Points) -> None:
        self._below = apsw.vfs_names()[0]
        super().__init__("dying", self._below, makedefault=True)
        self._points = points

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        self._points()
        return DyingFile(self._below, name, flags, self._points)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802
        self._points()
        super().xDelete(name, sync)


class DyingFile(apsw.VFSFile):
    def __init__(self, below: str, name: Any, flags: list[int], points: Points) -> None:
        super().__init__(below, name, flags)
        self._points = points

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._points()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._points()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._points()
        super().xTruncate(size)

    def xLock(self, level: int) -> None:  # noqa: N802
        self._points()
        super().xLock(level)

    def xUnlock(self, level: int) -> None:  # noqa: N802
        self._points()
        super().xUnlock(level)


class Outside:
    """The world: what was done there cannot be taken back. One line is one write."""

    def __init__(self, path: Path, points: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._points = points

    def do(self, what: str, *_: Any, **__: Any) -> str:
        self._points()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{what}\n".encode())
        os.close(file)
        self._points()
        return what

    def done(self, what: str, *_: Any, **__: Any) -> str | None:
        """A probe."""
        return what if what in self.lines() else None

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


def open_memory(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


def step(run: Run, outside: Outside) -> None:
    run.step("one", outside.do, "one")
    run.step("two", outside.do, "two")


def memory(run: Run, outside: Outside) -> None:
    run.remember_step("one", "The first note.")
    run.remember_step("two", ["The second note.", "The third note."])


def effect(run: Run, outside: Outside) -> None:
    run.effect("one", outside.do, "one")
    run.effect("two", outside.do, "two")


def probed(run: Run, outside: Outside) -> None:
    run.effect("one", outside.do, "one", on_ambiguous=outside.done)
    run.effect("two", outside.do, "two", on_ambiguous=outside.done)


def waiting(run: Run, outside: Outside) -> None:
    run.sleep(0)
    assert run.wait_event("paid") == {"sum": 3}
    run.keep({"waited": True})
    run.step("one", outside.do, "one")


CLASSES: dict[str, Callable[[Run, Outside], None]] = {
    "step": step, "memory": memory, "effect": effect, "probed": probed, "waiting": waiting,
}  # fmt: skip


def play(kind: str, path: Path, fatal: int | None) -> int:
    """Run the task of a class to its end, or die at a point; the number of points there were."""
    points = Points(fatal)
    vfs = DyingVfs(points)
    memory = open_memory(path)
    with memory.task(TASK) as run:
        CLASSES[kind](run, Outside(path.with_suffix(".out"), points))
    memory.close()
    vfs.unregister()
    return points.count


# Programs of their own process


def twenty_five(path: Path, fatal: int) -> None:
    """25 steps; at one of them the process is killed, after an effect that must not happen twice."""
    outside = Outside(path.with_suffix(".out"))
    with open_memory(path) as memory, memory.task(TASK) as run:
        run.effect("mail", outside.do, "mail")
        for number in range(1, 26):
            if number == fatal:
                run.step(f"step {number}", lambda: os.kill(os.getpid(), signal.SIGKILL))
            run.step(f"step {number}", outside.do, str(number))


def zombie(path: Path, where: str) -> None:
    """Holds a short lease, tells that it has come to a place, and is stopped there by the test."""
    outside = Outside(path.with_suffix(".out"))

    def stopped(*_: Any) -> None:
        path.with_suffix(".there").touch()
        while not path.with_suffix(".go").exists():
            time.sleep(0.005)

    assure = Tenure.assure

    def paused(tenure: Tenure) -> None:
        stopped()
        assure(tenure)

    try:
        with open_memory(path) as memory, memory.task(TASK, lease=0.5) as run:
            run.step("one", outside.do, "one")
            if where == "before the effect":
                Tenure.assure = paused  # type: ignore[method-assign]
            else:
                run.step("two", stopped)
            run.effect("mail", lambda: outside.do("mail by the zombie"))
            run.remember_step("note", "Written by the zombie.")
    except LeaseLost as lost:
        print(f"LeaseLost: {lost}")  # noqa: T201


def worker(path: Path, tasks: int, seed: int) -> None:
    """Goes through the tasks in an order of its own until all are done."""
    outside = Outside(path.with_suffix(".out"))
    order = random.Random(seed)
    with open_memory(path) as memory:
        left = [f"task {number}" for number in range(tasks)]
        while left:
            name = order.choice(left)
            try:
                with memory.task(name, lease=5) as run:
                    if run.status == "running":
                        one_task(run, outside, name)
                left.remove(name)
            except TaskClaimed:
                time.sleep(0.002)


def one_task(run: Run, outside: Outside, name: str) -> None:
    run.step("plan", lambda: {"plan": name})
    run.effect("ship", outside.do, name, on_ambiguous=outside.done)
    run.remember_step("note", f"{name} was shipped.")


if __name__ == "__main__":
    program, where, *words = sys.argv[1:]
    {"twenty_five": lambda: twenty_five(Path(where), int(words[0])), "zombie": lambda: zombie(Path(where), words[0]),
     "worker": lambda: worker(Path(where), int(words[0]), int(words[1])),
     "play": lambda: play(words[0], Path(where), None)}[program]()  # fmt: skip
