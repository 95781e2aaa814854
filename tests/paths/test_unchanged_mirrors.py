"""Maintenance leaves a folder that matches its memory as it is, and misses no change of either."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import fact
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.core.identity import Scope
from engrain.core.model.plans import Add, Plan

DAY = 86_400.0
Open = Callable[..., Memory]


@pytest.fixture
def opened(tmp_path: Path, clock: SetClock) -> Iterator[Open]:
    rules = {"mirror": str(tmp_path / "files" / "{user}"), "consolidate_below": 0}
    with ExitStack() as stack:

        def open_one(user: str | None = None) -> Memory:
            chosen: dict[str, Any] = {"clock": clock, "embedder": HashEmbedder(), "background": False}
            return stack.enter_context(
                Memory(tmp_path / "agent.db", user=user, settings={"lifecycle": rules}, **chosen)
            )

        yield open_one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files" / "ana"


@pytest.fixture
def resting(opened: Open, clock: SetClock) -> Memory:
    """Cares for two memories, whose folders are in step."""
    for user in ("ana", "bruno"):
        memory = opened(user)
        memory.remember(f"{user} likes tea.")
        memory.remember("Quito", slot="user.city")
        memory.episodic.record_decision("Take the train.", "It is quicker.")
    keeper = opened()
    assert keeper.store.maintain().counts["mirrored"] == 2
    assert keeper.store.maintain().counts["mirrored"] == 0
    return keeper


def edited(page: Path, old: str, new: str) -> None:
    """In place, and not within the same tick of the file system's clock as the last change."""
    before, text = page.stat().st_ctime_ns, page.read_text()
    assert old in text
    while page.stat().st_ctime_ns == before:
        page.write_text(text.replace(old, new))


def same_size_and_mtime_set_back(folder: Path) -> None:
    page = folder / "MEMORY.md"
    was = page.stat()
    edited(page, "tea", "rum")
    os.utime(page, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert (page.stat().st_size, page.stat().st_mtime_ns) == (was.st_size, was.st_mtime_ns)


def replaced_by_one_of_the_same_size_and_time(folder: Path) -> None:
    page, other = folder / "MEMORY.md", folder / "other.md"
    other.write_text(page.read_text().replace("tea", "rum"))
    os.utime(other, ns=(page.stat().st_atime_ns, page.stat().st_mtime_ns))
    other.rename(page)


def replaced_folder(folder: Path) -> None:
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    (other / "MEMORY.md").write_text((other / "MEMORY.md").read_text().replace("tea", "rum"))
    shutil.copystat(folder / "MEMORY.md", other / "MEMORY.md")
    folder.rename(folder.with_name("before"))
    other.rename(folder)


def swapped_pages(folder: Path) -> None:
    """The page of another memory stands here, and the other way round."""
    ours, theirs = folder / "MEMORY.md", folder.with_name("bruno") / "MEMORY.md"
    ours.rename(folder / "away.md")
    theirs.rename(ours)
    (folder / "away.md").rename(theirs)


def a_line_in_an_old_log(folder: Path) -> None:
    (folder / "memory" / "2020-01-01.md").write_text("- Ana moved.\n")


def a_soul(folder: Path) -> None:
    (folder / "SOUL.md").write_text("Kind and brief.\n")


def a_folder_that_is_gone(folder: Path) -> None:
    shutil.rmtree(folder)


ON_DISK = (
    same_size_and_mtime_set_back,
    replaced_by_one_of_the_same_size_and_time,
    replaced_folder,
    swapped_pages,
    a_line_in_an_old_log,
    a_soul,
    a_folder_that_is_gone,
)


@pytest.mark.parametrize("change", ON_DISK, ids=lambda change: change.__name__)
def test_a_change_in_the_files_is_seen(
    resting: Memory, opened: Open, folder: Path, change: Callable[[Path], None]
) -> None:
    change(folder)
    assert_seen(resting, opened)


def remembers(memory: Memory) -> None:
    memory.remember("Ana likes rum.")


def forgets(memory: Memory) -> None:
    memory.forget({"slot": "user.city"})


def corrects(memory: Memory) -> None:
    memory.correct(memory.list({"slot": "user.city"})[0].id, "Lima")


def changes_its_mind(memory: Memory) -> None:
    memory.remember("Lima", slot="user.city")


def adds_a_soul(memory: Memory) -> None:
    memory.remember("Kind and brief.", slot="agent.soul")


def does_something(memory: Memory) -> None:
    memory.episodic.record_decision("Take the bus.", "It is cheaper.")


IN_MEMORY = (remembers, forgets, corrects, changes_its_mind, adds_a_soul, does_something)


@pytest.mark.parametrize("change", IN_MEMORY, ids=lambda change: change.__name__)
def test_a_change_in_the_memory_is_seen(resting: Memory, opened: Open, change: Callable[[Memory], None]) -> None:
    change(opened("ana"))
    assert_seen(resting, opened)


def assert_seen(resting: Memory, opened: Open) -> None:
    """As one sees it who never looked before."""
    planned = opened().store.maintain(dry_run=True)
    assert planned.counts["mirrored"], "the test changed nothing"
    assert resting.store.maintain(dry_run=True) == planned
    done = resting.store.maintain()
    assert (done.each, done.problems) == (planned.each, planned.problems)
    assert resting.store.maintain().each == ()


def test_what_ends_by_itself_leaves_its_file_in_time(resting: Memory, opened: Open, clock: SetClock) -> None:
    ends = clock() + timedelta(days=1)
    kit = opened("ana").store.services
    kit.items.apply(Plan(Scope(user="ana"), (Add(fact("Ana is in Rome.", expires_at=ends)),)))
    assert resting.store.maintain().counts["mirrored"] == 1
    assert resting.store.maintain().counts["mirrored"] == 0
    clock.advance(DAY + 1)
    assert_seen(resting, opened)


@pytest.mark.parametrize("slot", ["user.city", "user.job"])
def test_what_begins_by_itself_comes_in_time(resting: Memory, opened: Open, clock: SetClock, slot: str) -> None:
    opened("ana").remember("Lima", slot=slot, occurred_at=clock() + timedelta(days=1))
    for _ in range(2):
        resting.store.maintain()
    clock.advance(DAY + 1)
    assert_seen(resting, opened)


def test_a_page_that_cannot_be_read_is_told_again_and_again(resting: Memory, folder: Path) -> None:
    (folder / "MEMORY.md").write_bytes(b"- \xff\n")
    for _ in range(2):
        (told,) = resting.store.maintain().problems
        assert "MEMORY.md, line 1" in told


def test_what_says_whose_the_folder_is_counts_too(resting: Memory, folder: Path) -> None:
    shutil.copy(folder.with_name("bruno") / ".engrain" / "mirror.json", folder / ".engrain" / "mirror.json")
    (told,) = resting.store.maintain().problems
    assert "mirrors another memory, not that of user=ana" in told


def test_deletions_that_are_held_back_stay_so(resting: Memory, folder: Path, opened: Open) -> None:
    (folder / "MEMORY.md").unlink()
    resting.store.maintain()
    for _ in range(2):
        assert resting.store.maintain().counts["mirrored"] == 0
    assert "ana likes tea." in [item.text for item in opened("ana").list()]
