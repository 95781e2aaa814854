"""On Postgres, who sets a hold, who removes and who writes for the first time wait for each other."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, add, fact, forget
from engrain_conformance.erasure import USER, add_episode, list_texts
from schemas import empty_schema
from servers import postgres

from engrain import Memory
from engrain.core.errors import BeingErased, OnHold, StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.erasure import Erasure, Subject
from engrain.core.model.plans import Add, Plan
from engrain.core.model.sessions import Episode, EpisodeDraft
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.stores.postgres import PostgresStore
from engrain.stores.postgres.connection import PipelinedConnection, TimedConnection
from engrain.stores.relational.audit import Audit

CODER = Scope(ANA.tenant, "coder", ANA.user)
LATER = START.replace(year=START.year + 1)
PATIENCE = 120.0
LOOK = r"\bfrom hold\b"
Do = Callable[[PostgresStore, str], object]
_numbers = count()


@pytest.fixture
def schema() -> Iterator[str]:
    with empty_schema() as name:
        yield name


@pytest.fixture
def store(schema: str, clock: SetClock) -> Iterator[PostgresStore]:
    opened = PostgresStore(f"{postgres().url()}?schema={schema}&pool=8&timeout={PATIENCE:g}", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def item(store: PostgresStore) -> str:
    """Something of every kind that may go."""
    (id,) = add(store, fact("Ana lives in Lima."))
    add_episode(store, ANA, "old", raw=True)
    done = store.journal.claim(Claim(ANA, "task", "worker", 30))
    store.journal.end(done, TaskEnd("done", "fine"))
    return id


class Stopped:
    """Calls of the thread `first` stop behind a statement, until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._pool = ThreadPoolExecutor(2)

    @contextmanager
    def behind(self, statement: str, do: Callable[[], Any]) -> Iterator[Future[Any]]:
        reached, go_on, ask = threading.Event(), threading.Event(), PipelinedConnection.ask
        mine: list[int] = []

        def stopping(db: PipelinedConnection, sql: str, args: Any = None) -> Any:
            found = ask(db, sql, args)
            if threading.get_ident() in mine and not reached.is_set() and re.search(statement, sql):
                if found.fetchall():  # waits for it
                    found.scroll(0, "absolute")
                reached.set()
                assert go_on.wait(PATIENCE)
            return found

        def run() -> Any:
            mine.append(threading.get_ident())
            return do()

        self._patch.setattr(PipelinedConnection, "ask", stopping)
        first = self._pool.submit(run)
        first.add_done_callback(lambda _: reached.set())
        try:
            assert reached.wait(PATIENCE)
            assert not first.done(), f"it never came there: {first}"
            yield first
        finally:
            go_on.set()

    def meanwhile(self, do: Callable[[], Any]) -> tuple[Future[Any], bool]:
        """What another does, and whether it waits for a lock; if not, it is done."""
        second = self._pool.submit(do)
        until = time.monotonic() + PATIENCE
        with psycopg.connect(postgres().url("postgres"), autocommit=True) as look:
            while not second.done():
                if look.execute("select 1 from pg_locks where not granted").fetchone():
                    return second, True
                assert time.monotonic() < until, "it neither waits nor ends"
                time.sleep(0.01)
        return second, False


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    return Stopped(monkeypatch)


def rain(id: str) -> EpisodeDraft:
    return EpisodeDraft(Episode(id, "monday", "turn", "It rained.", 0.5, START, LATER, key="rain"), None)


REMOVERS: dict[str, Do] = {
    "forget": lambda store, item: forget(store, item),
    "erase": lambda store, item: store.erasing.begin("e1", USER),
    "erase an item": lambda store, item: store.erasing.begin("e1", Subject(ANA, "id", item)),
    "remove an episode": lambda store, item: store.episodes.remove(ANA, ["old"]),
    "trim": lambda store, item: store.episodes.trim(ANA, "monday", 0),
    "join": lambda store, item: store.episodes.add(ANA, rain("new").episode),
    "join in a plan": lambda store, item: store.apply(Plan(ANA, (Add(fact("Rain.")),), episodes=(rain("new"),))),
    "expire": lambda store, item: store.episodes.expire(LATER),
    "prune": lambda store, item: store.journal.prune(LATER),
    "remove a task": lambda store, item: store.journal.remove(ANA, "task"),
}


def removers() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("remove", list(REMOVERS.values()), ids=list(REMOVERS))


# Holds


def test_of_two_holds_at_once_both_are_kept(store: PostgresStore, stopped: Stopped) -> None:
    with stopped.behind(LOOK, lambda: store.erasing.hold(USER, "case-7")) as first:
        second, waits = stopped.meanwhile(lambda: store.erasing.hold(USER, "case-8"))
    assert (first.result().reasons, second.result().reasons, waits) == (("case-7",), ("case-7", "case-8"), True)
    assert [one.reasons for one in store.erasing.holds()] == [("case-7", "case-8")]


def test_a_release_takes_no_reason_along_that_comes_meanwhile(store: PostgresStore, stopped: Stopped) -> None:
    store.erasing.hold(USER, "case-7")
    with stopped.behind(LOOK, lambda: store.erasing.release(USER, "case-7")) as first:
        second, waits = stopped.meanwhile(lambda: store.erasing.hold(USER, "case-8"))
    assert (first.result(), second.result().reasons, waits) == (True, ("case-8",), True)
    assert [one.reasons for one in store.erasing.holds()] == [("case-8",)]


def test_several_reasons_end_together_or_not_at_all(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for reason in ("case-7", "case-8"):
        store.erasing.hold(USER, reason)
    write = Audit.write

    def failing(self: Audit, db: PipelinedConnection, what: str, details: Any, subject: str | None = None) -> Any:
        if details == {"reason": "case-8"}:
            raise StoreUnavailable("the server is gone.")
        return write(self, db, what, details, subject)

    monkeypatch.setattr(Audit, "write", failing)
    with pytest.raises(StoreUnavailable):
        store.erasing.release(USER, ["case-7", "case-8"])
    assert [one.reasons for one in store.erasing.holds()] == [("case-7", "case-8")]


@removers()
def test_a_hold_is_acknowledged_when_whoever_looked_before_is_done(
    store: PostgresStore, item: str, stopped: Stopped, remove: Do
) -> None:
    with stopped.behind(LOOK, lambda: remove(store, item)) as first:
        held, waits = stopped.meanwhile(lambda: store.erasing.hold(USER, "case-7"))
        assert waits, "a hold was acknowledged, and what it keeps goes afterwards"
    first.result()
    assert held.result().reasons == ("case-7",)


@removers()
def test_a_hold_is_locked_before_any_row(
    store: PostgresStore, item: str, monkeypatch: pytest.MonkeyPatch, remove: Do
) -> None:
    """So that two who remove do not wait for each other."""
    sent: list[str] = []
    execute = TimedConnection.execute

    def seen(self: TimedConnection, query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(query.decode() if isinstance(query, bytes) else str(query))
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(TimedConnection, "execute", seen)
    remove(store, item)
    locks = [n for n, sql in enumerate(sent) if "pg_advisory_xact_lock" in sql]
    rows = [n for n, sql in enumerate(sent) if re.search(r"for (no key )?update|^(insert|update|delete|with)\b", sql)]
    assert locks[0] < rows[0]


def test_what_is_hidden_while_care_goes_on_stays(store: PostgresStore, item: str, stopped: Stopped) -> None:
    store.erasing.hold(USER, "case-7")
    with stopped.behind(LOOK, lambda: store.episodes.expire(LATER)) as first, pytest.raises(OnHold):
        store.erasing.begin("e1", USER)
    assert first.result() == 0
    store.erasing.release(USER)
    assert [one.id for one in store.episodes.recent(ANA, None, 9, START)] == ["old"]
    assert store.episodes.raw(ANA, "old", START) == "At length."


# First writes

FIRST: dict[str, tuple[str, Callable[[PostgresStore], object]]] = {
    "remember": ("slot is null", lambda store: add(store, fact("Ana's word is blue."), scope=CODER)),
    "claim a task": (r"\bfrom task\b", lambda store: store.journal.claim(Claim(CODER, "task", "worker", 30))),
    "load": ("select tick", lambda store: store.restore([moving.session_to_row(CODER, "monday", 1, 1)])),
    "advance": ("select last_change from scope", lambda store: store.advance(ANA, "monday", "extract", 1)),
    "signal": ("insert into event", lambda store: store.journal.signal(ANA, "task", "paid", "now")),
}


def first_writes() -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("statement", "write"), list(FIRST.values()), ids=list(FIRST))


@first_writes()
def test_an_erasure_takes_a_first_write_that_is_under_way(
    store: PostgresStore, item: str, stopped: Stopped, statement: str, write: Callable[[PostgresStore], object]
) -> None:
    with stopped.behind(statement, lambda: write(store)) as first:
        begun, waits = stopped.meanwhile(lambda: store.erasing.begin("e1", USER))
        assert waits, "it did not see what comes in afterwards"
    assert first.result() is None or first.result()
    assert ANA in begun.result().scopes
    assert not any(store.erasing.count_remaining(store.erasing.anonymize("e1")).values())
    assert (list_texts(store, CODER), store.journal.task(CODER, "task")) == (set(), None)


def test_an_erasure_takes_the_very_first_write_of_a_user(store: PostgresStore, stopped: Stopped) -> None:
    statement, write = FIRST["remember"]
    with stopped.behind(statement, lambda: write(store)):
        begun, waits = stopped.meanwhile(lambda: store.erasing.begin("e1", USER))
    assert (begun.result().scopes, waits) == ((CODER,), True)
    assert list_texts(store, CODER) == set()


@first_writes()
def test_a_first_write_beside_an_erasure_is_refused(
    store: PostgresStore, item: str, stopped: Stopped, statement: str, write: Callable[[PostgresStore], object]
) -> None:
    with stopped.behind("order by scope for update", lambda: store.erasing.begin("e1", USER)) as first:
        second, waits = stopped.meanwhile(lambda: write(store))
    assert (first.result().scopes, waits) == ((ANA,), True)
    with pytest.raises(BeingErased):
        second.result()
    assert not any(store.erasing.count_remaining(store.erasing.anonymize("e1")).values())


def test_what_comes_in_while_somebody_is_erased_of_whom_there_is_nothing_is_new(store: PostgresStore) -> None:
    store.erasing.begin("e1", USER)
    add(store, fact("Ana is here."))
    erasure = store.erasing.anonymize("e1")
    assert not any(store.erasing.count_remaining(erasure).values())
    store.erasing.delete_rows("e1")
    assert list_texts(store) == {"Ana is here."}


def test_of_two_erasures_of_a_user_the_later_takes_nothing_that_came_since_the_first(store: PostgresStore) -> None:
    add(store, fact("Ana lives in Lima."))
    for id in ("e1", "e2"):
        store.erasing.begin(id, USER)
    first = store.erasing.anonymize("e1")
    add(store, fact("Ana is back."))
    second = store.erasing.anonymize("e2")
    assert not any(count for one in (first, second) for count in store.erasing.count_remaining(one).values())
    assert list_texts(store) == {"Ana is back."}


def test_of_two_who_go_on_with_an_erasure_one_takes_the_names(store: PostgresStore, stopped: Stopped) -> None:
    add(store, fact("Ana lives in Lima."))
    store.erasing.begin("e1", USER)
    with stopped.behind("for update", lambda: store.erasing.anonymize("e1")) as first:
        second, waits = stopped.meanwhile(lambda: store.erasing.anonymize("e1"))
    assert (first.result() == second.result(), waits) == (True, True)
    assert len(store.erasing.running()[0].ids) == 1


# What came in all the same: by a program of another version


def late(store: PostgresStore, schema: str) -> Erasure:
    """Ana is erased but for the proof; the coder has an item, an episode and a task from before."""
    add(store, fact("Ana lives in Lima."))
    store.erasing.begin("e1", USER)
    erasure = store.erasing.anonymize("e1")
    (blue,) = add(store, fact("Ana's word is blue."), scope=CODER)
    store.episodes.add(CODER, replace(rain("old").episode, happened_at=erasure.at, item=blue))
    store.journal.claim(Claim(CODER, "task", "worker", 30))
    postgres().run(f"update {schema}.item set recorded_at = 0", f"update {schema}.task set started_at = 0")
    assert store.erasing.count_remaining(erasure)["item"] == 1
    return erasure


def test_what_came_in_late_is_taken_with_its_names_and_kept_out(store: PostgresStore, schema: str) -> None:
    erasure = late(store, schema)
    taken = store.erasing.delete_rows("e1")
    assert (taken.counts["item"], taken.counts["scope"]) == (2, 2)
    assert not any(store.erasing.count_remaining(taken).values())
    assert not any(store.erasing.count_remaining(erasure).values())
    assert (store.scopes(), list_texts(store, CODER)) == ([], set())
    assert store.erasing.find_tombstoned(CODER, ["Ana's word is blue."]) == [True]
    assert store.erasing.delete_rows("e1") == taken


def test_what_came_in_late_goes_and_what_was_said_since_stays(store: PostgresStore, schema: str) -> None:
    late(store, schema)
    add(store, fact("Ana is back."), scope=CODER)
    taken = store.erasing.delete_rows("e1")
    assert not any(store.erasing.count_remaining(taken).values())
    assert list_texts(store, CODER) == {"Ana is back."}
    assert store.episodes.recent(CODER, None, 9, START) == []
    assert store.journal.task(CODER, "task") is None
    assert store.erasing.find_tombstoned(CODER, ["Ana's word is blue.", "Ana is back."]) == [True, False]


@pytest.mark.parametrize("also", ["nothing", "something late"])
def test_what_happened_since_by_a_clock_that_is_behind_stays(store: PostgresStore, schema: str, also: str) -> None:
    if also == "something late":
        erasure = late(store, schema)
        add(store, fact("Ana is back."), scope=CODER)
    else:
        store.erasing.begin("e1", USER)
        erasure = store.erasing.anonymize("e1")
    new = replace(rain("new").episode, session="tuesday", happened_at=erasure.at - timedelta(seconds=5))
    store.episodes.add(CODER, new)
    assert store.erasing.count_remaining(store.erasing.delete_rows("e1"))["episode"] == 1, (
        "it may be old: there is no receipt"
    )
    assert store.episodes.recent(CODER, None, 9, START) == [new]


def test_what_came_in_late_stays_under_a_hold(store: PostgresStore, schema: str) -> None:
    erasure = late(store, schema)
    store.erasing.hold(USER, "case-7")
    assert store.erasing.delete_rows("e1") == erasure
    assert list_texts(store, CODER) == {"Ana's word is blue."}
    store.erasing.release(USER)
    assert not any(store.erasing.count_remaining(store.erasing.delete_rows("e1")).values())


def test_a_hold_waits_until_what_came_in_late_is_taken(store: PostgresStore, schema: str, stopped: Stopped) -> None:
    late(store, schema)
    with stopped.behind(LOOK, lambda: store.erasing.delete_rows("e1")) as first:
        held, waits = stopped.meanwhile(lambda: store.erasing.hold(USER, "case-7"))
    assert (first.result().counts["item"], held.result().reasons, waits) == (2, ("case-7",), True)


def test_a_task_that_begins_while_what_came_in_late_is_taken_is_not_lost(
    store: PostgresStore, schema: str, stopped: Stopped
) -> None:
    late(store, schema)
    begin = Claim(CODER, "new", "worker", 30)
    with stopped.behind(r"\bfrom task\b", lambda: store.journal.claim(begin)) as first:
        taken, waits = stopped.meanwhile(lambda: store.erasing.delete_rows("e1"))
    assert (first.result().task, waits) == ("new", True)
    assert not any(store.erasing.count_remaining(taken.result()).values())
    assert [store.journal.task(CODER, name) is not None for name in ("task", "new")] == [False, True]


def test_an_event_that_came_in_late_is_taken(store: PostgresStore, schema: str) -> None:
    add(store, fact("Ana lives in Lima."))
    store.erasing.begin("e1", USER)
    erasure = store.erasing.anonymize("e1")
    row = f"('{erasure.ids[0]}', 'task', 'paid', 0, 'now')"
    insert = f"insert into event (scope, task, event, at, payload) values {row}"
    postgres().run(f"set search_path to {schema}", insert)
    assert store.erasing.count_remaining(erasure)["event"] == 1
    assert not any(store.erasing.count_remaining(store.erasing.delete_rows("e1")).values())


def test_a_resumed_erasure_ends_with_a_receipt_though_something_came_in_late(store: PostgresStore, schema: str) -> None:
    late(store, schema)
    with Memory(f"{postgres().url()}?schema={schema}", background=False) as memory:
        (done,) = memory.store.resume_erasures()
        assert done.receipt, done.why
        assert done.receipt.values["counts"]["item"] == 2
        assert memory.store.verify_erasure(done.receipt)
