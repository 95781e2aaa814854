"""The audit log: whatever is done to it is found, it holds no content, and nothing that is done to it stops engrain."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import for_each
from forked import end_forked, join_forked, start_forked
from memory_kit import Open
from servers import postgres

from engrain import InvalidInput, Memory, OnHold, Source
from engrain.cli.main import root
from engrain.stores.relational import audit as log

Row = tuple[Any, ...]
COLUMNS = ("n", "at", "what", "subject", "details", "previous", "hash")
# Not one of them is what an entry has. Those that a strict table refuses are not among them.
OTHERS: dict[str, list[Any]] = {
    "n": [0, -1, 99, 1 << 62],
    "at": [0, -1, 10**18, -(10**18)],
    "what": ["erase", "", "forget "],
    "subject": ["", "-", "x", None],
    "details": ["", "{}", "[]", "null", "nope", "[" * 5_000, '{"items":1, "cut":0}', '{"cut":0,"cut":0,"items":1}'],
    "previous": ["", "0" * 32, "f" * 32],
    "hash": ["", "0" * 32, "f" * 32],
}
SEALS = [
    "",
    "[]",
    "null",
    "nope",
    "{}",
    "[7]",
    '[1,"x","y"]',
    '[6,"x"]',
    '[6,"x","y","z"]',
    "[null,null,null]",
    "[" * 5_000,
]


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    made: Memory = open_memory(background=False, embedder=HashEmbedder())
    for id in [made.remember(f"Note {n} speaks of parcels.") for n in range(4)]:
        made.forget(id)
    made.store.hold("eve")
    made.store.release("eve")
    return made


def run(memory: Memory, *statements: tuple[str, Row]) -> None:
    for statement, values in statements:
        memory.store.services.items.transaction(lambda db: db.run(statement, values))  # type: ignore[attr-defined]  # noqa: B023


def rows(memory: Memory) -> list[Row]:
    sql = "select n, at, what, subject, details, previous, hash from audit order by n"
    found: list[Row] = memory.store.services.items.snapshot(lambda db: db.rows(sql))  # type: ignore[attr-defined]
    return found


def seal(memory: Memory) -> str:
    sql = "select value from meta where name = 'audit'"
    ((found,),) = memory.store.services.items.snapshot(lambda db: db.rows(sql))  # type: ignore[attr-defined]
    return str(found)


def put(memory: Memory, entries: list[Row], sealed: str | None) -> None:
    """In the place of the whole log."""
    run(
        memory,
        ("delete from audit", ()),
        *(("insert into audit values (?, ?, ?, ?, ?, ?, ?)", row) for row in entries),
        ("delete from meta where name = 'audit'", ()),
        *([("insert into meta (name, value) values ('audit', ?)", (sealed,))] if sealed is not None else []),
    )


def tampered(entries: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    for at, row in enumerate(entries):
        rest = entries[:at] + entries[at + 1 :]
        yield f"without {row[0]}", rest
        yield f"without {row[0]}, numbered anew", [(n, *one[1:]) for n, one in enumerate(rest, 1)]
        yield f"cut before {row[0]}", entries[:at]
        for n in (0, -5, len(entries) + 1):
            yield f"{row[0]} again as {n}", [*entries, (n, *row[1:])]
        for column, others in OTHERS.items():
            for value in others:
                changed = (*row[: COLUMNS.index(column)], value, *row[COLUMNS.index(column) + 1 :])
                if changed != row:
                    yield f"{column} of {row[0]} is {value!r:.40}", [*rest, changed]
    for one, two in itertools.combinations(entries, 2):
        rest = [row for row in entries if row not in (one, two)]
        yield f"{one[0]} and {two[0]} swapped", [*rest, (one[0], *two[1:]), (two[0], *one[1:])]


def test_every_single_thing_that_is_done_to_an_entry_is_found(memory: Memory) -> None:
    entries, sealed = rows(memory), seal(memory)
    assert memory.store.verify_audit().entries == len(entries) == 6
    tries = 0
    for what, others in tampered(entries):
        put(memory, others, sealed)
        assert not memory.store.verify_audit(), what
        tries += 1
    assert tries > 200
    put(memory, entries, sealed)
    assert memory.store.verify_audit()


@pytest.mark.parametrize("other", [*SEALS, None])
def test_a_seal_that_was_changed_or_removed_is_found(memory: Memory, other: str | None) -> None:
    put(memory, rows(memory), other)
    assert not memory.store.verify_audit()


def test_the_log_or_the_seal_of_another_store_is_found(memory: Memory, open_memory: Open, tmp_path: Path) -> None:
    other = open_memory(store=tmp_path / "other.db", background=False, embedder=HashEmbedder())
    for id in [other.remember(f"Other {n}.") for n in range(6)]:
        other.forget(id)
    mine = rows(memory)
    for entries in (mine, rows(other)):
        put(memory, entries, seal(other))
        assert not memory.store.verify_audit()


@pytest.mark.parametrize("sealed", [*SEALS, '[3,"{hash}","made up"]'])
def test_a_log_that_was_cut_is_not_whole_again_with_the_next_entry(memory: Memory, sealed: str) -> None:
    left = rows(memory)[:3]
    put(memory, left, sealed.replace("{hash}", left[-1][-1]))
    for n in range(3):
        memory.forget(memory.remember(f"More {n}."))
        assert not memory.store.verify_audit(), "and forgetting goes on"


def test_an_older_seal_does_not_hide_what_came_after(memory: Memory) -> None:
    older = seal(memory)
    memory.forget(memory.remember("More."))
    put(memory, rows(memory), older)
    memory.forget(memory.remember("Still more."))
    assert not memory.store.verify_audit()


def test_what_cannot_be_read_stops_neither_the_doctor_nor_the_command(memory: Memory) -> None:
    run(
        memory,
        ("update audit set details = 'nope' where n = 2", ()),
        ("update audit set at = ? where n = 3", (10**18,)),
    )
    found = {one.name: one for one in memory.store.doctor(memory.scope)}["audit log"]
    assert (found.state, "entry 2 was changed" in found.why) == ("fail", True)
    told = CliRunner().invoke(root, ["audit", "--store", memory.store.status(memory.scope).store["location"]])
    assert told.exit_code == 0
    assert len(told.stdout.splitlines()) == 6


def test_a_log_that_was_put_back_with_its_seal_does_not_have_the_head_that_was_kept(memory: Memory) -> None:
    entries, sealed = rows(memory), seal(memory)
    memory.forget(memory.remember("What somebody wants to hide."))
    kept = memory.store.verify_audit().checkpoint
    assert memory.store.verify_audit(head=kept)
    put(memory, entries, sealed)
    assert memory.store.verify_audit(), "nothing within the store can tell"
    (fault,) = memory.store.verify_audit(head=kept).faults
    assert "put back to an earlier moment" in fault
    memory.store.hold("somebody else")
    (fault,) = memory.store.verify_audit(head=kept).faults
    assert "entry 7 is not the one that was kept" in fault


@for_each("head", ["", "7", "x:y", "7:abc", "-1:" + "0" * 32, 7, "7:" + "0" * 33])
def test_a_head_that_is_none_is_refused(memory: Memory, head: Any) -> None:
    with pytest.raises(InvalidInput, match="head of an audit log"):
        memory.store.verify_audit(head=head)


def test_the_command_prints_a_head_and_takes_it_again(memory: Memory) -> None:
    store = memory.store.status(memory.scope).store["location"]

    def verify(*more: str) -> Any:
        return CliRunner().invoke(root, ["audit", "verify", "--store", store, *more])

    head = verify().stdout.split()[-1]
    assert json.loads(verify("--json").stdout)["checkpoint"] == head
    assert "is in the log" in verify("--head", head).stdout
    memory.forget(memory.remember("More."))
    assert verify("--head", head).exit_code == 0, "it is not the last one any more"
    wrong = verify("--head", "6:" + "0" * 32)
    assert (wrong.exit_code, "not the one that was kept" in wrong.stdout) == (1, True)


def test_a_head_that_was_kept_is_in_a_copy_and_after_a_restore(memory: Memory, tmp_path: Path) -> None:
    store = memory.store.status(memory.scope).store["location"]
    memory.store.backup(tmp_path / "backup.db")
    memory.forget(memory.remember("Said since."))
    kept = memory.store.verify_audit().checkpoint  # the backup is older
    memory.close()
    for command in (
        ["copy", store, str(tmp_path / "copy.db")],
        ["restore", str(tmp_path / "backup.db"), store, "--force", "--yes"],
    ):
        ran = CliRunner().invoke(root, command)
        assert ran.exit_code == 0, ran.output
        with Memory(command[2], user="ana", background=False, embedder=HashEmbedder()) as other:
            assert other.store.verify_audit(head=kept), command[0]


def test_a_page_at_a_time_finds_the_same(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_PAGE", 2)
    assert memory.store.verify_audit().entries == 6
    run(memory, ("delete from audit where n = 3", ()))
    assert not memory.store.verify_audit()


def test_without_a_number_the_newest_are_shown(memory: Memory) -> None:
    assert [one.n for one in memory.store.audit(limit=2)] == [5, 6]
    assert [one.n for one in memory.store.audit(after=0, limit=2)] == [1, 2]
    assert [one.n for one in memory.store.audit()] == [1, 2, 3, 4, 5, 6]


def test_on_a_server_a_log_that_was_cut_is_not_whole_again_either() -> None:
    url = f"{postgres().url()}?schema=audit"
    try:
        with Memory(url, user="ana", background=False, embedder=HashEmbedder()) as memory:
            for n in range(3):
                memory.forget(memory.remember(f"Note {n}."))
            kept = memory.store.verify_audit().checkpoint
            assert memory.store.verify_audit(head=kept)
            postgres().run("delete from audit.audit where n = 3")
            postgres().run("update audit.audit set details = 'nope' where n = 1")
            for value in ("nope", json.dumps([2, memory.store.audit()[-1].hash, "made up"])):
                postgres().run(f"update audit.meta set value = '{value}' where name = 'audit'")
                assert not memory.store.verify_audit()
                memory.forget(memory.remember("More."))
                faults = memory.store.verify_audit(head=kept).faults
                assert any("does not follow" in one for one in faults), faults
                assert any("entry 3 is not the one that was kept" in one for one in faults), faults
            assert {one.name: one.state for one in memory.store.doctor(memory.scope)}["audit log"] == "fail"
    finally:
        postgres().run("drop schema if exists audit cascade")


def test_a_clock_that_jumps_leaves_the_chain_whole(open_memory: Open, clock: SetClock) -> None:
    memory = open_memory(background=False, embedder=HashEmbedder())
    for seconds in (0, -86_400, 10 * 86_400, -3_600):
        clock.advance(seconds)
        memory.forget(memory.remember(f"After {seconds} seconds."))
    assert memory.store.verify_audit().entries == 4
    assert memory.store.verify_audit()


def write_and_forget(path: Path, user: str, count: int) -> None:
    with Memory(path, user=user, background=False, embedder=HashEmbedder()) as memory:
        path.with_name(user).touch()
        for n in range(count):
            memory.forget(memory.remember(f"Note {n} of {user}."))


def test_three_processes_write_one_chain_and_a_kill_leaves_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    Memory(path, background=False, embedder=HashEmbedder()).close()
    killed = start_forked(write_and_forget, path, "killed", 100_000)
    while not (tmp_path / "killed").exists():
        assert killed.is_alive()
        time.sleep(0.01)
    others = [start_forked(write_and_forget, path, user, 5) for user in ("ana", "ben")]
    assert [join_forked(process) for process in others] == [0, 0]
    end_forked(killed)
    with Memory(path, background=False, embedder=HashEmbedder()) as memory:
        found = memory.store.verify_audit()
        assert found
        assert found.entries >= 10


def test_no_word_of_any_verb_is_in_the_log(open_memory: Open, tmp_path: Path) -> None:
    """Not of a text, a name, a path or a reason that is no code word."""
    word = "canary"
    memory = open_memory(background=False, embedder=HashEmbedder(), user=f"{word}-user")
    source = f"https://{word}.example/{word}"
    (tmp_path / word).mkdir()
    memory.start_session(f"{word}-session")
    memory.add_message("user", f"My {word} lives in Lima.", metadata={word: word})
    memory.remember(f"A {word}.", source=Source(source, "web"), slot=f"user.{word}", request_id=f"{word}-request")
    memory.episodic.record_tool_call(word, {word: word}, word)
    memory.end_session()
    memory.store.undo(source, user=f"{word}-user")
    memory.export(tmp_path / word / "export.jsonl")
    memory.load(tmp_path / word / "export.jsonl")
    memory.store.backup(tmp_path / word / "backup.db")
    with memory.task(f"{word}-task", goal=word):
        pass
    memory.tasks.remove(f"{word}-task")
    memory.forget(memory.remember(f"Another {word}."))
    memory.forget({"text": {"contains": word}}, request_id=f"{word}-forget")
    with pytest.raises(InvalidInput):
        memory.store.hold(f"{word}-held", reason=f"a {word} of several words")
    memory.store.hold(f"{word}-held")
    with pytest.raises(OnHold):
        memory.store.erase(user=f"{word}-held")
    memory.store.maintain(memory.scope)
    memory.store.rebuild()
    memory.erase(session=f"{word}-session")
    memory.store.erase(user=f"{word}-user")
    recorded = {one.what for one in memory.store.audit()}
    assert {"undo", "export", "load", "backup", "remove_task", "forget", "hold", "rebuild", "erase"} <= recorded
    assert word not in repr(rows(memory)).lower()
