"""One durable write is one sync, whoever waits for it and however long the log has grown."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from faults import Faults, Slow
from writing import SCOPE, add, draft, texts

from engrain.core.model.plans import Add, Plan
from engrain.stores.sqlite import SqliteStore


def test_each_add_syncs_exactly_once(tmp_path: Path) -> None:
    """More adds than the log holds, so that checkpoints come in between: they are no part of anybody's write."""
    mine: list[tuple[str, str]] = []
    beside: list[tuple[str, str]] = []

    def note(operation: str, path: str) -> None:
        if operation == "sync":
            (beside if threading.current_thread().name == "engrain-checkpoint" else mine).append((operation, path))

    with Faults(note):
        SqliteStore(tmp_path / "store.db").close()
        store = SqliteStore(tmp_path / "store.db")
        counts = []
        for number in range(300):
            mine.clear()
            add(store, f"text {number}")
            counts.append(len(mine))
        store._checkpointer.stop()
        assert Counter(counts) == {1: 300}
        assert beside
        store.close()


def test_a_request_that_was_answered_before_syncs_nothing(tmp_path: Path) -> None:
    with Faults(lambda operation, path: None) as vfs:
        store = SqliteStore(tmp_path / "store.db")
        add(store, "once")
        vfs.log.clear()
        assert add(store, "once")
        store.touch(SCOPE, [item.id for item in store.history(SCOPE, "none")])
        assert vfs.log == []
        store.close()


def test_many_threads_share_a_sync(tmp_path: Path) -> None:
    """On a disk whose sync takes much longer than a write, 32 threads need half as many syncs as writes at most."""
    with Faults(Slow(0.02)) as vfs:
        store = SqliteStore(tmp_path / "store.db")
        add(store, "warm")
        vfs.log.clear()
        _write(store, threads=32, each=10)
        syncs = sum(operation == "sync" and path.endswith("-wal") for operation, path in vfs.log)
        print(f"{syncs} syncs for 320 writes")  # noqa: T201
        assert syncs <= 160
        assert len(texts(store)) == 1 + 320
        store.close()


def _write(store: SqliteStore, threads: int, each: int) -> None:
    errors: list[BaseException] = []
    ready = threading.Barrier(threads + 1)

    def work(name: int) -> None:
        ready.wait()
        try:
            for number in range(each):
                store.apply(Plan(SCOPE, (Add(draft(f"{threads} {name} {number}")),)))
        except BaseException as exc:  # noqa: BLE001
            errors.append(exc)

    running = [threading.Thread(target=work, args=(name,)) for name in range(threads)]
    for thread in running:
        thread.start()
    ready.wait()
    for thread in running:
        thread.join()
    assert errors == []
