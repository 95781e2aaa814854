"""An interrupt that comes during a write reaches the caller, also where another error would only be logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.core.errors import OutcomeUnknown


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as opened:
        yield opened


def interrupted(*_: object, **__: object) -> NoReturn:
    raise OutcomeUnknown("the write was interrupted.", interrupt=KeyboardInterrupt())


def test_watching_a_folder_ends(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = memory.mirror(tmp_path / "files")
    monkeypatch.setattr(mirror, "sync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mirror.watch(0.01)


def test_a_message_that_forgets_is_interrupted(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add_message("user", "I live in Quito.", session="monday")
    monkeypatch.setattr(memory.store.services.items, "purge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.add_message("user", "Forget that I live in Quito.", session="monday")


def test_an_erasure_is_interrupted_and_resumes(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.remember("I live in Quito.")
    with monkeypatch.context() as patch:
        patch.setattr(memory.store.services.items, "purge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.erase()
    assert memory.erase().receipt
