"""The fixtures that every suite needs from a backend's test file: a store, or its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engrain_conformance.clock import SetClock


class Suite:
    """A backend's test file defines the fixture `store`. If its parts are separate objects, it defines those as well.

    `vectors` is an index that follows `store`, and `feed` brings it up to date. `episodes` and `journal` may be on a
    server of their own. `another` opens the same store again, as another process would; without it those tests skip.
    """

    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock()

    @pytest.fixture
    def store(self, clock: SetClock) -> Any:
        raise NotImplementedError("give the suite a `store` fixture, which takes `clock`.")

    @pytest.fixture
    def another(self) -> Callable[[], Any]:
        pytest.skip("this backend lives in one process")

    @pytest.fixture
    def vectors(self, store: Any) -> Any:
        return store

    @pytest.fixture
    def words(self, store: Any) -> Any:
        return store

    @pytest.fixture
    def log(self, store: Any) -> Any:
        return store

    @pytest.fixture
    def episodes(self, store: Any) -> Any:
        return store.episodes

    @pytest.fixture
    def outcomes(self, store: Any) -> Any:
        return store.outcomes

    @pytest.fixture
    def records(self, store: Any) -> Any:
        return store.records

    @pytest.fixture
    def journal(self, store: Any) -> Any:
        return store.journal

    @pytest.fixture
    def erasing(self, store: Any) -> Any:
        return store.erasing

    @pytest.fixture
    def audit(self, store: Any) -> Any:
        return store.audit

    @pytest.fixture
    def feed(self) -> Callable[[], None]:
        """Called after writing to `store` and before asking `vectors`."""
        return lambda: None
