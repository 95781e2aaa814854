"""A journal written by the first version with durable tasks loads, replays and goes on."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, StepAmbiguous, TaskEnded

FILES = Path(__file__).parents[1] / "files"
_spec = importlib.util.spec_from_file_location("journal_v1", FILES / "journal_v1.py")
assert _spec
assert _spec.loader
v1 = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(v1)


def never(*_: Any) -> Any:
    raise AssertionError("what was recorded done ran again")


@pytest.fixture
def old(tmp_path: Path, clock: SetClock) -> Iterator[Memory]:
    shutil.copy(FILES / "journal-v1.db", tmp_path / "old.db")
    clock.advance(3_600)
    with Memory(tmp_path / "old.db", user="ana", clock=clock, embedder=HashEmbedder(), background=False) as memory:
        yield memory


def test_every_task_is_there_as_it_was_left(old: Memory) -> None:
    found = {task.task: task.status for task in old.tasks.list()}
    assert found == {
        "order-42": "parked", "charge": "parked", "refused": "parked", "flaky": "parked", "nap": "waiting",
        "done": "done", "held": "running", "late": "expired", "job": "running",
    }  # fmt: skip
    kinds = [step.kind for step in old.tasks.timeline("order-42").steps]
    assert kinds == ["step", "step", "step", "step", "memory", "effect", "sleep", "event"]


def test_a_task_with_every_class_of_step_goes_on(old: Memory) -> None:
    ids = [item.id for item in old.list()]
    with old.task("order-42", version="1") as run:
        assert run.snapshot == {"at": "packing", "left": [3, 4]}
        assert v1.order(run, stop=False) == [
            {"order": "order-42", "parts": [1, 2.5, None, True, "ü"]}, "again", v1.LARGE, v1.LARGE, ids[0],
            "to ana@example.com", None, {"sum": 3}, "packed",
        ]  # fmt: skip
    assert old.slots.get("order.42").text == "Order 42 goes out in two parcels."  # type: ignore[union-attr]
    assert len(ids) == 1


def test_the_unfinished_ones_go_on_as_promised(old: Memory, clock: SetClock) -> None:
    with pytest.raises(StepAmbiguous) as halted, old.task("charge") as run:
        v1.charge(run, never)
    assert len(halted.value.key) == 32
    old.tasks.resolve("charge", "charge", "done", result="seen")
    with old.task("charge") as run:
        assert v1.charge(run, never) == "seen"
    with old.task("refused") as run:
        assert v1.charge(run, lambda sum_: sum_) == 12
    with old.task("flaky") as run:
        assert v1.flaky(run, lambda: "through") == "through"
    with old.task("done") as run:
        assert run.step("only", never) == "one"
    with old.task("held") as run:
        assert (run.step("before", never), run.epoch) == (1, 2)
    with pytest.raises(TaskEnded, match="expired"), old.task("late"):
        pass
    assert old.tasks.recover(v1.nap) == []
    clock.advance(40 * 86_400)
    assert [task.task for task in old.tasks.recover(v1.nap)] == ["nap"]
    assert old.tasks.load_checkpoint("job") == {"completed": ["a"], "results": {"a": "ü"}}
    old.tasks.checkpoint("job", {}, done=True)
