"""EngrainSaver passes LangGraph's own suite, does what InMemorySaver does, and erasure reaches every thread."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="make test-integrations runs it")

from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from integration_kit import Figures, open_store
from langgraph.checkpoint.base import WRITES_IDX_MAP, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from engrain import InvalidInput, Scope, Store
from engrain.integrations.langgraph import EngrainSaver
from engrain.integrations.langgraph.checkpoints import BLOB, CHECKPOINT, SPACE

BACKENDS = ["sqlite", "postgres"]


def user_of(config: Any) -> str | None:
    return config["configurable"].get("user_id", "ana")


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(request.param, tmp_path) as opened:
        yield opened


def config(thread: str = "t", id: str | None = None, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **({"checkpoint_id": id} if id else {}), **more}}


def make_checkpoint(values: dict[str, Any], versions: dict[str, str]) -> Any:
    return {
        **empty_checkpoint(),
        "id": str(uuid6(clock_seq=-1)),
        "channel_values": values,
        "channel_versions": versions,
    }


def put(saver: Any, thread: str = "t", parent: Any = None, run: str = "", **values: Any) -> Any:
    versions = {name: saver.get_next_version(None, None) for name in values}
    parent_id = parent["configurable"]["checkpoint_id"] if parent else None
    meta: Any = {"source": "loop", "step": 1, "parents": {}, **({"run_id": run} if run else {})}
    return saver.put(config(thread, parent_id), make_checkpoint(values, versions), meta, versions)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_suite_of_langgraph_passes(backend: str, tmp_path: Path, figures: Figures) -> None:
    numbers = itertools.count()

    @checkpointer_test(name=f"engrain on {backend}")
    async def saver() -> AsyncIterator[EngrainSaver]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        with open_store(backend, folder) as opened:
            yield EngrainSaver(opened, user_of=user_of)

    report = asyncio.run(validate(saver))
    results = report.results.values()
    assert [one.failures for one in results if one.failures] == []
    assert all(one.detected and one.passed for one in results)
    passed = sum(one.tests_passed for one in results)
    assert passed >= 81
    figures.show("langgraph-checkpoint-conformance: tests passed, none failed", backend, passed)
    figures.name_packages("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-conformance")


# Beside the reference


def plain(found: Any) -> Any:
    """A tuple of values to compare."""
    if found is None:
        return None
    named = {name: found.config["configurable"][name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}
    return named, found.checkpoint, found.metadata, found.parent_config, found.pending_writes


def random_step(chance: random.Random, savers: list[Any], known: list[Any]) -> None:
    """The same call on each, with the same answer."""
    thread, namespace = chance.choice("ab"), chance.choice(["", "child:1"])
    there = [one for one in known if one["configurable"]["thread_id"] == thread]
    act = chance.choices(["put", "writes", "get", "latest", "list", "delete"], [6, 5, 4, 3, 3, 0.3])[0]
    answers = []
    if act == "put":
        parent = chance.choice([None, *there])
        values = {name: chance.choice([1, "x", [1, 2], {"k": None}]) for name in chance.sample("pqr", 2)}
        versions: dict[str, Any] = {name: f"{chance.randint(1, 3)}.{chance.random()}" for name in values}
        checkpoint = make_checkpoint(values, versions)
        checkpoint["channel_versions"] = {**versions, "gone": "1.5"}
        where = {"thread_id": thread, "checkpoint_ns": namespace}
        if parent and parent["configurable"]["checkpoint_ns"] == namespace:
            where["checkpoint_id"] = parent["configurable"]["checkpoint_id"]
        meta = {"source": chance.choice(["input", "loop"]), "step": chance.randint(0, 3), "parents": {}}
        for saver in savers:
            answers.append(
                saver.put({"configurable": dict(where)}, checkpoint, dict(meta), {**versions, "gone": "1.5"})
            )
        known.append(answers[0])
    elif act == "writes" and there:
        at, task = chance.choice(there), chance.choice(["t1", "t2"])
        channels = chance.choices(["p", "q", *WRITES_IDX_MAP], k=2)
        writes = [(channel, chance.randint(0, 9)) for channel in channels]
        answers = [saver.put_writes(at, writes, task, chance_path) for chance_path in ["~path"] for saver in savers]
    elif act == "get" and there:
        at = chance.choice(there)
        answers = [plain(saver.get_tuple(at)) for saver in savers]
    elif act == "latest":
        where = {"thread_id": thread, "checkpoint_ns": namespace}
        answers = [plain(saver.get_tuple({"configurable": dict(where)})) for saver in savers]
    elif act == "list":
        where = {"thread_id": thread, "checkpoint_ns": namespace}
        before = chance.choice([None, *there])
        given: dict[str, Any] = {"limit": chance.choice([None, 0, 1, 3]), "before": before}
        given["filter"] = chance.choice([None, {"source": "input"}, {"step": 1, "source": "loop"}, {"none": 1}])
        answers = [[plain(one) for one in saver.list({"configurable": dict(where)}, **given)] for saver in savers]
    elif act == "delete":
        answers = [saver.delete_thread(thread) for saver in savers]
        known[:] = [one for one in known if one not in there]
    assert all(answer == answers[0] for answer in answers), act


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 2_000), ("postgres", 600)])
def test_random_calls_do_what_they_do_to_the_saver_in_memory(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    with open_store(backend, tmp_path) as opened:
        savers, known = [InMemorySaver(), EngrainSaver(opened.memory(user="ana"))], list[Any]()
        chance = random.Random(17)
        for _ in range(steps):
            random_step(chance, savers, known)
    figures.show("random calls equal to `InMemorySaver`", backend, steps)


# Graphs


class Chat(TypedDict):
    messages: list[str]


def make_graph(saver: Any) -> Any:
    builder = StateGraph(Chat)
    builder.add_node("answer", lambda state: {"messages": [*state["messages"][-9:], f"seen {len(state['messages'])}"]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


PROGRAM = """
import sys
from engrain import Store
from engrain_conformance.embedder import HashEmbedder
from engrain.integrations.langgraph import EngrainSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing import TypedDict

class State(TypedDict):
    order: str
    approved: bool

def approve(state):
    return {"approved": interrupt(f"Ship {state['order']}?")}

builder = StateGraph(State)
builder.add_node("approve", approve)
builder.add_edge(START, "approve")
builder.add_edge("approve", END)
config = {"configurable": {"thread_id": "order-42", "user_id": "ana"}}
with Store(sys.argv[1], embedder=HashEmbedder()) as store:
    saver = EngrainSaver(store, user_of=lambda config: config["configurable"]["user_id"])
    graph = builder.compile(checkpointer=saver)
    given = {"order": "42", "approved": False} if sys.argv[2] == "start" else Command(resume=True)
    found = graph.invoke(given, config)
    print(found.get("approved"), bool(found.get("__interrupt__")))
"""


def test_an_interrupted_graph_goes_on_in_another_process(tmp_path: Path, figures: Figures) -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "agent.db"), act], capture_output=True, text=True, check=True
        ).stdout.split()
        for act in ("start", "resume")
    ]
    assert answers == [["False", "True"], ["True", "False"]]
    figures.show("an interrupted graph goes on in a second process", "sqlite", "yes")


def test_sixty_turns_cost_the_same_each(tmp_path: Path, figures: Figures) -> None:
    """Process time and bytes of a turn do not grow with the turns before it."""
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as opened:
        graph, times, sizes = make_graph(EngrainSaver(opened.memory(user="ana"))), list[float](), list[int]()
        for turn in range(60):
            began = time.process_time()
            graph.invoke({"messages": [f"message {turn} " * 20]}, config())
            times.append(time.process_time() - began)
            sizes.append(opened.status().store["bytes"])
        first, last = sorted(times[5:20])[7], sorted(times[-15:])[7]
        grown = [b - a for a, b in itertools.pairwise(sizes)]
        assert last < 2 * first
        assert sum(grown[-20:]) < 2 * max(sum(grown[5:25]), 100_000)
    figures.show(
        "process time of a turn at first, and after 60 turns",
        "sqlite",
        f"{first * 1_000:.1f} ms, {last * 1_000:.1f} ms",
    )
    per_turn = [round(sum(some) / len(some) / 1_000) for some in (grown[5:25], grown[-20:])]
    figures.show("kilobytes that a turn adds at first, and after 60 turns", "sqlite", f"{per_turn[0]}, {per_turn[1]}")


def test_async_graphs_work(store: Store) -> None:
    async def use() -> Any:
        graph = make_graph(EngrainSaver(store, user_of=user_of))
        await graph.ainvoke({"messages": ["hello"]}, config())
        history = [one async for one in graph.aget_state_history(config())]
        return (await graph.aget_state(config())).values, len(history)

    values, states = asyncio.run(use())
    assert values == {"messages": ["hello", "seen 1"]}
    assert states == 3


# Whose thread it is


def test_a_thread_belongs_to_its_user(store: Store) -> None:
    saver = EngrainSaver(store, user_of=user_of)
    graph = make_graph(saver)
    graph.invoke({"messages": ["of ana"]}, config(user_id="ana"))
    assert graph.get_state(config(user_id="ben")).values == {}
    assert store.find_records(SPACE, (CHECKPOINT, "t")) == [Scope(user="ana")]
    with pytest.raises(InvalidInput):
        saver.get_tuple(config(user_id=""))
    with pytest.raises(InvalidInput, match="user_of found no user"):
        EngrainSaver(store, user_of=lambda config: config["configurable"]["user_id"]).get_tuple(config())
    with pytest.raises(InvalidInput):
        EngrainSaver(store)
    with pytest.raises(InvalidInput):
        EngrainSaver(store.memory(user="ana"), user_of=user_of)


# Removing


def test_a_late_put_does_not_bring_a_deleted_thread_back(
    store: Store, request: pytest.FixtureRequest, figures: Figures
) -> None:
    saver = EngrainSaver(store, user_of=user_of)
    first = put(saver, x=1)
    child = {"thread_id": "t", "checkpoint_ns": "child:1"}
    parents: Any = {"source": "loop", "step": 0, "parents": {"": first["configurable"]["checkpoint_id"]}}
    saver.delete_thread("t")
    put(saver, parent=first, x=2)
    saver.put_writes(first, [("x", 3)], "task")
    saver.put({"configurable": child}, make_checkpoint({}, {}), parents, {})
    assert list(saver.list(config())) == []
    assert store.find_records(SPACE, ("write",)) == store.find_records(SPACE, (BLOB,)) == []
    again = put(saver, x=4)
    put(saver, parent=again, x=5)
    saver.put_writes(again, [("x", 6)], "task")
    assert len(list(saver.list(config()))) == 2
    figures.show("a late `put` brings a deleted thread back", request.node.callspec.params["store"], "no")


def test_a_thread_that_is_copied_to_a_deleted_name_goes_on(store: Store) -> None:
    saver = EngrainSaver(store, user_of=user_of)
    put(saver, "old", x=1)
    put(saver, "t", x=2)
    saver.delete_thread("t")
    saver.copy_thread("old", "t")
    latest = saver.get_tuple(config())
    assert latest is not None
    put(saver, parent=latest.config, x=3)
    assert [one.checkpoint["channel_values"] for one in saver.list(config())] == [{"x": 3}, {"x": 1}]


def test_values_that_no_checkpoint_has_are_removed(
    store: Store, request: pytest.FixtureRequest, figures: Figures
) -> None:
    saver, records = EngrainSaver(store, user_of=user_of), store.memory(user="ana").records
    first = put(saver, run="r1", x="one")
    second = put(saver, parent=first, run="r2", x="two")
    put(saver, parent=second, run="r3", x="three")
    assert len(records.keys(SPACE, (BLOB,))) == 3
    saver.delete_for_runs(["r1"])
    assert len(records.keys(SPACE, (BLOB,))) == 2
    saver.prune(["t"])
    assert len(records.keys(SPACE, (BLOB,))) == 1
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": "three"}
    saver.prune(["t"], strategy="delete")
    assert records.keys(SPACE, (BLOB,)) == records.keys(SPACE, (CHECKPOINT,)) == []
    figures.show("`prune` and `delete_for_runs` remove orphaned values", request.node.callspec.params["store"], "yes")


def test_pruning_keeps_what_a_delta_channel_is_rebuilt_from(store: Store) -> None:
    saver = EngrainSaver(store, user_of=user_of)

    def add(parent: Any, snapshot: bool) -> Any:
        versions = {"log": saver.get_next_version(None, None)}
        parent_id = parent["configurable"]["checkpoint_id"] if parent else None
        meta: Any = {"source": "loop", "step": 1, "parents": {}, "counters_since_delta_snapshot": {"log": [1, 1]}}
        checkpoint = make_checkpoint({"log": ["seed"]} if snapshot else {}, versions)
        stored = saver.put(config("t", parent_id), checkpoint, meta, versions)
        saver.put_writes(stored, [("log", stored["configurable"]["checkpoint_id"])], "task")
        return stored

    chain = [add(None, True)]
    for snapshot in (False, True, False, False):
        chain.append(add(chain[-1], snapshot))
    before = saver.get_delta_channel_history(config=config(), channels=["log"])
    saver.prune(["t"])
    assert len(list(saver.list(config()))) == 3
    assert saver.get_delta_channel_history(config=config(), channels=["log"]) == before
    assert before["log"]["seed"] == ["seed"]
    assert len(before["log"]["writes"]) == 2


def test_checkpoints_expire_and_values_in_use_do_not(tmp_path: Path, figures: Figures) -> None:
    clock = SetClock()
    with Store(tmp_path / "agent.db", embedder=HashEmbedder(), clock=clock, background=False) as opened:
        saver = EngrainSaver(opened, user_of=user_of, ttl=timedelta(hours=10))
        versions: Any = {"x": "1.1"}
        at = saver.put(config(), make_checkpoint({"x": "old"}, versions), {}, versions)
        for _ in range(4):  # the value is written once, and used on
            clock.advance(6 * 3_600)
            id = at["configurable"]["checkpoint_id"]
            at = saver.put(config("t", id), make_checkpoint({"x": "old"}, versions), {}, {})
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"x": "old"}
        assert len(list(saver.list(config()))) == 2
        assert opened.maintain().counts["expired_records"] == 3
        clock.advance(11 * 3_600)
        assert saver.get_tuple(config()) is None
        opened.maintain()
        assert opened.status().store["records"] == 0
    figures.show("maintenance removes expired checkpoints", "sqlite", "yes")
