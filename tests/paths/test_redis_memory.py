"""A memory whose items are in SQLite and whose episodes and tasks are in Redis keeps the same promises."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis
import redis_program
from engrain_conformance.embedder import HashEmbedder
from redis_program import DATED, NOTES
from redis_server import Server, redis_server, start_redis

from engrain import LeaseLost, Memory, Run
from engrain.core.errors import BackendMissing, ConfigError, InputChanged, StoreUnavailable, UnknownKey
from engrain.stores.redis.episodes import RedisEpisodes
from engrain.tasks.step_journal import StepJournal

SECRET = "The door code is 4711."


@pytest.fixture
def server() -> Server:
    redis_server().client.flushall()
    return redis_server()


@pytest.fixture
def settings(tmp_path: Path, server: Server) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(
        f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}/0"\ntasks = "{server.url}/1"\n'
    )
    return path


@pytest.fixture
def memory(settings: Path) -> Iterator[Memory]:
    with opened(settings) as memory:
        yield memory


def opened(settings: Path | str) -> Memory:
    return Memory(settings, user="ana", embedder=HashEmbedder(), background=False)


def episode_keys(server: Server) -> list[str]:
    return sorted(key.rpartition(":")[2] for key in server.client.keys("*:episode:*"))


# Three tiers, two stores


def test_what_is_said_is_in_the_log_in_redis_and_in_recall(memory: Memory, server: Server, settings: Path) -> None:
    memory.start_session("monday")
    said = memory.add_message("user", "Remember that I am allergic to peanuts.").id
    answer = memory.add_message("assistant", "Noted: no peanuts.").id
    memory.episodic.record_decision("Use the other recipe.", "It has no nuts.")
    assert {said, answer} <= {item.id for item in memory.list({"kind": "message"})}
    assert {said, answer} <= set(episode_keys(server))
    assert memory.episodic.recent(1)[0].text.startswith("Decided: Use the other recipe.")
    assert "peanuts" in str(memory.recall("What is Ana allergic to?"))
    with opened(settings) as again:
        assert [one.id for one in again.episodic.recent(9)] == [one.id for one in memory.episodic.recent(9)]
    # The words are in the record store alone.
    assert not [key for key in server.client.keys("*:episode:*") if "peanuts" in str(server.client.hgetall(key))]


def test_forgetting_reaches_the_episodes(memory: Memory, server: Server) -> None:
    memory.start_session("monday")
    id = memory.episodic.record_tool_call("door", {"a": 1}, f"{SECRET}\n" + "Line of output.\n" * 2_000)
    kept = memory.add_message("user", "What a nice day.").id
    assert SECRET in (memory.episodic.raw(id) or "")
    memory.forget(id)
    assert id not in episode_keys(server)
    assert memory.episodic.raw(id) is None
    assert all(one.id != id for one in memory.episodic.recent(9))
    assert kept in episode_keys(server)
    assert SECRET not in _everything(server)


def _everything(server: Server) -> str:
    """Every value that the server holds; a dump of a long text may be compressed."""
    client = redis.Redis(port=server.port)
    read = {b"hash": client.hgetall, b"string": client.get, b"set": client.smembers}
    return "".join(
        repr(read.get(client.type(key), lambda key: client.zrange(key, 0, -1))(key)) for key in client.keys("*")
    )


def test_what_was_forgotten_while_redis_was_away_is_pending_and_tidied_later(
    memory: Memory, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.start_session("monday")
    id = memory.add_message("user", SECRET).id

    def away(*_: object) -> int:
        raise StoreUnavailable("not there")

    with monkeypatch.context() as patch:
        patch.setattr(RedisEpisodes, "remove", away)
        forgotten = memory.forget(id)
    assert forgotten.pending
    assert memory.get(id) is None
    assert memory.episodic.recent(9) == []
    assert memory.store.maintain(memory.scope).counts["tidied"] == 1
    assert episode_keys(server) == []


def test_a_repeated_message_has_one_episode(memory: Memory, server: Server) -> None:
    memory.start_session("monday")
    ids = [memory.add_message("user", "Hello there.", request_id="r").id for _ in range(2)]
    assert ids[0] == ids[1]
    assert [one.count for one in memory.episodic.recent(9)] == [1]


# Tasks across domains


def test_a_task_runs_with_its_journal_in_redis(memory: Memory, server: Server, settings: Path) -> None:
    with memory.task("order", goal="ship it") as run:
        assert run.step("plan", lambda: {"boxes": 2}) == {"boxes": 2}
        ids = run.remember_step("note", NOTES, occurred_at=DATED)
        run.effect("mail", lambda: "sent")
    with opened(settings) as again, again.task("order") as replay:
        assert replay.step("plan", dies) == {"boxes": 2}
        assert replay.remember_step("note", NOTES, occurred_at=DATED) == ids
        assert replay.effect("mail", dies) == "sent"
    assert sorted(item.text for item in memory.list()) == sorted(NOTES)
    assert [one.task for one in memory.tasks.list()] == ["order"]
    assert [one.kind for one in memory.tasks.timeline("order").steps] == ["step", "memory", "effect"]


def dies() -> None:
    raise AssertionError("a recorded step ran again")


def killed(settings: Path) -> None:
    """After the items of its memory step were written, before the record."""
    command = [sys.executable, redis_program.__file__, str(settings)]
    program = subprocess.run(command, capture_output=True, timeout=180, check=False)
    assert program.returncode == -signal.SIGKILL, program.stderr.decode()


def test_a_kill_between_the_two_writes_leaves_one_of_each(settings: Path) -> None:
    killed(settings)
    with opened(settings) as memory:
        written = {item.text: item.id for item in memory.list()}
        assert sorted(written) == sorted(NOTES), "it was killed before the items were written"
        steps = memory.tasks.timeline("order").steps
        assert [(one.name, one.status) for one in steps] == [("plan", "done"), ("note", "intent")]
        with memory.task("order") as run:
            run.step("plan", dies)
            assert run.remember_step("note", NOTES, occurred_at=DATED) == [written[note] for note in NOTES]
        assert {item.text: item.id for item in memory.list()} == written
        assert [one.status for one in memory.tasks.timeline("order").steps] == ["done", "done"]


@pytest.mark.slow
def test_other_notes_after_such_a_kill_are_told_apart(settings: Path) -> None:
    killed(settings)
    with opened(settings) as memory, pytest.raises(InputChanged), memory.task("order") as run:  # noqa: PT012
        run.step("plan", dies)
        run.remember_step("note", ["Another note."], occurred_at=DATED)


def stop_beating(run: Run) -> None:
    """It shows no signs of life any more, and does not know."""
    run.execution._step_journal.holder.stop()  # type: ignore[union-attr]


def test_a_worker_that_lost_its_task_writes_no_items(settings: Path) -> None:
    with opened(settings) as memory, opened(settings) as other:
        with pytest.raises(LeaseLost), memory.task("order", lease=0.1) as run:  # noqa: PT012
            stop_beating(run)
            time.sleep(0.2)
            with other.task("order") as second:
                second.remember_step("note", "In time.")
            run.remember_step("late", "Too late.")
        assert [item.text for item in memory.list()] == ["In time."]


def test_a_worker_whose_task_was_parked_writes_no_items(settings: Path) -> None:
    with opened(settings) as memory, opened(settings) as other:
        with pytest.raises(LeaseLost), memory.task("order") as run:  # noqa: PT012
            other.tasks.park("order")
            run.remember_step("late", "Too late.")
        assert memory.list() == []


def test_a_write_that_came_through_twice_is_one_item(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is stopped right after its items were written wakes when another has done the step."""
    with opened(settings) as memory, opened(settings) as other:
        record = StepJournal.record

        def late(ledger: StepJournal, *args: object) -> object:
            monkeypatch.setattr(StepJournal, "record", record)
            time.sleep(0.2)
            with other.task("order") as second:
                second.remember_step("note", "Once.", occurred_at=DATED)
            return record(ledger, *args)  # type: ignore[arg-type]

        with pytest.raises(LeaseLost), memory.task("order", lease=0.1) as run:  # noqa: PT012
            stop_beating(run)
            monkeypatch.setattr(StepJournal, "record", late)
            run.remember_step("note", "Once.", occurred_at=DATED)
        assert [item.text for item in memory.list()] == ["Once."]
        assert [one.status for one in memory.tasks.timeline("order").steps] == ["done"]


def test_tasks_are_listed_recovered_and_pruned(memory: Memory) -> None:
    with pytest.raises(ValueError, match="no"), memory.task("order") as run:
        run.step("one", _fails)
    memory.tasks.resume("order")
    done = memory.tasks.recover(lambda run: run.step("one", lambda: 1))
    assert [one.status for one in done] == ["done"]
    assert memory.tasks.prune(timedelta()) == 1
    memory.tasks.checkpoint("loop", {"n": 1})
    assert memory.tasks.load_checkpoint("loop") == {"n": 1}


def _fails() -> None:
    raise ValueError("no")


# Settings


def test_doctor_shows_the_redis_servers(memory: Memory) -> None:
    points = {one.name: one for one in memory.store.doctor(memory.scope)}
    assert points["stores"].state == points["power cut"].state == "pass"
    assert "127.0.0.1" in points["stores"].why


def test_relaxed_durability_is_asked_for_and_shown(tmp_path: Path) -> None:
    server = start_redis("--appendfsync", "everysec")
    path = tmp_path / "agent.toml"
    path.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\ntasks = "{server.url}"\n')
    with pytest.raises(ConfigError, match="appendfsync everysec"):
        opened(path)
    path.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\ntasks = "{server.url}?durability=relaxed"\n')
    with opened(path) as memory:
        with memory.task("order") as run:
            run.step("one", lambda: 1)
        assert {one.state for one in memory.store.doctor(memory.scope) if one.name == "power cut"} == {"warn"}
    server.stop()


def test_redis_alone_says_what_it_can_hold(tmp_path: Path) -> None:
    for url in ("redis://localhost", "rediss://localhost"):
        with pytest.raises(ConfigError, match="Redis keeps episodes, tasks"):
            opened(url)


def test_settings_that_cannot_be_are_told(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    wrong = {'episodic = "agent.db"': ConfigError, "tasks = 7": ConfigError, 'episodes = "redis://"': UnknownKey}
    for line, error in wrong.items():
        path.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\n{line}\n')
        with pytest.raises(error):
            opened(path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "redis://localhost"\n')
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(BackendMissing, match=r"engrain\[redis\]"):
        opened(path)


def test_redis_is_loaded_only_where_it_is_used(tmp_path: Path) -> None:
    code = (
        "import sys; from engrain import Memory; from engrain_conformance.embedder import HashEmbedder\n"
        f"Memory({str(tmp_path / 'agent.db')!r}, embedder=HashEmbedder()).close()\n"
        "assert 'redis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
