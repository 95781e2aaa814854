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
    check_count,
    check_key,
    check_metadata,
    check_name,
    check_share,
    check_text,
)


@pytest.mark.parametrize("text", ["x", "  kept  ", "日本", "😀", "e\u0301", "\u202e", "x" * MAX_TEXT, "a\nb"])
def test_text_is_given_back_as_it_is(text: str) -> None:
    assert check_text(text) is text


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000"])
def test_empty_text_is_refused(text: str) -> None:
    with pytest.raises(EmptyText):
        check_text(text)
    with pytest.raises(EmptyText):
        check_key(text, "slot")
    assert check_name(text, "slot") == text


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x\udfff"])
def test_broken_text_is_refused_with_its_place(text: str) -> None:
    for check in (check_text, lambda one: check_name(one, "slot"), lambda one: check_metadata({"k": one})):
        with pytest.raises(BadText, match="position"):
            check(text)
    with pytest.raises(BadText):
        check_metadata({text: 1})


@pytest.mark.parametrize("text", [None, 3, b"x", ["x"]])
def test_only_text_is_text(text: Any) -> None:
    with pytest.raises(InvalidInput, match="str"):
        check_text(text)
    with pytest.raises(InvalidInput, match="str"):
        check_name(text, "slot")


def test_size_is_counted_in_bytes() -> None:
    for text in ("x" * (MAX_TEXT + 1), "é" * (MAX_TEXT // 2 + 1)):
        with pytest.raises(TooLarge):
            check_text(text)
    with pytest.raises(TooLarge):
        check_name("é" * (MAX_NAME // 2 + 1), "slot")
    assert check_name("é" * (MAX_NAME // 2), "slot")


def test_metadata_is_plain_json() -> None:
    given = {"a": [1, {"b": None}], "t": True, "f": 0.5, "": "x", "big": 2**63 - 1}
    assert check_metadata(given) == given
    assert check_metadata(None) == {}


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, float("nan"), float("inf"), datetime(2026, 1, 1), b"x", {1: 2}, {"a": {2: 3}}, {1}, object()],
)
def test_what_is_not_plain_json_is_named(value: Any) -> None:
    with pytest.raises(InvalidInput, match="metadata"):
        check_metadata({"k": value})
    with pytest.raises(InvalidInput, match="metadata"):
        check_metadata({"k": [value]})


def test_metadata_has_its_limits() -> None:
    deep: Any = 1
    for _ in range(MAX_METADATA_DEPTH + 1):
        deep = [deep]
    with pytest.raises(TooLarge, match="deep"):
        check_metadata({"k": deep})
    with pytest.raises(TooLarge):
        check_metadata({"k": "x" * MAX_METADATA})
    with pytest.raises(InvalidInput):
        check_metadata(["k"])
    with pytest.raises(InvalidInput):
        check_metadata({3: "x"})


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), True, "0.5", None])
def test_a_share_is_from_0_to_1(value: Any) -> None:
    with pytest.raises(InvalidInput, match="importance"):
        check_share(value, "importance")
    assert [check_share(one, "importance") for one in (0, 0.5, 1)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("value", [0, -1, 10_001, 1.5, True, "3", None])
def test_a_count_is_a_whole_number_in_its_range(value: Any) -> None:
    with pytest.raises(InvalidInput, match="n must be"):
        check_count(value, "n")
    assert (check_count(1, "n"), check_count(0, "n", 0)) == (1, 0)
