"""The thread that writes: when it runs, whom it serves, and what its callers see of it."""

from __future__ import annotations

import _thread
import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from engrain.core.errors import OutcomeUnknown, StoreBusy, StoreError
from engrain.core.identity import Scope
from engrain.core.model.items import Draft
from engrain.core.model.plans import Add, Plan
from engrain.stores.sqlite import SqliteStore, writer
from engrain.stores.sqlite.connection import Connection

SCOPE = Scope(user="ana")


def add(store: SqliteStore, text: str) -> None:
    store.apply(Plan(SCOPE, (Add(Draft(text)),)))


def wait_until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.002)


def put_meta(db: Connection, name: str) -> None:
    db.run("insert into meta (name, value) values (?, 1)", (name,))


def names(store: SqliteStore) -> set[str]:
    return {name for (name,) in store.snapshot(lambda db: db.rows("select name from meta where value = 1"))}


def test_the_thread_starts_with_the_first_write_and_ends_with_the_store(tmp_path: Path) -> None:
    before = _thread._count()
    store = SqliteStore(tmp_path / "store.db")
    store.status()
    assert _thread._count() == before
    for number in range(3):
        add(store, f"text {number}")
    assert _thread._count() == before + 1
    store.close()
    wait_until(lambda: _thread._count() == before)


@pytest.mark.parametrize("place", ["store.db", ":memory:"])
def test_a_store_that_nobody_uses_any_more_goes_with_its_thread(tmp_path: Path, place: str) -> None:
    before = _thread._count()
    store = SqliteStore(place if place == ":memory:" else tmp_path / place)
    add(store, "text")
    gone = weakref.ref(store)
    del store
    wait_until(lambda: gc.collect() >= 0 and gone() is None and _thread._count() == before)


def test_an_error_keeps_its_type_and_shows_the_way_into_the_work(tmp_path: Path) -> None:
    class Own(Exception):
        pass

    def work(db: Connection) -> None:
        raise Own("of the caller")

    store = SqliteStore(tmp_path / "store.db")
    with pytest.raises(Own, match="of the caller") as caught:
        store.transaction(work)
    shown = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert shown[0] == "test_an_error_keeps_its_type_and_shows_the_way_into_the_work"
    assert shown[-1] == "work"
    store.close()


def test_an_error_is_freed_without_the_collector(tmp_path: Path) -> None:
    class Own(Exception):
        pass

    def work(db: Connection) -> None:
        raise Own

    store = SqliteStore(tmp_path / "store.db")
    gc.disable()
    try:
        try:
            store.transaction(work)
        except Own as exc:
            gone = weakref.ref(exc)
        wait_until(lambda: gone() is None)
    finally:
        gc.enable()
    store.close()


def test_what_waits_shares_a_transaction_and_a_failing_member_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP_SECONDS", 60)  # a busy machine may take longer than a group lasts
    store, commits = SqliteStore(tmp_path / "store.db"), list[int]()
    begun, go = threading.Event(), threading.Event()
    confirm = store.confirm_commit

    def count() -> None:
        commits.append(1)
        confirm()

    store.confirm_commit = count  # type: ignore[method-assign]
    errors: list[BaseException] = []

    def write(number: int) -> None:
        def work(db: Connection) -> None:
            put_meta(db, f"name {number}")
            if number % 2:
                raise ValueError(number)

        try:
            store.transaction(work)
        except ValueError as exc:
            errors.append(exc)

    busy = threading.Thread(target=lambda: store._writer.run_alone(lambda db: (begun.set(), go.wait(60))))
    busy.start()
    assert begun.wait(60)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: store._writer._queue.qsize() == 20)
    go.set()
    for thread in (busy, *threads):
        thread.join()
    assert names(store) == {f"name {number}" for number in range(0, 20, 2)}
    assert len(errors) == 10
    assert len(commits) == 1
    store.close()


def test_a_commit_that_may_have_failed_is_unknown_to_each_member_by_its_own_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, told = SqliteStore(tmp_path / "store.db"), dict[str, str | None]()
    begun, go = threading.Event(), threading.Event()

    def fail() -> None:
        raise OutcomeUnknown("the disk does not say")

    monkeypatch.setattr(store, "confirm_commit", fail)

    def write(name: str) -> None:
        try:
            store.transaction(lambda db: put_meta(db, name), name)
        except OutcomeUnknown as exc:
            told[name] = exc.request_id

    busy = threading.Thread(target=lambda: store._writer.run_alone(lambda db: (begun.set(), go.wait(60))))
    threads = [threading.Thread(target=write, args=(f"r{number}",)) for number in range(4)]
    busy.start()
    assert begun.wait(60)
    for thread in threads:
        thread.start()
    go.set()
    for thread in (busy, *threads):
        thread.join()
    assert told == {f"r{number}": f"r{number}" for number in range(4)}
    store.close()


def test_writes_inside_of_together_are_one_transaction(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")

    def do() -> set[str]:
        store.transaction(lambda db: put_meta(db, "one"))
        store.transaction(lambda db: put_meta(db, "two"))
        return names(store)

    assert store.in_transaction(do) == {"one", "two"}

    def fail() -> None:
        store.transaction(lambda db: put_meta(db, "three"))
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        store.in_transaction(fail)
    assert names(store) == {"one", "two"}
    store.close()


def test_all_who_wait_for_another_process_in_vain_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, the last of 32 would wait for a quarter of an hour."""
    store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    assert other._lock
    monkeypatch.setattr("engrain.stores.sqlite.writer.LOCK_SECONDS", 1.5)
    busy: list[StoreError] = []

    def write() -> None:
        try:
            add(store, "text")
        except StoreBusy as exc:
            busy.append(exc)

    other._lock.acquire(60)
    threads = [threading.Thread(target=write) for _ in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 8 * 1.5
    other._lock.release()
    assert len(busy) == 8
    add(store, "text")
    for one in (store, other):
        one.close()
