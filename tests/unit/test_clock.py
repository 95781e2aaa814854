"""Time as a value that is handed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from engrain_conformance.clock import START, SetClock
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.clock import check_time, from_micros, system_clock, to_micros
from engrain.core.errors import InvalidInput


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_is_kept_to_the_microsecond(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.integers(-23, 23))
def test_a_moment_is_the_same_in_every_zone(moment: datetime, hours: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    checked = check_time(zoned, "as_of")
    assert checked == zoned
    assert checked.tzinfo is UTC
    assert check_time(zoned.isoformat(), "as_of") == zoned


def test_a_time_without_a_zone_is_utc() -> None:
    assert check_time("2026-11-15", "as_of") == datetime(2026, 11, 15, tzinfo=UTC)
    assert check_time(datetime(2026, 11, 15, 9), "as_of") == datetime(2026, 11, 15, 9, tzinfo=UTC)


@pytest.mark.parametrize("bad", ["", "yesterday", "2026-13-01", 3, None, True, "0001-01-01T00:00:00+14:00"])
def test_what_is_not_a_time_is_named(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="as_of"):
        check_time(bad, "as_of")


def test_the_system_clock_knows_its_zone() -> None:
    assert system_clock().tzinfo is UTC


def test_a_set_clock_stands_still_until_it_is_moved() -> None:
    clock = SetClock()
    assert clock() == clock() == START
    assert clock.advance(-1.5) == clock() == START - timedelta(seconds=1.5)
