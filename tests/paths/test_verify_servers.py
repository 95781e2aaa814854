"""To verify a receipt is to ask every server of the settings, and one that is away proves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from erasing_kit import erase_from, fill, opened
from redis_server import Server, redis_server, start_redis

from engrain import Memory
from engrain.cli.main import root
from engrain.core.model.queries import item_to_points
from engrain.privacy.receipts import Receipt

_numbers = count()


@pytest.fixture
def redis() -> Server:
    server = redis_server()
    server.client.flushall()
    return server


def settings(folder: Path, **stores: str) -> Path:
    file = folder / f"agent-{next(_numbers)}.toml"
    lines = [f'{name} = "{url}"' for name, url in stores.items()]
    file.write_text("\n".join(["[stores]", f'default = "{folder / "agent.db"}"', *lines]))
    return file


def feed_all(feed: Any) -> None:
    while feed.feed(100):
        pass


def erased(memory: Memory, **what: str) -> Receipt:
    done = erase_from(memory, **(what or {"user": "ana"}))  # type: ignore[arg-type]
    assert done.receipt, done.why
    return done.receipt


@pytest.mark.parametrize("by", ["ana", "ben"])
def test_keys_that_are_in_redis_again_do_not_hold(tmp_path: Path, redis: Server, by: str) -> None:
    file = settings(tmp_path, episodic=f"{redis.url}/0", tasks=f"{redis.url}/0", sessions=f"{redis.url}/0")
    with opened(file, background=False) as memory, opened(file, user=by, background=False) as looks:
        fill(memory)
        before = dict(_dumped(redis))
        receipt = erased(memory)
        found = looks.store.verify_erasure(receipt)
        assert found
        assert [found.servers.left, found.servers.unanswered, len(found.servers.answered)] == [0, (), 1]
        for key, raw in before.items():
            redis.client.restore(key, 0, raw)
        found = looks.store.verify_erasure(receipt)
        assert (bool(found), found.servers.left > 0, any(found.rows.values())) == (False, True, False)


def test_what_an_erasing_program_did_not_know_of_is_found(tmp_path: Path, redis: Server) -> None:
    file = settings(tmp_path, episodic=f"{redis.url}/0", tasks=f"{redis.url}/0")
    with opened(file, background=False) as memory, opened(tmp_path / "agent.db", user="ben") as other:
        fill(memory)
        receipt = erased(other, user="ana")
        assert other.store.verify_erasure(receipt)
        assert not memory.store.verify_erasure(receipt)
        assert memory.store.verify_erasure(erased(memory))


def test_a_user_who_is_back_does_not_count(tmp_path: Path, redis: Server) -> None:
    file = settings(tmp_path, episodic=f"{redis.url}/0", tasks=f"{redis.url}/0", sessions=f"{redis.url}/0")
    with opened(file, background=False) as memory, opened(file, user="ben", background=False) as ben:
        fill(memory)
        receipt = erased(memory)
        with memory.task("again") as run:
            run.step("one", lambda: 1)
        assert ben.store.verify_erasure(receipt), "back in Redis alone"
        memory.add_message("user", "I am back.", session="monday")
        memory.working.add_thought("Ana is back.")
        assert ben.store.verify_erasure(receipt)
        assert memory.store.verify_erasure(receipt)


def test_entries_of_an_erased_session_are_found(tmp_path: Path, redis: Server) -> None:
    file = settings(tmp_path, episodic=f"{redis.url}/0")
    with opened(file, background=False) as memory:
        memory.add_message("user", "It rained.", session="monday")
        memory.add_message("user", "It snowed.", session="tuesday")
        before = dict(_dumped(redis))
        receipt = erased(memory, session="tuesday")
        assert memory.store.verify_erasure(receipt)
        for key, raw in before.items():
            redis.client.restore(key, 0, raw, replace=True)
        found = memory.store.verify_erasure(receipt)
        assert (bool(found), found.servers.left) == (False, 1)


def test_points_that_are_on_a_server_again_do_not_hold(tmp_path: Path) -> None:
    with opened(settings(tmp_path, vectors=f"qdrant://{tmp_path}/v"), background=False) as memory:
        id = memory.remember("Ana lives in Lima.")
        kit = memory.store.services
        item, vectors = memory.get(id), kit.items.vectors(memory.scope, [id], kit.embedder.model.key)[id]
        assert item
        points = item_to_points(item, memory.scope.id, vectors.rows)
        feed: Any = kit.feed
        feed_all(feed)
        receipt = erased(memory)
        feed_all(feed)
        found = memory.store.verify_erasure(receipt)
        assert (bool(found), len(found.servers.answered)) == (True, 1)
        feed._server.put(kit.embedder.model.key, points)
        found = memory.store.verify_erasure(receipt)
        assert (bool(found), found.servers.left) == (False, 1)


def test_a_server_that_is_away_is_no_proof(tmp_path: Path) -> None:
    server = start_redis()
    file = settings(tmp_path, episodic=f"{server.url}/0")
    with opened(file, background=False) as memory:
        memory.episodic.record_decision("We take the train.", session="monday")
        receipt = tmp_path / "ana.json"
        receipt.write_text(str(erased(memory)))
    command = ["--store", str(file), "erase", "verify", str(receipt)]
    told = CliRunner().invoke(root, command)
    assert (told.exit_code, "0 keys on redis://" in told.output) == (0, True), told.output
    server.kill()
    command[1] = str(settings(tmp_path, episodic=f"{server.url}/0?timeout=1"))
    told = CliRunner().invoke(root, command)
    assert (told.exit_code, "Did not answer: redis://" in told.output) == (1, True), told.output
    assert "It does not hold." in told.output
    told = CliRunner().invoke(root, [*command, "--json"])
    assert json.loads(told.stdout)["servers"]["unanswered"]


def _dumped(redis: Server) -> Iterator[tuple[bytes, bytes]]:
    import redis as driver

    raw = driver.Redis(port=redis.port)
    for key in raw.keys("engrain:*"):
        yield key, raw.dump(key)
