"""The reference store keeps every contract."""

from __future__ import annotations

import pytest

from engrain.conformance import (
    EmbedderSuite,
    EpisodesSuite,
    ErasingSuite,
    ItemStoreSuite,
    MemoryStepSuite,
    MovingSuite,
    OutcomesSuite,
    SessionLogSuite,
    TaskJournalSuite,
    TogetherSuite,
    VectorIndexSuite,
    WordIndexSuite,
)
from engrain.conformance.clock import SetClock
from engrain.conformance.embedder import HashEmbedder
from engrain.conformance.machine import compare_with_reference
from engrain.stores.reference import ReferenceStore


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


class TestTogether(Reference, TogetherSuite):
    pass


class TestTasks(Reference, TaskJournalSuite):
    pass


class TestMemorySteps(Reference, MemoryStepSuite):
    pass


class TestMoving(Reference, MovingSuite):
    pass


class TestEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self) -> HashEmbedder:
        return HashEmbedder()


def test_the_machine_finds_no_difference_between_two_of_a_kind() -> None:
    compare_with_reference(lambda clock: ReferenceStore(clock=clock))


class TestErasing(Reference, ErasingSuite):
    pass
