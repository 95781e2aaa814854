"""A forked child opens the store anew, and neither side disturbs the other."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from forked import fork_child, wait_for_child
from writing import add, assert_sound, texts

from engrain.stores.sqlite import SqliteStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def test_parent_and_child_both_go_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    add(store, "before")

    def work() -> None:
        assert "before" in texts(store)
        for number in range(20):
            add(store, f"child {number}")
        store.close()

    child = fork_child(work)
    for number in range(20):
        add(store, f"parent {number}")
    assert wait_for_child(child) == 0
    assert len(texts(store)) == 41
    assert_sound(store)
    store.close()


def test_what_the_child_writes_after_the_parent_closed_is_kept(tmp_path: Path) -> None:
    """Were the child's connection inherited, the parent would remove the log under it when it closes."""
    store = SqliteStore(tmp_path / "store.db")
    add(store, "before")
    closed, go = os.pipe()

    def work() -> None:
        add(store, "child, first")
        os.read(closed, 1)
        add(store, "child, second")
        store.close()

    child = fork_child(work)
    add(store, "parent")
    store.close()
    os.write(go, b"x")
    assert wait_for_child(child) == 0
    again = SqliteStore(tmp_path / "store.db")
    assert set(texts(again)) == {"before", "child, first", "parent", "child, second"}
    assert_sound(again)
    again.close()


def test_a_fork_waits_for_writers_of_other_threads(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    stop = threading.Event()
    written: list[str] = []

    def write(name: str) -> None:
        number = 0
        while not stop.is_set():
            add(store, f"{name} {number}")
            written.append(f"{name} {number}")
            number += 1

    threads = [threading.Thread(target=write, args=(f"thread {n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    children = [fork_child(lambda n=n: (add(store, f"child {n}"), store.close())) for n in range(5)]
    assert [wait_for_child(child) for child in children] == [0] * 5
    stop.set()
    for thread in threads:
        thread.join()
    found = set(texts(store))
    assert set(written) <= found
    assert {f"child {n}" for n in range(5)} <= found
    assert_sound(store)
    store.close()


def test_a_store_in_memory_is_one_of_its_own_on_each_side(tmp_path: Path) -> None:
    store = SqliteStore(":memory:")
    add(store, "before")
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            assert texts(store)

    reading = threading.Thread(target=read)
    reading.start()

    def work() -> None:
        add(store, "child")
        assert set(texts(store)) == {"before", "child"}
        store.close()

    children = [fork_child(work) for _ in range(5)]
    add(store, "parent")
    assert [wait_for_child(child) for child in children] == [0] * 5
    stop.set()
    reading.join()
    assert set(texts(store)) == {"before", "parent"}
    store.close()


def test_the_thread_that_writes_ends_before_a_fork(tmp_path: Path) -> None:
    import _thread

    before = _thread._count()
    store = SqliteStore(tmp_path / "store.db")
    add(store, "before")
    seen: list[int] = []
    os.register_at_fork(after_in_parent=lambda: seen.append(_thread._count()))
    assert wait_for_child(fork_child(lambda: add(store, "child"))) == 0
    assert seen == [before]
    add(store, "parent")
    assert set(texts(store)) == {"before", "child", "parent"}
    store.close()
