"""Statements are prepared once, whatever values they are run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Run

apsw = pytest.importorskip("apsw")


def work(memory: Memory, run: Run, number: int) -> None:
    run.step("step", lambda: number)
    run.effect("effect", lambda: number)
    id = run.remember_step("note", f"Note {number}.", slot=f"order.{number}")
    memory.get(id)


def test_no_statement_is_prepared_again_because_its_values_changed(tmp_path: Path) -> None:
    prepared: list[Any] = []

    def asked(*what: Any) -> int:  # SQLite asks for leave while it prepares a statement
        prepared.append(what)
        return int(apsw.SQLITE_OK)

    with (
        Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder(), background=False) as memory,
        memory.task("order") as run,
    ):
        writer = memory.store.services.items._writer.connection()  # type: ignore[attr-defined]
        writer._raw.authorizer = asked
        for number in range(3):
            work(memory, run, number)
        assert prepared
        prepared.clear()
        for number in range(3, 6):
            work(memory, run, number)
        assert [what for what in prepared if what[0] == apsw.SQLITE_READ] == []
