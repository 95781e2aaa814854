"""Records of a memory: checked input, and every verb of the store that moves or removes data knows them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from erasing_kit import found
from export_kit import body, exported
from memory_kit import Open

from engrain import AsyncMemory, BadText, InvalidInput, Memory, OnHold, RecordDraft, Scope, Store, TooLarge
from engrain.core.model.records import MAX_BODY, MAX_KEY
from engrain.stores.relational import dump


def put(memory: Memory, *names: str, **options: Any) -> None:
    memory.records.write("s", [RecordDraft((name,), name.encode(), **options) for name in names])


def names(memory: Memory, **options: Any) -> list[str]:
    return [one.key[0] for one in memory.records.scan("s", **options)]


def test_records_are_of_one_memory(memory: Memory) -> None:
    put(memory, "a")
    assert names(Memory(memory.store, user="ben")) == []
    assert names(memory) == ["a"]


@pytest.mark.parametrize(
    ("draft", "error"),
    [
        (RecordDraft((), b""), InvalidInput),
        (RecordDraft(("a\x01b",), b""), BadText),
        (RecordDraft(("a\x00b",), b""), BadText),
        (RecordDraft(("\ud800",), b""), BadText),
        (RecordDraft(("a" * MAX_KEY,), b""), TooLarge),
        (RecordDraft(("a",) * MAX_KEY, b""), TooLarge),
        (RecordDraft(("a",), bytes(MAX_BODY + 1)), TooLarge),
        (RecordDraft(("a",), "text"), InvalidInput),  # type: ignore[arg-type]
        (RecordDraft("a", b""), InvalidInput),  # type: ignore[arg-type]
        (("a", b""), InvalidInput),
    ],
)
def test_bad_drafts_are_refused_and_nothing_is_written(memory: Memory, draft: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        memory.records.write("s", [RecordDraft(("good",), b""), draft])
    assert names(memory) == []


@pytest.mark.parametrize("call", [
    lambda records: records.scan("s", order="oldest"),
    lambda records: records.scan("", ("a",)),
    lambda records: records.scan("s", "a"),
    lambda records: records.scan("s", limit=0),
    lambda records: records.read("s", [()]),
    lambda records: records.write("s", drops=[()]),
    lambda records: records.write("s", expect=[("a",)]),
    lambda records: records.write("s", expect=[(("a",), "short")]),
])  # fmt: skip
def test_bad_calls_are_refused(memory: Memory, call: Any) -> None:
    with pytest.raises(InvalidInput):
        call(memory.records)


def test_too_much_at_once_is_refused(memory: Memory) -> None:
    large = bytes(MAX_BODY)
    with pytest.raises(TooLarge):
        memory.records.write("s", [RecordDraft((str(n),), large) for n in range(5)])


def test_the_last_of_two_drafts_of_one_key_counts(memory: Memory) -> None:
    key = ("a",)
    memory.records.write("s", [RecordDraft(key, b"1"), RecordDraft(key, b"2"), RecordDraft(key, b"3", keep=True)])
    assert [one.body for one in memory.records.read("s", [key])] == [b"2"]


def test_the_awaited_face_has_the_same_records(tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncMemory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as memory:
            await memory.records.write("s", [RecordDraft(("a",), b"1")])
            assert [one.body for one in await memory.records.scan("s")] == [b"1"]
            assert await memory.store.find_records("s", ("a",)) == [Scope(user="ana")]

    asyncio.run(use())


def test_an_operator_finds_the_memories_of_a_record(memory: Memory) -> None:
    store = memory.store
    for user, tenant in (("ana", None), ("ben", None), ("ana", "firm")):
        put(store.memory(user=user, tenant=tenant), "thread-1")
    assert store.find_records("s", ("thread-1",), tenant="firm") == [Scope("firm", None, "ana")]
    assert {one.user for one in store.find_records("s", ("thread-1",))} == {"ana", "ben"}


def test_the_status_counts_records(memory: Memory) -> None:
    put(memory, "a", "b")
    put(Memory(memory.store, user="ben"), "c")
    assert memory.store.status(memory.scope).counts["records"] == 2
    assert memory.store.status().store["records"] == 3


def test_maintenance_removes_expired_records_and_lists_them(memory: Memory, clock: SetClock) -> None:
    put(memory, "old", expires_at=clock() + timedelta(hours=1))
    put(memory, "new")
    assert "expired_records" not in memory.store.maintain().counts
    clock.advance(3_600)
    planned = memory.store.maintain(dry_run=True)
    assert planned.counts["expired_records"] == 1
    assert [str(one) for one in planned.each if one.id == "s/old"] == [f"remove s/old: expired {clock():%Y-%m-%d}"]
    assert memory.store.status().store["records"] == 2
    memory.store.maintain()
    assert memory.store.status().store["records"] == 1


def test_an_export_brings_records_with_their_order(open_memory: Open, clock: SetClock, tmp_path: Path) -> None:
    memory = open_memory()
    put(memory, "b", "a", "")
    put(memory, "b", expires_at=clock() + timedelta(days=1))
    other = open_memory(store=str(tmp_path / "other.db"), user="ben")
    put(other, "a", "z")
    path = tmp_path / "ana.jsonl"
    memory.export(path)
    assert other.load(path, other_scope=True, trusted=True).added == 2
    assert names(other, order="newest") == ["b", "", "z", "a"]
    fresh = open_memory(store=str(tmp_path / "fresh.db"))
    fresh.load(path, trusted=True)
    assert fresh.records.scan("s") == memory.records.scan("s")
    assert body(exported(fresh)) == body(exported(memory))


def test_records_of_a_file_that_nobody_vouches_for_are_left_out(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory()
    memory.remember("Ana likes tea.")
    put(memory, "a", "b")
    memory.export(tmp_path / "ana.jsonl")
    other = open_memory(store=str(tmp_path / "other.db"))
    loaded = other.load(tmp_path / "ana.jsonl")
    assert (loaded.added, loaded.kept_out, loaded.kept_out_lines) == (1, 2, (3, 4))
    assert names(other) == []


def test_a_large_memory_is_copied_page_by_page(
    open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "PAGE_BYTES", 3_000)
    memory = open_memory()
    memory.records.write("s", [RecordDraft((str(n),), bytes([n]) * 1_200) for n in range(4)])
    memory.records.write("s", [RecordDraft(("large",), bytes(9_000))])
    rows = memory.store.services.items
    assert len(rows.dump("record", None, 500)) == 2  # type: ignore[attr-defined]
    copied = memory.store.copy(tmp_path / "copy.db")
    assert copied.rows["record"] == 5


def test_an_erased_user_leaves_no_byte_and_an_old_export_brings_nothing_back(
    open_memory: Open, clock: SetClock, tmp_path: Path
) -> None:
    memory = open_memory()
    put(memory, "zephyrquokka" * 90)
    old = tmp_path.parent / f"{tmp_path.name}.jsonl"
    memory.export(old)
    clock.advance(60)
    done = memory.store.erase(user="ana")
    assert done.counts["record"] == 1
    assert found(tmp_path) == {}
    assert memory.load(old, trusted=True).added == 0
    assert names(memory) == []


def test_dropped_records_leave_no_byte(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory()
    put(memory, "zephyrquokka", "other")
    assert found(tmp_path)
    assert memory.records.drop("s", ("zephyrquokka",)) == 1
    assert found(tmp_path) == {}


def test_a_hold_keeps_records(memory: Memory) -> None:
    put(memory, "a")
    memory.store.hold("ana", reason="case-7")
    with pytest.raises(OnHold):
        memory.records.drop("s")
    assert names(memory) == ["a"]


def test_a_damaged_record_is_noticed(tmp_path: Path) -> None:
    from engrain import StoreCorrupt

    path = tmp_path / "agent.db"
    with Store(path, embedder=HashEmbedder()) as store:
        store.memory(user="ana").records.write("s", [RecordDraft(("a",), b"canary-canary")])
    raw = path.read_bytes()
    assert raw.count(b"canary-canary") == 1
    path.write_bytes(raw.replace(b"canary-canary", b"canary-Canary"))
    with Store(path, embedder=HashEmbedder()) as store, pytest.raises(StoreCorrupt):
        store.memory(user="ana").records.scan("s")
