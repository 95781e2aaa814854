"""Over random histories: a dry run says exactly what a real round then does, and a second round does nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.reference import ReferenceStore
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Note, Source
from engrain.core.model.plans import Change, Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.model.retention import Policies
from engrain.core.model.rows import ROW_KINDS, Row
from engrain.core.model.sessions import Episode
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.core.tokens import estimate_tokens
from engrain.maintenance.maintain import maintain
from engrain.ports import Services
from engrain.stores.sqlite import SqliteStore
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.semantic import SemanticMemory

ANA, BEN = Scope(user="ana"), Scope(user="ben")
DAY = 86_400.0
SHARE = st.sampled_from([0.0, 0.1, 0.29, 0.3, 0.5, 0.7, 1.0])
AGES = st.sampled_from([0.5, 3_600.0, DAY, 3 * DAY, 7 * DAY, 8 * DAY])
WHO = st.sampled_from([ANA, BEN])
WORDS = st.sampled_from([f"Fact {n}." for n in range(12)])
MODELS = st.sampled_from(["one", "two"])


def rows(store: Any) -> list[Row]:
    return [row for kind in ROW_KINDS for row in store.dump(kind, None, 9_999)]


class Care(RuleBasedStateMachine):
    """What happens to a memory, in any order, with rounds of care in between."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = SetClock()
        self.store = self.opened()
        rules = Policies(backup_folder=f"{self.folder.name}/backups", backup_hours=48, backup_keep=2)
        self.kit = Services(
            self.store, self.store, self.store, self.store, HashEmbedder("one"), self.clock, estimate_tokens,
            episodes=self.store.episodes, journal=self.store.journal, same_store=True, policies=self.policies(rules),
        )  # fmt: skip
        self.tasks = 0

    def opened(self) -> Any:
        return SqliteStore(Path(self.folder.name) / "agent.db", clock=self.clock)

    def policies(self, rules: Policies) -> Policies:
        return rules

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def ids(self, scope: Scope) -> list[str]:
        return [item.id for item in self.store.page(ListQuery(scope, limit=500))]

    @rule(who=WHO, text=WORDS, importance=SHARE, slot=st.sampled_from([None, None, "user.city"]))
    def remember(self, who: Scope, text: str, importance: float, slot: str | None) -> None:
        SemanticMemory(self.kit, who).remember(Note(text, importance, slot=slot))

    @rule(who=WHO, data=st.data(), importance=SHARE, text=WORDS)
    def conclude(self, who: Scope, data: st.DataObject, importance: float, text: str) -> None:
        if known := self.ids(who):
            cited = data.draw(st.sampled_from(known))
            note = Note(f"So {text}", importance, source=Source(cites=(Citation(cited),)), derived=True)
            SemanticMemory(self.kit, who).remember_many([note], None, None)

    @rule(who=WHO, data=st.data())
    def use(self, who: Scope, data: st.DataObject) -> None:
        if known := self.ids(who):
            self.store.touch(who, [data.draw(st.sampled_from(known))])

    @rule(who=WHO, data=st.data(), pinned=st.booleans())
    def pin_or_forget(self, who: Scope, data: st.DataObject, pinned: bool) -> None:
        if known := self.ids(who):
            id = data.draw(st.sampled_from(known))
            self.store.apply(Plan(who, (Change(id, pinned=True) if pinned else Forget(id),)))

    @rule(who=WHO, text=WORDS, failed=st.booleans(), decided=st.booleans())
    def happen(self, who: Scope, text: str, failed: bool, decided: bool) -> None:
        if decided:
            EpisodicMemory(self.kit, who).record_decision(text, session="s")
        else:
            EpisodicMemory(self.kit, who).record(text * 300, "tool", session="s", tool="t", failed=failed)

    @rule(who=WHO, text=WORDS, importance=SHARE, life=AGES)
    def come_another_way(self, who: Scope, text: str, importance: float, life: float) -> None:
        now = self.clock()
        entry = Episode(
            f"e-{now.timestamp()}-{text}", "s", "note", text, importance, now, now + timedelta(seconds=life)
        )
        self.store.episodes.add(who, entry)

    @rule(who=WHO, ends=st.sampled_from(["done", "failed", None]))
    def work(self, who: Scope, ends: Any) -> None:
        self.tasks += 1
        lease = self.store.journal.claim(Claim(who, f"task {self.tasks}", "w"))
        if ends:
            self.store.journal.end(lease, TaskEnd(ends))

    @rule(model=MODELS)
    def change_the_model(self, model: str) -> None:
        self.kit = replace(self.kit, embedder=HashEmbedder(model))

    @rule(seconds=AGES)
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: not isinstance(self.store, ReferenceStore))
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.clock.advance(0.001)  # ids are in order within a process, or by the moment
        self.store = self.opened()
        store = self.store
        ports = {"items": store, "vectors": store, "words": store, "log": store}
        self.kit = replace(self.kit, **ports, episodes=store.episodes, journal=store.journal)

    @rule(who=WHO, reembed=st.booleans())
    def care(self, who: Scope, reembed: bool) -> None:
        before = rows(self.store)
        planned = maintain(self.kit, who, dry_run=True, reembed=reembed)
        assert rows(self.store) == before, "a dry run changes nothing"
        done = maintain(self.kit, who, reembed=reembed)
        assert (done.each, done.counts, done.problems) == (planned.each, planned.counts, ())
        self.is_done(who, planned.each, before)
        again = maintain(self.kit, who, reembed=reembed)
        assert again.each == (), "a second round does nothing"
        assert not any(again.counts.values())

    def is_done(self, who: Scope, each: Sequence[Any], before: Sequence[Row]) -> None:
        """What was said to go is gone, and nothing else of this memory is."""
        went = {one.id for one in each if one.act == "remove"}
        after = {(row.kind, row.key) for row in rows(self.store)}
        gone = [row for row in before if (row.kind, row.key) not in after and row.kind in ("item", "episode", "task")]
        mine = {row.key[-1] for row in gone if row.scope == who}
        models = {one.id for one in each if "every item has" in one.why}
        backups = {one.id for one in each if one.id.endswith(".db")}
        assert mine == went - models - backups
        pinned = [row for row in gone if row.kind == "item" and row.values["pinned"]]
        assert not pinned, "nothing pinned goes"

    @rule(back=AGES)
    def clock_jumps_back(self, back: float) -> None:
        """A clock that jumps back expires nothing early: nothing goes that did not go at the later moment."""
        planned = maintain(self.kit, ANA, dry_run=True)
        self.clock.advance(-back)
        earlier = maintain(self.kit, ANA, dry_run=True)
        # A backup may be due by the earlier clock, and take the place of another.
        removed = [{one for one in some.each if one.act == "remove"} for some in (earlier, planned)]
        names = [{one.id for one in some if not one.id.endswith(".db")} for some in removed]
        assert names[0] <= names[1]
        assert maintain(self.kit, ANA).each == earlier.each
        self.clock.advance(back)

    @invariant()
    def the_store_is_sound(self) -> None:
        assert all(one.state != "fail" for one in self.store.check())


class CareOfTheReference(Care):
    def opened(self) -> Any:
        return ReferenceStore(clock=self.clock)

    def policies(self, rules: Policies) -> Policies:
        return replace(rules, backup_folder="", half_life_days=3.0)


@pytest.mark.parametrize("machine", [Care, CareOfTheReference])
def test_a_dry_run_says_what_a_round_then_does(machine: type[Care]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=8, stateful_step_count=25, deadline=None))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Care, CareOfTheReference])
def test_a_dry_run_says_what_a_round_then_does_at_length(machine: type[Care]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=300, stateful_step_count=50, deadline=None))
