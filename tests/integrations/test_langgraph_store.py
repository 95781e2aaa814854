"""EngrainStore does what LangGraph's InMemoryStore does, but for faults of that one that are listed here.

- A namespace that was only read, or whose last value was deleted, is listed by the reference.
- An update gives the reference's item a new `created_at`; here it stays.
- A comparison of a text with a number raises an error there; here it does not match.
- Without a query the reference lists values in the order of their first writing; here the last written come first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.store.base", reason="make test-integrations runs it")

from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from integration_kit import REFUSED, Figures, count_bytes, open_store
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp
from langgraph.store.memory import InMemoryStore

from engrain import InvalidInput, Memory, Store
from engrain.integrations.langgraph import EngrainStore

LABELS, KEYS = ("a", "b", "ab", "日本"), ("k", "l", "k2")


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with open_store(request.param, tmp_path) as opened:
        yield opened.memory(user="ana")


def plain(items: Any) -> list[Any]:
    return sorted((one.namespace, one.key, str(one.value)) for one in items)


def random_namespace(chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.choices(LABELS, k=chance.randint(1, 3)))


def random_value(chance: random.Random) -> dict[str, Any]:
    return {"n": chance.randint(0, 4), "deep": {"x": chance.choice([1, "y", None])}, "list": [1, chance.randint(0, 1)]}


def random_filter(chance: random.Random) -> Any:
    return chance.choice([
        None, {"n": chance.randint(0, 4)}, {"n": {"$gt": 1, "$lte": 3}}, {"n": {"$ne": 2}}, {"deep": {"x": 1}},
        {"list": [1, 1]}, {"n": {"$eq": 0}, "deep": {"x": "y"}}, {"missing": None}, {"n": {"$lt": 3}},
    ])  # fmt: skip


def random_condition(chance: random.Random) -> MatchCondition:
    path = tuple(chance.choices([*LABELS, "*"], k=chance.randint(1, 2)))
    return MatchCondition(chance.choice(["prefix", "suffix"]), path)


def random_step(chance: random.Random, ours: Any, theirs: Any, there: set[Any]) -> None:
    namespace, key = random_namespace(chance), chance.choice(KEYS)
    act = chance.choices(["put", "delete", "get", "search", "list", "batch"], [6, 2, 4, 4, 2, 1])[0]
    if act in ("put", "batch"):
        value = random_value(chance)
        batch = [
            PutOp(namespace, key, value),
            *([GetOp(namespace, key), PutOp(namespace, "l", None)] * (act == "batch")),
        ]
        answers = [store.batch(batch) for store in (ours, theirs)]
        assert [getattr(one, "value", one) for one in answers[0]] == [getattr(one, "value", one) for one in answers[1]]
        there.add((namespace, key))
        if act == "batch":
            there.discard((namespace, "l"))
    elif act == "delete":
        for store in (ours, theirs):
            store.delete(namespace, key)
        there.discard((namespace, key))
    elif act == "get":
        mine, other = ours.get(namespace, key), theirs.get(namespace, key)
        assert (mine and mine.value) == (other and other.value)
    elif act == "search":
        prefix, where = namespace[: chance.randint(0, 2)], random_filter(chance)
        everything = [store.search(prefix, filter=where, limit=1_000) for store in (ours, theirs)]
        assert plain(everything[0]) == plain(everything[1])
        limit, offset = chance.randint(0, 5), chance.randint(0, 5)
        assert ours.search(prefix, filter=where, limit=limit, offset=offset) == everything[0][offset : offset + limit]
    else:
        conditions = tuple(random_condition(chance) for _ in range(chance.randint(0, 2)))
        depth = chance.choice([None, 1, 2])
        (found,) = ours.batch([ListNamespacesOp(conditions, depth, 1_000, 0)])
        (named,) = theirs.batch([ListNamespacesOp(conditions, None, 1_000, 0)])
        assert found == sorted({one[:depth] for one in named if one in {name for name, _ in there}})


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 2_000), ("postgres", 400)])
def test_random_calls_do_what_they_do_to_the_store_in_memory(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    with open_store(backend, tmp_path) as opened:
        ours, theirs = EngrainStore(opened.memory(user="ana"), fields=()), InMemoryStore()
        chance, there = random.Random(17), set[Any]()
        for _ in range(steps):
            random_step(chance, ours, theirs, there)
    figures.show("random calls equal to `InMemoryStore`, but for its listed faults", backend, steps)
    figures.name_packages("langgraph", "langgraph-checkpoint")


def test_of_random_writes_just_the_texts_of_present_values_stay(tmp_path: Path) -> None:
    with open_store("sqlite", tmp_path) as opened:
        memory, chance = opened.memory(user="ana"), random.Random(17)
        store, texts = EngrainStore(memory, fields=["text"]), dict[Any, str]()
        for _ in range(150):
            namespace, key, text = random_namespace(chance)[:1], chance.choice(KEYS), f"Tea {chance.randint(0, 9)}."
            if chance.random() < 0.3:
                store.delete(namespace, key)
                texts.pop((namespace, key), None)
            else:
                store.put(namespace, key, {"text": text})
                texts[namespace, key] = text
        assert sorted(item.text for item in memory.list(limit=1_000)) == sorted(texts.values())
        found = store.search((), query="Tea", limit=100)
        assert sorted((one.namespace, one.key) for one in found) == sorted(texts)


def test_a_search_finds_by_words_and_says_how_relevant(memory: Memory) -> None:
    store = EngrainStore(memory, fields=["text"])
    for key, text in (("1", "Ana likes green tea."), ("2", "The parcel is in Lisbon."), ("3", "Green is a colour.")):
        store.put(("notes", "ana"), key, {"text": text})
    store.put(("other",), "4", {"text": "Ana likes green tea."})
    store.put(("notes", "ana"), "5", {"text": "Ana likes green tea."}, index=False)
    found = store.search(("notes",), query="green tea", limit=10)
    assert found[0].key == "1"
    scores = [one.score for one in found if one.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert {one.key for one in found} == {"1", "2", "3", "5"}
    assert [one.score for one in found if one.key == "5"] == [None]
    assert [one.key for one in store.search(("notes",), query="green tea", filter={"text": "Green is a colour."})] == [
        "3"
    ]
    assert any("green tea" in hit.text for hit in memory.recall("What tea does Ana like?").hits)


@pytest.mark.parametrize("query", [*REFUSED, " "])
def test_an_odd_query_finds_what_no_query_finds(memory: Memory, query: str) -> None:
    store = EngrainStore(memory, fields=["text"])
    store.put(("notes",), "1", {"text": "Ana drinks green tea."})
    assert [one.key for one in store.search(("notes",), query=query)] == ["1"]


def test_two_values_with_the_same_text_are_both_there(memory: Memory) -> None:
    store = EngrainStore(memory, fields=["text"])
    for key in ("1", "2"):
        store.put(("notes",), key, {"text": "Ana likes green tea."})
    assert {one.key for one in store.search(("notes",), query="green tea")} == {"1", "2"}
    store.delete(("notes",), "1")
    assert [one.key for one in store.search(("notes",), query="green tea")] == ["2"]


def test_an_update_and_a_delete_forget_the_text(memory: Memory) -> None:
    store = EngrainStore(memory, fields=["text"])
    store.put(("notes",), "1", {"text": "Ana lives in Lima."})
    created = store.get(("notes",), "1")
    store.put(("notes",), "1", {"text": "Ana lives in Quito."})
    updated = store.get(("notes",), "1")
    assert created is not None
    assert updated is not None
    assert updated.created_at == created.created_at
    assert [item.text for item in memory.list()] == ["Ana lives in Quito."]
    store.delete(("notes",), "1")
    assert memory.list() == []


def test_async_calls_work(memory: Memory) -> None:
    async def use() -> Any:
        store = EngrainStore(memory)
        await store.aput(("notes",), "1", {"text": "Ana likes tea."})
        return await store.aget(("notes",), "1"), await store.asearch(("notes",), query="tea")

    item, found = asyncio.run(use())
    assert item.value == found[0].value == {"text": "Ana likes tea."}


def test_a_value_expires_unless_it_is_read(tmp_path: Path) -> None:
    clock = SetClock()
    with Store(tmp_path / "agent.db", embedder=HashEmbedder(), clock=clock, background=False) as opened:
        memory = opened.memory(user="ana")
        store = EngrainStore(memory, ttl={"refresh_on_read": True, "default_ttl": 60})
        for key in ("read", "unread", "kept"):
            store.put(("n",), key, {"text": f"value {key}"}, **({"ttl": None} if key == "kept" else {}))
        for _ in range(3):
            clock.advance(40 * 60)
            assert store.get(("n",), "read") is not None
        assert {one.key for one in store.search(("n",), refresh_ttl=False)} == {"read", "kept"}
        assert {one.key for one in store.search(("n",), query="value", refresh_ttl=False)} == {"read", "kept"}
        clock.advance(timedelta(days=1).total_seconds())
        assert store.get(("n",), "read", refresh_ttl=False) is None
        opened.maintain()
        assert opened.status().store["records"] == 1


def test_a_namespace_belongs_to_its_user_and_goes_with_it(tmp_path: Path) -> None:
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as opened:
        store = EngrainStore(opened, user_of=lambda namespace: namespace[1] if len(namespace) > 1 else None)
        for name in ("ana", "ben"):
            store.put(("notes", name), "1", {"text": f"zephyrquokka-{name} likes tea"})
        assert len(store.search(("notes",), query="tea")) == 2
        assert opened.memory(user="ben").recall("tea").hits[0].item.text.count("ben")
        with pytest.raises(InvalidInput):
            store.put(("notes",), "1", {})
        strict = EngrainStore(opened, user_of=lambda namespace: namespace[1])
        with pytest.raises(InvalidInput, match=r"user_of found no user in \('notes',\)"):
            strict.search(("notes",), query="tea")
        assert opened.erase(user="ana").receipt
        assert count_bytes(tmp_path, "zephyrquokka-ana") == 0
        assert [one.namespace for one in store.search(("notes",))] == [("notes", "ben")]
        assert store.list_namespaces() == [("notes", "ben")]


def test_values_must_be_json_and_namespaces_have_labels(memory: Memory) -> None:
    store = EngrainStore(memory)
    with pytest.raises(InvalidInput):
        store.put(("n",), "1", {"x": object()}, index=False)
    with pytest.raises(InvalidInput):
        store.batch([PutOp((), "1", {"x": 1})])
    assert memory.records.keys("langgraph store") == []
    store.put(("n",), "1", {"x": "text"})
    assert store.search(("n",), filter={"x": {"$gt": 1}}) == []
    with pytest.raises(InvalidInput):
        store.search(("n",), filter={"x": {"$like": 1}})
