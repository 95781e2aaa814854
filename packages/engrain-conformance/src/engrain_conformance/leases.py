"""Tests of the TaskJournal port: one worker at a time, and no unfinished task is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.errors import Conflict, LeaseLost, NotFound, TaskClaimed
from engrain.core.identity import Scope
from engrain.core.model.tasks import ENDED_STATUSES, Claim, Lease, StepEnd, StepStart, TaskEnd, TaskQuery, TaskRecord
from engrain.ports.tasks import TaskJournal
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, BEN
from engrain_conformance.suite import Suite

HOUR = timedelta(hours=1)


def claim(journal: TaskJournal, task: str = "order", worker: str = "one", scope: Scope = ANA, **values: Any) -> Lease:
    return journal.claim(Claim(scope, task, worker, **values))


def list_writes(journal: TaskJournal, lease: Lease) -> list[Callable[[], Any]]:
    """Everything that a lease is needed for."""
    return [
        lambda: journal.extend(lease, 60),
        lambda: journal.begin(lease, StepStart("late")),
        lambda: journal.finish(lease, StepEnd("first", result="late")),
        lambda: journal.record(lease, StepStart("late"), StepEnd("late")),
        lambda: journal.keep(lease, "late"),
        lambda: journal.end(lease, TaskEnd("done", "late")),
    ]


class LeaseSuite(Suite):
    def test_a_new_task_is_claimed(self, journal: TaskJournal) -> None:
        lease = claim(journal, seconds=30, goal="ship it", version="1", deadline=START + HOUR)
        assert lease == Lease(ANA, "order", "one", 1, START + timedelta(seconds=30), "running")
        assert journal.task(ANA, "order") == TaskRecord(
            ANA, "order", "ship it", "1", "running", 1, "one", lease.until, START, deadline=START + HOUR
        )
        assert journal.steps(ANA, "order") == []
        assert journal.task(ANA, "unknown") is None

    def test_a_held_task_is_not_claimed_again(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal, worker="worker 'one'", seconds=30)
        clock.advance(29.999_999)
        for worker in ("two", "worker 'one'"):
            with pytest.raises(TaskClaimed, match="worker 'one'"):
                claim(journal, worker=worker)
        journal.begin(lease, StepStart("first"))

    def test_a_lease_that_ran_out_is_taken_over(self, journal: TaskJournal, clock: SetClock) -> None:
        first = claim(journal, seconds=30, goal="ship it", version="1", deadline=START + HOUR)
        journal.begin(first, StepStart("first"))
        clock.advance(30)
        second = claim(journal, worker="two", goal="other", version="2", deadline=START + 9 * HOUR)
        assert (second.epoch, second.worker, second.status) == (2, "two", "running")
        task = journal.task(ANA, "order")
        assert task
        assert (task.goal, task.version, task.deadline, task.started_at) == ("ship it", "1", START + HOUR, START)
        assert (task.epoch, task.worker, task.until) == (2, "two", second.until)
        before = (journal.steps(ANA, "order"), task)
        for write in list_writes(journal, first):
            with pytest.raises(LeaseLost):
                write()
        assert (journal.steps(ANA, "order"), journal.task(ANA, "order")) == before
        journal.finish(second, StepEnd("first"))

    def test_a_lease_that_nobody_took_over_still_writes(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal, seconds=30)
        clock.advance(3_600)
        journal.begin(lease, StepStart("first"))
        longer = journal.extend(lease, 60)
        assert longer.until == clock() + timedelta(seconds=60)
        with pytest.raises(TaskClaimed):
            claim(journal, worker="two")

    def test_the_lease_of_a_dead_worker_has_run_out(self, journal: TaskJournal) -> None:
        first = claim(journal, worker="one", seconds=30)
        for dead in ("", "two", "on"):
            with pytest.raises(TaskClaimed):
                claim(journal, worker="two", dead=dead)
        second = claim(journal, worker="two", dead="one")
        assert (second.epoch, second.worker) == (2, "two")
        for write in list_writes(journal, first):
            with pytest.raises(LeaseLost):
                write()

    def test_a_lease_is_extended_from_now(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal, seconds=30)
        clock.advance(10)
        longer = journal.extend(lease, 30)
        assert (longer.until, longer.epoch, longer.worker) == (START + timedelta(seconds=40), 1, "one")
        clock.advance(29)
        with pytest.raises(TaskClaimed):
            claim(journal, worker="two")
        clock.advance(1)
        assert claim(journal, worker="two").epoch == 2

    def test_of_many_claimants_one_wins(self, journal: TaskJournal) -> None:
        def attempt(n: int) -> bool:
            try:
                claim(journal, worker=f"worker {n}")
            except TaskClaimed:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(16))) == 1

    def test_times_in_the_journal_never_run_backwards(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal, seconds=30)
        clock.advance(20)
        step = journal.begin(lease, StepStart("first"))
        clock.advance(-3_600)
        ended = journal.finish(lease, StepEnd("first"))
        assert ended.ended_at == step.began_at == START + timedelta(seconds=20)

    # Ending

    @pytest.mark.parametrize("status", ENDED_STATUSES)
    def test_an_ended_task_is_over(self, journal: TaskJournal, clock: SetClock, status: Any) -> None:
        lease = claim(journal)
        journal.record(lease, StepStart("first"), StepEnd("first"))
        clock.advance()
        task = journal.end(lease, TaskEnd(status, "shipped"))
        assert (task.status, task.outcome, task.ended_at) == (status, "shipped", clock())
        assert (task.worker, task.until) == (None, None)
        assert journal.task(ANA, "order") == task
        again = claim(journal, worker="two")
        assert (again.status, again.worker) == (status, "two")
        for over in (lease, again):
            for write in list_writes(journal, over):
                with pytest.raises(LeaseLost):
                    write()
        assert journal.task(ANA, "order") == task
        assert len(journal.steps(ANA, "order")) == 1

    @pytest.mark.parametrize("status", ["running", "waiting", "parked"])
    def test_a_task_that_was_only_given_back_goes_on(self, journal: TaskJournal, status: Any) -> None:
        lease = claim(journal)
        task = journal.end(lease, TaskEnd(status))
        assert (task.status, task.ended_at, task.worker) == (status, None, None)
        with pytest.raises(LeaseLost):
            journal.begin(lease, StepStart("first"))
        again = claim(journal, worker="two")
        assert (again.epoch, again.status) == (2, "running")
        assert (journal.task(ANA, "order") or task).status == "running"

    def test_a_task_is_overruled_without_a_lease(self, journal: TaskJournal, clock: SetClock) -> None:
        with pytest.raises(NotFound):
            journal.overrule(ANA, "order", TaskEnd("cancelled"))
        lease = claim(journal)
        parked = journal.overrule(ANA, "order", TaskEnd("parked", "wait"))
        assert (parked.status, parked.outcome, parked.ended_at, parked.worker) == ("parked", "wait", None, None)
        assert parked.epoch == 2
        with pytest.raises(LeaseLost):
            journal.begin(lease, StepStart("first"))
        with pytest.raises(NotFound):
            journal.overrule(BEN, "order", TaskEnd("cancelled"))
        ended = journal.overrule(ANA, "order", TaskEnd("cancelled"))
        assert (ended.status, ended.ended_at) == ("cancelled", clock())
        with pytest.raises(Conflict):
            journal.overrule(ANA, "order", TaskEnd("done"))
        assert journal.task(ANA, "order") == ended

    def test_a_task_past_its_deadline_expires(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal, "late", deadline=START + HOUR)
        journal.begin(lease, StepStart("first"))
        claim(journal, "later", deadline=START + 2 * HOUR)
        claim(journal, "never")
        claim(journal, "late", scope=BEN, deadline=START + HOUR)
        journal.end(claim(journal, "ended", deadline=START + HOUR), TaskEnd("done"))
        assert journal.expire(clock.advance(3_599)) == []
        expired = journal.expire(clock.advance(1))
        assert sorted((task.scope.user or "", task.task, task.status) for task in expired) == [
            ("ana", "late", "expired"), ("ben", "late", "expired"),
        ]  # fmt: skip
        assert {task.ended_at for task in expired} == {clock()}
        assert journal.task(ANA, "late") in expired
        assert [step.name for step in journal.steps(ANA, "late")] == ["first"]
        with pytest.raises(LeaseLost):
            journal.finish(lease, StepEnd("first"))
        assert journal.expire(clock()) == []
        assert (journal.task(ANA, "ended") or expired[0]).status == "done"

    # Looking through tasks

    def test_tasks_are_listed_newest_first(self, journal: TaskJournal, clock: SetClock) -> None:
        for n, scope in enumerate([ANA, BEN, ANA, ANA]):
            claim(journal, f"task {n}", scope=scope, seconds=10 * (n + 1))
            clock.advance()
        journal.end(claim(journal, "ended"), TaskEnd("done"))
        mine = [task.task for task in journal.tasks(TaskQuery(ANA))]
        assert mine == ["ended", "task 3", "task 2", "task 0"]
        assert [task.task for task in journal.tasks(TaskQuery())] == ["ended", "task 3", "task 2", "task 1", "task 0"]
        assert [task.task for task in journal.tasks(TaskQuery(ANA, limit=2))] == mine[:2]
        assert [task.task for task in journal.tasks(TaskQuery(ANA, ("done", "failed")))] == ["ended"]
        clock.advance(17)
        assert [task.task for task in journal.tasks(TaskQuery(stale=True))] == ["task 1", "task 0"]
        assert [task.task for task in journal.tasks(TaskQuery(ANA, ("running",), stale=True))] == ["task 0"]
        claim(journal, "task 0", worker="two")
        assert [task.task for task in journal.tasks(TaskQuery(ANA, stale=True))] == []

    def test_only_ended_tasks_are_pruned(self, journal: TaskJournal, clock: SetClock) -> None:
        for scope in (ANA, BEN):
            lease = claim(journal, "old", scope=scope)
            journal.record(lease, StepStart("first"), StepEnd("first"))
            journal.signal(scope, "old", "paid", "{}")
            journal.end(lease, TaskEnd("done"))
        journal.begin(claim(journal, "open"), StepStart("first"))
        journal.end(claim(journal, "waiting"), TaskEnd("waiting"))
        clock.advance()
        journal.end(claim(journal, "new"), TaskEnd("failed"))
        assert journal.prune(START) == 0
        assert journal.prune(clock()) == 2
        assert journal.task(ANA, "old") is None
        assert journal.event(ANA, "old", "paid") is None
        assert journal.steps(ANA, "old") == journal.steps(BEN, "old") == []
        assert sorted(task.task for task in journal.tasks(TaskQuery())) == ["new", "open", "waiting"]
        assert len(journal.steps(ANA, "open")) == 1
        clock.advance(86_400 * 999)
        assert journal.prune(clock()) == 1
        fresh = claim(journal, "old")
        assert (fresh.epoch, fresh.status) == (1, "running")

    def test_a_lease_of_a_pruned_task_is_over(self, journal: TaskJournal, clock: SetClock) -> None:
        old = claim(journal)
        journal.end(old, TaskEnd("done"))
        assert journal.prune(clock.advance()) == 1
        claim(journal, worker="two")
        for write in list_writes(journal, old):
            with pytest.raises(LeaseLost):
                write()
        assert journal.steps(ANA, "order") == []

    def test_one_ended_task_is_removed_and_no_other(self, journal: TaskJournal) -> None:
        for task, scope in (("old", ANA), ("old", BEN), ("other", ANA)):
            lease = claim(journal, task, scope=scope)
            journal.record(lease, StepStart("first"), StepEnd("first", snapshot="{}"))
            journal.signal(scope, task, "paid", "{}")
            with pytest.raises(Conflict):
                journal.remove(scope, task)
            journal.end(lease, TaskEnd("cancelled"))
        journal.remove(ANA, "old")
        assert (journal.task(ANA, "old"), journal.event(ANA, "old", "paid")) == (None, None)
        assert journal.steps(ANA, "old") == []
        for scope, task in ((BEN, "old"), (ANA, "other")):
            assert journal.task(scope, task)
            assert len(journal.steps(scope, task)) == 1
            assert journal.event(scope, task, "paid") == "{}"
        for scope in (ANA, Scope(user="nobody")):
            with pytest.raises(NotFound):
                journal.remove(scope, "old")
        assert claim(journal, "old").epoch == 1

    # Snapshots and events

    def test_a_snapshot_replaces_the_one_before(self, journal: TaskJournal) -> None:
        lease = claim(journal)
        for snapshot in ('{"a": "ü"}', "{}"):
            journal.keep(lease, snapshot)
            assert [task.snapshot for task in journal.tasks(TaskQuery(ANA))] == [snapshot]
        assert journal.end(lease, TaskEnd("done")).snapshot == "{}"

    def test_a_snapshot_comes_with_the_end_of_a_step(self, journal: TaskJournal, clock: SetClock) -> None:
        def kept() -> str | None:
            return (journal.task(ANA, "order") or pytest.fail("gone")).snapshot

        lease = claim(journal, seconds=5)
        journal.record(lease, StepStart("a"), StepEnd("a", snapshot='"ü"'))
        assert kept() == '"ü"'
        journal.record(lease, StepStart("b"), StepEnd("b"))
        assert kept() == '"ü"'
        journal.begin(lease, StepStart("c"))
        journal.finish(lease, StepEnd("c", snapshot="2"))
        assert kept() == "2"
        journal.begin(lease, StepStart("d"))
        journal.record(lease, StepStart("d"), StepEnd("d", snapshot="3"))
        assert kept() == "3"
        journal.record(lease, StepStart("a"), StepEnd("a", snapshot="of a step that is settled"))
        assert kept() == "3"
        clock.advance(10)
        claim(journal, worker="two")
        with pytest.raises(LeaseLost):
            journal.record(lease, StepStart("e"), StepEnd("e", snapshot="late"))
        assert kept() == "3"

    def test_an_event_is_delivered_once(self, journal: TaskJournal) -> None:
        assert journal.event(ANA, "order", "paid") is None
        assert journal.signal(ANA, "order", "paid", "1")
        assert not journal.signal(ANA, "order", "paid", "1")
        assert not journal.signal(ANA, "order", "paid", "2")
        assert journal.signal(ANA, "order", "sent", "3")
        claim(journal)
        assert (journal.event(ANA, "order", "paid"), journal.event(ANA, "order", "sent")) == ("1", "3")
        assert journal.event(BEN, "order", "paid") is journal.event(ANA, "other", "paid") is None
        assert journal.signal(BEN, "order", "paid", "4")
