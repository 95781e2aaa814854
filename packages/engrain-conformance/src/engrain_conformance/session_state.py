"""Tests of the SessionState port: texts by scope and session, isolated from each other."""

from __future__ import annotations

from typing import Any

import pytest

from engrain.ports.sessions import SessionState
from engrain_conformance.drafts import ANA, BEN, HOSTILE, hostile_scopes
from engrain_conformance.suite import Suite


class SessionStateSuite(Suite):
    @pytest.fixture
    def state(self, store: Any) -> SessionState:
        state: SessionState = store.state
        return state

    def test_a_saved_text_stays_until_it_is_replaced_or_dropped(self, state: SessionState) -> None:
        assert state.load(ANA, "s") is None
        state.save(ANA, "s", "first")
        state.save(ANA, "s", "second")
        assert state.load(ANA, "s") == "second"
        state.drop(ANA, "s")
        state.drop(ANA, "s")
        assert state.load(ANA, "s") is None

    def test_scopes_and_sessions_are_apart(self, state: SessionState) -> None:
        places = [(scope, session) for scope in (ANA, BEN) for session in ("s", "t")]
        for number, place in enumerate(places):
            state.save(*place, str(number))
        assert [state.load(*place) for place in places] == ["0", "1", "2", "3"]
        state.drop(ANA, "s")
        assert [state.load(*place) for place in places] == [None, "1", "2", "3"]

    def test_all_texts_of_a_scope_go_at_once(self, state: SessionState) -> None:
        for scope in (ANA, BEN):
            for session in ("s", "t"):
                state.save(scope, session, "text")
        assert state.clear(ANA) == 2
        assert state.load(ANA, "s") is None
        assert state.load(ANA, "t") is None
        assert state.clear(ANA) == 0
        assert state.load(BEN, "s") == "text"

    def test_any_session_name_and_any_text_is_stored_as_it_is(self, state: SessionState) -> None:
        for number, odd in enumerate(HOSTILE):
            state.save(ANA, odd, f"{odd}{number}")
        assert [state.load(ANA, odd) for odd in HOSTILE] == [f"{odd}{n}" for n, odd in enumerate(HOSTILE)]
        for number, scope in enumerate(hostile_scopes()):
            state.save(scope, "s", str(number))
        assert all(state.load(scope, "s") == str(n) for n, scope in enumerate(hostile_scopes()))
