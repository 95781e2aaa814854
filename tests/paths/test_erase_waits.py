"""An erasure that cannot be completed at once says what it waits for, and holds up nobody else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from erasing_kit import opened

from engrain import Memory
from engrain.core.erasure import Subject
from engrain.core.scope import Scope
from engrain.lifecycle.erasure import erasing as run

BEN = Subject(Scope(None, None, "ben"), "user", "ben")


class Killed(BaseException):
    pass


def dies(*_: object) -> None:
    raise Killed


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def memory(store: Path) -> Iterator[Memory]:
    with opened(store, background=False) as memory:
        memory.remember("Ana lives in the city of Lima.")
        yield memory


@pytest.fixture
def folder(memory: Memory, tmp_path: Path) -> Path:
    folder = tmp_path / "disk" / "files"
    folder.parent.mkdir()
    memory.mirror(folder).sync()
    return folder


def test_a_file_that_cannot_be_cleaned_makes_it_pending_and_holds_up_no_other(
    memory: Memory, store: Path, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    memory.mirror(other).sync()
    os.link(folder / "MEMORY.md", tmp_path / "linked")
    done = memory.erase(user="ana", folders=[folder, other])
    assert done.pending
    assert "hard link" in done.why
    assert not (other / "MEMORY.md").exists(), "the other folder is cleaned all the same"
    with opened(store, "ben", background=False) as ben:
        ben.remember("Ben lives in Quito.")
        ben._open.kit.erasing.begin("bens", BEN, {})  # type: ignore[union-attr]
        first, second = ben.resume_erasures()
    assert first.pending
    assert second.receipt
    (tmp_path / "linked").unlink()
    (done,) = memory.resume_erasures()
    assert done.receipt
    assert not (folder / "MEMORY.md").exists()


@pytest.mark.parametrize("by", ["user", "source"])
def test_a_folder_that_is_gone_is_clean(memory: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    memory.remember("The shop opens at nine.", source="page")
    with monkeypatch.context() as patched:
        patched.setattr(run, "_beside", dies)
        with pytest.raises(Killed):
            memory.erase(**{by: {"user": "ana", "source": "page"}[by]}, folders=[folder])
    shutil.rmtree(folder.parent)
    (done,) = memory.resume_erasures()
    assert done.receipt, done.why
    assert not folder.parent.exists()
