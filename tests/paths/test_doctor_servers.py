"""The doctor on Postgres and Redis: the same 35 points, and what only servers can get wrong."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import servers
from engrain_conformance.embedder import HashEmbedder
from redis_server import start_redis
from servers import postgres, start_postgres

from engrain import Memory
from engrain.core.model.queries import Finding
from engrain.core.model.results import CheckResult
from engrain.health import CHECKS
from engrain.health.run_checks import CheckContext
from engrain.stores.postgres import health
from engrain.stores.postgres.dialect import load_statements


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Memory]:
    settings = {"user": "ana", "embedder": HashEmbedder(), "background": False, **options}
    with Memory(url, **settings) as memory:
        memory.remember("Ana likes tea.", slot="user.drink")
        yield memory


@pytest.fixture
def url() -> Iterator[str]:
    yield f"{postgres().url()}?schema=doctor"
    postgres().run("drop schema if exists doctor cascade")


def points(memory: Memory) -> dict[str, CheckResult]:
    return {one.name: one for one in memory.store.doctor(memory.scope)}


def test_every_point_is_looked_at_on_postgres(url: str) -> None:
    with opened(url) as memory:
        memory.add_message("user", "I live in Lima.", session="s")
        with memory.task("order") as run:
            run.step("one", lambda: 1)
        found = memory.store.doctor(memory.scope)
    assert [(one.number, one.name) for one in found] == [(one.number, one.name) for one in CHECKS]
    # The servers of tests run without fsync.
    assert [one.name for one in found if one.state != "pass"] == ["power cut"]


@pytest.mark.slow
def test_a_server_that_may_lose_commits_fails_and_one_that_waits_for_its_disk_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "_SETTINGS", {"max_connections": "20"})
    server = start_postgres()
    try:
        with opened(server.url()) as memory:
            assert points(memory)["power cut"].state == "pass"
        server.run("alter role member set synchronous_commit = off")
        with opened(server.url()) as memory:
            found = points(memory)["power cut"]
            assert (found.state, "synchronous_commit off" in found.why) == ("fail", True)
            assert "alter role" in found.fix
    finally:
        server.stop()


def test_what_a_commit_survives_is_judged_by_three_settings() -> None:
    assert health._check_sync("on", "on", "on").state == "pass"
    assert health._check_sync("on", "on", "local").state == "pass"
    for settings in (("off", "on", "on"), ("on", "off", "on"), ("on", "on", "off")):
        assert health._check_sync(*settings).state == "fail"


def test_a_server_without_fsync_fails(url: str) -> None:
    with opened(url) as memory:
        found = points(memory)["power cut"]
    assert (found.state, "fsync off" in found.why, "fsync = on" in found.fix) == ("fail", True, True)


def test_a_database_that_takes_no_writes_fails(url: str) -> None:
    with opened(url):
        pass
    with Memory(
        url + "&options=-cdefault_transaction_read_only%3Don", user="ana", settings={"stores": {"read_only": True}}
    ) as memory:
        found = points(memory)["stores"]
    assert (found.state, "nothing new is kept" in found.why) == ("fail", True)
    with Memory(url, user="ana", settings={"stores": {"read_only": True}}) as memory:
        assert points(memory)["stores"].state == "pass"


def test_a_standby_fails() -> None:
    found = health._check_writable(standby=True, read_only=False)
    assert found is not None
    assert (found.point, found.state, "standby" in found.why) == ("writable", "fail", True)


def test_a_server_without_checksums_warns(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(url) as memory:
        assert points(memory)["integrity"].state == "pass"
        statements, name = dict(load_statements()), "find_checksum_setting"
        statements[name] = replace(statements[name], sql="select 'off'")
        monkeypatch.setattr("engrain.stores.postgres.dialect.load_statements", lambda: statements)
        found = points(memory)["integrity"]
    assert (found.state, "pg_checksums" in found.fix) == ("warn", True)


@pytest.mark.slow
def test_a_server_whose_checksums_were_switched_off_warns() -> None:
    server = start_postgres()
    try:
        with opened(server.url()) as memory:
            assert points(memory)["integrity"].state == "pass"
        assert server._process
        server._process.send_signal(signal.SIGINT)
        server._process.wait(180)
        switch = [servers._binaries() / "pg_checksums", "--disable", "-D", server.folder / "data"]
        subprocess.run(switch, check=True, capture_output=True, **servers._someone())
        server.start()
        with opened(server.url()) as memory:
            assert points(memory)["integrity"].state == "warn"
    finally:
        server.stop()


def test_a_connection_over_a_network_in_the_clear_warns() -> None:
    assert health._check_encryption(encrypted=False, local=True).state == "pass"
    assert health._check_encryption(encrypted=True, local=False).state == "pass"
    assert health._check_encryption(encrypted=False, local=False).state == "warn"


def test_a_large_memory_without_its_index_warns_until_it_is_built(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engrain.stores.postgres.vectors.VectorSearch.large", 10)
    with opened(url) as memory:
        assert points(memory)["search"].state == "pass"
        memory.remember_many([f"Note {n} speaks of parcels." for n in range(20)])
        items: Any = memory.store.services.items
        found = items.search_state(memory.scope)
        assert (found.state, "21 vectors have no index" in found.why) == ("warn", True)
        memory.recall("parcels")
        items.vector_indexes.wait()
        assert points(memory)["search"].state == "pass"
        assert "21 vectors have an index" in points(memory)["search"].why


def test_walls_that_are_down_fail_and_items_of_nobody_warn(url: str) -> None:
    with opened(url) as memory:
        assert points(memory)["isolation"].state == "pass"
        with opened(url, user=None):
            assert points(memory)["isolation"].state == "warn"
        postgres().run("alter table doctor.episode no force row level security")
        assert points(memory)["isolation"].state == "fail"


def test_a_slot_with_two_values_at_a_time_fails(url: str) -> None:
    with opened(url) as memory:
        memory.remember("Ana drinks coffee.", slot="user.drink")
        assert points(memory)["slots"].state == "pass"
        postgres().run(
            "drop index doctor.item_open_slot", "update doctor.item set valid_to = null where slot = 'user.drink'"
        )
        assert points(memory)["slots"].state == "fail"


def test_redis_beside_is_part_of_the_points(tmp_path: Path) -> None:
    server = start_redis()
    (tmp_path / "agent.toml").write_text(
        f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}"\ntasks = "{server.url}"\n'
        f'sessions = "{server.url}"\n'
    )
    with opened(str(tmp_path / "agent.toml")) as memory:
        memory.add_message("user", "I live in Lima.", session="s")
        with memory.task("order") as run:
            run.step("one", lambda: 1)
        found = points(memory)
        assert {one.name for one in found.values() if one.state != "pass"} <= {"backup", "rights", "encryption"}
        assert f":{server.port}" in found["stores"].why
        server.client.config_set("appendfsync", "everysec")
        assert points(memory)["power cut"].state == "warn"
    server.stop()


class Slow:
    """A server that answers only while the other is asked too."""

    last_error: str | None = None

    def __init__(self, where: str, both: Barrier) -> None:
        self.where = where
        self._both = both

    def check(self) -> list[Finding]:
        self._both.wait(30)
        return [Finding("stores", "pass", f"{self.where} answers")]


def test_servers_are_asked_side_by_side(tmp_path: Path) -> None:
    both = Barrier(2)
    with opened(str(tmp_path / "agent.db")) as memory:
        kit = replace(memory.store.services, servers=(Slow("one", both), Slow("two", both)))
        look = CheckContext(kit, memory.scope)
        assert [found.why for found in look.find_on_servers("stores")] == ["one answers", "two answers"]
