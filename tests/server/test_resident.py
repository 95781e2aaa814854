"""One resident process for a store: started on demand, shared, and gone when nobody needs it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import engrain
from engrain import ConfigError, Memory, Store, StoreUnavailable
from engrain.server.access import Access, OpenAccess
from engrain.server.app import HttpApi
from engrain.server.resident import Place, ask, connect, find, find_place, is_older, stop
from engrain.server.resident_server import ResidentApi, ResidentServer
from engrain.server.serve import listen_unix


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = find_place(tmp_path / "agent.db")
    yield found
    stop(found.location)
    assert not found.is_locked()
    assert list(found.socket.parent.glob(f"{found.socket.stem}*")) == []


def wait(is_done: Callable[[], object], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.02)


def pid_of(place: Place) -> int:
    found = ask(place)
    assert found is not None
    return int(found["pid"])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_starts_on_demand_serves_all_programs_and_stops(place: Place) -> None:
    assert find(place.location) is None
    with connect(place.location) as store:
        id = store.memory(user="ana").remember("Ana likes tea.", slot="user.drink")
        pid = pid_of(place)
        assert pid != os.getpid()
        assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.socket.parent.stat().st_mode) == 0o700
    with connect(place.location) as store, Memory(find(place.location), user="ana") as memory:
        assert pid_of(place) == pid
        assert store.memory(user="ana").get(id).text == memory.slots.get("user.drink").text == "Ana likes tea."
        assert store.status().items == 1
    assert stop(place.location)
    wait(lambda: not is_running(pid))
    assert not stop(place.location)
    with Memory(place.location, user="ana") as memory:
        assert memory.get(id) is not None


@pytest.mark.slow
def test_programs_that_start_together_share_one(place: Place) -> None:
    code = (
        "import sys; from engrain.server.resident import connect\n"
        "with connect(sys.argv[1]) as store: store.memory(user='ana').remember(f'Note {sys.argv[2]}.')"
    )
    programs = [subprocess.Popen([sys.executable, "-c", code, place.location, str(n)]) for n in range(3)]
    assert [one.wait(120) for one in programs] == [0] * 3
    listed = subprocess.run(["pgrep", "-fc", str(place.socket)], capture_output=True, text=True, check=False)
    assert listed.stdout.strip() == "1"
    with connect(place.location) as store:
        assert len(store.memory(user="ana").list()) == 3


def test_it_ends_when_idle_or_killed_and_the_next_request_starts_it_again(place: Place) -> None:
    with connect(place.location, idle=1) as store:
        memory = store.memory(user="ana")
        memory.remember("one")
        first = pid_of(place)
        wait(lambda: not is_running(first))
        assert not place.socket.exists()
        memory.remember("two")
        second = pid_of(place)
        assert second != first
        os.kill(second, signal.SIGKILL)
        wait(lambda: not is_running(second))
        assert [item.text for item in memory.list()] == ["two", "one"]


@pytest.mark.slow
def test_a_store_that_does_not_open_is_told(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_bytes(b"This is no database, and never was one. " * 50)
    with pytest.raises(StoreUnavailable, match="not an SQLite database"):
        connect(tmp_path / "agent.db")
    place = find_place(tmp_path / "agent.db")
    assert not place.is_locked()
    place.log.unlink()


def test_only_a_file_has_a_resident_process() -> None:
    for store in (":memory:", "https://host", "unix:///x.sock"):
        with pytest.raises(ConfigError, match="resident"):
            connect(store)
        assert find(store) is None


def test_a_folder_that_others_can_open_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    folder = Path("/tmp/engrain-4000000000")
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        with pytest.raises(ConfigError, match="belongs to somebody else"):
            connect(tmp_path / "agent.db")
        assert find(tmp_path / "agent.db") is None
    finally:
        folder.rmdir()


class Older(threading.Thread):
    """A resident process of another version, in a thread."""

    def __init__(self, place: Place, files: tuple[Path, ...] = ()) -> None:
        super().__init__()
        self.store = Store(place.location, background=False)
        self.listener = listen_unix(place.socket)
        self.listener.socket.listen()
        api = ResidentApi(lambda: HttpApi(self.store, Access(None, OpenAccess())))
        self.server = ResidentServer(api, 600, self.listener, list(files))
        self.start()

    def run(self) -> None:
        self.server.serve_until_stopped(self.listener)
        self.store.close()
        self.listener.close()


def test_an_older_version_is_replaced_and_a_newer_one_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engrain, "__version__", "0.0.9")
    older = Older(place)
    wait(lambda: ask(place))
    with connect(place.location):
        assert pid_of(place) != os.getpid()
    older.join(180)
    assert not older.is_alive()
    assert stop(place.location)
    monkeypatch.setattr(engrain, "__version__", "99.0.0")
    newer = Older(place)
    wait(lambda: ask(place))
    with connect(place.location):
        assert pid_of(place) == os.getpid()
    stop(place.location)
    newer.join(180)
    assert is_older("0.9.10", "0.10.0")


def test_it_ends_when_its_program_or_its_store_was_replaced(place: Place, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("version = 1")
    old = Older(place, (program,))
    wait(lambda: ask(place))
    assert old.is_alive()
    program.write_text("version = 2")
    old.join(180)
    assert not old.is_alive()
    assert not place.is_locked()


def test_a_suspended_process_is_ended_if_that_is_asked(place: Place) -> None:
    with connect(place.location):
        pid = place.read_pid()
        assert pid == pid_of(place)
        os.kill(pid, signal.SIGSTOP)
        assert stop(place.location, kill=True)
    assert place.read_pid() is None


def test_it_ends_when_its_socket_is_gone(place: Place) -> None:
    old = Older(place)
    wait(lambda: ask(place))
    place.socket.unlink()
    old.join(180)
    assert not old.is_alive()
