"""Nothing leads out of the folder, and a sync that dies half way is made whole by the next."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from forked import fork_child, wait_for_child
from memory_kit import Open

from engrain import Conflict, InvalidInput, Memory, ReadOnlyStore
from engrain.core.markdown.page import read_page
from engrain.core.markdown.three_way_merge import parse_log_day
from engrain.stores.folder import FolderFiles
from engrain.stores.sqlite.store import SqliteStore

NAMES = ("SOUL.md", "MEMORY.md", "memory/overflow.md", "memory/conflicts.md", "memory/2040-01-01.md")
SECRET = "- The secret of another place.\n"


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    return open_memory(embedder=HashEmbedder())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    (path / "memory").mkdir(parents=True)
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside.md"
    path.write_text(SECRET)
    return path


# Links and names


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_is_refused_and_what_it_points_to_is_neither_read_nor_written(
    memory: Memory, folder: Path, outside: Path, name: str, link: Callable[[Path, Path], None]
) -> None:
    memory.remember("Ana likes tea.")
    memory.remember("I am Robo.", slot="agent.soul")
    memory.episodic.record_decision("use Postgres", session="monday")
    link(outside, folder / name)
    with pytest.raises(InvalidInput, match="link"):
        memory.mirror(folder).sync()
    assert outside.read_text() == SECRET
    assert not [item for item in memory.list() if "secret" in item.text]


@pytest.mark.parametrize("part", ["memory", ".engrain"])
def test_a_folder_inside_may_not_be_a_link(memory: Memory, folder: Path, tmp_path: Path, part: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "2040-01-01.md").write_text(SECRET)
    shutil.rmtree(folder / part, ignore_errors=True)
    (folder / part).symlink_to(elsewhere)
    with pytest.raises(InvalidInput, match="link"):
        memory.mirror(folder).sync()
    assert [path.name for path in elsewhere.iterdir()] == ["2040-01-01.md"]
    assert memory.list() == []


@pytest.mark.parametrize("name", [".engrain/lock", ".engrain/mirror.json"])
def test_our_own_files_may_not_be_links_either(memory: Memory, folder: Path, outside: Path, name: str) -> None:
    memory.mirror(folder).sync()
    (folder / name).unlink()
    (folder / name).symlink_to(outside)
    with pytest.raises(InvalidInput, match="link"):
        memory.mirror(folder).sync()
    assert outside.read_text() == SECRET


def test_the_folder_itself_may_be_reached_through_a_link(memory: Memory, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "shortcut").symlink_to(folder)
    memory.remember("Ana likes tea.")
    memory.mirror(tmp_path / "shortcut").sync()
    assert "tea" in (folder / "MEMORY.md").read_text()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [_pipe, _socket, Path.mkdir])
def test_only_plain_files_are_opened_and_nothing_hangs(
    memory: Memory, folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder / "MEMORY.md")
    with pytest.raises(InvalidInput, match=r"MEMORY\.md"):
        memory.mirror(folder).sync()


@pytest.mark.parametrize(
    "name",
    ["../MEMORY.md", "/etc/passwd", "memory/../../x.md", "memory/x.md", "notes.md", "memory/2040-13-01.md", "", "."],
)
def test_no_other_name_is_ever_opened(folder: Path, name: str) -> None:
    files = FolderFiles(folder)
    for call in (lambda: files.read(name), lambda: files.write(name, b"", None), lambda: files.remove(name, None)):
        with pytest.raises(InvalidInput, match="is not one of"):
            call()


def test_other_files_of_the_folder_are_left_alone(memory: Memory, folder: Path) -> None:
    others = ("notes.md", "memory/ideas.md", "memory/2040-1-1.md", "memory/2040-01-01.md.bak", "memory/9999-99-99.md")
    for name in others:
        (folder / name).write_text("- Not for the memory.\n")
    memory.mirror(folder).sync()
    assert memory.list() == []
    assert all((folder / name).read_text() == "- Not for the memory.\n" for name in others)


# Writing


def test_mode_and_place_of_a_file_stay_and_no_temporary_file_is_left(memory: Memory, folder: Path) -> None:
    (folder / "MEMORY.md").write_text("# Memory\n")
    (folder / "MEMORY.md").chmod(0o640)
    memory.remember("Ana likes tea.")
    (folder / ".engrain").mkdir()
    (folder / ".engrain/0123.tmp").write_text("left by a sync that was killed")
    memory.mirror(folder).sync()
    assert stat.S_IMODE((folder / "MEMORY.md").stat().st_mode) == 0o640
    assert sorted(path.name for path in (folder / ".engrain").iterdir()) == [".gitignore", "lock", "mirror.json"]


def test_what_is_made_is_for_nobody_else_as_the_store_is(memory: Memory, tmp_path: Path) -> None:
    memory.remember("Ana likes tea.")
    memory.mirror(tmp_path / "made").sync()
    made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert {one.name for one in made} >= {"made", "MEMORY.md", ".engrain", "mirror.json"}
    assert [one for one in made if stat.S_IMODE(one.stat().st_mode) & 0o077] == []


def test_a_file_that_was_saved_meanwhile_is_not_overwritten(folder: Path) -> None:
    files = FolderFiles(folder)
    (folder / "MEMORY.md").write_text("old")
    with pytest.raises(Conflict):
        files.write("MEMORY.md", b"ours", b"older")
    with pytest.raises(Conflict):
        files.remove("MEMORY.md", None)
    assert (folder / "MEMORY.md").read_text() == "old"


def test_a_folder_that_cannot_be_written_is_a_typed_error(
    memory: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember("Ana likes tea.")

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(ReadOnlyStore):
        memory.mirror(folder).sync()
    assert not list((folder / ".engrain").glob("*.tmp"))


def test_a_file_that_was_made_read_only_is_not_replaced(memory: Memory, folder: Path) -> None:
    (folder / "MEMORY.md").write_text("# Mine\n")
    (folder / "MEMORY.md").chmod(0o444)
    memory.mirror(folder).sync()
    memory.remember("Ana likes tea.")
    with pytest.raises(ReadOnlyStore, match=r"MEMORY\.md is read-only"):
        memory.mirror(folder).sync()
    assert (folder / "MEMORY.md").read_text() == "# Mine\n"


def test_a_damaged_base_loses_and_doubles_nothing(memory: Memory, folder: Path) -> None:
    memory.remember("Ana likes tea.")
    memory.remember("Quito", slot="user.city")
    mirror = memory.mirror(folder)
    mirror.sync()
    before = (folder / "MEMORY.md").read_text()
    (folder / ".engrain/mirror.json").write_bytes(b"\xff{{")
    mirror.sync()
    assert (folder / "MEMORY.md").read_text() == before
    assert len(memory.list()) == 2
    assert not mirror.sync()


# Two at once


def test_syncs_at_the_same_time_take_each_line_once(folder: Path, store: str) -> None:
    lines = [f"- 10:{n:02d} Thing {n} happened, {n * 7919}." for n in range(30)]
    (folder / "memory/2040-01-01.md").write_text("\n".join(lines) + "\n")
    with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
        memory.remember_many([f"Fact {n}, {n * 7919}." for n in range(30)])
    errors: list[Exception] = []

    def sync() -> None:
        try:
            with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
                memory.mirror(folder).sync()
        except Exception as exc:  # noqa: BLE001
            errors.append(exc)

    threads = [threading.Thread(target=sync) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
        assert len(memory.list({"kind": "episode"})) == 30
        assert not memory.mirror(folder).sync()
    assert (folder / "MEMORY.md").read_text().count("\n- ") == 30


# Killed


def changed_on_both_sides(store: str, folder: Path) -> None:
    """A folder and a memory with one of everything still to do."""
    with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
        memory.remember_many([f"Fact {n} of little worth, {n * 7919}." for n in range(20)])
        memory.remember("I am Robo.", slot="agent.soul")
        memory.remember("Lima", slot="user.city")
        memory.remember("Rome", slot="user.team")
        both = memory.remember("The backup runs at 3 am.")
        gone = memory.remember("The code of the safe is 4711.", importance=0.9)
        memory.episodic.record_decision("use Postgres", session="monday")
        memory.mirror(folder, max_lines=30).sync()
        memory.correct(both, "The backup runs at 4 am.")
        memory.forget(gone)
        memory.remember("Now this matters most.", importance=0.95)
        memory.episodic.record_decision("keep SQLite", session="monday")
        memory.remember("Oslo", slot="user.team")
    page = (folder / "MEMORY.md").read_text().replace("3 am", "5 am").replace("Lima", "Quito")
    deleted = next(line for line in page.splitlines() if line.startswith("- Fact"))
    page = page.replace(deleted + "\n", "") + "\n- A new line by hand.\n- **user.name**: Ana\n"
    (folder / "MEMORY.md").write_text(page)
    (folder / "SOUL.md").write_text("I am Robo.\nI am calm.\n")
    for log in (path for path in (folder / "memory").iterdir() if parse_log_day(f"memory/{path.name}")):
        log.write_text(log.read_text() + "- 09:30 Met Bob.\n- Had tea.\n")


def outcome(store: str, folder: Path) -> tuple[Any, ...]:
    """All that the two sides say, in a form that does not depend on the ids of new items."""
    with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
        items = sorted((item.kind, item.slot or "", item.text, item.pinned) for item in memory.list(limit=1_000))
        past = sorted(item.text for item in memory.list(history=True, limit=1_000))
    files = {
        str(path.relative_to(folder)): sorted(
            (block.entry.slot or "", block.entry.text) for block in read_page(path.read_text()) if block.entry
        )
        for path in folder.rglob("*.md")
    }
    return items, past, files, (folder / "SOUL.md").read_text()


def killed_at(point: int, store: str, folder: Path) -> bool:
    """Sync in another process, which is killed before or after its nth lasting deed; False if it came to its end."""
    left = point

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **named: Any) -> Any:
            step()
            answer = call(*args, **named)
            step()
            return answer

        return made

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def sync() -> None:
        for owner, name in ((os, "rename"), (os, "unlink"), (SqliteStore, "apply"), (SqliteStore, "advance")):
            setattr(owner, name, deadly(getattr(owner, name)))
        with Memory(store, user="ana", embedder=HashEmbedder(), background=False) as memory:
            memory.mirror(folder, max_lines=30).sync()

    ended = wait_for_child(fork_child(sync))
    assert ended <= 0
    return ended < 0


@pytest.fixture
def copies(tmp_path: Path) -> Callable[[str], tuple[str, Path]]:
    (tmp_path / "first").mkdir()
    changed_on_both_sides(str(tmp_path / "first/agent.db"), tmp_path / "first/notes")

    def copied(name: str) -> tuple[str, Path]:
        shutil.copytree(tmp_path / "first", tmp_path / name)
        return str(tmp_path / name / "agent.db"), tmp_path / name / "notes"

    return copied


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_sync_that_is_killed_anywhere_is_made_whole_by_the_next(
    copies: Callable[[str], tuple[str, Path]], step: int
) -> None:
    store, folder = copies("whole")
    assert not killed_at(10_000, store, folder)
    expected = outcome(store, folder)
    assert ("fact", "user.city", "Quito", False) in expected[0]
    assert any("5 am" in text for _, text in expected[2]["memory/conflicts.md"])
    point = 0
    while True:
        store, folder = copies(f"killed-{point}")
        killed = killed_at(point, store, folder)
        with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
            mirror = memory.mirror(folder, max_lines=30)
            mirror.sync()
            assert not mirror.sync(), point
        assert outcome(store, folder) == expected, point
        if not killed:
            break
        point += step
    assert point > 12
