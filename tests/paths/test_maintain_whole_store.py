"""Maintenance of a whole store: every memory has its turn, a failing one stops no other, and the plan is exact."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import for_each, up_to
from hypothesis import given, settings

from engrain import AsyncMemory, Memory
from engrain.core.errors import ConfigError, InvalidInput, StoreBusy, StoreError, StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.markdown.layout import fill_folder_pattern
from engrain.core.model.results import MaintenanceReport
from engrain.core.model.rows import ROW_KINDS
from engrain.core.model.sessions import Episode
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.maintenance import episodes
from engrain.maintenance import remove_unused as consolidating
from engrain.maintenance import schedule_and_sync as keeping
from engrain.maintenance.passes import MaintenanceContext
from engrain.stores.sqlite import backup as backing

DAY = 86_400.0
USERS = ("ana", "bruno", "carla")
Open = Callable[..., Memory]


@pytest.fixture
def opened(tmp_path: Path, clock: SetClock) -> Iterator[Open]:
    made: list[Memory] = []

    def open_one(user: str | None = None, **options: Any) -> Memory:
        chosen = {"clock": clock, "embedder": HashEmbedder(), "background": False, **options}
        made.append(Memory(tmp_path / "agent.db", user=user, **chosen))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


def trifles(opened: Open, clock: SetClock, users: tuple[str, ...] = USERS) -> None:
    """Of each user one that goes, a week later."""
    for user in users:
        with opened(user) as memory:
            memory.remember(f"{user} wore a hat.", importance=0.1)
            memory.remember(f"{user} likes tea.", importance=0.8)
    clock.advance(8 * DAY)


def owners(done: MaintenanceReport, act: str = "remove") -> list[str | None]:
    return [one.scope.user if one.scope else None for one in done.each if one.act == act]


def test_every_memory_of_the_store_is_cared_for(opened: Open, clock: SetClock) -> None:
    trifles(opened, clock)
    nobody = opened()
    assert nobody.store.maintain(nobody.scope, dry_run=True).counts["consolidated"] == 0, (
        "one memory alone, which has nothing"
    )
    planned = nobody.store.maintain(dry_run=True)
    assert (planned.counts["consolidated"], owners(planned), planned.memories) == (3, [*USERS], 3)
    done = nobody.store.maintain()
    assert (done.each, done.counts, done.problems) == (planned.each, planned.counts, ())
    assert nobody.store.maintain().each == ()
    for user in USERS:
        assert [item.text for item in opened(user).list()] == [f"{user} likes tea."]


def test_one_that_is_named_is_cared_for_alone(opened: Open, clock: SetClock) -> None:
    trifles(opened, clock)
    assert owners(opened("bruno").store.maintain(Scope(user="bruno"))) == ["bruno"]
    assert len(opened("ana").list()) == 2


def test_the_async_face_does_the_same(opened: Open, clock: SetClock, tmp_path: Path) -> None:
    trifles(opened, clock)

    async def care() -> MaintenanceReport:
        chosen = {"clock": clock, "embedder": HashEmbedder(), "background": False}
        async with AsyncMemory(tmp_path / "agent.db", **chosen) as memory:
            return await memory.store.maintain()

    assert owners(asyncio.run(care())) == [*USERS]


def test_the_marks_of_care_are_no_memory(opened: Open, clock: SetClock) -> None:
    trifles(opened, clock)
    nobody = opened(settings={"lifecycle": {"every_minutes": 60}})
    nobody.store.maintain()
    nobody.store.workers.scheduler._enabled = True
    assert nobody.store.workers.scheduler.once() is not None
    assert [one.user for one in nobody.store.memories()] == [*USERS]
    assert nobody.store.maintain().memories == 3


def test_the_keeper_cares_for_users_whose_memory_is_closed(
    opened: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "FIRST_CHECK_SECONDS", 0.02)
    trifles(opened, clock)
    rules = {"every_minutes": 60}
    open_ones = [opened(user, background=True, settings={"lifecycle": rules}) for user in ("ana", "bruno")]
    ends = time.monotonic() + 180
    while (
        not sum(one.store.status(one.scope).background["maintenance"]["rounds"] for one in open_ones)
        and time.monotonic() < ends
    ):
        time.sleep(0.02)
    time.sleep(0.1)
    assert sum(one.store.status(one.scope).background["maintenance"]["rounds"] for one in open_ones) == 1, (
        "one of them does it for all"
    )
    assert [item.text for item in opened("carla").list()] == ["carla likes tea."]


def test_what_goes_wrong_in_a_round_of_the_keeper_is_seen(
    opened: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "FIRST_CHECK_SECONDS", 0.02)
    trifles(opened, clock)
    monkeypatch.setattr(consolidating, "_remove_items", failing_for("bruno"))
    memory = opened("ana", background=True, settings={"lifecycle": {"every_minutes": 60}})
    ends = time.monotonic() + 180
    while not memory.store.status(memory.scope).background["maintenance"]["error"] and time.monotonic() < ends:
        time.sleep(0.02)
    assert (
        memory.store.status(memory.scope).background["maintenance"]["error"]
        == "user=bruno: consolidated: the disk is away"
    )


let_go = consolidating._remove_items


def failing_for(user: str) -> Callable[..., set[str]]:
    def act(care: MaintenanceContext, ids: Any, tell: Any) -> set[str]:
        if care.scope.user == user:
            raise StoreError("the disk is away")
        return let_go(care, ids, tell)

    return act


def test_what_fails_for_one_keeps_no_other_from_being_cared_for(
    opened: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trifles(opened, clock)
    monkeypatch.setattr(consolidating, "_remove_items", failing_for("ana"))
    done = opened().store.maintain()
    assert (owners(done), done.problems) == (["bruno", "carla"], ("user=ana: consolidated: the disk is away",))


def test_what_cannot_even_be_planned_for_one_is_told_by_a_dry_run_too(
    opened: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trifles(opened, clock)
    fading = consolidating._find_removable

    def broken(care: MaintenanceContext) -> Any:
        if care.scope.user == "carla":
            raise StoreError("a page is damaged")
        return fading(care)

    monkeypatch.setattr(consolidating, "_find_removable", broken)
    nobody = opened()
    planned = nobody.store.maintain(dry_run=True)
    done = nobody.store.maintain()
    assert (done.each, done.problems) == (planned.each, planned.problems)
    assert (owners(done), done.problems) == (["ana", "bruno"], ("user=carla: consolidated: a page is damaged",))


def test_one_whose_episodes_cannot_be_read_is_counted_once(
    opened: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trifles(opened, clock)
    book = episodes._load_entries

    def broken(care: MaintenanceContext) -> Any:
        if care.scope.user == "carla":
            raise StoreError("a page is damaged")
        return book(care)

    monkeypatch.setattr(episodes, "_load_entries", broken)
    done = opened().store.maintain()
    assert "user=carla: episodes: a page is damaged" in done.problems
    assert owners(done) == [*USERS], "the other passes are done for her too"


def test_the_same_trouble_of_many_is_told_once_and_an_absent_server_is_asked_once(
    opened: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trifles(opened, clock)
    asked: list[Scope] = []

    def broken(care: MaintenanceContext) -> Any:
        asked.append(care.scope)
        raise wrong

    monkeypatch.setattr(consolidating, "_find_removable", broken)
    nobody = opened()
    wrong: StoreError = StoreError("a page is damaged")
    assert nobody.store.maintain().problems == ("consolidated: a page is damaged (of user=ana and 2 more)",)
    asked.clear()
    wrong = StoreUnavailable("the server does not answer")
    assert nobody.store.maintain().problems == ("user=ana: consolidated: the server does not answer",)
    assert len(asked) == 1, "nobody waits for it a thousand times"


def test_a_hold_on_one_user_stops_no_other(opened: Open, clock: SetClock) -> None:
    trifles(opened, clock)
    nobody = opened()
    nobody.store.hold(user="bruno", reason="case-7")
    planned = nobody.store.maintain(dry_run=True)
    done = nobody.store.maintain()
    assert (done.each, done.problems) == (planned.each, ())
    assert owners(done) == ["ana", "carla"]


def test_what_matters_lasts_in_every_memory_before_anything_goes(
    opened: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store lets go of what is over in all memories at once: carla's turn comes after that of ana."""
    for user in USERS:
        with opened(user) as memory:
            memory.remember(f"{user} is here.")
            for number, importance in enumerate((0.2, 0.9)):
                ends = clock() + timedelta(hours=1)
                entry = Episode(f"{user}{number}", "s", "note", f"Note {number}.", importance, clock(), ends)
                memory.store.services.episodes.add(memory.scope, entry)  # type: ignore[union-attr]
    clock.advance(2 * 3600)
    keep = episodes._promote_entry

    def broken(care: MaintenanceContext, entry: Any, book: Any) -> None:
        if care.scope.user == "bruno":
            raise StoreError("the disk is full")
        keep(care, entry, book)

    with monkeypatch.context() as away:
        away.setattr(episodes, "_promote_entry", broken)
        done = opened().store.maintain()
        assert (done.counts["promoted"], done.counts["expired"]) == (2, 0)
        assert [one.split(":")[0] for one in done.problems] == ["user=bruno", "expired"]
    done = opened().store.maintain()
    assert (done.counts["promoted"], owners(done)) == (1, [*USERS])
    for user in USERS:
        assert [one.text for one in opened(user).episodic.recent()] == ["Note 1."]


def test_care_for_one_lets_nothing_of_the_others_go_that_is_still_to_be_kept(opened: Open, clock: SetClock) -> None:
    for user in ("ana", "bruno"):
        with opened(user) as memory:
            memory.remember(f"{user} is here.")
            ends = clock() + timedelta(hours=1)
            for number, importance in enumerate((0.2, 0.9)):
                entry = Episode(f"{user}{number}", "s", "note", f"Note {number}.", importance, clock(), ends)
                memory.store.services.episodes.add(memory.scope, entry)  # type: ignore[union-attr]
    clock.advance(2 * 3600)
    done = opened("ana").store.maintain(Scope(user="ana"))
    assert (done.counts["promoted"], done.counts["expired"], owners(done)) == (1, 1, ["ana"])
    assert opened("ana").store.maintain(Scope(user="ana")).each == ()
    done = opened("bruno").store.maintain(Scope(user="bruno"))
    assert (done.counts["promoted"], owners(done)) == (1, ["bruno"])
    assert [one.text for one in opened("bruno").episodic.recent()] == ["Note 1."]


def test_what_is_of_the_whole_store_is_done_once(opened: Open, clock: SetClock, tmp_path: Path) -> None:
    for user in USERS:
        with opened(user) as memory:
            memory.remember(f"{user} likes tea.")
            journal = memory.store.services.journal
            assert journal is not None
            journal.end(journal.claim(Claim(memory.scope, "task", "me")), TaskEnd("done"))
    clock.advance(8 * DAY)
    nobody = opened(settings={"lifecycle": {"backup_folder": str(tmp_path / "backups")}}, embedder=HashEmbedder("new"))
    journal, pruned = nobody.store.services.journal, []
    prune = journal.prune  # type: ignore[union-attr]
    journal.prune = lambda before: pruned.append(prune(before))  # type: ignore[union-attr, method-assign, assignment]
    planned = nobody.store.maintain(reembed=True, dry_run=True)
    done = nobody.store.maintain(reembed=True)
    assert (done.counts, done.each) == (planned.counts, planned.each)
    counts = {name: done.counts[name] for name in ("pruned", "embedded", "dropped", "backed_up")}
    assert counts == {"pruned": 3, "embedded": 3, "dropped": 1, "backed_up": 1}
    assert (pruned, owners(done, "embed"), owners(done, "write")) == ([3], [*USERS], [None])


def test_a_change_of_the_model_counts_what_is_embedded_for_others_too(opened: Open) -> None:
    for user in USERS:
        with opened(user) as memory:
            memory.remember_many([f"{user} says {n}." for n in range(4)])
    memory = opened("ana", embedder=HashEmbedder("new"))
    planned = memory.store.maintain(memory.scope, reembed=True, dry_run=True)
    assert planned.counts["embedded"] == 12, "all that is paid for"
    assert "would embed 12 items that had no vector of new, 8 of them in other memories" in planned.lines
    assert memory.store.maintain(memory.scope, reembed=True).counts["embedded"] == 12


# Random histories

ACTS = st.lists(
    st.tuples(
        st.sampled_from(USERS),
        st.sampled_from(["remember", "happen", "lasting", "task", "wait", "hold"]),
        st.sampled_from([0.1, 0.5, 0.8]),
        st.integers(0, 5),
    ),
    max_size=25,
)


@settings(max_examples=up_to(25), deadline=None)
@given(acts=ACTS, reembed=st.booleans())
def test_a_dry_run_says_what_a_round_over_all_then_does(
    acts: list[tuple[str, str, float, int]], reembed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, clock = tmp_path_factory.mktemp("care"), SetClock()
    rules = {"mirror": str(folder / "files" / "{user}")}
    chosen: dict[str, Any] = {"clock": clock, "background": False, "settings": {"lifecycle": rules}}
    opened = {user: Memory(folder / "a.db", user=user, embedder=HashEmbedder(), **chosen) for user in USERS}
    for number, (user, act, importance, days) in enumerate(acts):
        happen(opened[user], act, importance, (number, days), clock)
    for one in opened.values():
        one.close()
    with Memory(folder / "a.db", embedder=HashEmbedder("new" if reembed else "hash"), **chosen) as nobody:
        before = rows(nobody)
        planned = nobody.store.maintain(reembed=reembed, dry_run=True)
        assert rows(nobody) == before
        done = nobody.store.maintain(reembed=reembed)
        assert (done.each, done.counts, done.problems) == (planned.each, planned.counts, planned.problems)
        again = nobody.store.maintain(reembed=reembed)
        assert (again.each, again.problems) == ((), ())


def happen(memory: Memory, act: str, importance: float, at: tuple[int, int], clock: SetClock) -> None:
    number, days = at
    kit, now = memory.store.services, clock()
    assert kit.journal is not None
    assert kit.episodes is not None
    if act == "remember":
        memory.remember(f"Number {days}.", importance=importance)
    elif act == "happen":
        memory.episodic.record(f"Happened {number}.", session="s")
    elif act == "lasting":
        end = now + timedelta(days=days)
        kit.episodes.add(memory.scope, Episode(f"e{number}", "s", "note", f"Note {days}.", importance, now, end))
    elif act == "task":
        kit.journal.end(kit.journal.claim(Claim(memory.scope, f"t{number}", "me")), TaskEnd("done"))
    elif act == "wait":
        clock.advance(days * DAY)
    elif act == "hold" and days == 0:
        memory.store.hold(user=str(memory.scope.user), reason="case-7")


def rows(memory: Memory) -> list[Any]:
    store: Any = memory.store.services.items
    return [row for kind in ROW_KINDS for row in store.dump(kind, None, 9_999)]


# A folder of files for each


def test_each_memory_has_its_own_folder(opened: Open, clock: SetClock, tmp_path: Path) -> None:
    rules = {"mirror": str(tmp_path / "files" / "{user}")}
    trifles(opened, clock, ("ana", "Ana", "../../x"))
    done = opened(settings={"lifecycle": rules}).store.maintain()
    assert (done.counts["mirrored"], done.problems) == (3, ())
    pages = {one.parent.name: one.read_text() for one in tmp_path.rglob("MEMORY.md")}
    assert {name.partition("=")[0] for name in pages} == {"ana", "x"}
    assert len({name.lower() for name in pages}) == 3, "also where capitals are not told from small letters"
    assert all(one.parent.parent == tmp_path / "files" for one in tmp_path.rglob("MEMORY.md"))
    assert "ana likes tea." in pages["ana"]
    assert opened(settings={"lifecycle": rules}).store.maintain().each == ()


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(first=NAMES, second=NAMES)
def test_no_name_leads_out_of_the_folder_and_no_two_share_one(first: str, second: str) -> None:
    try:
        scopes = [Scope(user=one) for one in (first, second)]
    except ValueError:
        return  # not the name of anybody
    names = [fill_folder_pattern("{user}", scope) for scope in scopes]
    for name in names:
        assert os.path.basename(name) == name
        assert name not in (".", "..")
        assert not name.startswith(("~", "."))
        assert "\x00" not in name
        assert len(name.encode()) <= 255
    assert (names[0].lower() == names[1].lower()) == (first == second)


@for_each("name", ["../x", "/", "..", ".", "~", "~root", "a/b", "a" * 256, "CON", "Ana", "é", "\u202e", "none="])
def test_names_that_mean_something_to_a_file_system_are_made_safe(name: str) -> None:
    folder = fill_folder_pattern("files/{user}", Scope(user=name))
    assert folder.startswith("files/")
    assert "=" in folder
    assert folder.count("/") == 1
    assert folder != fill_folder_pattern("files/{user}", Scope())
    # Another's name cannot be chosen so that it meets this folder.
    assert fill_folder_pattern("files/{user}", Scope(user=folder.removeprefix("files/"))) != folder


def test_one_folder_is_that_of_one_memory_and_stops_nothing_else(opened: Open, clock: SetClock, tmp_path: Path) -> None:
    rules = {"mirror": str(tmp_path / "notes")}
    trifles(opened, clock)
    assert opened("ana", settings={"lifecycle": rules}).store.maintain(Scope(user="ana")).counts["mirrored"] == 1
    bruno = opened("bruno", settings={"lifecycle": rules})
    planned, done = bruno.store.maintain(bruno.scope, dry_run=True), bruno.store.maintain(bruno.scope)
    assert (done.each, done.problems) == (planned.each, planned.problems)
    assert owners(done) == ["bruno"], "all else is done"
    (told,) = done.problems
    assert told.startswith(f"mirrored: {tmp_path / 'notes'} mirrors another memory, not that of user=bruno")
    assert "join" not in told
    done = opened(settings={"lifecycle": rules}).store.maintain()
    assert (owners(done), done.problems) == (["carla"], ()), "it is ana's, and nobody asked for more"


def test_a_folder_is_made_with_those_that_it_is_in(opened: Open, clock: SetClock, tmp_path: Path) -> None:
    trifles(opened, clock, ("ana",))
    memory = opened("ana", settings={"lifecycle": {"mirror": str(tmp_path / "a" / "b" / "notes")}})
    planned, done = memory.store.maintain(memory.scope, dry_run=True), memory.store.maintain(memory.scope)
    assert (done.each, done.problems) == (planned.each, ())
    assert (tmp_path / "a" / "b" / "notes" / "MEMORY.md").is_file()


def test_a_folder_that_cannot_be_made_is_named(opened: Open, clock: SetClock, tmp_path: Path) -> None:
    trifles(opened, clock, ("ana",))
    (tmp_path / "file").write_text("")
    (told,) = (
        opened("ana", settings={"lifecycle": {"mirror": str(tmp_path / "file" / "notes")}})
        .store.maintain(Scope(user="ana"))
        .problems
    )
    assert str(tmp_path / "file") in told
    with pytest.raises(ConfigError, match=str(tmp_path / "nowhere" / "notes")):
        opened("ana").mirror(tmp_path / "nowhere" / "notes").sync()


def test_a_new_folder_is_not_given_to_whoever_comes_first(opened: Open, clock: SetClock, tmp_path: Path) -> None:
    rules = {"mirror": str(tmp_path / "notes")}
    trifles(opened, clock)
    nobody = opened(settings={"lifecycle": rules})
    planned, done = nobody.store.maintain(dry_run=True), nobody.store.maintain()
    assert (done.each, done.problems) == (planned.each, planned.problems)
    assert owners(done) == [*USERS]
    (told,) = done.problems
    assert 'mirror = "files/{user}"' in told
    assert not (tmp_path / "notes").exists()


def test_an_erasure_cleans_the_folder_of_its_user_and_of_nobody_else(
    opened: Open, clock: SetClock, tmp_path: Path
) -> None:
    rules = {"mirror": str(tmp_path / "files" / "{user}")}
    trifles(opened, clock, ("ana", "Ana"))
    nobody = opened(settings={"lifecycle": rules})
    nobody.store.maintain()
    pages = {one.parent: one for one in tmp_path.rglob("MEMORY.md")}
    assert len(pages) == 2
    assert nobody.store.erase(user="ana", dry_run=True).counts["files"] == 2
    assert nobody.store.erase(user="ana").receipt is not None
    (left,) = tmp_path.rglob("MEMORY.md")
    assert "Ana likes tea." in left.read_text()
    assert not (tmp_path / "files" / "ana").exists(), "not even the name is left"


def test_a_round_for_a_memory_that_was_never_written_makes_nothing(opened: Open, tmp_path: Path) -> None:
    memory = opened("anna", settings={"lifecycle": {"mirror": str(tmp_path / "files" / "{user}")}})
    for done in (memory.store.maintain(memory.scope, dry_run=True), memory.store.maintain(memory.scope)):
        assert (done.counts.get("mirrored", 0), done.problems) == (0, ())
    assert not (tmp_path / "files").exists()
    assert memory.store.memories() == []


def test_what_somebody_wrote_into_the_folder_of_a_memory_comes_in_though_it_is_the_first(
    opened: Open, tmp_path: Path
) -> None:
    memory = opened("ana", settings={"lifecycle": {"mirror": str(tmp_path / "files" / "{user}")}})
    (tmp_path / "files" / "ana").mkdir(parents=True)
    (tmp_path / "files" / "ana" / "MEMORY.md").write_text("# Memory\n\n- Ana likes tea.\n")
    assert memory.store.maintain(memory.scope).counts["mirrored"] == 1
    assert [item.text for item in memory.list()] == ["Ana likes tea."]


def test_an_erasure_leaves_what_a_person_put_into_the_folder(
    opened: Open, clock: SetClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {"mirror": str(tmp_path / "files" / "{user}")}
    trifles(opened, clock, ("ana",))
    nobody = opened(settings={"lifecycle": rules})
    nobody.store.maintain()
    (tmp_path / "files" / "ana" / "own.txt").write_text("Mine.")
    assert nobody.store.erase(user="ana").receipt is not None
    assert [one.name for one in (tmp_path / "files" / "ana").iterdir()] == ["own.txt"]
    assert f"{tmp_path / 'files' / 'ana'} stays" in caplog.text
    assert "own.txt" in caplog.text


# Many


def test_a_round_over_many_memories_with_nothing_to_do_is_quick(opened: Open) -> None:
    for number in range(60):
        opened(f"user{number}").remember("Hello.")
    nobody = opened()
    nobody.store.maintain()
    began = time.thread_time()
    done = nobody.store.maintain()
    assert (done.memories, done.each) == (60, ())
    assert time.thread_time() - began < 0.6, "a hundredth of a second each would be slow"


def test_of_two_backups_to_one_name_one_is_made_and_the_other_says_why(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, other = opened("ana"), opened("ana")
    memory.remember("Ana likes tea.")
    refused: list[str] = []
    write_copy = backing.write_copy

    def slow(*given: Any) -> None:
        write_copy(*given)
        with pytest.raises(StoreBusy, match=r"another backup is being written to monday\.db") as told:
            other.store.backup(tmp_path / "monday.db")
        refused.append(str(told.value))

    monkeypatch.setattr(backing, "write_copy", slow)
    assert memory.store.backup(tmp_path / "monday.db").manifest.items == 1
    assert len(refused) == 1
    assert sorted(one.name for one in tmp_path.glob("monday*")) == ["monday.db", "monday.db.json"]
    with pytest.raises(InvalidInput, match="there already"):
        other.store.backup(tmp_path / "monday.db")


def test_what_a_killed_backup_left_is_no_hindrance(opened: Open, tmp_path: Path) -> None:
    memory = opened("ana")
    memory.remember("Ana likes tea.")
    part = tmp_path / "monday.db.part"
    part.write_bytes(b"half of it")
    part.chmod(0o644)
    assert memory.store.backup(tmp_path / "monday.db").manifest.items == 1
    assert (tmp_path / "monday.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("when", ["before it has opened the file", "before it has locked the file"])
def test_a_backup_that_ends_while_another_begins_under_its_name_stays_as_it_is(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    first, second, goal = opened("ana"), opened("ana"), tmp_path / "monday.db"
    first.remember("Ana likes tea.")
    alone, taken = backing._lock_part, backing._lock_whole
    written: list[bytes] = []

    def first_the_other() -> None:
        monkeypatch.undo()
        first.store.backup(goal)
        written.append(goal.read_bytes())

    def opened_late(part: Path) -> Any:
        first_the_other()
        return alone(part)

    def locked_late(file: int, busy: str) -> None:
        first_the_other()
        taken(file, busy)

    late = opened_late if when == "before it has opened the file" else locked_late
    monkeypatch.setattr(backing, "_lock_part" if late is opened_late else "_lock_whole", late)
    # What it has locked is by now the other's backup, and no longer the file that it is to write.
    with pytest.raises(InvalidInput if late is opened_late else StoreBusy):
        second.store.backup(goal)
    assert [goal.read_bytes()] == written
    assert sorted(one.name for one in tmp_path.glob("monday*")) == ["monday.db", "monday.db.json"]
