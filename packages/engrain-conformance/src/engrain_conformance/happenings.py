"""Random episodes, the same for two stores that are compared."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput
from engrain_conformance.clock import START
from engrain_conformance.views import NAMES, SESSIONS, WORKS

PICKS = st.tuples(st.integers(0, 7), st.integers(0, 15))  # which item; now and then one of any scope, or long gone
OWN = st.integers(0, 2)  # which step of the same plan
_SECONDS = st.sampled_from([None, None, -1, 0, 60, 3_600])
HAPPENINGS = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["", "", *NAMES]),
        "over": OWN | PICKS | st.none(),
        "session": st.sampled_from(SESSIONS),
        "importance": st.sampled_from([0.1, 0.5, 0.9]),
        "happened": st.sampled_from([-3_600, 0, 0, 1, 60]),
        "expires": _SECONDS,
        "count": st.sampled_from([1, 1, 3]),
        "data": st.sampled_from([{}, {"k": [1, None]}]),
        "key": st.sampled_from([None, "same", "other"]),
        "raw": _SECONDS,
    }
)
TRIALS = st.tuples(PICKS, st.sampled_from(NAMES), st.booleans(), st.integers(0, 3))
MARKS = st.tuples(st.sampled_from(SESSIONS), st.sampled_from(WORKS), st.integers(0, 6))


def happening(spec: dict[str, Any], item: str | None) -> EpisodeDraft:
    named = {name: spec[name] for name in ("id", "session", "importance", "count", "data", "key")}
    episode = Episode(
        **named,
        kind="turn",
        text="" if item else "It happened.",
        happened_at=START + timedelta(seconds=spec["happened"]),
        expires_at=_moment(spec["expires"]),
        item=item,
    )
    ends = _moment(spec["raw"])
    return EpisodeDraft(episode, RawOutput(f"Raw of {spec['importance']}.", ends) if ends else None)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)
