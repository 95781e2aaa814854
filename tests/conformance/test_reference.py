"""The reference store keeps every contract. By default the other stores are compared with it."""

from __future__ import annotations

import pytest
from engrain_conformance import (
    DumpRestoreSuite,
    EmbedderSuite,
    EpisodesSuite,
    ErasureSuite,
    HoldSuite,
    ItemStoreSuite,
    LateWriteSuite,
    MemoryStepSuite,
    OutcomesSuite,
    RecordsSuite,
    SessionLogSuite,
    TaskJournalSuite,
    TransactionSuite,
    VectorIndexSuite,
    WordIndexSuite,
)
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, append_messages, fact, message
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.erasure import USER, add_episode
from engrain_conformance.machine import compare_with_reference
from engrain_conformance.reference import ReferenceStore, erasure

from engrain.core.model.audit import AuditHead
from engrain.core.model.erasure import Subject
from engrain.core.model.plans import Add, Plan
from engrain.core.model.procedures import Trial
from engrain.core.model.tasks import Claim


@pytest.mark.slow
class Reference:
    @pytest.fixture
    def store(self, clock: SetClock) -> ReferenceStore:
        return ReferenceStore(clock=clock)


class TestItems(Reference, ItemStoreSuite):
    pass


class TestVectors(Reference, VectorIndexSuite):
    pass


class TestWords(Reference, WordIndexSuite):
    pass


class TestSessions(Reference, SessionLogSuite):
    pass


class TestEpisodes(Reference, EpisodesSuite):
    pass


class TestOutcomes(Reference, OutcomesSuite):
    pass


class TestRecords(Reference, RecordsSuite):
    pass


class TestTogether(Reference, TransactionSuite):
    pass


class TestTasks(Reference, TaskJournalSuite):
    pass


class TestMemorySteps(Reference, MemoryStepSuite):
    pass


class TestMoving(Reference, DumpRestoreSuite):
    pass


class TestEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self) -> HashEmbedder:
        return HashEmbedder()


def test_the_machine_finds_no_difference_between_two_of_a_kind() -> None:
    compare_with_reference(lambda clock: ReferenceStore(clock=clock), examples=2)


class TestHolds(Reference, HoldSuite):
    pass


class TestLate(Reference, LateWriteSuite):
    pass


class TestErasing(Reference, ErasureSuite):
    @pytest.mark.parametrize("kind", ["requests", "lengths", "progress", "episodes", "trials", "tasks", "events"])
    def test_what_was_passed_over_is_noticed(
        self, store: ReferenceStore, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        id = store.apply(Plan(ANA, (Add(fact("Bake.", kind="procedure")),), request_id="r-1")).outcomes[0].id
        append_messages(store, ANA, "monday", [message("It rained.")], None)
        store.advance(ANA, "monday", "extract", 1)
        store.outcomes.count(ANA, Trial(id, "t", True, START, ""))
        add_episode(store, ANA, "e")
        store.journal.claim(Claim(ANA, "task", "worker", 30))
        store.journal.signal(ANA, "task", "came", "{}")
        monkeypatch.setattr(erasure, "SCOPED_FIELDS", tuple(one for one in erasure.SCOPED_FIELDS if one != kind))
        store.erasing.begin("e1", USER)
        store.erasing.delete_rows("e1")
        left = store.erasing.count_remaining(store.erasing.anonymize("e1"))
        assert {one: count for one, count in left.items() if count} == {kind: 1}

    def test_what_was_passed_over_of_a_session_is_noticed(
        self, store: ReferenceStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append_messages(store, ANA, "monday", [message("It rained.")], None)
        add_episode(store, ANA, "e")
        monkeypatch.setattr(erasure, "drop_session", lambda *_: None)
        store.erasing.begin("e1", Subject(ANA, "session", "monday"))
        store.erasing.delete_rows("e1")
        left = store.erasing.count_remaining(store.erasing.anonymize("e1"))
        assert (left["episode"], left["lengths"]) == (1, 1)

    def test_a_log_that_was_removed_with_its_seal_is_missed(self, store: ReferenceStore) -> None:
        store.erasing.hold(USER, "case-7")
        with store.audit.holder.writing() as state:
            state.audit, state.head = [], AuditHead()
        assert "all entries are missing" in store.audit.verify().faults[0]
