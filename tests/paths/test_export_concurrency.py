"""Other programs keep working while a memory is exported."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from export_kit import exported
from forked import fork_child, wait_for_child
from memory_kit import Open

from engrain import Conflict, Memory, StoreClosed


@pytest.fixture
def full(open_memory: Open) -> Memory:
    memory = open_memory(background=False)
    for number in range(3):
        memory.remember(f"Ana likes number {number}.")
    return memory


def fork() -> None:
    assert wait_for_child(fork_child(lambda: None)) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("beside", [False, True], ids=["by the same thread", "by another"])
def test_a_fork_does_not_wait_for_an_export(full: Memory, tmp_path: Path, beside: bool) -> None:
    before = exported(full)
    store = full.store.services.items
    open_: list[int] = []

    def told(*_: object) -> None:
        pool.submit(forked).result() if beside else forked()

    def forked() -> None:
        fork()
        open_.extend(len(snapshot.idle) for snapshot in store._pool._snapshots)  # type: ignore[attr-defined]

    with ThreadPoolExecutor(1) as pool:
        full.export(tmp_path / "ana.jsonl", progress=told)
    assert (tmp_path / "ana.jsonl").read_bytes() == before
    assert open_ == [0] * len(open_), "a child must not inherit a connection"
    assert open_
    assert full.remember("It is written to again.")


def test_a_close_does_not_wait_for_an_export(full: Memory, tmp_path: Path) -> None:
    readers = full.store.services.items._pool  # type: ignore[attr-defined]
    left: list[int] = []

    def told(*_: object) -> None:
        pool.submit(full.close).result()
        left.append(len(readers._lent))

    with ThreadPoolExecutor(1) as pool, pytest.raises(StoreClosed):
        full.export(tmp_path / "ana.jsonl", progress=told)
    assert left
    assert not any(left), "it was waited for in vain"
    assert not (tmp_path / "ana.jsonl").exists()


@pytest.mark.parametrize("use", [lambda memory: memory.recall("number"), lambda memory: memory.remember("Tea.")])
def test_a_memory_that_is_in_memory_is_used_while_it_is_exported(
    open_memory: Open, tmp_path: Path, use: Callable[[Memory], object]
) -> None:
    memory = open_memory(store=":memory:", background=False)
    memory.remember("Ana likes tea.")
    told = count()

    def once(*_: object) -> None:
        if not next(told):
            pool.submit(use, memory).result(60)

    with ThreadPoolExecutor(1) as pool:
        memory.export(tmp_path / "ana.jsonl", progress=once)
    assert (tmp_path / "ana.jsonl").read_bytes() == exported(memory)


def test_an_export_ends_though_its_progress_writes_without_end(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory(store=":memory:", background=False)
    memory.remember("Ana likes tea.")
    told = count()

    def remember() -> None:
        assert memory.remember(f"Ana likes number {next(told)}.")

    with pytest.raises(Conflict, match="Export it when nothing is forgotten"):
        memory.export(tmp_path / "ana.jsonl", progress=lambda *_: remember())
    assert not (tmp_path / "ana.jsonl").exists()


def test_a_page_for_people_ends_though_its_progress_writes_without_end(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory(store=":memory:", background=False)
    memory.remember("Ana likes tea.")
    told: list[int] = []

    def remember(stage: str, rows: int, total: int | None) -> None:
        told.append(rows)
        assert len(told) < 99
        memory.remember(f"Ana likes number {len(told)}.")

    memory.export(tmp_path / "ana.md", format="markdown", progress=remember)
    assert "Ana likes tea." in (tmp_path / "ana.md").read_text()
    assert sum(told)
