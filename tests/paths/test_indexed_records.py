"""Indexed records: a record and the texts that recall finds it by are written and forgotten together."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from erasing_kit import found
from memory_kit import Open

from engrain import Memory, Note, OnHold, TooLarge
from engrain.core.model.records import MAX_BODY
from engrain.tiers.records import IndexedDraft

KEY = ("todo", "1")


def put(memory: Memory, text: str, key: tuple[str, ...] = KEY) -> None:
    memory.records.indexed("s").update([key], lambda before: [IndexedDraft(key, text.encode(), [Note(text)])])


def list_texts(memory: Memory) -> list[str]:
    return sorted(item.text for item in memory.list())


def test_a_record_is_found_by_its_text_until_it_is_replaced_or_dropped(memory: Memory) -> None:
    put(memory, "Buy oolong tea.")
    (hit,) = memory.recall("Which tea to buy?").hits
    (record,) = memory.records.indexed("s").read([KEY])
    assert (hit.item.id,) == record.items
    put(memory, "Buy coffee.")
    assert list_texts(memory) == ["Buy coffee."]
    memory.records.indexed("s").update([KEY], lambda before: [])
    assert list_texts(memory) == memory.records.keys("s") == []


def test_the_texts_of_two_records_and_of_the_user_are_not_merged(memory: Memory) -> None:
    own = memory.remember("Buy tea.")
    put(memory, "Buy tea.")
    put(memory, "Buy tea.", ("todo", "2"))
    memory.records.indexed("s").update([KEY], lambda before: [])
    put(memory, "Buy milk.", ("todo", "2"))
    assert memory.get(own) is not None
    assert list_texts(memory) == ["Buy milk.", "Buy tea."]


def test_a_write_that_fails_leaves_record_and_texts_as_they_were(memory: Memory) -> None:
    put(memory, "Buy tea.")
    with pytest.raises(TooLarge):
        memory.records.indexed("s").update([KEY], lambda _: [IndexedDraft(KEY, bytes(MAX_BODY), [Note("Buy milk.")])])
    assert list_texts(memory) == ["Buy tea."]
    assert [one.body for one in memory.records.indexed("s").iterate()] == [b"Buy tea."]


def test_a_held_user_keeps_the_texts(memory: Memory) -> None:
    put(memory, "Buy tea.")
    memory.store.hold(memory.scope.user or "")
    with pytest.raises(OnHold):
        put(memory, "Buy milk.")
    assert list_texts(memory) == ["Buy tea."]


def test_many_who_change_one_record_lose_nothing_and_leave_no_text_behind(memory: Memory) -> None:
    def append(name: str) -> None:
        def change(before: object) -> list[IndexedDraft]:
            text = before[KEY].body.decode() + name if KEY in before else name  # type: ignore[index,operator]
            return [IndexedDraft(KEY, text.encode(), [Note(f"Buy {text}.")])]

        memory.records.indexed("s").update([KEY], change)

    threads = [threading.Thread(target=append, args=[name]) for name in "abcdefgh"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    (record,) = memory.records.indexed("s").read([KEY])
    assert sorted(record.body.decode()) == [*"abcdefgh"]
    assert list_texts(memory) == [f"Buy {record.body.decode()}."]


def test_no_byte_of_a_replaced_text_is_left(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory()
    put(memory, "zephyrquokka one")
    put(memory, "Buy milk.")
    assert found(tmp_path, "zephyrquokka") == {}
