"""What counts as acceptable text, and how large each thing may be."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from engrain.core.errors import BadText, EmptyText, InvalidInput, TooLarge
from engrain.core.validation import (
    MAX_METADATA,
    MAX_METADATA_DEPTH,
    MAX_NAME,
    MAX_TEXT,
    checked_count,
    checked_key,
    checked_metadata,
    checked_name,
    checked_share,
    checked_text,
)


@pytest.mark.parametrize("text", ["x", "  kept  ", "日本", "😀", "e\u0301", "\u202e", "x" * MAX_TEXT, "a\nb"])
def test_text_is_given_back_as_it_is(text: str) -> None:
    assert checked_text(text) is text


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000"])
def test_empty_text_is_refused(text: str) -> None:
    with pytest.raises(EmptyText):
        checked_text(text)
    with pytest.raises(EmptyText):
        checked_key(text, "slot")
    assert checked_name(text, "slot") == text


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x\udfff"])
def test_broken_text_is_refused_with_its_place(text: str) -> None:
    for check in (checked_text, lambda one: checked_name(one, "slot"), lambda one: checked_metadata({"k": one})):
        with pytest.raises(BadText, match="position"):
            check(text)
    with pytest.raises(BadText):
        checked_metadata({text: 1})


@pytest.mark.parametrize("text", [None, 3, b"x", ["x"]])
def test_only_text_is_text(text: Any) -> None:
    with pytest.raises(InvalidInput, match="str"):
        checked_text(text)
    with pytest.raises(InvalidInput, match="str"):
        checked_name(text, "slot")


def test_size_is_counted_in_bytes() -> None:
    for text in ("x" * (MAX_TEXT + 1), "é" * (MAX_TEXT // 2 + 1)):
        with pytest.raises(TooLarge):
            checked_text(text)
    with pytest.raises(TooLarge):
        checked_name("é" * (MAX_NAME // 2 + 1), "slot")
    assert checked_name("é" * (MAX_NAME // 2), "slot")


def test_metadata_is_plain_json() -> None:
    given = {"a": [1, {"b": None}], "t": True, "f": 0.5, "": "x", "big": 2**63 - 1}
    assert checked_metadata(given) == given
    assert checked_metadata(None) == {}


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, float("nan"), float("inf"), datetime(2026, 1, 1), b"x", {1: 2}, {"a": {2: 3}}, {1}, object()],
)
def test_what_is_not_plain_json_is_named(value: Any) -> None:
    with pytest.raises(InvalidInput, match="metadata"):
        checked_metadata({"k": value})
    with pytest.raises(InvalidInput, match="metadata"):
        checked_metadata({"k": [value]})


def test_metadata_has_its_limits() -> None:
    deep: Any = 1
    for _ in range(MAX_METADATA_DEPTH + 1):
        deep = [deep]
    with pytest.raises(TooLarge, match="deep"):
        checked_metadata({"k": deep})
    with pytest.raises(TooLarge):
        checked_metadata({"k": "x" * MAX_METADATA})
    with pytest.raises(InvalidInput):
        checked_metadata(["k"])
    with pytest.raises(InvalidInput):
        checked_metadata({3: "x"})


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), True, "0.5", None])
def test_a_share_is_from_0_to_1(value: Any) -> None:
    with pytest.raises(InvalidInput, match="importance"):
        checked_share(value, "importance")
    assert [checked_share(one, "importance") for one in (0, 0.5, 1)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("value", [0, -1, 10_001, 1.5, True, "3", None])
def test_a_count_is_a_whole_number_in_its_range(value: Any) -> None:
    with pytest.raises(InvalidInput, match="n must be"):
        checked_count(value, "n")
    assert (checked_count(1, "n"), checked_count(0, "n", 0)) == (1, 0)
