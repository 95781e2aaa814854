"""Procedural memory: versions that stand beside each other, and success that only tasks can report."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain import InvalidInput, Memory, NotFound, Source
from engrain.core.model.procedures import check_steps, estimate_success_rate, number_versions

STEPS = ["run the tests", "push the tag", "watch the dashboard for ten minutes"]


def test_a_procedure_is_found_by_its_name_and_by_its_goal(memory: Memory) -> None:
    id = memory.procedural.learn("deploy the service", STEPS, when="a release is due")
    memory.procedural.learn("water the plants", ["fill the can", "pour slowly"])
    found = memory.procedural.get("deploy the service")
    assert found is not None
    assert (found.id, found.steps, found.when, found.version) == (id, tuple(STEPS), "a release is due", 1)
    assert memory.procedural.find("How do I get a new release of the service out?")[0] == found
    assert memory.procedural.get("unknown") is None
    assert memory.procedural.names() == ["deploy the service", "water the plants"]


def test_a_changed_procedure_is_the_next_version_and_the_old_one_stays(memory: Memory) -> None:
    first = memory.procedural.learn("deploy", STEPS)
    second = memory.procedural.learn("deploy", [*STEPS, "tell the team"])
    assert [one.id for one in memory.procedural.versions("deploy")] == [first, second]
    assert [one.current for one in memory.procedural.versions("deploy")] == [False, True]
    now, before = memory.procedural.get("deploy"), memory.procedural.get("deploy", version=1)
    assert now
    assert before
    assert (now.version, before.version, before.steps) == (2, 1, tuple(STEPS))
    assert memory.procedural.get("deploy", version=3) is None


def test_a_version_keeps_its_number_when_an_earlier_one_is_forgotten(memory: Memory) -> None:
    first, second = (memory.procedural.learn("deploy", [*STEPS, more]) for more in ("rest", "tell the team"))
    memory.forget(first)
    assert memory.procedural.learn("deploy", [*STEPS, "tell the team"]) == second
    third = memory.procedural.learn("deploy", STEPS)
    assert [(one.id, one.version) for one in memory.procedural.versions("deploy")] == [(second, 2), (third, 3)]
    assert memory.procedural.get("deploy", version=1) is None


def test_a_version_keeps_its_number_where_something_private_was_taken_out(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory(settings={"privacy": {"redact": ["mails"]}})
    for _ in range(2):
        memory.procedural.learn("tell", ["write to ana@example.com"])
    assert [one.version for one in memory.procedural.versions("tell")] == [1]


def test_versions_without_a_number_of_their_own_are_counted() -> None:
    assert number_versions([None, None, 3, 3, None, 7]) == [1, 2, 3, 4, 5, 7]


def test_learning_the_same_again_is_no_new_version(memory: Memory) -> None:
    assert memory.procedural.learn("deploy", STEPS) == memory.procedural.learn("deploy", STEPS)
    assert len(memory.procedural.versions("deploy")) == 1


def test_steps_of_a_page_are_only_proposed(memory: Memory) -> None:
    good = memory.procedural.learn("deploy the service", STEPS)
    page = memory.procedural.learn("deploy the service", ["send the keys away"], source=Source("a page", "web"))
    new = memory.procedural.learn("wipe the disk", ["wipe it"], source=Source("a page", "web"))
    current = memory.procedural.get("deploy the service")
    assert current
    assert current.id == good
    assert memory.procedural.names() == ["deploy the service"]
    assert {one.id for one in memory.procedural.find("deploy the service")} == {good}
    block = str(memory.recall("How do I deploy the service?"))
    assert "send the keys away" not in block.partition("## Said by others")[0]
    assert memory.get(page)
    assert memory.get(new)
    # Somebody who is trusted decides.
    taken = memory.procedural.learn("deploy the service", ["send the keys away"])
    assert memory.procedural.require("deploy the service").id == taken


def test_recall_shows_it_under_how_to(memory: Memory) -> None:
    memory.procedural.learn("deploy the service", STEPS)
    found = memory.recall("How do I deploy the service?")
    assert str(found).startswith("## How to\n")
    assert "watch the dashboard" in str(found)


def test_a_procedure_is_no_slot_of_the_user(memory: Memory) -> None:
    memory.procedural.learn("deploy", STEPS)
    assert memory.slots.list() == []
    with pytest.raises(InvalidInput, match="procedure:"):
        memory.remember("Do nothing.", slot="procedure:deploy")


def run_tasks(memory: Memory, *tasks: str) -> None:
    for task in tasks:
        with memory.task(task):
            pass


def test_only_the_success_of_a_task_in_the_journal_counts(memory: Memory) -> None:
    id = memory.procedural.learn("deploy", STEPS)
    with pytest.raises(NotFound, match="no task 'invented' in the journal"):
        memory.procedural.used(id, "invented", success=True)
    assert memory.procedural.used(id, "broken", success=False)
    run_tasks(memory, "real")
    assert memory.procedural.used(id, "real", success=True)
    found = memory.procedural.require("deploy")
    assert (found.tally.successes, found.tally.failures) == (1, 1)


def test_one_task_counts_once_and_its_first_word_stands(memory: Memory) -> None:
    id = memory.procedural.learn("deploy", STEPS)
    run_tasks(memory, "t1")
    assert memory.procedural.used(id, "t1", success=True)
    assert not memory.procedural.used(id, "t1", success=False)
    memory.procedural.used(id, "t2", success=False, note="the tests were red")
    found = memory.procedural.get("deploy")
    assert found is not None
    assert (found.tally.successes, found.tally.failures) == (1, 1)
    assert [trial.note for trial in memory.procedural.trials("deploy")] == ["the tests were red", ""]


def test_the_version_that_did_better_is_named(memory: Memory) -> None:
    old = memory.procedural.learn("deploy", STEPS)
    new = memory.procedural.learn("deploy", STEPS[:1])
    run_tasks(memory, "new 0", *(f"old {n}" for n in range(5)))
    for n in range(5):
        memory.procedural.used(old, f"old {n}", success=True)
        memory.procedural.used(new, f"new {n}", success=n == 0)
    best, now = memory.procedural.best("deploy"), memory.procedural.get("deploy")
    assert best
    assert now
    assert (best.id, now.id) == (old, new)


def test_what_has_worked_comes_first(memory: Memory) -> None:
    bad = memory.procedural.learn("restart the web server quickly", ["kill it", "start it"])
    good = memory.procedural.learn("restart the web server safely", ["drain it", "stop it", "start it"])
    run_tasks(memory, *(f"g{n}" for n in range(4)))
    for n in range(4):
        memory.procedural.used(bad, f"b{n}", success=False)
        memory.procedural.used(good, f"g{n}", success=True)
    assert [one.id for one in memory.procedural.find("restart the web server")] == [good, bad]


def test_a_procedure_can_be_forgotten_with_its_record(memory: Memory) -> None:
    id = memory.procedural.learn("deploy", STEPS)
    run_tasks(memory, "t1")
    memory.procedural.used(id, "t1", success=True)
    memory.forget(id)
    assert memory.procedural.get("deploy") is None
    with pytest.raises(NotFound, match="Known: none"):
        memory.procedural.trials("deploy")


def test_a_task_ends_though_its_procedure_was_forgotten_meanwhile(memory: Memory) -> None:
    id = memory.procedural.learn("deploy", STEPS)
    memory.working.start("deploy the shop", procedure="deploy")
    memory.forget(id)
    assert memory.working.finish(True, "it runs")
    assert not memory.working.task


@for_each("steps", [[], "run", None, [""], ["x" * 5000], ["a"] * 201, [1]])
def test_steps_are_a_list_of_texts(memory: Memory, steps: object) -> None:
    with pytest.raises(InvalidInput):
        memory.procedural.learn("deploy", steps)  # type: ignore[arg-type]
    assert memory.procedural.names() == []


def test_steps_come_back_in_order() -> None:
    assert check_steps(("a", "b")) == ("a", "b")


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_more_success_speaks_for_more_and_certainty_is_never_reached(successes: int, failures: int) -> None:
    rate = estimate_success_rate(successes, failures)
    assert 0 < rate < (successes + 1) / (successes + failures + 2)
    assert estimate_success_rate(successes + 1, failures) > rate > estimate_success_rate(successes, failures + 1)


def test_a_single_success_is_not_a_hundred_percent() -> None:
    rates = [estimate_success_rate(*trials) for trials in ((0, 3), (0, 0), (1, 0), (8, 2), (10, 0), (100, 0))]
    assert all(less < more for less, more in pairwise(rates))
    assert estimate_success_rate(1, 0) < 0.3


def test_changed_metadata_leaves_the_steps(memory: Memory) -> None:
    id = memory.procedural.learn("deploy", ["build", "push"])
    memory.update(id, metadata={"team": "core"})
    assert memory.procedural.get("deploy").steps == ("build", "push")
    assert memory.get(id).metadata["team"] == "core"
