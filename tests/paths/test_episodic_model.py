"""Episodic memory on a real SQLite file against a simple model of it, whatever happens in whatever order."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from episodic_kit import ANA, opened
from examples import up_to
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engrain.core.model.filters import parse_filter
from engrain.core.model.plans import Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.model.retention import TIERS
from engrain.maintenance.maintain import maintain
from engrain.stores.relational import sessions as stored_episodes
from engrain.tiers.episodic import EpisodicMemory

DAY = timedelta(days=1)
CAP = 6  # in place of a thousand: the machine takes some thirty steps

sessions = st.sampled_from(["monday", "tuesday"])
words = st.sampled_from(["The parcel left.", "the  PARCEL left.", "Rain.", "A crane fell down."])


@dataclass
class Entry:
    id: str
    session: str
    key: object
    text: str
    at: datetime
    until: datetime | None
    count: int = 1

    def alive(self, now: datetime) -> bool:
        return self.until is None or now < self.until


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(stored_episodes, "TIERS", {"episodic": replace(TIERS["episodic"], max_items=CAP)})
        self.folder = tempfile.TemporaryDirectory()
        self.clock = SetClock()
        self.model: list[Entry] = []
        self.errors: dict[str, tuple[str, str, object]] = {}
        self.promised: dict[str, set[str]] = {}
        self.rows: dict[str, str] = {}
        self.tombstones: set[str] = set()
        self.open()

    def open(self) -> None:
        self.kit = opened("sqlite", Path(self.folder.name), self.clock)
        self.episodic = EpisodicMemory(self.kit, ANA)

    def teardown(self) -> None:
        self.kit.items.close()
        self.folder.cleanup()
        self.patch.undo()

    @rule(text=words, session=sessions, kind=st.sampled_from(["turn", "note"]))
    def something_happens(self, text: str, session: str, kind: str) -> None:
        id = self.episodic.record(text, kind, session=session)
        self.happened(id, session, (kind, " ".join(text.casefold().split())), text, self.clock() + DAY)

    @rule(text=words, session=sessions)
    def something_is_decided(self, text: str, session: str) -> None:
        id = self.episodic.record_decision(text, session=session)
        said = f"Decided: {text}"
        self.happened(id, session, ("decision", " ".join(said.casefold().split())), said, None)
        self.promise(said, id)

    @rule(text=words, session=sessions, second=st.integers(0, 59))
    def something_fails(self, text: str, session: str, second: int) -> None:
        said = f"Error: {text} 12:00:{second:02d}"
        id = self.episodic.record_error(said, session=session, tool="crane")
        key = ("error", " ".join(text.casefold().split()))
        self.errors[id] = (session, said, key)
        self.happened(id, session, key, said, self.clock() + DAY)

    @precondition(lambda self: self.errors)
    @rule(data=st.data(), text=words)
    def it_is_resolved(self, data: st.DataObject, text: str) -> None:
        error = data.draw(st.sampled_from(list(self.errors)))
        session, said, key = self.errors[error]
        id = self.episodic.record_resolution(error, text)
        for one in self.newest(session):
            if one.alive(self.clock()) and (one.id == error or one.key == key):
                one.until, one.key = None, object()
                break
        answer = f"Resolved: {text}"
        self.happened(id, session, ("resolution", " ".join(answer.casefold().split())), answer, None)
        self.promise(f"{said}\n{answer}", error, id)

    def happened(self, id: str, session: str, key: object, text: str, until: datetime | None) -> None:
        now = self.clock()
        same = [one for one in self.model if one.session == session and one.key == key and one.alive(now)]
        ends = [until, *(one.until for one in same)]
        last = None if None in ends else max(end for end in ends if end)
        self.model = [one for one in self.model if one not in same]
        self.model.append(Entry(id, session, key, text, now, last, 1 + sum(one.count for one in same)))
        for one in self.newest(session)[CAP:]:
            self.model.remove(one)
        self.rows[id] = text

    def promise(self, text: str, *rows: str) -> None:
        if text not in self.tombstones:
            self.promised.setdefault(text, set()).update(rows)

    def newest(self, session: str | None = None) -> list[Entry]:
        mine = [one for one in self.model if session in (None, one.session)]
        return sorted(mine, key=lambda one: (one.at, one.id), reverse=True)

    @rule(seconds=st.sampled_from([0.000001, 60, 43_200, 86_399.999999, 86_400, 260_000]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def a_row_is_forgotten(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.rows)))
        self.kit.items.apply(Plan(ANA, (Forget(id),)))
        self.errors.pop(id, None)
        self.model = [one for one in self.model if one.id != id]
        gone = [text for text, rows in self.promised.items() if id in rows]
        self.tombstones |= {self.rows.pop(id), *gone}
        self.promised = {text: rows for text, rows in self.promised.items() if text not in gone}

    @rule()
    def it_is_cared_for(self) -> None:
        before = self.episodic.recent(100)
        planned = maintain(self.kit, ANA, dry_run=True)
        assert maintain(self.kit, ANA, dry_run=True).counts == planned.counts
        assert self.episodic.recent(100) == before
        assert planned.counts["expired"] == sum(not one.alive(self.clock()) for one in self.model)
        assert maintain(self.kit, ANA).counts == planned.counts
        assert set(maintain(self.kit, ANA).counts.values()) == {0}
        self.model = [one for one in self.model if one.alive(self.clock())]

    @rule()
    def it_is_opened_again(self) -> None:
        self.kit.items.close()
        self.open()

    @invariant()
    def what_is_shown_is_what_happened(self) -> None:
        for session in (None, "monday", "tuesday"):
            shown = [(one.id, one.text, one.count) for one in self.episodic.recent(100, session)]
            alive = [one for one in self.newest(session) if one.alive(self.clock())]
            assert shown == [(one.id, one.text, one.count) for one in alive]
            assert session is None or len(shown) <= CAP

    @invariant()
    def what_matters_is_findable_for_ever(self) -> None:
        found = self.kit.items.page(ListQuery(ANA, parse_filter({"kind": "episode"}), limit=1_000))
        assert sorted(item.text for item in found) == sorted(self.promised)

    @invariant()
    def no_row_is_lost(self) -> None:
        logged = [row for session in ("monday", "tuesday") for row in self.kit.log.last(ANA, session, 1_000)]
        assert {row.id: row.text for row in logged} == self.rows


TestEpisodicModel = Machine.TestCase
TestEpisodicModel.settings = settings(max_examples=up_to(25), stateful_step_count=30, deadline=None)
