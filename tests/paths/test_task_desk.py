"""A durable task is the one at hand in working memory, and its state travels with it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from conftest import Open

from engrain import InvalidInput, Memory


def halfway(memory: Memory) -> None:
    with suppress(RuntimeError), memory.task("order", goal="ship the order") as run:
        memory.working.push_subgoal("pack it")
        memory.working.set_variable("weight", 2.5)
        run.step("pack", lambda: "packed")
        raise RuntimeError("the power went")


def test_entering_puts_it_at_hand_and_leaving_takes_it_away(memory: Memory) -> None:
    with memory.task("order", goal="ship the order") as run:
        assert (memory.working.task, memory.working.task_id) == ("ship the order", "order")
        assert "ship the order" in str(memory.recall("What are we doing?"))
        run.step("pack", lambda: 1)
    assert memory.working.task == ""


def test_what_was_left_half_way_is_at_hand_again_in_another_process(open_memory: Open) -> None:
    first = open_memory()
    halfway(first)
    assert first.working.task == ""
    first.close()
    second = open_memory()
    with second.task("order", goal="ship the order") as run:
        assert second.working.subgoals == ("pack it",)
        assert second.working.get_variable("weight") == 2.5
        run.step("pack", lambda: "packed")


def test_what_a_program_keeps_itself_is_not_overwritten(memory: Memory) -> None:
    with suppress(RuntimeError), memory.task("order") as run:
        run.keep({"page": 7})
        raise RuntimeError
    with memory.task("order") as run:
        assert run.snapshot == {"page": 7}


def test_a_task_begun_beside_another_leaves_working_memory_alone(memory: Memory) -> None:
    memory.start_task("Write the report")
    with memory.task("order", goal="ship the order"):
        assert memory.working.task == "Write the report"
    assert memory.working.task == "Write the report"
    memory.working.clear()
    with memory.task("quiet", working=False):
        assert memory.working.task == ""


def test_an_outcome_becomes_knowledge_once_and_counts_for_its_procedure(memory: Memory) -> None:
    memory.procedural.learn("ship", ["pack", "send"])
    for _ in range(2):
        with memory.task("order", goal="ship the order", procedure="ship") as run:
            run.step("pack", lambda: 1)
            run.outcome = "sent with parcel 17"
    told = [item.text for item in memory.list({"kind": "fact"})]
    assert told == ["Successfully completed: ship the order. Outcome: sent with parcel 17"]
    found = memory.procedural.get("ship")
    assert found is not None
    assert (found.tally.successes, found.tally.failures) == (1, 0)


def test_a_task_that_stops_half_way_counts_for_nothing_yet(memory: Memory) -> None:
    memory.procedural.learn("ship", ["pack", "send"])
    with pytest.raises(RuntimeError), memory.task("order", procedure="ship"):
        raise RuntimeError
    found = memory.procedural.get("ship")
    assert found is not None
    assert found.tally.successes + found.tally.failures == 0
    with memory.task("order"):
        pass
    found = memory.procedural.get("ship")
    assert found is not None
    assert found.tally.successes == 1


def test_a_procedure_needs_working_memory(memory: Memory) -> None:
    memory.procedural.learn("ship", ["pack"])
    with pytest.raises(InvalidInput, match="working"):
        memory.task("order", procedure="ship", working=False)


def test_the_outcome_is_kept_before_the_end_is_recorded(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies right after the end of a task has kept what it led to."""
    ended: list[bool] = []
    journal = memory._open.kit.journal
    assert journal is not None
    true_end = type(journal).end

    def end(self: object, *args: object) -> object:
        ended.append(bool(memory.list({"kind": "fact"})))
        return true_end(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(journal), "end", end)
    with memory.task("order", goal="ship it") as run:
        run.outcome = "sent"
    assert ended == [True]
