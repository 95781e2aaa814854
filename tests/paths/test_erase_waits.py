"""An erasure that cannot be completed at once says what it waits for, and holds up nobody else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from erasing_kit import erase_from, opened
from held_read import held_read

from engrain import Memory
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.results import MaintenanceReport
from engrain.privacy import erase as run
from engrain.stores.sqlite.erasure import SqliteErasures

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
    done = memory.store.erase(user="ana", folders=[folder, other])
    assert done.pending
    assert "hard link" in done.why
    assert not (other / "MEMORY.md").exists(), "the other folder is cleaned all the same"
    with opened(store, "ben", background=False) as ben:
        ben.remember("Ben lives in Quito.")
        ben.store.services.erasing.begin("bens", BEN, {})  # type: ignore[union-attr]
        first, second = ben.store.resume_erasures()
    assert first.pending
    assert second.receipt
    (tmp_path / "linked").unlink()
    (done,) = memory.store.resume_erasures()
    assert done.receipt
    assert not (folder / "MEMORY.md").exists()


@pytest.mark.parametrize("by", ["user", "source"])
def test_a_folder_that_is_gone_is_clean(memory: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    memory.remember("The shop opens at nine.", source="page")
    with monkeypatch.context() as patched:
        patched.setattr(run, "_clean_side_stores", dies)
        with pytest.raises(Killed):
            erase_from(memory, **{by: {"user": "ana", "source": "page"}[by]}, folders=[folder])
    shutil.rmtree(folder.parent)
    (done,) = memory.store.resume_erasures()
    assert done.receipt, done.why
    assert not folder.parent.exists()


def by_hand(memory: Memory) -> MaintenanceReport:
    return memory.store.maintain(memory.scope)


def in_the_background(memory: Memory) -> MaintenanceReport:
    done = memory.store.workers.scheduler.once()
    assert done is not None
    return done


@pytest.mark.parametrize("care", [by_hand, in_the_background])
def test_every_round_of_care_completes_what_waits_and_says_so(
    memory: Memory, folder: Path, tmp_path: Path, care: Callable[[Memory], MaintenanceReport]
) -> None:
    os.link(folder / "MEMORY.md", tmp_path / "linked")
    begun = memory.store.erase(user="ana", folders=[folder])
    planned = memory.store.maintain(memory.scope, dry_run=True)
    assert planned.counts["erased"] == 1
    assert "would complete 1 erasure under way" in planned.lines
    assert [one.id for one in planned.each] == [begun.id]
    memory.store.services.erasing.begin("bens", BEN, {})  # type: ignore[union-attr]
    done = care(memory)
    assert done.counts["erased"] == 1
    assert [one.id for one in done.each] == ["bens"]
    assert len(done.problems) == 1
    assert done.problems[0].startswith("erased: 1 still to be completed:")
    assert "hard link" in done.problems[0]


def test_the_care_of_a_program_that_stays_open_gives_the_receipt(memory: Memory, store: Path) -> None:
    with held_read(store):
        assert memory.store.erase(user="ana").pending
    done = in_the_background(memory)
    assert (done.counts["erased"], done.problems) == (1, ())
    assert [one.what for one in memory.store.audit()] == ["erase"]
    assert "erased" not in memory.store.maintain(memory.scope).counts, "nothing is under way any more"


def test_files_that_a_run_cleaned_before_it_died_are_on_the_receipt(
    memory: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(SqliteErasures, "anonymize", dies)
        with pytest.raises(Killed):
            memory.store.erase(user="ana", folders=[folder])
    (done,) = memory.store.resume_erasures()
    assert done.receipt
    assert done.receipt.values["counts"]["files"] == 2


def test_what_a_source_says_while_its_erasure_waits_is_no_trace_of_it(memory: Memory, store: Path) -> None:
    memory.remember("The shop opens at nine.", source="page")
    with held_read(store):
        assert memory.erase(source="page").pending
        memory.remember("The shop opens at ten.", source="page")
    (done,) = memory.store.resume_erasures()
    assert done.receipt
    assert memory.store.verify_erasure(done.receipt)
    (looked,) = [one for one in memory.store.doctor(memory.scope) if one.name == "erasures"]
    assert looked.state == "pass", looked.why


def test_undo_goes_on_with_the_one_under_way_and_is_recorded_when_it_is_done(
    memory: Memory, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember("The shop opens at nine.", source="page")
    with monkeypatch.context() as patched:
        patched.setattr(run, "_run_stages", dies)
        with pytest.raises(Killed):
            memory.store.undo("page", user="ana", dry_run=False)
    (begun,) = memory.store.services.erasing.running()  # type: ignore[union-attr]
    with held_read(store):
        first = memory.store.undo("page", user="ana", dry_run=False).done
        assert first
        assert (first.pending, first.id) == (True, begun.id)
        assert memory.store.audit() == []
    undone = memory.store.undo("page", user="ana", dry_run=False)
    again = undone.done
    assert undone, "although its rows are gone already"
    assert again
    assert again.receipt
    assert again.id == begun.id
    assert [(one.what, one.details.get("items")) for one in memory.store.audit()] == [("undo", 1), ("erase", None)]
    assert memory.store.services.erasing.running() == []  # type: ignore[union-attr]
    assert memory.store.undo("page", user="ana", dry_run=False).done is None
