"""One small task for each class of step, and what must be true of the world however its worker was killed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from engrain_conformance.embedder import HashEmbedder

from engrain import Compensate, Memory, Run

TASK = "order"
NOTES = ["The first note.", "The second note.", "The third note."]
Lines = Sequence[str]


class Outside:
    """The world: what was done there cannot be taken back. One line is one write; its first word says which step."""

    def __init__(self, path: Path, points: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._points = points

    def do(self, *words: str, key: str = "") -> str:
        self._points()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (" ".join([*words, key]).strip() + "\n").encode())
        os.close(file)
        self._points()
        return words[0]

    def done(self, what: str) -> str | None:
        """A probe."""
        return what if what in self.lines() else None

    def undo(self, what: str, *, key: str) -> None:
        self.do("undo", what, key=key)

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


def open_memory(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


# The tasks


def step(run: Run, outside: Outside) -> None:
    run.step("one", outside.do, "one")
    run.step("two", outside.do, "two")


def memory_step(run: Run, outside: Outside) -> None:
    run.remember_step("one", NOTES[0])
    run.remember_step("two", NOTES[1:])


def effect(policy: Callable[[Outside], Any], key_as: str | None = None) -> Callable[[Run, Outside], None]:
    def body(run: Run, outside: Outside) -> None:
        for name in ("one", "two"):
            run.effect(name, outside.do, name, on_ambiguous=policy(outside), key_as=key_as)

    return body


def sleep(run: Run, outside: Outside) -> None:
    run.step("one", outside.do, "one")
    run.sleep(0.01)
    run.step("two", outside.do, "two")


def event(run: Run, outside: Outside) -> None:
    run.step("one", outside.do, "one")
    assert run.wait_event("paid", timeout=60) == {"sum": 3}
    run.step("two", outside.do, "two")


def parallel(run: Run, outside: Outside) -> None:
    with ThreadPoolExecutor(2) as pool:
        steps = [pool.submit(run.step, "part", outside.do, f"part[{key}]", key=key) for key in "abc"]
        sent = pool.submit(run.effect, "mail", outside.do, "mail", on_ambiguous=outside.done)
    assert [one.result() for one in (*steps, sent)] == ["part[a]", "part[b]", "part[c]", "mail"]


def desk(run: Run, outside: Outside) -> None:
    """Working memory is changed in each step and before it."""
    for name in ("one", "two"):
        run.working.push_subgoal(name)
        run.step(name, lambda: (run.working.add_thought(name), outside.do(name)))  # noqa: B023
    assert run.working.subgoals == run.working.scratchpad == ("one", "two"), "working memory is not that of the steps"


def snapshot(run: Run, outside: Outside) -> None:
    for number, name in ((1, "one"), (2, "two")):
        run.step(name, outside.do, name)
        run.keep({"at": number})
        outside.do("kept", str(number))


def checkpoint(memory: Memory, outside: Outside) -> None:
    state = memory.tasks.load_checkpoint(TASK) or {"at": 0}
    while state["at"] < 3:
        state["at"] += 1
        memory.tasks.checkpoint(TASK, state)
        outside.do("kept", str(state["at"]))
    if memory.tasks.list()[0].status != "done":
        memory.tasks.checkpoint(TASK, {"at": 4}, done=True)


# What must be true in the end


def once(memory: Memory, lines: Lines) -> None:
    assert Counter(lines) == {"one": 1, "two": 1}, "an effect was repeated or lost"


def at_least_once(memory: Memory, lines: Lines) -> None:
    """What is not an effect may be done twice, if its worker is killed before the record."""
    assert set(lines) == {"one", "two"}
    assert len(lines) <= 3, "more than the step that was under way ran again"


def noted(memory: Memory, lines: Lines) -> None:
    assert sorted(item.text for item in memory.list()) == sorted(NOTES), "a memory step was doubled or lost"


def by_one_key(memory: Memory, lines: Lines) -> None:
    assert Counter(line.split()[0] for line in set(lines)) == {"one": 1, "two": 1}, "a receiver saw two requests"


def balanced(memory: Memory, lines: Lines) -> None:
    standing: dict[str, set[str]] = {"one": set(), "two": set()}
    spent: set[str] = set()
    for line in lines:
        *undone, name, key = line.split()
        if undone:
            standing[name].discard(key)
            spent.add(key)
        else:
            assert key not in spent, "its receiver would take it for a repetition of what was undone"
            standing[name].add(key)
        assert len(standing[name]) <= 1, "an effect was repeated before it was undone"
    assert all(standing.values()), "an effect was lost"


def parts(memory: Memory, lines: Lines) -> None:
    found = Counter(lines)
    assert set(found) == {"part[a]", "part[b]", "part[c]", "mail"}
    assert found["mail"] == 1, "an effect was repeated or lost"
    assert found.total() <= 6, "more than the steps that were under way ran again"


def kept(memory: Memory, lines: Lines) -> None:
    last = 4 if memory.tasks.list()[0].version == "checkpoint" else 2
    assert memory.tasks.load_checkpoint(TASK) == {"at": last}


class Case(NamedTuple):
    body: Callable[[Run, Outside], None]
    check: Callable[[Memory, Lines], None]


CASES: dict[str, Case] = {
    "step": Case(step, at_least_once),
    "memory": Case(memory_step, noted),
    "halt": Case(effect(lambda outside: "halt"), once),
    "probe": Case(effect(lambda outside: outside.done), once),
    "retry": Case(effect(lambda outside: "retry", "key"), by_one_key),
    "undo": Case(effect(lambda outside: Compensate(outside.undo), "key"), balanced),
    "sleep": Case(sleep, at_least_once),
    "event": Case(event, at_least_once),
    "parallel": Case(parallel, parts),
    "desk": Case(desk, at_least_once),
    "snapshot": Case(snapshot, kept),
    "checkpoint": Case(lambda run, outside: None, kept),
}


def play(kind: str, path: Path, points: Callable[[], None] = lambda: None) -> None:
    """Run the task of a class to its end."""
    outside = Outside(path.with_suffix(".out"), points)
    memory = open_memory(path)
    played(kind, memory, outside)
    memory.close()


def played(kind: str, memory: Memory, outside: Outside) -> None:
    if kind == "checkpoint":
        checkpoint(memory, outside)
        return
    with memory.task(TASK) as run:
        CASES[kind].body(run, outside)
