"""A memory whose Redis or vector server was killed answers with what is left, says what is missing, and heals."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chroma_server import ChromaProcess, new_server
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder
from redis_server import Server, start_redis

from engrain import Memory
from engrain.cli.main import root
from engrain.core.errors import BackendUnavailableWarning, NotFound, StoreUnavailable
from engrain.maintenance import schedule_and_sync
from engrain.maintenance.schedule_and_sync import push_changes
from engrain.stores.redis import connection
from engrain.stores.vectors import outbox_index

FACT = "Ana drinks green tea every morning."
ASKED = "green tea every morning"


@pytest.fixture
def redis_process() -> Iterator[Server]:
    started = start_redis()
    yield started
    started.stop()


@pytest.fixture
def chroma_process() -> Iterator[ChromaProcess]:
    started = new_server()
    yield started
    started.kill()


@pytest.fixture(autouse=True)
def _asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(outbox_index, "RETRY_PAUSE_SECONDS", 0.0)


def settings(folder: Path, **stores: str) -> Path:
    path = folder / "engrain.toml"
    lines = "".join(f'{name} = "{url}"\n' for name, url in stores.items())
    path.write_text(f'[stores]\ndefault = "{folder}/agent.db"\n{lines}')
    return path


def opened(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


def command(path: Path, *words: str) -> Any:
    done = CliRunner().invoke(root, [*words, "--store", str(path), "--user", "ana", "--json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout), done.exit_code


def states(findings: Any) -> dict[str, str]:
    return {one["name"]: one["state"] for one in findings}


# Redis


def test_recall_answers_without_its_recent_context_and_says_so(tmp_path: Path, redis_process: Server) -> None:
    path = settings(tmp_path, episodic=f"{redis_process.url}?timeout=3")
    with opened(path) as memory:
        memory.start_session("monday")
        id = memory.remember(FACT)
        memory.add_message("user", "What a day, and no tea.")
        whole = memory.recall(ASKED, n=1, min_relevance=0.0)
        assert "Recent context" in str(whole)
        assert whole.degraded == ()
        redis_process.kill()
        with pytest.warns(BackendUnavailableWarning, match="without the recent context"):
            found = memory.recall(ASKED, n=1, min_relevance=0.0)
        assert found.hits[0].item.id == id
        assert "Recent context" not in str(found)
        assert [one.part for one in found.degraded] == ["recent context"]
        assert f"127.0.0.1:{redis_process.port}?timeout=3 did not answer in" in found.degraded[0].why
        assert memory.store.status(memory.scope).background["unavailable"]
        redis_process.start()
        found = memory.recall(ASKED, n=1, min_relevance=0.0)
        assert found.degraded == ()
        assert "Recent context" in str(found)
        assert memory.store.status(memory.scope).background["unavailable"] == {}


def test_what_is_said_while_redis_is_away_is_kept_without_its_episode(tmp_path: Path, redis_process: Server) -> None:
    path = settings(tmp_path, episodic=f"{redis_process.url}?timeout=3")
    with opened(path) as memory:
        memory.start_session("monday")
        failed = memory.episodic.record_error("The oven is cold.")
        redis_process.kill()
        began = time.monotonic()
        ids = [memory.add_message("user", f"This is message {n}.").id for n in range(20)]
        assert time.monotonic() - began < 30  # the time-out is waited for once, not twenty times
        decided = memory.episodic.record_decision("Use the other recipe.")
        with pytest.raises(StoreUnavailable):
            memory.episodic.recent()
        with pytest.raises(StoreUnavailable):  # it must see the entry of the error
            memory.episodic.record_resolution(failed, "Waited.")
        redis_process.start()
        assert [one.id for one in memory.conversation.last(22)] == [failed, *ids, decided]
        assert [one.id for one in memory.episodic.recent(9)] == [failed]
        later = memory.add_message("user", "Hello again.").id
        assert [one.id for one in memory.episodic.recent(9)] == [later, failed]


def test_doctor_and_status_show_a_redis_that_is_away(tmp_path: Path, redis_process: Server) -> None:
    path = settings(tmp_path, episodic=redis_process.url)
    command(path, "remember", FACT)
    report, code = command(path, "doctor")
    assert (states(report["findings"])["stores"], code) == ("pass", 0)
    redis_process.kill()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BackendUnavailableWarning)
        report, code = command(path, "doctor")
        assert (states(report["findings"])["stores"], code) == ("fail", 1)
        told, _ = command(path, "status")
        assert f"127.0.0.1:{redis_process.port}" in str(told["background"]["unavailable"])
        answer, code = command(path, "recall", "tea")
        assert (answer["degraded"][0]["part"], code) == ("recent context", 0)
        printed = CliRunner().invoke(root, ["recall", "tea", "--store", str(path)]).stdout
        assert "Answered without the recent context: Redis at" in " ".join(printed.split())


def test_doctor_fails_where_the_server_of_the_tasks_is_away(tmp_path: Path, redis_process: Server) -> None:
    """Nobody can say what such a server keeps: a memory with its tasks there does not open."""
    path = settings(tmp_path, tasks=f"{redis_process.url}?patience=0")
    redis_process.kill()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BackendUnavailableWarning)
        with pytest.raises(StoreUnavailable, match="did not answer in one try"):
            opened(path)
        report, code = command(path, "doctor")
    assert (states(report["findings"])["stores"], code) == ("fail", 1)


def test_doctor_shows_a_server_that_was_relaxed_while_the_memory_is_open(tmp_path: Path, redis_process: Server) -> None:
    path = settings(tmp_path, tasks=redis_process.url)
    with opened(path) as memory:
        assert {one.name: one.state for one in memory.store.doctor(memory.scope)}["power cut"] == "pass"
        redis_process.client.config_set("appendfsync", "everysec")
        (found,) = [one for one in memory.store.doctor(memory.scope) if one.name == "power cut"]
        assert (found.state, "appendfsync everysec" in found.why, "appendfsync always" in found.fix) == (
            "warn",
            True,
            True,
        )


# Chroma


def test_recall_without_its_vector_server_finds_what_was_fed_and_what_was_not(
    tmp_path: Path, chroma_process: ChromaProcess
) -> None:
    path = settings(tmp_path, vectors=f"{chroma_process.url}/?timeout=8")
    with opened(path) as memory:
        fed_before = memory.remember(FACT)
        push_changes(memory.store.services.feed, memory.scope, ())
        assert memory.recall(ASKED, n=1, min_relevance=0.0).degraded == ()
        chroma_process.kill()
        waiting = memory.remember("The train to Porto leaves at nine.")
        for asked, id in ((ASKED, fed_before), ("train to Porto", waiting)):
            with pytest.warns(BackendUnavailableWarning):
                found = memory.recall(asked, min_relevance=0.0)
            assert found.hits[0].item.id == id
            assert "meaning" in found.hits[0].found_by
            assert [one.part for one in found.degraded] == ["vector server"]
        assert f":{chroma_process.port} did not answer" in found.degraded[0].why
        chroma_process.start()
        found = memory.recall("train to Porto", min_relevance=0.0)
        assert (found.hits[0].item.id, found.degraded) == (waiting, ())


@pytest.mark.slow
def test_doctor_shows_an_index_that_is_behind_or_away_and_rebuilds_it(
    tmp_path: Path, chroma_process: ChromaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engrain.stores.vectors.chroma import ChromaServer

    path = settings(tmp_path, vectors=f"{chroma_process.url}/?timeout=3")
    monkeypatch.setattr(schedule_and_sync, "DRAIN_SECONDS", -1.0)  # nothing is brought when a command ends
    monkeypatch.setattr(schedule_and_sync.VectorSync, "start", lambda _: None)
    for n in range(3):
        command(path, "remember", f"This is note number {n}.")
    report, code = command(path, "doctor")
    assert (states(report["findings"])["vector server"], code) == ("warn", 0)
    assert "3 changes to come" in str(report)
    report, code = command(path, "doctor", "--rebuild")
    assert (states(report["findings"])["vector server"], report["rebuilt"], code) == ("pass", 3, 0)
    server = ChromaServer(chroma_process.url)
    (model,) = server.models()
    server.target(model, 0)
    assert server.count(model) == 3
    server.clear()
    with pytest.raises(NotFound):
        server.count(model)
    assert states(command(path, "doctor")[0]["findings"])["vector server"] == "warn"
    command(path, "doctor", "--rebuild")
    server.target(model, 0)
    assert server.count(model) == 3
    server.close()
    chroma_process.kill()
    report, code = command(path, "doctor")
    assert (states(report["findings"])["vector server"], code) == ("fail", 1)
    assert "did not answer within 3 s" in str(report)
