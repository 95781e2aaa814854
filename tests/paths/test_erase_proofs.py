"""A receipt is given only for what is gone from every byte, and an erasure keeps out all that is as old as it is."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engrain_conformance.clock import SetClock
from erasing_kit import WORD, erase_from, found, opened

from engrain import Memory, Source
from engrain.cli.main import root
from engrain.core.errors import OnHold
from engrain.core.model.erasure import Erasure
from engrain.core.model.sessions import Episode
from engrain.memory.transfer import restore_backup
from engrain.ports import Services
from engrain.ports.erasure import Erasing
from engrain.privacy import erase as run
from engrain.privacy.erasure_requests import make_user_subject
from engrain.stores.sqlite import purge

TEXT = f"A text with {WORD}-text in it."
# Where SQLite leaves the bytes of a row that it has moved: in the unused middle of a page, here of an empty table.
PLANT = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
((page,),) = db.execute("select rootpage from sqlite_master where name = 'hold'")
((size,),) = db.execute("pragma page_size")
file = os.open(sys.argv[1], os.O_WRONLY)
os.pwrite(file, sys.argv[2].encode(), (page - 1) * size + 1000)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "agent.db"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def memory(store: Path, clock: SetClock) -> Iterator[Memory]:
    with opened(store, clock=clock, background=False) as memory:
        yield memory


def plant(store: Path, text: str) -> None:
    """In another process: to close the file in this one would drop the locks that SQLite has on it here."""
    subprocess.run([sys.executable, "-c", PLANT, str(store), text], check=True)
    assert found(store.parent, text)


def port(memory: Memory) -> Erasing:
    assert memory.store.services.erasing
    return memory.store.services.erasing


def happened(memory: Memory, text: str, session: str = "monday") -> None:
    """An episode by itself, in words that no item has: no tombstone keeps it out."""
    kit = memory.store.services
    assert kit.episodes
    kit.episodes.add(memory.scope, Episode(f"e-{text}", session, "turn", text, 0.5, kit.clock(), None), None)


def episodes(memory: Memory) -> list[str]:
    return [one.text for one in memory.episodic.recent(99)]


# The look at every byte


SAID = f"There was {WORD}-said at the club."
# What is looked for in the bytes, and what is erased.
LOOKED_FOR = {
    "a text": (TEXT, {"user": "ana"}),
    "what was said": (SAID, {"session": f"{WORD}-session"}),
    "the name of a session": (f"{WORD}-session", {"session": f"{WORD}-session"}),
    "the name of a source": (f"{WORD}-page", {"source": f"{WORD}-page"}),
    "the name of a request": (f"{WORD}-request", {"id": None}),
}


def written(store: Path) -> str:
    """The id of an item that was remembered for a request."""
    with opened(store, background=False) as memory:
        memory.add_message("user", SAID, session=f"{WORD}-session")
        # One that has another source stays, and only the name goes.
        for page in (f"{WORD}-page", "harbour.html"):
            memory.remember("The sea is near.", source=Source(page, "web"))
        return memory.remember(TEXT, request_id=f"{WORD}-request")


@pytest.mark.parametrize("what", LOOKED_FOR)
def test_there_is_no_receipt_while_bytes_of_it_are_left(
    store: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, (word, asked) = written(store), LOOKED_FOR[what]
    plant(store, word)
    monkeypatch.setattr(purge, "overwrite_unused_bytes", lambda *_: None)
    with opened(store, background=False) as memory:
        done = erase_from(memory, **{by: name or item for by, name in asked.items()})  # type: ignore[arg-type]
        assert (done.pending, "traces" in done.why) == (True, True)
        assert [entry.what for entry in memory.store.audit()] == []


def test_bytes_in_the_unused_parts_of_a_page_are_overwritten(store: Path) -> None:
    written(store)
    plant(store, TEXT)
    with opened(store, background=False) as memory:
        done = memory.store.erase(user="ana")
        assert done.receipt, done.why
    assert found(store.parent) == {}


def test_bytes_go_though_the_erasure_waits_for_a_server(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise run._ErasurePending("a server does not answer.")

    written(store)
    plant(store, TEXT)
    monkeypatch.setattr(run, "_clean_side_stores", away)
    with opened(store, background=False) as memory:
        assert memory.store.erase(user="ana").pending
        assert memory.store.services.items.purge()
        assert found(store.parent, TEXT) == {}


def test_names_go_though_the_rows_were_overwritten_before(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, session = run._clean_side_stores, f"{WORD}-session"

    def overwritten_first(kit: Services, *rest: Any) -> Erasure:
        assert kit.items.purge()
        plant(store, session)
        return beside(kit, *rest)

    written(store)
    monkeypatch.setattr(run, "_clean_side_stores", overwritten_first)
    with opened(store, background=False) as memory:
        done = memory.erase(session=session)
        assert done.receipt, done.why
    assert found(store.parent, session) == {}


def test_a_receipt_does_not_hold_in_a_log_that_was_changed_elsewhere(memory: Memory, store: Path) -> None:
    memory.remember(TEXT)
    memory.store.hold("ben", reason="case-7")
    file = store.with_name("receipt.json")
    file.write_text(str(memory.store.erase(user="ana").receipt))
    assert memory.store.verify_erasure(file.read_text())
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("update audit set details = replace(details, 'case-7', 'case-8') where n = 1")
    seen = memory.store.verify_erasure(file.read_text())
    assert (seen.recorded, bool(seen.faults), bool(seen)) == (True, True, False)
    assert CliRunner().invoke(root, ["--store", str(store), "erase", "verify", str(file)]).exit_code == 1


# What is as old stays out


@pytest.mark.parametrize("kind", ["task", "episode"])
def test_a_user_of_whom_only_tasks_or_episodes_are_left_is_not_gone(memory: Memory, tmp_path: Path, kind: str) -> None:
    if kind == "task":
        with memory.task("order") as task:
            task.step("one", lambda: 1)
    else:
        happened(memory, "It rained.")
    memory.store.backup(tmp_path / "backup.db")
    receipt = memory.store.erase(user="ana").receipt
    assert receipt
    assert not any(memory.store.verify_erasure(receipt).rows.values())
    restore_backup(tmp_path / "backup.db", tmp_path / "new.db")
    with opened(tmp_path / "new.db", background=False) as restored:
        assert restored.store.verify_erasure(receipt).rows[kind] == 1


def test_what_came_between_two_erasures_stays_out_too(memory: Memory, clock: SetClock, tmp_path: Path) -> None:
    file = tmp_path / "ana.jsonl"
    for number in range(2):
        clock.advance(60)
        happened(memory, f"It rained {number} times.")
        memory.export(file, overwrite=True)
        clock.advance(60)
        assert memory.store.erase(user="ana").receipt
    loaded = memory.load(file)
    assert (loaded.added, episodes(memory)) == (0, [])


def test_what_comes_in_the_moment_of_the_erasure_stays_out(memory: Memory, clock: SetClock, tmp_path: Path) -> None:
    happened(memory, "It rained.")
    memory.export(tmp_path / "ana.jsonl")
    assert memory.store.erase(user="ana").receipt
    subject = make_user_subject(memory.scope.tenant, "ana")
    erased = port(memory).erased(subject)
    assert erased
    assert erased.at == clock()
    assert memory.load(tmp_path / "ana.jsonl").added == 0
    assert episodes(memory) == []


def test_what_is_said_in_a_session_while_it_is_erased_stays_out(
    memory: Memory, clock: SetClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, file = run._delete_rows, tmp_path / "ana.jsonl"

    def said_first(*given: Any) -> Erasure:
        clock.advance(60)
        happened(memory, "It rained.")
        memory.export(file)
        clock.advance(60)
        return take(*given)

    memory.add_message("user", TEXT, session="monday")
    monkeypatch.setattr(run, "_delete_rows", said_first)
    assert memory.erase(session="monday").receipt
    assert (memory.load(file).added, episodes(memory)) == (0, [])


def test_an_old_copy_stays_out_while_the_session_is_still_being_erased(
    memory: Memory, clock: SetClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    happened(memory, "It rained.")
    memory.add_message("user", TEXT, session="monday")
    memory.export(tmp_path / "ana.jsonl")
    clock.advance(60)
    monkeypatch.setattr(run, "_verify_and_finish", dies)
    with pytest.raises(KeyboardInterrupt):
        memory.erase(session="monday")
    assert (memory.load(tmp_path / "ana.jsonl").added, episodes(memory)) == (0, [])
    monkeypatch.undo()
    (done,) = memory.store.resume_erasures()
    assert done.receipt


def test_what_has_another_source_comes_back_without_the_one_that_was_erased(
    memory: Memory, clock: SetClock, tmp_path: Path
) -> None:
    with opened(tmp_path / "other.db", clock=clock, background=False) as other:
        for page in ("harbour.html", "chess.html"):
            other.remember("The sea is near.", source=page)
        other.remember("Chess is old.", source="harbour.html")
        other.export(tmp_path / "ana.jsonl")
    memory.remember("Fish is cheap.", source="harbour.html")
    clock.advance(60)
    assert memory.erase(source="harbour.html").receipt
    memory.load(tmp_path / "ana.jsonl")
    assert [item.text for item in memory.list()] == ["The sea is near."]


# Holds


def test_a_hold_is_as_old_as_its_first_reason(memory: Memory, clock: SetClock) -> None:
    began = memory.store.hold("ana", reason="case-7").at
    clock.advance(60)
    assert memory.store.hold("ana", reason="case-8").at == began
    assert memory.store.release("ana", reason="case-7")
    assert [one.at for one in memory.store.holds()] == [began]


def test_under_a_hold_nobody_goes_on_with_an_erasure_by_asking_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    memory.remember(TEXT)
    monkeypatch.setattr(run, "_clean_side_stores", dies)
    with pytest.raises(KeyboardInterrupt):
        memory.store.erase(user="ana")
    monkeypatch.undo()
    memory.store.hold("ana", reason="case-7")
    with pytest.raises(OnHold, match="case-7"):
        memory.store.erase(user="ana")
    assert [entry.what for entry in memory.store.audit()] == ["hold", "erase_refused"]
