"""A durable task is the current task of working memory, whose state is stored with it."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from killing import dies, killed_in
from memory_kit import Open

from engrain import Conflict, InvalidInput, LeaseLost, Memory, NotFound, Run, TaskError
from engrain.core.model.items import TRUST, Source


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


# With each step, and no later


def noting(run: Run, *, fatal: bool = False) -> None:
    """Changes working memory inside its steps and between them."""

    def look() -> str:
        run.working.add_thought("seen")
        return "seen"

    run.working.push_subgoal("look")
    run.step("look", look)
    run.working.add("Between the steps.")
    run.effect("send", lambda: run.working.set_variable("sent", True))
    run.remember_step("note", "It was sent.")
    run.working.push_subgoal("rest")
    if fatal:
        run.step("die", dies)


def test_a_killed_task_has_working_memory_as_its_last_step_left_it(memory: Memory, clock: SetClock) -> None:
    killed_in(memory, clock, "order", lambda run: noting(run, fatal=True))
    memory.working.clear()
    with memory.task("order") as run:
        assert run.working.subgoals == ("look",)
        assert (run.working.scratchpad, run.working.get_variable("sent")) == (("seen",), True)
        assert [item.text for item in run.working.items] == ["Between the steps."]


def test_what_happens_between_replayed_steps_is_not_noted_twice(memory: Memory, clock: SetClock) -> None:
    for _ in range(2):
        killed_in(memory, clock, "order", lambda run: noting(run, fatal=True))
        memory.working.clear()
    with memory.task("order") as run:
        noting(run)
        assert run.working.subgoals == ("look", "rest")
        assert run.working.scratchpad == ("seen",)
        assert [item.text for item in run.working.items] == ["Between the steps."]


def test_a_step_that_fails_leaves_nothing_on_the_desk(memory: Memory) -> None:
    def fails() -> None:
        memory.working.add_thought("half a thought")
        raise RuntimeError

    with suppress(RuntimeError), memory.task("order") as run:
        run.step("a", lambda: 1)
        run.step("b", fails)
    with memory.task("order") as run:
        assert run.working.scratchpad == ()


def test_working_memory_and_what_a_program_keeps_travel_together(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> None:
        run.keep({"page": 7})
        run.step("think", lambda: run.working.add_thought("hm"))
        dies()

    killed_in(memory, clock, "order", body)
    memory.working.clear()
    assert memory.tasks.load_checkpoint("order") == {"page": 7}
    with memory.task("order") as run:
        assert (run.snapshot, run.working.scratchpad) == ({"page": 7}, ("hm",))


def test_a_step_that_changes_nothing_there_stores_nothing(open_memory: Open) -> None:
    memory = open_memory()
    journal = memory.store.services.journal
    assert journal is not None
    with memory.task("order") as run:
        run.step("a", lambda: 1)
        first = journal.task(memory.scope, "order")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(run.working), "snapshot", lambda _: pytest.fail("nothing has changed"))
            run.step("b", lambda: 1)
        assert journal.task(memory.scope, "order") == first


def test_steps_side_by_side_leave_the_newest_state(open_memory: Open, clock: SetClock) -> None:
    def body(run: Run) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(lambda n: run.step("add", lambda: run.working.set_variable(f"v{n}", n), key=str(n)), range(40))
            )
        dies()

    memory = open_memory()
    killed_in(memory, clock, "order", body)
    memory.working.clear()
    with memory.task("order") as run:
        assert sum(name.startswith("v") for name in run.working.variables) == 40


# Two at once


def test_a_task_begun_beside_another_has_a_working_memory_of_its_own(memory: Memory) -> None:
    memory.working.start("Write the report")
    with memory.task("order", goal="ship the order") as run:
        assert memory.working.task == "Write the report"
        assert run.working.task == "ship the order"
        run.working.add_thought("mine alone")
    assert memory.working.task == "Write the report"
    assert memory.working.scratchpad == ()
    memory.working.clear()
    with memory.task("quiet", working=False) as run:
        assert memory.working.task == ""
        with pytest.raises(TaskError, match="working=False"):
            run.working  # noqa: B018


def test_of_many_tasks_at_once_one_has_the_memory_s_own(memory: Memory) -> None:
    count = 8
    together = threading.Barrier(count)

    def work(number: int) -> bool:
        with memory.task(f"order {number}", goal=f"goal {number}") as run:
            together.wait(180)
            run.step("think", lambda: run.working.add_thought(f"of {number}"))
            together.wait(180)
            assert (run.working.task, run.working.scratchpad) == (f"goal {number}", (f"of {number}",))
            together.wait(180)
            return run.working is memory.working

    with ThreadPoolExecutor(count) as pool:
        assert sum(pool.map(work, range(count))) == 1
    assert memory.working.task == ""


def test_what_lies_there_meanwhile_is_left_alone(memory: Memory) -> None:
    with memory.task("order", goal="ship the order") as run:
        run.step("a", lambda: 1)
        memory.working.clear()
        memory.working.start("Write the report")
        run.step("b", lambda: 2)
    assert memory.working.task == "Write the report"


def test_a_task_that_is_only_replayed_is_not_at_hand(memory: Memory) -> None:
    for _ in range(2):
        with memory.task("order") as run:
            run.working.push_subgoal("think")
            run.step("think", lambda: run.working.add_thought("hm"))
            assert (run.working.subgoals, run.working.scratchpad) == (("think",), ("hm",))
            assert (memory.working is run.working) == (run.status == "running")
        assert memory.working.subgoals == ()


def test_a_task_that_stood_back_takes_its_own_along(memory: Memory, clock: SetClock) -> None:
    memory.working.start("Write the report")
    killed_in(memory, clock, "order", lambda run: noting(run, fatal=True))
    with memory.task("order") as run:
        assert run.working.scratchpad == ("seen",)
        assert run.working is not memory.working


# What it leads to


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


def test_without_working_memory_an_outcome_is_recorded_and_not_remembered(memory: Memory) -> None:
    with memory.task("order", working=False) as run:
        run.outcome = "shipped"
    assert memory.tasks.list()[0].outcome == "shipped"
    assert memory.list() == []


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
    journal = memory.store.services.journal
    assert journal is not None
    true_end = type(journal).end

    def end(self: object, *args: object) -> object:
        ended.append(bool(memory.list({"kind": "fact"})))
        return true_end(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(journal), "end", end)
    with memory.task("order", goal="ship it") as run:
        run.outcome = "sent"
    assert ended == [True]


def test_a_task_that_was_cancelled_meanwhile_leaves_no_success(memory: Memory) -> None:
    memory.procedural.learn("ship", ["pack"])
    with pytest.raises(LeaseLost), memory.task("order", goal="ship it", procedure="ship") as run:  # noqa: PT012
        run.step("pack", lambda: 1)
        memory.tasks.cancel("order", "not wanted")
        run.outcome = "sent"
    assert not memory.list({"kind": "fact"})
    assert counted(memory) == (0, 0)


def counted(memory: Memory) -> tuple[int, int]:
    found = memory.procedural.get("ship")
    assert found is not None
    return found.tally.successes, found.tally.failures


def test_a_task_beside_another_counts_for_its_procedure_too(memory: Memory) -> None:
    memory.procedural.learn("ship", ["pack", "send"])
    memory.working.start("Write the report")
    with memory.task("order", procedure="ship") as run:
        run.outcome = "sent"
    assert counted(memory) == (1, 0)
    assert [item.text for item in memory.list({"source": "order"})] == ["Successfully completed: order. Outcome: sent"]


def test_a_task_that_expires_counts_as_a_failure_once(memory: Memory, clock: SetClock) -> None:
    memory.procedural.learn("ship", ["pack", "send"])
    killed_in(memory, clock, "order", dies, procedure="ship", max_age=30)
    for _ in range(2):
        memory.tasks.recover(lambda run: None)
    assert counted(memory) == (0, 1)
    assert memory.procedural.trials("ship")[0].note


def test_a_cancelled_task_has_failed_only_if_it_was_parked(memory: Memory, clock: SetClock) -> None:
    memory.procedural.learn("ship", ["pack", "send"])
    killed_in(memory, clock, "unwanted", dies, procedure="ship")
    memory.tasks.cancel("unwanted")
    assert counted(memory) == (0, 0)
    with suppress(RuntimeError), memory.task("broken", procedure="ship"):
        raise RuntimeError("out of paper")
    memory.tasks.cancel("broken", "give it up")
    assert counted(memory) == (0, 1)
    assert memory.procedural.trials("ship")[0].note == "RuntimeError: out of paper"


def test_a_procedure_that_was_forgotten_stops_no_task(memory: Memory, clock: SetClock) -> None:
    id = memory.procedural.learn("ship", ["pack", "send"])
    killed_in(memory, clock, "order", dies, procedure="ship")
    memory.forget(str(id))
    with memory.task("order") as run:
        run.outcome = "sent"
    assert memory.tasks.list()[0].status == "done"
    assert len(memory.list({"source": "order"})) == 1


def test_an_unknown_procedure_leaves_the_task_to_others(memory: Memory) -> None:
    with pytest.raises(NotFound, match="no procedure"), memory.task("order", procedure="unknown"):
        pass
    assert memory.working.task == ""
    with memory.task("order") as run:
        run.step("a", lambda: 1)


def test_a_parked_task_that_could_not_be_entered_stays_parked(memory: Memory) -> None:
    with suppress(RuntimeError), memory.task("order"):
        raise RuntimeError("the power went")
    with pytest.raises(NotFound, match="'ship'"), memory.task("order", procedure="ship"):
        pass
    assert [(one.status, one.outcome) for one in memory.tasks.list()] == [("parked", "RuntimeError: the power went")]


def test_an_outcome_is_forgotten_with_what_it_cites(memory: Memory) -> None:
    with memory.task("order") as run:
        id = run.remember_step("note", "Ana lives in Lisbon.")
        run.outcome = "sent to Lisbon"
        run.cites = (id,)
    assert len(memory.list({"source": "order"})) == 1
    memory.forget(id)
    assert memory.list({"source": "order"}) == []


def test_an_outcome_is_trusted_no_further_than_the_items_of_its_steps(memory: Memory) -> None:
    with memory.task("order") as run:
        page = run.remember_step("page", "The shop has moved to Minsk.", source=Source("shop.example", "web"))
        run.remember_step("note", "Ana lives in Lisbon.")
        run.outcome = "sent to Minsk"
    (outcome,) = memory.list({"source": "order"})
    assert outcome.trust == TRUST["web"]
    memory.forget(outcome.id)
    assert memory.get(page) is not None
    with memory.task("again") as run:
        page = run.remember_step("page", "The shop is closed.", source=Source("shop.example", "web"))
        run.outcome = "not sent"
    memory.forget(page)
    assert memory.list({"source": "again"}) == []


def test_one_ended_task_is_removed_with_every_byte(open_memory: Open, store: str) -> None:
    memory = open_memory()
    with suppress(RuntimeError), memory.task("order", goal="goal-PELICAN") as run:
        run.step("a", lambda: "result-PELICAN " * 500)
        run.step("b", lambda: run.working.add_thought("thought-PELICAN"))
        run.keep("kept-PELICAN")
        memory.tasks.signal("order", "paid", "event-PELICAN")
        raise RuntimeError("error-PELICAN")
    with memory.task("other"):
        pass
    with pytest.raises(Conflict, match="parked"):
        memory.tasks.remove("order")
    memory.tasks.cancel("order", "why-PELICAN")
    memory.tasks.remove("order")
    assert [task.task for task in memory.tasks.list()] == ["other"]
    with pytest.raises(NotFound):
        memory.tasks.remove("order")
    files = [file for file in Path(store).parent.iterdir() if file.name.startswith(Path(store).name)]
    # In another process: to open and close the file in this one would drop the locks that SQLite has on it here.
    assert not [one.name for one in files if b"PELICAN" in subprocess.run(["cat", one], capture_output=True).stdout]
