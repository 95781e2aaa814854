"""The reference store keeps every contract."""

from __future__ import annotations

import pytest

from engrain.conformance import ItemStoreSuite, VectorIndexSuite, WordIndexSuite
from engrain.conformance.clock import SetClock
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
