"""Maintenance in the background: one process at a time, no more often than set, and it stops with the memory."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.core.errors import StoreError
from engrain.core.model.results import MaintenanceReport
from engrain.core.model.tasks import Claim
from engrain.maintenance import schedule_and_sync as keeping
from engrain.maintenance.maintain import maintain
from engrain.maintenance.passes import MAINTENANCE_SCOPE, RunHooks
from engrain.maintenance.schedule_and_sync import LEASE_SECONDS, MAINTENANCE_TASK, MaintenanceScheduler

HOUR = 3600.0


@pytest.fixture
def memory(tmp_path: Path, clock: SetClock) -> Iterator[Memory]:
    with opened(tmp_path / "agent.db", clock) as made:
        yield made


def opened(path: Path, clock: SetClock, **options: object) -> Memory:
    chosen = {"settings": {"lifecycle": {"every_minutes": 60}}, "background": False, **options}
    return Memory(path, user="ana", clock=clock, embedder=HashEmbedder(), **chosen)  # type: ignore[arg-type]


def keeper(memory: Memory, care: Callable[[], MaintenanceReport] | None = None) -> MaintenanceScheduler:
    """One that is on, but whose thread does not run."""
    done = care or (lambda: memory.store.maintain(memory.scope))
    return MaintenanceScheduler(memory.store.services, True, lambda still: done())


def test_a_round_is_done_when_it_is_due_and_not_before(memory: Memory, clock: SetClock) -> None:
    memory.episodic.record("Hello.", session="s")
    clock.advance(24 * HOUR)
    one, other = keeper(memory), keeper(memory)
    done = one.once()
    assert done is not None
    assert done.counts["expired"] == 1
    assert other.once() is None, "another process did it a moment ago"
    clock.advance(HOUR - 1)
    assert one.once() is None
    clock.advance(1)
    assert other.once() is not None


def test_one_process_at_a_time(memory: Memory, clock: SetClock) -> None:
    other = keeper(memory)
    meanwhile: list[object] = []

    def care() -> MaintenanceReport:
        meanwhile.append(other.once())
        return memory.store.maintain(memory.scope)

    assert keeper(memory, care).once() is not None
    assert meanwhile == [None]


def test_a_process_that_died_at_it_is_followed_by_another(memory: Memory, clock: SetClock) -> None:
    journal = memory.store.services.journal
    assert journal is not None
    journal.claim(Claim(MAINTENANCE_SCOPE, MAINTENANCE_TASK, "dead", LEASE_SECONDS))
    assert keeper(memory).once() is None
    clock.advance(LEASE_SECONDS + 1)
    assert keeper(memory).once() is not None


def test_a_round_that_failed_is_tried_again(memory: Memory) -> None:
    def care() -> MaintenanceReport:
        raise StoreError("the disk is away")

    with pytest.raises(StoreError):
        keeper(memory, care).once()
    assert keeper(memory).once() is not None


def test_an_error_of_any_kind_gives_the_lease_back_and_is_seen_and_the_next_round_is_done(
    memory: Memory, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "FIRST_CHECK_SECONDS", 0.01)
    seen: list[object] = []

    def care() -> MaintenanceReport:
        seen.append(one.state()["error"])
        if len(seen) == 1:
            raise KeyError("nobody thought of this")
        return memory.store.maintain(memory.scope)

    one = keeper(memory, care)
    one.start()
    ends = time.monotonic() + 180
    while not one.state()["rounds"] and time.monotonic() < ends:
        time.sleep(0.01)
    one.stop()
    assert seen == [None, "KeyError: 'nobody thought of this'"]


def test_closing_does_not_wait_for_ever_for_a_round(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "FIRST_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(keeping, "STOP_TIMEOUT_SECONDS", 0.05)
    begun, over = threading.Event(), threading.Event()

    def care() -> MaintenanceReport:
        begun.set()
        over.wait(180)
        return memory.store.maintain(memory.scope)

    one = keeper(memory, care)
    one.start()
    assert begun.wait(180)
    before = time.monotonic()
    one.stop()
    assert time.monotonic() - before < 60
    over.set()
    assert one._thread is not None
    one._thread.join(180)


def test_a_clock_that_jumps_back_does_not_stop_it_for_ever(memory: Memory, clock: SetClock) -> None:
    assert keeper(memory).once() is not None
    clock.advance(-HOUR)
    assert keeper(memory).once() is None
    clock.advance(2 * HOUR)
    assert keeper(memory).once() is not None


def test_a_clock_that_was_years_ahead_once_does_not_stop_it_for_years(memory: Memory, clock: SetClock) -> None:
    clock.advance(24 * 365 * 10 * HOUR)
    assert keeper(memory).once() is not None
    clock.advance(-24 * 365 * 10 * HOUR)
    assert keeper(memory).once() is not None


def test_one_that_was_stopped_past_its_lease_does_nothing_more(memory: Memory, clock: SetClock) -> None:
    memory.episodic.record("Hello.", session="s")
    clock.advance(24 * HOUR)
    late: list[int] = []

    def care(still: Callable[[], None]) -> MaintenanceReport:
        clock.advance(LEASE_SECONDS + 1)  # stopped, and another took over meanwhile
        assert keeper(memory).once() is not None
        return maintain(memory.store.services, memory.scope, hooks=RunHooks(late.append, still))

    memory.episodic.record("Late.", session="s")
    clock.advance(25 * HOUR)
    one = MaintenanceScheduler(memory.store.services, True, care)
    assert one.once() is None
    assert (late, one.state()["rounds"]) == ([], 0)


def test_its_lease_is_nobodys_task(memory: Memory) -> None:
    keeper(memory).once()
    assert memory.tasks.list() == []
    assert memory.tasks.recover(lambda run: None) == []
    assert memory.store.status(memory.scope).items == 0


def test_it_runs_while_a_memory_is_open_and_stops_with_it(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "FIRST_CHECK_SECONDS", 0.02)
    memory = opened(tmp_path / "agent.db", clock, background=True)
    try:
        ends = time.monotonic() + 180
        while not memory.store.status(memory.scope).background["maintenance"]["rounds"] and time.monotonic() < ends:
            time.sleep(0.01)
        state = memory.store.status(memory.scope).background["maintenance"]
        assert (state["rounds"], state["error"], state["last"]) == (1, None, clock())
    finally:
        memory.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("engrain-maintain")]


def test_a_memory_cares_for_itself_only_if_it_is_told_to(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", embedder=HashEmbedder()) as memory:
        assert memory.store.status(memory.scope).background["maintenance"] == {"every_minutes": 0}
        assert not [one for one in threading.enumerate() if one.name.startswith("engrain-maintain")]


def test_a_program_that_ends_at_once_does_not_wait_for_it(tmp_path: Path) -> None:
    code = (
        "import sys; from engrain import Memory; from engrain_conformance.embedder import HashEmbedder\n"
        "memory = Memory(sys.argv[1], embedder=HashEmbedder(), settings={'lifecycle': {'every_minutes': 60}})\n"
        "memory.remember('Ana likes tea.')\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "agent.db")], check=True, timeout=180)
    assert time.monotonic() - began < 60
