"""Filters: what is accepted, and what each comparison means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from engrain.core.errors import BadText, InvalidInput, TooLarge, UnknownKey
from engrain.core.model.filters import (
    FIELDS,
    MAX_CHOICES,
    MAX_CONDITIONS,
    OPERATORS,
    Condition,
    Filter,
    matches_filter,
    parse_filter,
)
from engrain.core.model.items import Item, Source

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def item(**values: Any) -> Item:
    return Item(
        **{"id": "1", "kind": "fact", "text": "Abc", "importance": 0.5, "recorded_at": NOW, "valid_from": NOW, **values}
    )


def holds(where: dict[str, Any], **values: Any) -> bool:
    return matches_filter(parse_filter(where), item(**values))


# Parsing


def test_a_value_alone_means_equal() -> None:
    assert parse_filter({"kind": "fact"}) == Filter((Condition("kind", "=", "fact"),))
    assert parse_filter({"importance": {">=": 0.5, "<": 1}}) == Filter(
        (Condition("importance", ">=", 0.5), Condition("importance", "<", 1))
    )


def test_no_condition_is_no_filter() -> None:
    assert parse_filter(None) is parse_filter({}) is None
    assert matches_filter(None, item())
    ready = Filter(())
    assert parse_filter(ready) == ready


def test_a_filter_built_by_hand_is_checked_as_well() -> None:
    for condition in (
        Condition("colour", "=", 1),
        Condition("importance", ">= 0) or (1", 1),
        Condition("kind", "=", 1),
    ):
        with pytest.raises(InvalidInput):
            parse_filter(Filter((condition,)))


@pytest.mark.parametrize("key", ["", "metadata", "metadata.", "Kind", "texts", "kind ", "id; drop table item", 3, None])
def test_an_unknown_key_is_named(key: Any) -> None:
    with pytest.raises(UnknownKey, match="unknown filter key"):
        parse_filter({key: "x"})


@pytest.mark.parametrize("operator", ["==", "like", "IN", "", " =", "or 1=1", None, 3])
def test_an_unknown_operator_is_named(operator: Any) -> None:
    with pytest.raises(UnknownKey, match="unknown operator"):
        parse_filter({"kind": {operator: "x"}})


@pytest.mark.parametrize(
    "where",
    [
        {"kind": 3},
        {"kind": True},
        {"kind": {"in": "fact"}},
        {"kind": {"in": 3}},
        {"kind": {"in": [1]}},
        {"kind": {"in": None}},
        {"kind": {"exists": "yes"}},
        {"kind": {"exists": 1}},
        {"kind": {"contains": 1}},
        {"kind": {"contains": None}},
        {"kind": {"<": None}},
        {"importance": "high"},
        {"importance": True},
        {"importance": float("nan")},
        {"importance": float("inf")},
        {"importance": {"<": None}},
        {"pinned": 1},
        {"recorded_at": "yesterday"},
        {"recorded_at": 3},
        {"recorded_at": {"<": True}},
        {"metadata.k": {"<": True}},
        {"metadata.k": [1]},
        {"metadata.k": {"in": [[1]]}},
        {"metadata.k": {"=": {}}},
        {"metadata.k": 2**63},
        {"metadata.k": b"x"},
        {"kind": {}},
        ["kind"],
        "kind",
    ],
)
def test_a_value_of_the_wrong_type_is_refused(where: Any) -> None:
    with pytest.raises(InvalidInput):
        parse_filter(where)


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(TooLarge):
        parse_filter({f"metadata.{n}": 1 for n in range(MAX_CONDITIONS + 1)})
    with pytest.raises(TooLarge):
        parse_filter({"kind": {"in": ["fact"] * (MAX_CHOICES + 1)}})
    with pytest.raises(TooLarge):
        parse_filter({"metadata." + "x" * 600: 1})


@pytest.mark.parametrize("bad", ["\x00", "\ud800"])
def test_broken_text_is_refused_as_key_and_as_value(bad: str) -> None:
    for where in ({f"metadata.{bad}": 1}, {"text": bad}, {"text": {"in": [bad]}}, {"metadata.k": {"contains": bad}}):
        with pytest.raises(BadText):
            parse_filter(where)


def test_times_are_read_as_utc() -> None:
    (condition,) = (parse_filter({"recorded_at": {"<": "2026-11-15T01:00:00+01:00"}}) or Filter()).conditions
    assert condition.value == NOW


# Meaning


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"slot": None}, True),
        ({"slot": {"exists": False}}, True),
        ({"slot": {"!=": "x"}}, True),
        ({"slot": {"not in": ["x"]}}, True),
        ({"slot": {"not in": []}}, True),
        ({"slot": {"!=": None}}, False),
        ({"slot": "x"}, False),
        ({"slot": {"exists": True}}, False),
        ({"slot": {"in": ["x"]}}, False),
        ({"slot": {"in": []}}, False),
        ({"slot": {"<": "x"}}, False),
        ({"slot": {">=": ""}}, False),
        ({"slot": {"contains": ""}}, False),
        ({"slot": {"starts with": ""}}, False),
        ({"metadata.k": None}, True),
        ({"metadata.k": {"<": 1}}, False),
        ({"valid_to": None}, True),
        ({"valid_to": {"<": NOW}}, False),
        ({"source": None}, True),
        ({"source": {"!=": "a"}}, True),
    ],
)
def test_a_missing_value_matches_little(where: dict[str, Any], expected: bool) -> None:
    assert holds(where) is expected
    assert holds({**where, "kind": "fact"}, metadata={"k": None}) is expected


@pytest.mark.parametrize(
    ("value", "operator", "right", "expected"),
    [
        (1, "=", 1.0, True),
        (1, "=", True, False),
        (True, "=", 1, False),
        (True, "=", True, True),
        (1, "=", "1", False),
        ("1", "=", "1", True),
        (1, "!=", "1", True),
        (1, "<", "2", False),
        ("1", "<", 2, False),
        (True, "<", 2, False),
        (2**53 + 1, ">", float(2**53), True),
        (-1, "<", 0.5, True),
        ("B", "<", "a", True),
        ("é", ">", "z", True),
        ([1], "exists", True, True),
        ([1], "!=", 1, True),
        ([1], "in", [1], False),
        ([1], "not in", [1], True),
        ([], "=", None, False),
        ({"a": 1}, "contains", "a", False),
        ("abc", "contains", "B", False),
        ("abc", "contains", "b", True),
        ("a%c", "contains", "%", True),
        ("abc", "contains", "%", False),
        ("abc", "starts with", "ab", True),
        ("abc", "starts with", "a_", False),
        (5, "contains", "5", False),
        (["a", 1, True], "contains", "a", True),
        (["a", 1, True], "contains", 1.0, True),
        ([True], "contains", 1, False),
        ([["a"], {"a": 1}], "contains", "a", False),
        (["ab"], "contains", "a", False),
        (5, "contains", 5, False),
        (1, "in", ["1", 1.0], True),
        (False, "in", [0], False),
        (False, "exists", True, True),
        (0, "exists", False, False),
    ],
)
def test_values_of_two_types_never_meet(value: Any, operator: str, right: Any, expected: bool) -> None:
    assert holds({"metadata.k": {operator: right}}, metadata={"k": value}) is expected


def test_a_metadata_key_is_one_name_whatever_dots_it_has() -> None:
    assert holds({"metadata.a.b": 1}, metadata={"a.b": 1})
    assert not holds({"metadata.a.b": 1}, metadata={"a": {"b": 1}})
    assert holds({"metadata.metadata.k": 1}, metadata={"metadata.k": 1})


def test_negations_speak_of_all_sources_and_the_rest_of_any() -> None:
    two = (Source("a"), Source("b"))
    assert holds({"source": "b"}, sources=two)
    assert not holds({"source": {"!=": "b"}}, sources=two)
    assert not holds({"source": {"not in": ["b", "c"]}}, sources=two)
    assert holds({"source": {"not in": ["c"]}}, sources=two)
    assert holds({"source": {"starts with": "b"}}, sources=two)
    assert holds({"source": {"exists": True}}, sources=(Source(), Source("a")))
    assert holds({"source": None}, sources=(Source(), Source()))


def test_every_field_can_be_compared_with_every_operator_that_fits_its_type() -> None:
    values: dict[str, Any] = {"text": "x", "number": 1, "time": NOW, "flag": True}
    for field, kind in FIELDS.items():
        for operator in ("=", "!="):
            assert isinstance(holds({field: {operator: values[kind]}}), bool)
        assert isinstance(holds({field: {"exists": True}}), bool)
    assert len(OPERATORS) == 11
