"""The working memory of a session outlives its process in Redis; the log answers with or without it."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from erasing_kit import erase_from
from redis_server import Server, redis_server, start_redis

from engrain import Memory
from engrain.core.errors import BackendUnavailableWarning
from engrain.stores.redis import connection

SECRET = "The door code is 4711."


@pytest.fixture
def server() -> Server:
    redis_server().client.flushall()
    return redis_server()


@pytest.fixture
def mortal() -> Iterator[Server]:
    started = start_redis()
    yield started
    started.stop()


def settings(folder: Path, url: str, timeout: float = 60) -> Path:
    path = folder / "agent.toml"
    path.write_text(f'[stores]\ndefault = "{folder / "agent.db"}"\nsessions = "{url}?timeout={timeout:g}"\n')
    return path


def opened(path: Path, user: str = "ana") -> Memory:
    return Memory(path, user=user, embedder=HashEmbedder(), background=False)


def shown(memory: Memory, session: str | None = None) -> list[str]:
    talk = memory.conversation if session is None else memory.session(session).conversation
    return [one.text for one in talk.window().messages]


# Working memory

PROGRAM = """
import os, sys
from engrain import Memory
from engrain_conformance.embedder import HashEmbedder
memory = Memory(sys.argv[1], user="ana", embedder=HashEmbedder(), background=False)
memory.start_session("monday")
memory.working.start("Ship the order", goal="by noon")
memory.working.step("Two boxes will do.", "pack", {"boxes": 2})
memory.working.add("The customer asked for a ribbon.", speaker="Ana")
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_leaves_its_working_memory_to_the_next(tmp_path: Path, server: Server) -> None:
    path = settings(tmp_path, server.url)
    killed = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, timeout=180, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with opened(path) as memory:
        assert memory.working.task == ""
        memory.start_session("monday")
        assert (memory.working.task, memory.working.goal) == ("Ship the order", "by noon")
        assert memory.working.get_result("pack") == {"boxes": 2}
        assert [one.text for one in memory.working.items] == ["The customer asked for a ribbon."]
        memory.working.finish(True, "shipped")
    with opened(path) as memory:
        memory.start_session("monday")
        assert memory.working.task == ""


def test_a_session_gets_neither_another_session_s_nor_another_user_s_task(tmp_path: Path, server: Server) -> None:
    path = settings(tmp_path, server.url)
    with opened(path) as memory:
        memory.start_session("monday")
        memory.working.start("Ship the order")
    with opened(path) as memory:
        memory.start_session("tuesday")
        assert memory.working.task == ""
    with opened(path, "ben") as memory:
        memory.start_session("monday")
        assert memory.working.task == ""


def test_the_task_at_hand_is_not_replaced_by_an_older_one(tmp_path: Path, server: Server) -> None:
    path = settings(tmp_path, server.url)
    with opened(path) as memory:
        memory.start_session("monday")
        memory.working.start("Ship the order")
    with opened(path) as memory:
        memory.working.start("Write the invoice")
        memory.start_session("monday")
        assert memory.working.task == "Write the invoice"


def test_what_is_kept_ends_by_itself_after_a_day(tmp_path: Path, server: Server) -> None:
    with opened(settings(tmp_path, server.url)) as memory:
        memory.start_session("monday")
        memory.working.start("Ship the order")
        keys = [key for key in server.client.keys("*") if ":sessions:" in key]
        assert len(keys) == 2
        assert all(86_000 < server.client.ttl(key) <= 86_400 for key in keys)


def test_a_damaged_snapshot_is_left_alone(tmp_path: Path, server: Server) -> None:
    path = settings(tmp_path, server.url)
    with opened(path) as memory:
        memory.start_session("monday")
        memory.working.start("Ship the order")
    for broken in ("{", "[]", '{"engrain": "working", "v": 99}'):
        (key,) = server.client.keys("*:working:monday")
        server.client.set(key, broken)
        with opened(path) as memory:
            memory.start_session("monday")
            assert memory.working.task == ""


# The window


def test_no_message_is_stored_in_redis(tmp_path: Path, server: Server) -> None:
    with opened(settings(tmp_path, server.url)) as memory:
        memory.start_session("monday")
        memory.working.start("Ship the order")
        memory.add_message("user", SECRET)
        assert shown(memory) == [SECRET]
        assert "Ship the order" in _everything(server)
        assert SECRET not in _everything(server)


def test_what_another_process_forgets_cuts_or_corrects_is_not_in_the_window(tmp_path: Path, server: Server) -> None:
    path = settings(tmp_path, server.url)
    with opened(path) as memory, Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as other:
        memory.start_session("monday")
        ids = [memory.add_message("user", text).id for text in (SECRET, "It rains.", "Good bye.")]
        assert shown(memory) == [SECRET, "It rains.", "Good bye."]
        other.forget(ids[0])
        assert shown(memory) == ["It rains.", "Good bye."]
        other.correct(ids[1], "It snows.")
        assert shown(memory) == ["It snows.", "Good bye."]


@pytest.mark.parametrize("what", [{"session": "monday"}, {"user": "ana"}])
def test_erasing_leaves_nothing_at_hand(what: dict[str, str], tmp_path: Path, server: Server) -> None:
    with opened(settings(tmp_path, server.url)) as memory:
        memory.start_session("monday")
        memory.add_message("user", SECRET)
        memory.working.add(SECRET)
        assert len(server.client.keys("*:sessions:*")) == 2
        assert erase_from(memory, **what).receipt
        assert SECRET not in _everything(server)
        assert server.client.keys("*:sessions:*") == []


def _everything(server: Server) -> str:
    return "".join(
        server.client.get(key) or "" for key in server.client.keys("*") if server.client.type(key) == "string"
    )


def test_two_stores_that_share_a_server_and_a_user_do_not_mix(tmp_path: Path, server: Server) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with opened(settings(tmp_path / name, server.url)) as memory:
            memory.start_session("monday")
            memory.add_message("user", f"This is {name}.")
            assert shown(memory) == [f"This is {name}."]
    # Also where a file was put in the place of another.
    (tmp_path / "one" / "agent.db").replace(tmp_path / "two" / "agent.db")
    for beside in ("-wal", "-shm"):
        (tmp_path / "two" / f"agent.db{beside}").unlink(missing_ok=True)
    with opened(settings(tmp_path / "two", server.url)) as memory:
        assert shown(memory, "monday") == ["This is one."]


def test_the_log_answers_while_the_server_is_emptied_or_dead(
    tmp_path: Path, mortal: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRY_PAUSE_SECONDS", 0.0)
    path = settings(tmp_path, mortal.url, 3)
    with opened(path) as memory:
        memory.start_session("monday")
        said = []
        for n in range(70):
            said.append(f"Message {n}.")
            memory.add_message("user", said[-1])
        whole = shown(memory)
        assert said[-len(whole) :] == whole
        mortal.client.flushall()
        assert shown(memory) == whole
        mortal.kill()
        id = memory.add_message("user", SECRET).id
        assert shown(memory)[-1] == SECRET
        memory.working.start("Ship the order")
        assert not memory.forget(id).pending
        assert memory.store.status(memory.scope).background["unavailable"]
        mortal.start()
        assert SECRET not in shown(memory)
        assert shown(memory)[-1] == whole[-1]
        memory.working.set_goal("by noon")
        assert memory.store.status(memory.scope).background["unavailable"] == {}
    with opened(path) as memory:
        memory.start_session("monday")
        assert memory.working.goal == "by noon"


def test_a_memory_opens_while_its_server_is_away(tmp_path: Path, mortal: Server) -> None:
    path = settings(tmp_path, mortal.url, 3)
    mortal.kill()
    with pytest.warns(BackendUnavailableWarning, match="did not answer"):
        memory = opened(path)
    with memory, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory.start_session("monday")
        memory.add_message("user", "Hello.")
        assert shown(memory) == ["Hello."]
        assert [one.state for one in memory.store.doctor(memory.scope) if one.name == "stores"] == ["fail"]
