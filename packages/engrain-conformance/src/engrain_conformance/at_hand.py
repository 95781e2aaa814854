"""What a store of session state promises: kept texts by scope, session and name, and nothing across them."""

from __future__ import annotations

from typing import Any

import pytest

from engrain.ports import SessionState
from engrain_conformance.drafts import ANA, BEN, HOSTILE, hostile_scopes
from engrain_conformance.suite import Suite


class SessionStateSuite(Suite):
    @pytest.fixture
    def state(self, store: Any) -> SessionState:
        state: SessionState = store.state
        return state

    def test_what_is_kept_is_there_until_it_is_replaced_or_dropped(self, state: SessionState) -> None:
        assert state.kept(ANA, "s", "working") is None
        state.keep(ANA, "s", "working", "first")
        state.keep(ANA, "s", "working", "second")
        assert state.kept(ANA, "s", "working") == "second"
        state.drop(ANA, "s", "working")
        state.drop(ANA, "s", "working")
        assert state.kept(ANA, "s", "working") is None

    def test_scopes_sessions_and_names_are_apart(self, state: SessionState) -> None:
        places = [(scope, session, name) for scope in (ANA, BEN) for session in ("s", "t") for name in ("a", "b")]
        for number, place in enumerate(places):
            state.keep(*place, str(number))
        assert [state.kept(*place) for place in places] == [str(number) for number in range(8)]
        state.drop(ANA, "s", "a")
        assert [state.kept(*place) for place in places[:3]] == [None, "1", "2"]

    def test_all_of_a_name_or_of_a_scope_goes_at_once(self, state: SessionState) -> None:
        for scope in (ANA, BEN):
            for session in ("s", "t"):
                for name in ("window", "working"):
                    state.keep(scope, session, name, "text")
        assert state.clear(ANA, "window") == 2
        assert state.kept(ANA, "s", "window") is None
        assert state.kept(ANA, "s", "working") == "text"
        assert state.clear(ANA) == 2
        assert state.kept(ANA, "t", "working") is None
        assert state.clear(ANA) == 0
        assert state.kept(BEN, "s", "window") == "text"

    def test_any_name_and_any_text_is_kept_as_it_is(self, state: SessionState) -> None:
        for number, odd in enumerate(HOSTILE):
            state.keep(ANA, odd, "working", f"{odd}{number}")
        assert [state.kept(ANA, odd, "working") for odd in HOSTILE] == [f"{odd}{n}" for n, odd in enumerate(HOSTILE)]
        for number, scope in enumerate(hostile_scopes()):
            state.keep(scope, "s", "working", str(number))
        assert all(state.kept(scope, "s", "working") == str(n) for n, scope in enumerate(hostile_scopes()))
