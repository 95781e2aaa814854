"""Tests of the Movable port: every row of a store arrives unchanged in another, and works there."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest

from engrain.core.errors import Conflict, NotFound, OnHold, StoreClosed
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.items import Citation, Relation, Source
from engrain.core.model.plans import Add, Change, Embed, Plan
from engrain.core.model.procedures import Trial
from engrain.core.model.queries import ListQuery, Summary
from engrain.core.model.records import RecordDraft, RecordWrite
from engrain.core.model.rows import ROW_KINDS, STORE_KINDS, Row
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.model.tasks import Claim, StepEnd, StepStart, TaskEnd, TaskQuery
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    add,
    append_messages,
    correct,
    derived,
    fact,
    forget,
    message,
    vector_query,
    without_vectors,
)
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.reference import ReferenceStore
from engrain_conformance.suite import Suite
from engrain_conformance.views import View

SCOPES = (ANA, BEN, Scope(), Scope("", None, "日本語"))
CLEO, KIM = Scope(None, "a", "cleo"), Scope("firm", None, "kim")


def dump_all(store: Any, page: int = 1_000, scope: Scope | None = None) -> list[Row]:
    found: list[Row] = []
    for kind in ROW_KINDS:
        after = None
        while rows := store.dump(kind, after, page, scope):
            assert len(rows) <= page
            found += rows
            after = rows[-1].key
    return found


def copy_rows(source: Any, target: Any, page: int = 7) -> Any:
    rows = dump_all(source)
    for start in range(0, len(rows), page):
        target.restore(rows[start : start + page])
    return target


def check_copy(source: Any, target: Any, at: datetime) -> None:
    """The target shows all that the source does."""
    copy_rows(source, target)
    assert dump_all(target) == dump_all(source)
    for scope in SCOPES:
        wanted, found = (View(store, scope, at, lambda id: id).everything() for store in (source, target))
        for name, value in wanted.items():
            assert found[name] == value, f"{name} of {scope}"


def fill_store(store: Any, clock: SetClock) -> None:
    """A little of everything that a store can hold, in every kind of row."""
    other = HashEmbedder("other")
    for scope in SCOPES:
        said = append_messages(
            store, scope, "monday", [message("Ana lives in Lima. She likes tea."), message("And coffee.")], None
        )
        first = said.outcomes[0].id
        steps = (
            Add(fact("Lima", slot="city", metadata={"k": [1, None, "ü"]})),
            Add(derived("Ana likes tea.", Citation(first, 19, 33)), request_id="once"),
            Add(fact("Ana knows Ben.", kind="relation", relation=Relation("Ana", "knows", "tea"))),
            Add(without_vectors("I always want short answers.", importance=0.9, source=Source("page", "web"))),
            Add(fact("Over soon.", expires_at=START + timedelta(hours=1), vectors=other.vectors("Over soon."))),
            Add(fact("It happened.", occurred_at=START - timedelta(days=400), kind="procedure")),
        )
        written = store.apply(Plan(scope, steps, request_id="all"))
        ids = [outcome.id for outcome in written.outcomes]
        clock.advance(60)
        add(store, fact("Quito", slot="city"), derived("Ana likes tea.", Citation(first)), scope=scope)
        correct(store, ids[3], fact("I always want long answers."), scope=scope)
        (secret,) = add(store, derived("coffee", Citation(said.outcomes[1].id, 4, 10)), scope=scope)
        forget(store, secret, scope=scope)
        store.apply(Plan(scope, (Change(ids[2], pinned=True, importance=0.1),)))
        (hash,) = (pending.hash for pending in store.unembedded(other.model.key, 999) if pending.id == ids[0])
        store.apply(Plan(scope, (Embed(ids[0], hash, other.vectors("Lima")),)))
        append_messages(store, scope, "tuesday", [message("Hello.", "tuesday")], None)
        append_messages(store, scope, "monday", [message("Later.")], None)
        store.touch(scope, [ids[0], ids[0], ids[2]])
        store.summarize(scope, "tuesday", Summary("They greeted.", 1, 1, "digest"))
        store.advance(scope, "monday", "extract", 2)
        _happen(store, scope, ids[5], clock)
    _keep_out(store)


def _keep_out(store: Any) -> None:
    """Somebody who was erased, and somebody who must not be."""
    add(store, fact("Cleo lives in Oslo."), scope=CLEO)
    for stage in ("begin", "delete_rows", "anonymize"):
        getattr(store.erasing, stage)("e1", *([_user(CLEO)] if stage == "begin" else []))
    store.erasing.complete("e1", {"receipt": "e1"})
    add(store, fact("Kim lives in Rome."), scope=KIM)
    store.erasing.hold(_user(KIM), "case-7")


def _user(scope: Scope) -> Subject:
    return Subject(scope, "user", scope.user or "")


def _happen(store: Any, scope: Scope, procedure: str, clock: SetClock) -> None:
    over = Episode("~a", "monday", "turn", "", 0.5, clock(), None, item=procedure, key="same", data={"k": [1]})
    store.episodes.add(scope, over, RawOutput("The whole of it.", START + timedelta(days=1)))
    store.episodes.add(scope, Episode("~b", "wednesday", "error", "It broke.", 0.9, clock(), clock() + timedelta(1)))
    store.outcomes.count(scope, Trial(procedure, "order", True, clock(), "well"))
    lease = store.journal.claim(Claim(scope, "order", "one", goal="ship", version="1", deadline=START + timedelta(9)))
    for n in (2, 1, 3):
        store.journal.record(lease, StepStart(f"step {n}", input="x"), StepEnd(f"step {n}", result='"y"' * 3_000))
    store.journal.begin(lease, StepStart("open", kind="effect", key="k"))
    store.journal.keep(lease, '{"page": 7}')
    store.journal.signal(scope, "order", "paid", '"yes"')
    soon = RecordDraft(("thread", ""), b"\x00\xff", expires_at=START + timedelta(days=2))
    store.records.write(
        scope, RecordWrite("graph", [soon, RecordDraft(("thread", "ü"), b"{}"), RecordDraft(("a",), b"")])
    )
    done = store.journal.claim(Claim(scope, "old", "two"))
    store.journal.end(done, TaskEnd("done", "fine"))


def _said(store: Any, scope: Scope) -> list[str]:
    return [item.text for item in store.page(ListQuery(scope))]


class DumpRestoreSuite(Suite):
    """Between the backend and the reference store, both ways."""

    def test_what_is_there_arrives_elsewhere(self, store: Any, clock: SetClock) -> None:
        fill_store(store, clock)
        check_copy(store, ReferenceStore(clock=clock), START + timedelta(seconds=61))

    def test_what_arrives_is_what_was_there(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        check_copy(source, store, START + timedelta(seconds=61))
        for scope in SCOPES:
            for task in ("order", "old"):
                assert store.journal.task(scope, task) == source.journal.task(scope, task)
                assert store.journal.steps(scope, task) == source.journal.steps(scope, task)
            assert store.journal.event(scope, "order", "paid") == '"yes"'

    def test_every_kind_of_row_is_tried(self, store: Any, clock: SetClock) -> None:
        fill_store(store, clock)
        assert {row.kind for row in dump_all(store)} == set(ROW_KINDS)

    @pytest.mark.parametrize("page", [1, 3])
    def test_rows_come_in_the_order_of_their_keys_page_by_page(self, store: Any, clock: SetClock, page: int) -> None:
        fill_store(store, clock)
        rows = dump_all(store, page)
        assert rows == dump_all(store)
        for kind in ROW_KINDS:
            keys = [row.key for row in rows if row.kind == kind]
            assert keys == sorted(set(keys)), kind

    @pytest.mark.parametrize("page", [1, 3, 1_000])
    def test_the_rows_of_one_scope_are_those_and_no_others(self, store: Any, clock: SetClock, page: int) -> None:
        fill_store(store, clock)
        rows = dump_all(store)
        for scope in (*SCOPES, Scope(user="nobody")):
            wanted = [
                row for row in rows if row.kind == "store" or (row.kind not in STORE_KINDS and row.scope == scope)
            ]
            assert dump_all(store, page, scope) == wanted

    def test_what_is_read_still_is_of_one_moment(self, store: Any) -> None:
        add(store, fact("Tea."))
        other = Thread(target=lambda: add(store, fact("Coffee.")))

        def look() -> tuple[list[Row], list[Row]]:
            first = dump_all(store, scope=ANA)
            other.start()
            other.join(1.0)  # a store may have it wait until the end
            return first, dump_all(store, scope=ANA)

        first, second = store.on_snapshot(look)
        other.join()
        assert first == second
        assert len(dump_all(store, scope=ANA)) > len(first)
        add(store, fact("It is written to again."))

    def test_a_preview_sees_its_own_writes_and_leaves_nothing(self, store: Any, clock: SetClock) -> None:
        add(store, fact("Tea."))
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        rows = [row for row in dump_all(source) if row.kind not in STORE_KINDS]
        before = dump_all(store)

        def write() -> list[str]:
            add(store, fact("Coffee."))
            add(store, fact("Somebody's coffee."), scope=Scope(user="new"))
            store.restore(rows)
            return _said(store, ANA)

        assert {"Tea.", "Coffee.", *_said(source, ANA)} == set(store.preview(write))
        with pytest.raises(NotFound):
            store.preview(lambda: (write(), store.apply(Plan(ANA, (Change("missing", pinned=True),)))))
        assert (dump_all(store), store.status().items) == (before, 1)
        (kept,) = add(store, fact("Coffee."))
        assert store.page(ListQuery(ANA))[0].id == kept

    def test_a_preview_loses_no_counted_use(self, store: Any) -> None:
        (id,) = add(store, fact("Tea."))
        store.touch(ANA, [id])
        store.preview(lambda: add(store, fact("Coffee.")))
        assert store.get_many(ANA, [id])[0].access_count == 1

    def test_an_id_of_another_scope_is_not_taken_over(self, store: Any, clock: SetClock) -> None:
        add(store, fact("Ana likes tea."))
        before = dump_all(store)
        (row,) = (one for one in before if one.kind == "item")
        for text in (row.values["text"], "Ben likes tea."):
            taken = replace(row, values={**row.values, "text": text, "scope": [BEN.tenant, BEN.agent, BEN.user]})
            with pytest.raises(Conflict):
                store.restore([taken])
            assert dump_all(store) == before

    def test_restoring_twice_changes_nothing(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        copy_rows(source, store)
        copy_rows(source, store, 1_000)
        assert dump_all(store) == dump_all(source)
        assert store.status().items == source.status().items

    def test_a_row_that_is_given_twice_counts_as_given_last(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        add(source, fact("Tea.", source=Source("menu", "document")))
        rows = dump_all(source)
        (item,) = (row for row in rows if row.kind == "item")
        first = replace(item, values={**item.values, "importance": 0.1})
        store.restore([one for row in rows for one in ([first, row] if row is item else [row])])
        assert dump_all(store) == rows

    def test_a_row_that_changed_meanwhile_takes_the_old_one_s_place(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        copy_rows(source, store)
        clock.advance(60)
        for scope in SCOPES:
            add(source, fact("Cusco", slot="city"), scope=scope)
            append_messages(source, scope, "monday", [message("Much later.")], None)
            source.touch(scope, [slot.id for slot in source.slots(scope, "", None)])
        lease = source.journal.claim(Claim(ANA, "order", "three"))
        source.journal.finish(lease, StepEnd("open", result="1"))
        check_copy(source, store, clock())

    def test_a_step_that_ends_later_keeps_its_place(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        lease = source.journal.claim(Claim(ANA, "order", "one"))
        for name in ("first", "second"):
            source.journal.begin(lease, StepStart(name))
        copy_rows(source, store)
        source.journal.finish(lease, StepEnd("first", result="1"))
        copy_rows(source, store)
        assert dump_all(store) == dump_all(source)

    def test_what_was_forgotten_answered_or_numbered_stays_so(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        copy_rows(source, store)
        again = store.apply(Plan(ANA, (Add(derived("coffee")),))).outcomes[0]
        assert again.status == "kept_out"
        assert store.apply(Plan(ANA, (), request_id="all")).repeated
        with pytest.raises(Conflict):
            store.apply(Plan(ANA, (Add(fact("Something else.")),), request_id="once"))
        repeated = store.apply(Plan(ANA, (Add(fact("Ana likes tea.")),))).outcomes[0]
        assert repeated.status == "repeated"
        added = append_messages(store, ANA, "monday", [message("The next.")], None).outcomes[0]
        assert (added.place, store.sessions(ANA, 9)[0]) == (3, "monday")
        assert append_messages(store, ANA, "tuesday", [message("The next.", "tuesday")], 1).outcomes[0].place == 1
        assert store.sessions(ANA, 9) == ["tuesday", "monday"]
        assert store.outbox("index", 10_000)[-1].item
        assert {entry.item for entry in store.outbox("index", 10_000, BEN)} == {
            row.key[0] for row in dump_all(source) if row.kind == "item" and row.scope == BEN
        }
        assert [task.task for task in store.journal.tasks(TaskQuery(ANA, ("running",)))] == ["order"]
        assert store.nearest(vector_query("Quito", limit=1)).cosines[0] > 0.99
        assert all(fault.state != "fail" for fault in store.check())

    def test_who_was_erased_stays_out_and_who_is_held_stays(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        copy_rows(source, store)
        assert "cleo" not in str(dump_all(store))
        assert store.erasing.erased(_user(CLEO)) == source.erasing.erased(_user(CLEO))
        assert store.erasing.find_tombstoned(CLEO, ["Cleo lives in Oslo.", "Cleo lives in Rome."]) == [True, False]
        add(store, fact("Cleo came back."), scope=CLEO)
        assert store.apply(Plan(CLEO, (Add(derived("Cleo lives in Oslo.")),))).outcomes[0].status == "kept_out"
        assert store.erasing.is_on_hold(KIM)
        with pytest.raises(OnHold):
            store.erasing.begin("e2", _user(KIM))

    def test_the_audit_log_comes_along_and_goes_on(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        copy_rows(source, store)
        assert store.audit.entries(0, 99) == source.audit.entries(0, 99)
        count = len(store.audit.entries(0, 99))
        assert store.audit.append("load", {"items": 1}).n == count + 1
        assert store.audit.verify()

    def test_an_end_that_was_cut_off_is_found_in_a_copy_too(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        rows = dump_all(source)
        last = [row for row in rows if row.kind == "audit"][-2]
        store.restore([row for row in rows if row != last])
        assert not store.audit.verify()

    def test_what_is_hidden_is_not_moved_and_a_hold_that_hides_hides(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        copy_rows(source, store)
        assert _said(store, KIM) == ["Kim lives in Rome."]
        with pytest.raises(OnHold):
            source.erasing.begin("e2", _user(KIM))
        assert "kim" not in str(dump_all(source))
        store.restore([row for row in dump_all(source) if row.kind == "hold"])
        assert _said(store, KIM) == []
        store.erasing.release(_user(KIM))
        assert _said(store, KIM) == ["Kim lives in Rome."]

    def test_a_store_with_another_memory_is_left_alone(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        add(source, fact("Ana likes tea."))
        add(store, fact("Ben likes coffee."))
        before = dump_all(store)
        with pytest.raises(Conflict):
            store.restore(dump_all(source))
        assert dump_all(store) == before

    def test_all_rows_of_a_call_are_kept_or_none(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        fill_store(source, clock)
        rows = dump_all(source)
        lost = next(row for row in rows if row.kind == "cites").values["cites"][0][1]
        with pytest.raises(Conflict):
            store.restore([row for row in rows if row.key != (lost,)])
        assert [row.kind for row in dump_all(store)] == ["store"]

    def test_tasks_that_are_not_among_the_rows_keep_their_snapshots(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        for scope in (ANA, BEN):
            for task in ("x", "y"):
                source.journal.keep(source.journal.claim(Claim(scope, task, "me")), '{"page": 7}')
        copy_rows(source, store)
        store.restore([row for row in dump_all(source) if row.key in ((ANA.id, "x"), (BEN.id, "y"))])
        assert dump_all(store) == dump_all(source)

    def test_nothing_is_restored_if_something_was_forgotten_since(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        add(source, fact("Ana likes tea."))
        given = [row for row in dump_all(source) if row.kind == "item"]
        (gone,) = add(store, fact("Nobody must know."))
        since, other = store.change_token([ANA]), store.change_token([BEN])
        forget(store, gone)
        before = dump_all(store)
        with pytest.raises(Conflict):
            store.restore(given, since)
        assert dump_all(store) == before
        assert store.change_token([BEN]) == other
        told: list[int] = []
        store.restore(given, store.change_token([ANA, BEN]), told.append)
        assert sum(told) == len(given)
        assert _said(store, ANA) == ["Ana likes tea."]

    def test_nothing_is_restored_if_words_were_forgotten_once_more_since(self, store: Any) -> None:
        for _ in range(2):
            (gone,) = add(store, fact("Nobody must know."))
            given = [row for row in dump_all(store) if row.kind == "item"]
            since = store.change_token([ANA])
            forget(store, gone)
        with pytest.raises(Conflict):
            store.restore(given, since)
        assert _said(store, ANA) == []

    def test_nothing_is_restored_if_an_erasure_was_made_since(self, store: Any, clock: SetClock) -> None:
        source = ReferenceStore(clock=clock)
        add(source, fact("Ana likes tea."))
        given = [row for row in dump_all(source) if row.kind == "item"]
        marks = [store.change_token([ANA])]
        store.erasing.begin("e9", _user(KIM))
        marks.append(store.change_token([ANA]))
        store.erasing.delete_rows("e9")
        store.erasing.anonymize("e9")
        clock.advance(1)
        store.erasing.complete("e9", {})
        marks.append(store.change_token([ANA]))
        assert len({mark.mark for mark in marks}) == 3
        for since in marks[:2]:
            with pytest.raises(Conflict):
                store.restore(given, since)
        store.restore(given, marks[2])
        assert _said(store, ANA) == ["Ana likes tea."]

    def test_a_closed_store_is_not_moved(self, store: Any) -> None:
        store.close()
        for kind in ROW_KINDS:
            with pytest.raises(StoreClosed):
                store.dump(kind, None, 1)
        with pytest.raises(StoreClosed):
            store.restore([])
