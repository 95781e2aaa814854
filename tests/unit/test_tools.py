"""A plain function becomes a tool that a model can be told of, and its arguments are proved before it is called."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, Optional

import pytest
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.agent.tool_schema import fit_arguments
from engrain.agent.tools import MAX_RESULT_CHARACTERS, Tool, render_value, tool
from engrain.core.errors import InvalidInput


def book(
    city: str,
    nights: int,
    *,
    price: float = 99.5,
    breakfast: bool = True,
    beds: Literal["single", "double"] = "double",
    guests: list[str] | None = None,
    notes: Optional[dict[str, int]] = None,  # noqa: UP045
) -> str:
    """Book a room
    in a hotel.

    Args:
        city: Where to stay,
            spelled out.
        nights (int): How long.

    Returns:
        What became of it.
    """
    return f"{city} {nights}"


# What a model is told


def test_hints_and_docstring_become_the_schema() -> None:
    made = tool(book)
    assert (made.name, made.description) == ("book", "Book a room\nin a hotel.")
    assert made.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to stay, spelled out."},
            "nights": {"type": "integer", "description": "How long."},
            "price": {"type": "number", "default": 99.5},
            "breakfast": {"type": "boolean", "default": True},
            "beds": {"type": "string", "enum": ["single", "double"], "default": "double"},
            "guests": {"type": "array", "items": {"type": "string"}},
            "notes": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["city", "nights"],
        "additionalProperties": False,
    }


def test_other_forms_of_hints_and_docstrings() -> None:
    def look(
        at: Annotated[str, "what to look at"], depth: int | str, maybe: int | None, rows: list, extra: dict, what: Any
    ) -> None:  # type: ignore[type-arg]
        """Look.

        :param depth: how far
        :returns: nothing
        """

    schema = tool(look)
    assert schema.description == "Look."
    assert schema.parameters["properties"] == {
        "at": {"type": "string", "description": "what to look at"},
        "depth": {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "how far"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "rows": {"type": "array", "items": {}},
        "extra": {"type": "object", "additionalProperties": True},
        "what": {},
    }
    assert schema.parameters["required"] == ["at", "depth", "maybe", "rows", "extra", "what"]


def test_methods_partials_and_objects_are_tools_too() -> None:
    class Shop:
        def sell(self, what: str) -> str:
            return f"sold {what}"

        def __call__(self, what: str) -> str:
            return f"called {what}"

    def add(a: int, b: int) -> int:
        return a + b

    assert tool(Shop().sell).parameters["required"] == ["what"]
    assert (tool(Shop()).name, tool(Shop()).parameters["required"]) == ("Shop", ["what"])
    one_more = tool(functools.partial(add, b=1))
    assert (one_more.name, one_more.parameters["required"]) == ("add", ["a"])
    assert one_more.bind({"a": 2})() == 3


def test_a_decorated_function_is_still_a_function() -> None:
    @tool
    def double(n: int) -> int:
        """Twice n."""
        return 2 * n

    @tool(name="mail-it", description="Sends.", effect=True, retries=2, timeout=3)
    def send(to: str) -> str:
        return to

    assert double(4) == 8
    assert (send.name, send.description, send.effect, send.retries, send.timeout) == ("mail-it", "Sends.", True, 2, 3)


@for_each(
    ("make", "words"),
    [
        (lambda: tool(lambda x: x), "<lambda>.*cannot be the name|no type hint"),
        (lambda: tool(lambda: 1), "cannot be the name of a tool"),
        (lambda: tool(lambda x: x, name="f"), "parameter 'x' of tool 'f' has no type hint"),
        (lambda: tool(7), "made of a function"),  # type: ignore[call-overload]
        (lambda: Tool("f", "", 7), "cannot be called"),  # type: ignore[arg-type]
        (lambda: tool(book, retries=-1), "retries"),
        (lambda: tool(book, timeout=0), "timeout"),
        (lambda: Tool("f", "", book, {"type": "array"}), '"type": "object"'),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_words_that_help(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


class Thing:
    pass


def of_type(hint: Any) -> Callable[..., Any]:
    def f(x):  # type: ignore[no-untyped-def]
        return x

    f.__annotations__ = {"x": hint}
    return f


def variadic(*args: int) -> None: ...
def keywords(**args: int) -> None: ...
def positional(x: int, /) -> None: ...


@for_each(
    "function",
    [
        *map(of_type, [Thing, datetime, bytes, set[int], dict[int, str], list[Thing], Literal[b"x"], "NoSuchType"]),
        variadic,
        keywords,
        positional,
    ],
)
def test_a_parameter_that_cannot_be_described_is_named(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match=r"'x'|'args'|NoSuchType"):
        tool(function)


# What a model gives


@for_each(
    ("arguments", "problem"),
    [
        ({"city": "Lima"}, "'nights' is missing"),
        ({"city": "Lima", "nights": "two"}, "'nights' must be a whole number, not \"two\""),
        ({"city": "Lima", "nights": 2.5}, "'nights' must be a whole number, not 2.5"),
        ({"city": "Lima", "nights": True}, "'nights' must be a whole number, not true"),
        ({"city": 7, "nights": 1}, "'city' must be a text, not 7"),
        ({"city": None, "nights": 1}, "'city' must be a text, not null"),
        ({"city": "Lima", "nights": 1, "beds": "triple"}, '\'beds\' must be one of "single", "double"'),
        ({"city": "Lima", "nights": 1, "guests": ["Bo", 7]}, "'guests'[1] must be a text, not 7"),
        ({"city": "Lima", "nights": 1, "guests": "Bo"}, "'guests' must be a list"),
        ({"city": "Lima", "nights": 1, "notes": {"a": "x"}}, "'notes'['a'] must be a whole number"),
        ({"city": "Lima", "nights": 1, "breakfast": 1}, "'breakfast' must be true or false, not 1"),
        ({"town": "Lima", "nights": 1}, "'town' is not known (it takes city, nights,"),
    ],
)
def test_arguments_that_do_not_fit_are_told_apart(arguments: dict[str, Any], problem: str) -> None:
    _, wrong = fit_arguments(arguments, tool(book).parameters)
    assert problem in "; ".join(wrong)


def test_arguments_that_fit_go_through_as_the_function_takes_them() -> None:
    schema = tool(book).parameters
    assert fit_arguments({"city": "Lima", "nights": 2.0, "price": 3}, schema) == (
        {"city": "Lima", "nights": 2, "price": 3},
        [],
    )
    # Null for what may be left out is left out.
    assert fit_arguments({"city": "Lima", "nights": 1, "guests": None, "beds": None}, schema) == (
        {"city": "Lima", "nights": 1},
        [],
    )


def test_a_null_that_is_a_value_stays() -> None:
    def f(x: int | None, y: str | int) -> None: ...

    schema = tool(f).parameters
    assert fit_arguments({"x": None, "y": 3}, schema) == ({"x": None, "y": 3}, [])
    assert fit_arguments({"x": "a", "y": []}, schema)[1] == [
        "'x' must be a whole number or null, not \"a\"",
        "'y' must be a text or a whole number, not []",
    ]


def test_a_schema_of_somebody_else_is_proved_as_far_as_it_is_understood() -> None:
    schema = {
        "type": "object",
        "properties": {
            "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
            "kind": {"type": ["string", "null"], "maxLength": 3},
        },
    }
    assert fit_arguments({"where": {"lat": 1, "more": 2}, "kind": "long word", "other": 1}, schema)[1] == []
    assert fit_arguments({"where": {}, "kind": 3}, schema)[1] == [
        "'where'['lat'] is missing",
        "'kind' must be a text or null, not 3",
    ]


def test_the_references_of_a_schema_are_followed() -> None:
    tree = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/a~1tree"}},
            "kind": {"const": "tree"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {
            "tree": {"$ref": "#/$defs/a~1tree", "description": "the whole"},
            "part": {"oneOf": [{"allOf": [{"$ref": "#/$defs/a~1tree"}]}, {"type": "null"}]},
            "other": {"$ref": "https://example.com/schema.json"},
        },
        "$defs": {"a/tree": tree},
    }
    good = {"tree": {"name": "a", "children": [{"name": "b", "kind": "tree"}]}, "part": {"name": "c"}, "other": 7}
    assert fit_arguments(good, schema) == (good, [])
    wrong = {"tree": {"name": "a", "children": [{"name": 7, "kind": "bush"}, {"size": 2}]}, "part": {}}
    assert fit_arguments(wrong, schema)[1] == [
        "'tree'['children'][0]['name'] must be a text, not 7",
        "'tree'['children'][0]['kind'] must be \"tree\", not \"bush\"",
        "'tree'['children'][1]['name'] is missing",
        "'tree'['children'][1]['size'] is not known (it takes name, children, kind)",
        "'part' must be an object or null, not {}",
    ]


@for_each(
    "loop", [{"$ref": "#/$defs/loop"}, {"anyOf": [{"$ref": "#/$defs/loop"}]}, {"allOf": [{"$ref": "#/$defs/loop"}]}]
)
def test_a_schema_that_refers_to_itself_for_ever_is_a_problem_and_no_crash(loop: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": loop}}
    assert fit_arguments({"x": 1}, schema)[1] == ["its schema refers to itself without end"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["city", "nights", "beds", "guests", "notes", "x"]), JSON))
def test_whatever_a_model_gives_is_either_told_wrong_or_can_be_called(arguments: dict[str, Any]) -> None:
    ready, wrong = fit_arguments(arguments, tool(book).parameters)
    if not wrong:
        book(**ready)
        assert isinstance(ready["city"], str)
        assert type(ready["nights"]) is int


# What comes back


@for_each(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, ""),
        ({"a": [1, None, True]}, '{"a": [1, null, true]}'),
        (["ü"], '["ü"]'),
        (datetime(2026, 1, 2), '"2026-01-02 00:00:00"'),
        ("a\x00b", "ab"),
        ("half \ud800 a character", "half ? a character"),
        ({(1, 2): "no key of JSON"}, "{(1, 2): 'no key of JSON'}"),
    ],
)
def test_a_result_is_text_or_json(value: Any, text: str) -> None:
    assert render_value(value) == text


def test_a_result_that_is_too_long_is_cut_with_a_mark() -> None:
    text = render_value("x" * (MAX_RESULT_CHARACTERS + 5))
    assert len(text) < MAX_RESULT_CHARACTERS + 100
    assert text.endswith("[cut here: 1,000,005 characters in all]")


def test_a_call_that_takes_too_long_is_no_longer_waited_for() -> None:
    def slow(seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    async def slow_too(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0.05 s"):
        tool(slow, timeout=0.05).bind({"seconds": 60})()
    with pytest.raises(TimeoutError, match=r"no answer within 0.05 s"):
        asyncio.run(tool(slow_too, timeout=0.05).bind({"seconds": 60})())
    assert time.monotonic() - began < 50
    assert tool(slow, timeout=60).bind({"seconds": 0})() == "done"
    assert asyncio.run(tool(slow_too, timeout=60).bind({"seconds": 0})()) == "done"


def test_an_error_within_the_time_is_its_own() -> None:
    def fails() -> None:
        raise KeyError("gone")

    async def times_out_itself() -> None:
        raise TimeoutError("of my own")

    with pytest.raises(KeyError, match="gone"):
        tool(fails, timeout=60).bind({})()
    with pytest.raises(TimeoutError, match="of my own"):
        asyncio.run(tool(times_out_itself, timeout=60).bind({})())
    assert tool(times_out_itself).is_async
    assert not tool(fails).is_async
