"""Promises of the plain forms: checkpoint and restore, and a list of functions that is continued where it was cut."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from killing import QUICK, Calls, Killed
from memory_kit import Open

from engrain import (
    AsyncMemory,
    Effect,
    InputChanged,
    InvalidInput,
    LeaseLost,
    Memory,
    ResumableAgent,
    StepAmbiguous,
    TaskEnded,
)


def test_a_checkpoint_replaces_the_one_before(memory: Memory) -> None:
    assert memory.tasks.load_checkpoint("job") is None
    for number in range(3):
        memory.tasks.checkpoint("job", {"at": number, "notes": ["ü"]})
        assert memory.tasks.load_checkpoint("job") == {"at": number, "notes": ["ü"]}
    memory.tasks.checkpoint("job", {"at": "end"}, done=True)
    assert memory.tasks.load_checkpoint("job") == {"at": "end"}
    with pytest.raises(TaskEnded):
        memory.tasks.checkpoint("job", {"at": "late"})
    assert [one.status for one in memory.tasks.list()] == ["done"]


def test_a_checkpoint_outlives_its_process_and_needs_no_waiting(open_memory: Open) -> None:
    open_memory().tasks.checkpoint("job", {"at": 1})
    other = open_memory()
    assert other.tasks.load_checkpoint("job") == {"at": 1}
    other.tasks.checkpoint("job", {"at": 2})
    assert open_memory().tasks.load_checkpoint("job") == {"at": 2}


def test_a_worker_that_was_replaced_cannot_checkpoint_over_its_successor(open_memory: Open) -> None:
    old, new = open_memory(), open_memory()
    old.tasks.checkpoint("job", {"at": 1})
    assert new.tasks.load_checkpoint("job") == {"at": 1}
    new.tasks.checkpoint("job", {"at": 2})
    with pytest.raises(LeaseLost):
        old.tasks.checkpoint("job", {"at": "stale"})
    assert new.tasks.load_checkpoint("job") == {"at": 2}


def test_checkpoints_do_not_grow_the_store(open_memory: Open) -> None:
    memory = open_memory()
    state: dict[str, Any] = {"completed": [], "results": {}}
    for number in range(200):
        state["completed"].append(number)
        state["results"][str(number)] = "x" * 500
        memory.tasks.checkpoint("job", state)
    memory.close()
    assert open_memory().store.status().store["bytes"] < 1_000_000


def test_a_task_with_steps_is_not_overwritten_by_a_checkpoint(memory: Memory) -> None:
    with memory.task("order") as run:
        run.keep({"mine": True})
    with pytest.raises(InvalidInput, match=r"run\.keep"):
        memory.tasks.checkpoint("order", {})
    memory.tasks.checkpoint("job", {})
    assert memory.tasks.recover(lambda run: pytest.fail("a checkpoint is not work")) == []


def test_a_list_of_functions_continues_where_it_was_cut(memory: Memory, clock: SetClock, calls: Calls) -> None:
    def plan(state: dict[str, Any]) -> dict[str, int]:
        calls.append("plan")
        state["budget"] = 10
        state["scratch"] = True
        return {"parts": 2}

    def buy(state: dict[str, Any]) -> int:
        calls.append("buy")
        if calls.count("buy") == 1:
            raise OSError("the shop is closed")
        state["budget"] -= 3
        del state["scratch"]
        return int(state["results"]["step_0_plan"]["parts"])

    def report(state: dict[str, Any]) -> str:
        return f"{state['budget']} left after {state['completed']}"

    agent = ResumableAgent(memory)
    with pytest.raises(OSError, match="closed"):
        agent.run("job", [plan, buy, report])
    state = agent.run("job", [plan, buy, report])
    assert state == {
        "completed": ["step_0_plan", "step_1_buy", "step_2_report"],
        "results": {
            "step_0_plan": {"parts": 2},
            "step_1_buy": 2,
            "step_2_report": "7 left after ['step_0_plan', 'step_1_buy']",
        },
        "budget": 7,
    }
    assert calls == ["plan", "buy", "buy"]
    assert agent.run("job", [plan, buy, report]) == state


def test_an_effect_in_the_list_is_not_repeated(memory: Memory, calls: Calls) -> None:
    def send(state: dict[str, Any], *, token: str) -> str:
        calls.append(token)
        raise OSError("timed out")

    agent = ResumableAgent(memory, retries=3)
    for _ in range(2):
        with pytest.raises(StepAmbiguous):
            agent.run("job", [Effect(send, key_as="token")])
    assert len(calls) == 1
    memory.tasks.resolve("job", "step_0_send", "done", result={"result": "sent"})
    assert agent.run("job", [Effect(send, key_as="token")])["results"] == {"step_0_send": "sent"}


def test_coroutine_functions_are_awaited(store: str, calls: Calls) -> None:
    async def first(state: dict[str, Any]) -> int:
        await asyncio.sleep(0)
        calls.append("first")
        state["seen"] = [1]
        return 1

    def second(state: dict[str, Any]) -> int:
        calls.append("second")
        if calls.count("second") == 1:
            raise ValueError("not yet")
        return state["results"]["step_0_first"] + len(state["seen"])  # type: ignore[no-any-return]

    async def main() -> None:
        async with AsyncMemory(store) as memory:
            agent = ResumableAgent(memory)
            with pytest.raises(ValueError, match="not yet"):
                await agent.run("job", [first, second])
            assert (await agent.run("job", [first, second]))["results"] == {"step_0_first": 1, "step_1_second": 2}
            await memory.tasks.checkpoint("plain", {"a": 1})
            assert await memory.tasks.load_checkpoint("plain") == {"a": 1}

    asyncio.run(main())
    assert calls == ["first", "second", "second"]


def test_what_cannot_be_called_is_refused(memory: Memory) -> None:
    async def later(state: dict[str, Any]) -> None: ...

    for steps in (["plan"], [later]):
        with pytest.raises(InvalidInput):
            ResumableAgent(memory).run("job", steps)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="state"):
        ResumableAgent(memory).run("bad", [lambda state: state.update(when=Killed)])
    with pytest.raises(InvalidInput, match="a list of functions"):
        ResumableAgent(memory).run("bad", None)  # type: ignore[arg-type]


def test_an_attempt_that_failed_half_way_leaves_nothing_to_the_next(memory: Memory, calls: Calls) -> None:
    def plan(state: dict[str, Any]) -> None:
        state["budget"], state["parts"] = 10, ["paper"]

    def buy(state: dict[str, Any]) -> int:
        state["budget"] -= 3
        state["parts"].append("ink")
        state["results"]["step_0_plan"] = "overwritten"
        calls.append("buy")
        if len(calls) < 3:
            raise OSError("the shop is closed")
        return int(state["budget"])

    state = ResumableAgent(memory, retries=QUICK).run("job", [plan, buy])
    assert (state["budget"], state["parts"], len(calls)) == (7, ["paper", "ink"], 3)
    assert state["results"] == {"step_0_plan": None, "step_1_buy": 7}
    assert ResumableAgent(memory).run("job", [plan, buy]) == state


def test_a_list_that_was_changed_is_refused(memory: Memory, calls: Calls) -> None:
    def plan(state: dict[str, Any]) -> None:
        calls.append("plan")

    def buy(state: dict[str, Any]) -> None:
        raise OSError("the shop is closed")

    def check(state: dict[str, Any]) -> None:
        calls.append("check")

    agent = ResumableAgent(memory)
    with pytest.raises(OSError, match="closed"):
        agent.run("job", [plan, buy])
    for changed in ([check, plan, buy], [check], []):
        with pytest.raises(InputChanged, match="'step_0_plan'"):
            agent.run("job", changed)
    assert calls == ["plan"]
    with pytest.raises(InputChanged, match="'step_1_buy'"):
        agent.run("job", [plan, check])
    agent.run("job", [plan, buy_again])
    assert calls == ["plan"]


def buy_again(state: dict[str, Any]) -> str:
    return "bought"


buy_again.__name__ = "buy"


def test_results_are_read_and_not_changed(memory: Memory) -> None:
    def plan(state: dict[str, Any]) -> dict[str, int]:
        return {"parcels": 1}

    def change(state: dict[str, Any]) -> None:
        state["results"]["step_0_plan"]["parcels"] = 99

    def count(state: dict[str, Any]) -> int:
        return int(state["results"]["step_0_plan"]["parcels"])

    state = ResumableAgent(memory).run("job", [plan, change, count])
    assert state["results"]["step_2_count"] == 1
    assert ResumableAgent(memory).run("job", [plan, change, count]) == state
