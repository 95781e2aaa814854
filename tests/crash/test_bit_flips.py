"""One flipped bit anywhere in the file is seen: by a typed error, by the doctor, or because no answer changes."""

from __future__ import annotations

import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from counting import choose_points
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Store
from engrain.core.errors import EngrainError

FLIPS, FEW_FLIPS = 1_200, 16
SEED = 13
Answers = dict[str, str]


def open_store(path: Path) -> Store:
    return Store(path, clock=SetClock(), embedder=HashEmbedder())


def fill(path: Path) -> None:
    """Write rows of every table that an answer is read from."""
    with closing(open_store(path)) as store:
        ana, bo = store.memory(user="ana"), store.memory(user="bo", agent="helper")
        for memory, town in ((ana, "Quito"), (bo, "Lagos")):
            memory.remember(f"I live in {town}.", slot="user.city", metadata={"page": 7, "tags": ["home", town]})
            memory.remember(f"I moved to {town} Norte.", slot="user.city", source="letter")
            memory.remember_many([f"The {town} museum has {n} rooms and {n * 7} paintings." for n in range(12)])
            memory.relations.add(town, "lies in", "a valley")
            memory.procedural.learn("bake bread", ["knead the dough", "bake for 40 minutes"])
            memory.procedural.used(memory.procedural.require("bake bread").id, "baking", success=False, note="brown")
            memory.start_session(session := "monday")
            for n in range(8):
                memory.add_message("user", f"My sister number {n} is called Zo{n}. She likes tea.", session=session)
                memory.add_message("assistant", f"Zo{n} likes tea, I see.", session=session)
            memory.episodic.record_tool_call("search", {"q": town}, "three pages " * 200, session=session)
            memory.episodic.record_error("the oven is broken", session=session)
            with memory.task("baking", goal="a loaf of bread") as run:
                run.step("weigh", lambda: {"flour": 500})
                run.step("knead", lambda: "dough " * 3_000)
            wrong = memory.remember("The bakery opens at nine.")
            memory.forget(memory.correct(wrong, "The bakery opens at eight."))
            memory.remember("A request that is repeated.", request_id=f"first-{town}")


def answer(store: Store) -> Answers:
    """Ask everything that can be asked, as text."""
    found: Answers = {"memories": repr(store.memories()), "audit": repr(store.audit())}
    for user, agent in (("ana", None), ("bo", "helper")):
        memory = store.memory(user=user, agent=agent)
        for name, ask in questions(memory):
            found[f"{user} {name}"] = repr(ask())
    return found


def questions(memory: Memory) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "list", lambda: memory.list(limit=1_000, history=True)
    yield "recall", lambda: [(hit.item.id, hit.item.text) for hit in memory.recall("the museum's paintings", n=8)]
    yield "then", lambda: str(memory.recall("town", n=8, as_of="2040-01-01T12:00:00Z"))
    yield "prompt", lambda: memory.prompt("who likes tea?")
    yield "explain", lambda: [memory.explain(item.id) for item in memory.list(limit=40)]
    yield "slots", lambda: (memory.slots.list(), memory.slots.history("user.city"))
    yield "relations", lambda: memory.relations.list()
    yield "procedures", lambda: (memory.procedural.versions("bake bread"), memory.procedural.trials("bake bread"))
    yield "sessions", lambda: (memory.sessions.list(), memory.sessions.messages("monday", 50))
    yield "window", lambda: memory.session("monday").conversation.window()
    yield "episodes", lambda: [(one, memory.episodic.raw(one.id)) for one in memory.episodic.recent(100)]
    yield "tasks", lambda: (memory.tasks.list(), memory.tasks.timeline("baking"))
    yield (
        "repeat",
        lambda: memory.remember(
            "A request that is repeated.", request_id=f"first-{'Quito' if memory.scope.user == 'ana' else 'Lagos'}"
        ),
    )


def judge(path: Path, right: Answers) -> tuple[str, str]:
    """("same" | "refused" | "seen" | "unseen" | "untyped", what happened)."""
    seen = ""
    changed: list[str] = []
    try:
        with warnings.catch_warnings(), closing(open_store(path)) as store:
            warnings.simplefilter("ignore")
            bad = [one.name for one in store.doctor() if one.state == "fail"]
            seen = ", ".join(bad)
            found = answer(store)
            changed = [name for name in right if found[name] != right[name]]
    except EngrainError as exc:
        return "refused", f"{type(exc).__name__}: {exc}"
    except Exception as exc:  # noqa: BLE001  (the point of this test)
        return "untyped", f"{type(exc).__name__}: {exc}"
    if not changed:
        return "same", seen
    return ("seen" if seen else "unseen"), f"{changed} {seen}"


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def run_matrix(folder: Path, count: int) -> tuple[Counter[str], list[str]]:
    whole = folder / "whole.db"
    fill(whole)
    copy = folder / "copy.db"
    shutil.copy(whole, copy)
    with closing(open_store(copy)) as store:
        assert not [one for one in store.doctor() if one.state == "fail"]
        right = answer(store)
    # Free pages say nothing: bits of bytes that are not zero.
    content = whole.read_bytes()
    bits = [8 * at for at, byte in enumerate(content) if byte]
    chosen = random.Random(SEED)
    results: Counter[str] = Counter()
    faults: list[str] = []
    for at in sorted(chosen.sample(bits, count)):
        bit = at + chosen.randrange(8)
        for old in folder.glob("copy.db*"):
            old.unlink()
        shutil.copy(whole, copy)
        flip(copy, bit)
        result, why = judge(copy, right)
        results[result] += 1
        if result in ("unseen", "untyped"):
            faults.append(f"bit {bit} (page {bit // 8 // 4096 + 1}): {result}: {why}")
    return results, faults


@pytest.mark.parametrize("count", [FEW_FLIPS, pytest.param(FLIPS, marks=pytest.mark.slow)])
def test_a_flipped_bit_never_changes_an_answer_unseen(
    tmp_path: Path, count: int, report_counts: Callable[..., None]
) -> None:
    count = len(choose_points(range(count)))
    results, faults = run_matrix(tmp_path, count)
    assert not faults, "\n".join(faults)
    report_counts(flips=count, **results)
    assert results["refused"] + results["seen"] > count // 2, results  # the bits are those of live rows
