"""Whether a new text repeats, replaces or stands beside what is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.model.items import Draft, SessionPosition
from engrain.core.rules.reconcile import Decision, StoredVersion, is_mergeable, reconcile

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def day(n: float) -> datetime:
    return NOW + timedelta(days=n)


def version(id: str, start: float, end: float | None = None, hash: str | None = None) -> StoredVersion:
    return StoredVersion(id, hash or id, day(start), None if end is None else day(end))


def in_slot(hash: str, stored: list[StoredVersion], at: float | None = None) -> Decision:
    return reconcile(Draft("x", slot="s", occurred_at=None if at is None else day(at)), hash, NOW, stored)


@pytest.mark.parametrize(
    ("values", "expected"),
    [({}, True), ({"slot": "s"}, False), ({"occurred_at": NOW}, False), ({"position": SessionPosition("s")}, False)],
)
def test_only_bare_texts_are_merged(values: dict[str, Any], expected: bool) -> None:
    draft = Draft("x", **values)
    assert is_mergeable(draft) is expected
    if not expected and "slot" not in values:
        assert reconcile(draft, "h", NOW, [version("a", -1, hash="h")]).action == "add"


def test_the_same_words_repeat_the_open_item() -> None:
    found = reconcile(Draft("x"), "h", NOW, [version("closed", -3, -2, "h"), version("a", -1, hash="h")])
    assert found == Decision("repeat", day(-1), repeats="a")
    assert reconcile(Draft("x"), "h", NOW, [version("closed", -3, -2, "h")]) == Decision("add", NOW)
    assert reconcile(Draft("x"), "h", NOW, [version("a", -1, hash="other")]) == Decision("add", NOW)


def test_a_dated_text_holds_from_its_date() -> None:
    assert reconcile(Draft("x", occurred_at=day(-9)), "h", NOW, []) == Decision("add", day(-9))


def test_the_first_value_of_a_slot() -> None:
    assert in_slot("h", []) == Decision("add", NOW)


def test_a_newer_value_closes_the_open_one() -> None:
    assert in_slot("h", [version("a", -2, -1), version("b", -1)]) == Decision("add", NOW, closes="b")


def test_the_same_value_repeats_the_one_that_holds_then() -> None:
    stored = [version("a", -5, -2, "h"), version("b", -2)]
    assert in_slot("h", stored, -3).repeats == "a"
    assert in_slot("b", stored).repeats == "b"
    assert in_slot("h", stored).closes == "b"


def test_a_late_value_goes_before_the_next_one() -> None:
    stored = [version("b", -2)]
    assert in_slot("h", stored, -5) == Decision("add", day(-5), day(-2), replaced_by="b")


def test_a_late_value_between_two_closes_the_first() -> None:
    stored = [version("a", -5, -1), version("b", -1)]
    assert in_slot("h", stored, -3) == Decision("add", day(-3), day(-1), closes="a", replaced_by="b")


def test_a_late_value_in_a_gap_closes_nothing() -> None:
    stored = [version("a", -5, -4), version("b", -1)]
    assert in_slot("h", stored, -3) == Decision("add", day(-3), day(-1), replaced_by="b")
    assert in_slot("a", stored, -3).action == "add"


def test_of_two_at_one_instant_the_newer_is_closed() -> None:
    assert in_slot("h", [version("b", 0), version("a", 0, 0)]).closes == "b"


@given(
    st.lists(st.tuples(st.integers(-9, 3), st.sampled_from("hijk")), min_size=1, max_size=12),
)
def test_whatever_comes_in_whatever_order_a_slot_never_holds_two(arrivals: list[tuple[int, str]]) -> None:
    versions: dict[str, StoredVersion] = {}
    for number, (at, hash) in enumerate(arrivals):
        decision = in_slot(hash, list(versions.values()), at)
        if decision.action == "repeat":
            assert versions[decision.repeats or ""].hash == hash
            continue
        id = f"{number:03}"
        versions[id] = StoredVersion(id, hash, decision.valid_from, decision.valid_to)
        if decision.closes:
            old = versions[decision.closes]
            assert old.valid_from <= decision.valid_from
            versions[old.id] = StoredVersion(old.id, old.hash, old.valid_from, decision.valid_from)
    assert sum(one.valid_to is None for one in versions.values()) == 1
    for n in range(-9, 5):
        holding = [
            one
            for one in versions.values()
            if one.valid_from <= day(n) and not (one.valid_to and one.valid_to <= day(n))
        ]
        assert len(holding) <= 1
    assert all(one.valid_to is None or one.valid_from <= one.valid_to for one in versions.values())
