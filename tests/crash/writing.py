"""A small program that writes to a store and notes every acknowledged write; the tests start, stop and kill it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from engrain.core.clock import system_clock
from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Vectors
from engrain.core.model.plans import Add, Forget, Plan, refer_to_step
from engrain.core.model.sessions import Episode, EpisodeDraft
from engrain.core.text.passages import index_words
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.connection import Connection

SCOPE = Scope(user="ana")
VECTOR = Vectors("small/4/0", (b"\x00\x00\x80?" + bytes(12),))


def draft(text: str) -> Draft:
    return Draft(text, words=index_words(text), vectors=VECTOR)


def add(store: SqliteStore, text: str) -> str:
    """With an episode over it, and once, however often it is repeated: the text is the request's id."""
    over = Episode("", text, "turn", "", 0.5, system_clock(), None, item=refer_to_step(0), key="same")
    plan = Plan(SCOPE, (Add(draft(text)),), request_id=text, episodes=(EpisodeDraft(over),))
    outcome = store.apply(plan).outcomes[0]
    assert outcome.id
    return outcome.id


def texts(store: SqliteStore) -> list[str]:
    from engrain.core.model.queries import ListQuery

    return [item.text for item in store.page(ListQuery(SCOPE, limit=10_000_000))]


def assert_sound(store: SqliteStore) -> None:
    assert [one for one in store.check() if one.state == "fail"] == []


def assert_whole(store: SqliteStore) -> None:
    """Every item has the one episode it came with."""
    from engrain.core.model.queries import ListQuery

    items = [item.id for item in store.page(ListQuery(SCOPE, limit=10_000_000))]
    episodes = store.episodes.recent(SCOPE, None, 10_000_000, system_clock())
    assert sorted(one.item or "" for one in episodes) == sorted(items)
    assert {one.count for one in episodes} <= {1}


def acknowledged(note: Path) -> tuple[set[str], set[str]]:
    """What must be there, and what must not; a text that was being forgotten may be either."""
    lines = note.read_text().splitlines() if note.exists() else []
    gone = {line.removeprefix("forgot ") for line in lines if line.startswith("forgot ")}
    going = {line.removeprefix("forgetting ") for line in lines if line.startswith("forgetting ")}
    return {line for line in lines if not line.startswith("forg")} - gone - going, gone


def assert_kept(path: Path, note: Path) -> None:
    kept, gone = acknowledged(note)
    store = SqliteStore(path)
    found = texts(store)
    assert_sound(store)
    assert_whole(store)
    # And it still works.
    add(store, "afterwards")
    assert "afterwards" in texts(store)
    store.close()
    assert kept <= set(found)
    assert not gone & set(found)
    assert len(found) == len(set(found))


def start_reader(path: Path) -> subprocess.Popen[bytes]:
    """Start a new program, because the caller has the store open, which a forked one would inherit."""
    return subprocess.Popen([sys.executable, __file__, "read", str(path)])


def start_writer(path: Path, name: str) -> BaseProcess:
    from forked import start_forked  # which this file does not find when it runs as a program

    return start_forked(_add_until_stopped, path, name)


def _add_until_stopped(path: Path, name: str) -> None:
    """Note each acknowledged write."""
    store = SqliteStore(path)
    notes = os.open(path.with_name(f"{name}.acks"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while not path.with_name("go").exists():
        time.sleep(0.01)
    for count in itertools.count():
        if path.with_name("stop").exists():
            break
        add(store, f"{name} {count}")
        os.write(notes, f"{name} {count}\n".encode())
    store.close()


def few(path: Path, note: Path) -> None:
    """The small writer of the crash points: make, add, repeat, forget, purge, close."""
    notes = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = SqliteStore(path)
    try:
        kept = [add(store, f"text {number}") for number in range(3)]
        os.write(notes, b"text 0\ntext 1\ntext 2\nforgetting text 1\n")
        store.apply(Plan(SCOPE, (Forget(kept[1]),), request_id="forget"))
        os.write(notes, b"forgot text 1\n")
        store.purge()
        add(store, "text 3")
        os.write(notes, b"text 3\n")
    finally:
        os.close(notes)
        store.close()


def _reads(path: Path) -> None:
    """Holds a read until told to stop."""
    store = SqliteStore(path)

    def hold(db: Connection) -> None:
        db.rows("select count(*) from item")
        path.with_name("holding").touch()
        while not path.with_name("stop").exists():
            time.sleep(0.01)

    store.snapshot(hold)
    store.close()


if __name__ == "__main__":
    task, path = sys.argv[1], Path(sys.argv[2])
    try:
        if task == "few":
            few(path, Path(sys.argv[3]))
        else:
            _reads(path)
    except EngrainError as exc:
        sys.exit(f"{type(exc).__name__}: {exc}")
