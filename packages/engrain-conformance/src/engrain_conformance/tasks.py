"""Tests of the TaskJournal port: a step recorded as done never runs again."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.errors import Conflict, LeaseLost, NotFound, TaskClaimed
from engrain.core.model.plans import Add, Change, Plan
from engrain.core.model.tasks import Lease, StepEnd, StepStart, StepWrite, TaskQuery
from engrain.ports.items import ItemStore
from engrain.ports.tasks import TaskJournal
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, BEN, HOSTILE, add, derived, fact, forget, hostile_scopes, list_items, texts
from engrain_conformance.leases import LeaseSuite, claim
from engrain_conformance.suite import Suite


class StepSuite(Suite):
    def test_a_step_is_begun_and_finished(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal)
        start = StepStart("mail", 2, "effect", input="abc", key="k-1", version="3")
        begun = journal.begin(lease, start)
        assert (begun.name, begun.occurrence, begun.kind, begun.status) == ("mail", 2, "effect", "intent")
        assert (begun.attempt, begun.epoch, begun.input, begun.key, begun.version) == (1, 1, "abc", "k-1", "3")
        assert (begun.began_at, begun.ended_at, begun.result, begun.error) == (START, None, None, None)
        assert journal.steps(ANA, "order") == [begun]
        clock.advance()
        done = journal.finish(lease, StepEnd("mail", 2, "done", '{"ü": 1}'))
        assert (done.status, done.result, done.error) == ("done", '{"ü": 1}', None)
        assert (done.began_at, done.ended_at, done.key) == (START, clock(), "k-1")
        assert journal.steps(ANA, "order") == [done]

    def test_a_step_that_is_there_is_returned_as_it_stands(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal)
        begun = journal.begin(lease, StepStart("a", input="x"))
        clock.advance()
        for attempt in (1, 3):
            assert journal.begin(lease, StepStart("a", input="y", attempt=attempt)) == begun
        done = journal.finish(lease, StepEnd("a", result="1"))
        for attempt in (1, 2, 3):
            assert journal.begin(lease, StepStart("a", attempt=attempt)) == done
        assert journal.steps(ANA, "order") == [done]

    @pytest.mark.parametrize("status", ["failed", "ambiguous", "intent"])
    def test_the_next_attempt_begins_again(self, journal: TaskJournal, clock: SetClock, status: Any) -> None:
        first = claim(journal, seconds=5)
        journal.begin(first, StepStart("a", input="x", key="k1"))
        journal.record(first, StepStart("b"), StepEnd("b"))
        if status != "intent":
            journal.finish(first, StepEnd("a", 0, status, "partial", "why"))
        clock.advance(10)
        lease = claim(journal, worker="two")
        again = journal.begin(lease, StepStart("a", input="y", key="k2", version="2", attempt=2))
        assert (again.status, again.attempt, again.epoch, again.input, again.key) == ("intent", 2, 2, "y", "k2")
        assert (again.began_at, again.ended_at, again.result, again.error) == (clock(), None, None, None)
        assert [step.name for step in journal.steps(ANA, "order")] == ["a", "b"]

    def test_a_done_or_skipped_step_never_begins_again(self, journal: TaskJournal) -> None:
        lease = claim(journal)
        for name, status in (("a", "done"), ("b", "skipped")):
            journal.begin(lease, StepStart(name))
            settled = journal.finish(lease, StepEnd(name, 0, status, "1"))  # type: ignore[arg-type]
            assert journal.begin(lease, StepStart(name, attempt=2)) == settled

    def test_steps_come_in_the_order_they_first_began(self, journal: TaskJournal) -> None:
        lease = claim(journal)
        for name, occurrence in (("b", 0), ("a", 1), ("a", 0), ("c", 0)):
            journal.begin(lease, StepStart(name, occurrence))
        journal.finish(lease, StepEnd("a", 0))
        journal.finish(lease, StepEnd("b", 0))
        order = [(step.name, step.occurrence) for step in journal.steps(ANA, "order")]
        assert order == [("b", 0), ("a", 1), ("a", 0), ("c", 0)]

    def test_what_is_not_settled_is_listed_alone(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal)
        assert journal.unsettled(ANA, "order") == []
        for name in ("b", "a", "c", "d"):
            journal.begin(lease, StepStart(name, 1, "effect", input="x"))
            clock.advance()
        journal.finish(lease, StepEnd("a", 1, "done", "1"))
        journal.finish(lease, StepEnd("c", 1, "ambiguous", "partial", "why"))
        journal.finish(lease, StepEnd("d", 1, "failed", None, "why"))
        journal.record(lease, StepStart("e"), StepEnd("e", result="1"))
        open_ = [step for step in journal.steps(ANA, "order") if step.status in ("intent", "ambiguous")]
        assert journal.unsettled(ANA, "order") == open_
        assert [(step.name, step.status) for step in open_] == [("b", "intent"), ("c", "ambiguous")]
        assert journal.unsettled(BEN, "order") == journal.unsettled(ANA, "other") == []

    def test_only_what_was_begun_is_finished(self, journal: TaskJournal) -> None:
        lease = claim(journal)
        journal.begin(lease, StepStart("a", 1))
        for end in (StepEnd("b"), StepEnd("a", 0)):
            with pytest.raises(NotFound):
                journal.finish(lease, end)
            with pytest.raises(NotFound):
                journal.resolve(ANA, "order", end)
        with pytest.raises(NotFound):
            journal.resolve(ANA, "unknown", StepEnd("a", 1))

    def test_a_settled_step_stays(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal)
        journal.begin(lease, StepStart("a"))
        done = journal.finish(lease, StepEnd("a", result="1"))
        clock.advance()
        assert journal.finish(lease, StepEnd("a", result="1")) == done
        for other in (StepEnd("a", result="2"), StepEnd("a", 0, "failed", None, "no")):
            with pytest.raises(Conflict):
                journal.finish(lease, other)
        assert journal.steps(ANA, "order") == [done]

    def test_begin_and_finish_in_one(self, journal: TaskJournal) -> None:
        lease = claim(journal)
        done = journal.record(lease, StepStart("a", input="x", kind="checkpoint"), StepEnd("a", result="1"))
        assert (done.status, done.input, done.kind, done.result) == ("done", "x", "checkpoint", "1")
        assert (done.began_at, done.ended_at) == (START, START)
        assert journal.record(lease, StepStart("a"), StepEnd("a", result="2")) == done
        journal.begin(lease, StepStart("b"))
        assert journal.record(lease, StepStart("b"), StepEnd("b", result="3")).result == "3"
        assert [step.name for step in journal.steps(ANA, "order")] == ["a", "b"]

    def test_a_step_recorded_at_its_end_began_earlier(self, journal: TaskJournal) -> None:
        lease = claim(journal)
        done = journal.record(lease, StepStart("a"), StepEnd("a", took=1.5))
        assert (done.began_at, done.ended_at) == (START - timedelta(seconds=1.5), START)

    def test_a_person_s_word_settles_what_is_open(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal)
        for name in ("a", "b"):
            journal.begin(lease, StepStart(name))
        journal.finish(lease, StepEnd("a", 0, "ambiguous"))
        clock.advance(3_600)
        for name, status in (("a", "done"), ("b", "skipped")):
            settled = journal.resolve(ANA, "order", StepEnd(name, 0, status, "seen"))  # type: ignore[arg-type]
            assert (settled.status, settled.result, settled.ended_at) == (status, "seen", clock())
            with pytest.raises(Conflict):
                journal.resolve(ANA, "order", StepEnd(name, 0, "done", "seen"))
        with pytest.raises(NotFound):
            journal.resolve(BEN, "order", StepEnd("a"))

    def test_nobody_speaks_for_a_step_that_is_under_way(self, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal, worker="worker 'one'", seconds=30)
        begun = journal.begin(lease, StepStart("a"))
        journal.begin(lease, StepStart("b"))
        journal.finish(lease, StepEnd("b", 0, "ambiguous"))
        clock.advance(29)
        with pytest.raises(TaskClaimed, match="worker 'one'"):
            journal.resolve(ANA, "order", StepEnd("a", 0, "failed"))
        assert journal.steps(ANA, "order")[0] == begun
        assert journal.resolve(ANA, "order", StepEnd("b", 0, "failed")).status == "failed"
        clock.advance(1)
        assert journal.resolve(ANA, "order", StepEnd("a", 0, "failed")).status == "failed"

    def test_tasks_of_one_name_are_kept_apart(self, journal: TaskJournal) -> None:
        scopes = hostile_scopes()
        for n, scope in enumerate(scopes):
            lease = claim(journal, scope=scope, goal=f"of {n}")
            journal.record(lease, StepStart("a"), StepEnd("a", result=str(n)))
        for n, scope in enumerate(scopes):
            assert [task.goal for task in journal.tasks(TaskQuery(scope))] == [f"of {n}"]
            assert [step.result for step in journal.steps(scope, "order")] == [str(n)]
        with pytest.raises(LeaseLost):
            journal.begin(Lease(ANA, "order", "one", 1, START), StepStart("a"))

    def test_tasks_steps_and_events_may_have_any_name(self, journal: TaskJournal) -> None:
        # One task with all names for its steps, and a task of each name with two steps.
        steps = dict.fromkeys(HOSTILE, (HOSTILE[3], HOSTILE[5])) | {HOSTILE[0]: HOSTILE}
        for name, named in steps.items():
            lease = claim(journal, name, goal=name)
            for step in named:
                journal.record(lease, StepStart(step, input=name), StepEnd(step, result=name))
                assert journal.signal(ANA, name, step, name + step)
        for name, named in steps.items():
            assert [step.name for step in journal.steps(ANA, name)] == list(named)
            assert {step.result for step in journal.steps(ANA, name)} == {name}
            assert [journal.event(ANA, name, step) for step in named] == [name + step for step in named]


class MemoryStepSuite(Suite):
    """For a store that keeps items and the journal in one domain."""

    def write(self, lease: Lease, *texts: str) -> Plan:
        start = StepStart("note", kind="memory")
        return Plan(ANA, tuple(Add(fact(text)) for text in texts), record=StepWrite(lease, start, StepEnd("note")))

    def test_the_writes_and_the_record_are_one(self, store: ItemStore, journal: TaskJournal) -> None:
        lease = claim(journal)
        applied = store.apply(self.write(lease, "One.", "Two."))
        (step,) = journal.steps(ANA, "order")
        assert (step.name, step.kind, step.status) == ("note", "memory", "done")
        assert json.loads(step.result or "") == [outcome.id for outcome in applied.outcomes]
        assert not applied.repeated

    def test_a_snapshot_comes_with_them(self, store: ItemStore, journal: TaskJournal) -> None:
        record = StepWrite(claim(journal), StepStart("note", kind="memory"), StepEnd("note", snapshot="[1]"))
        store.apply(Plan(ANA, (Add(fact("One.")),), record=record))
        assert [task.snapshot for task in journal.tasks(TaskQuery(ANA))] == ["[1]"]

    def test_a_recorded_step_is_not_written_again(self, store: ItemStore, journal: TaskJournal) -> None:
        lease = claim(journal)
        first = store.apply(self.write(lease, "One.", "Two."))
        again = store.apply(self.write(lease, "Three.", "Four."))
        assert again.repeated
        assert [outcome.id for outcome in again.outcomes] == [outcome.id for outcome in first.outcomes]
        assert {outcome.status for outcome in again.outcomes} == {"repeated"}
        assert sorted(texts(list_items(store))) == ["One.", "Two."]

    def test_what_was_kept_out_is_recorded_as_nothing(self, store: ItemStore, journal: TaskJournal) -> None:
        (id,) = add(store, fact("Secret."))
        forget(store, id)
        lease = claim(journal)
        record = StepWrite(lease, StepStart("note"), StepEnd("note"))
        plan = Plan(ANA, (Add(derived("Secret.")),), record=record)
        assert store.apply(plan).outcomes[0].status == "kept_out"
        assert [outcome.id for outcome in store.apply(plan).outcomes] == [None]

    def test_a_stale_lease_writes_nothing(self, store: ItemStore, journal: TaskJournal, clock: SetClock) -> None:
        lease = claim(journal, seconds=5)
        clock.advance(10)
        second = claim(journal, worker="two")
        with pytest.raises(LeaseLost):
            store.apply(self.write(lease, "Late."))
        assert (list_items(store), journal.steps(ANA, "order")) == ([], [])
        store.apply(self.write(second, "In time."))
        with pytest.raises(LeaseLost):
            store.apply(self.write(lease, "In time."))
        assert texts(list_items(store)) == ["In time."]

    def test_a_failed_plan_leaves_no_record(self, store: ItemStore, journal: TaskJournal) -> None:
        lease = claim(journal)
        plan = self.write(lease, "One.")
        with pytest.raises(NotFound):
            store.apply(Plan(ANA, (*plan.steps, Change("nothing", importance=1.0)), record=plan.record))
        assert (list_items(store), journal.steps(ANA, "order")) == ([], [])
        assert store.apply(plan).outcomes[0].status == "added"

    def test_a_step_that_was_begun_is_finished(self, store: ItemStore, journal: TaskJournal) -> None:
        lease = claim(journal)
        journal.begin(lease, StepStart("note", kind="memory"))
        store.apply(self.write(lease, "One."))
        assert [step.status for step in journal.steps(ANA, "order")] == ["done"]

    def test_a_step_that_failed_is_not_written(self, store: ItemStore, journal: TaskJournal) -> None:
        lease = claim(journal)
        journal.record(lease, StepStart("note"), StepEnd("note", 0, "failed"))
        with pytest.raises(Conflict):
            store.apply(self.write(lease, "One."))
        assert list_items(store) == []


class TaskJournalSuite(LeaseSuite, StepSuite):
    """All that the TaskJournal port promises."""
