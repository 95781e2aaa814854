"""Messages, as they come in, as they stand in the log, and as they are given back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.chat.parse import parse_messages
from engrain.core.chat.render import to_anthropic, to_openai
from engrain.core.errors import BadText, EmptyText, InvalidInput, TooLarge, UnknownKey
from engrain.core.model.items import FORGOTTEN, RESERVED_KEY, Item, Source
from engrain.core.model.messages import ChatMessage, Message, ToolCall, check_message, item_to_message, message_to_note
from engrain.core.rules.removal import cut_spans

NOW = datetime(2026, 11, 15, tzinfo=UTC)
FLIGHTS = ToolCall("call_1", "search_flights", {"from": "LIM", "to": ["UIO", None], "n": 1.5, "deep": {"é": "日本"}})


def kept(message: Message) -> Item:
    """The log row that a store makes of a message."""
    note = message_to_note(check_message(message), "monday")
    assert note.position is not None
    assert isinstance(note.source, Source)
    return Item(
        "id", "message", note.text, 0.5, NOW, NOW,
        occurred_at=note.occurred_at, metadata=note.metadata or {}, sources=(note.source,),  # type: ignore[arg-type]
        session="monday", place=7, speaker=note.position.speaker, role=note.position.role,
    )  # fmt: skip


def again(message: Message) -> Message:
    return item_to_message(kept(message))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
WORDS = TEXT.filter(str.strip)
CALLS = st.builds(ToolCall, TEXT, WORDS, st.dictionaries(st.text(), PLAIN, max_size=3))
BROKEN = st.builds(ToolCall, TEXT, WORDS, malformed=WORDS)


@given(TEXT, st.lists(CALLS | BROKEN, min_size=1, max_size=3))
def test_calls_are_given_back_exactly(text: str, calls: list[ToolCall]) -> None:
    try:
        row = kept(Message("assistant", text, calls=tuple(calls)))
    except (BadText, TooLarge):
        return
    assert row.text.strip()
    found = item_to_message(row)
    assert (found.text, found.calls) == (text, tuple(calls))


def test_a_message_that_only_calls_reads_as_what_it_calls() -> None:
    row = kept(Message("assistant", calls=(FLIGHTS, ToolCall("2", "now"))))
    assert row.text.splitlines() == [
        'search_flights {"from":"LIM","to":["UIO",null],"n":1.5,"deep":{"é":"日本"}}',
        "now {}",
    ]
    assert item_to_message(row).chat_message == ChatMessage("assistant", "", (FLIGHTS, ToolCall("2", "now")))


def test_the_words_of_a_call_are_searched_and_forgotten_with_the_text() -> None:
    row = kept(Message("assistant", "Looking.", calls=(FLIGHTS,)))
    place = row.text.index("LIM")
    left = replace(row, text=cut_spans(row.text, [(place, place + 3)]))
    found = item_to_message(left)
    assert found.calls == ()
    assert found.text == left.text
    assert FORGOTTEN in found.text
    assert "LIM" not in repr(left)


def test_of_a_message_that_was_cut_no_call_is_guessed() -> None:
    row = kept(Message("assistant", "Looking for Lima.", calls=(ToolCall("1", "look", malformed="{LIM"),)))
    left = replace(row, text=cut_spans(row.text, [(12, 16)]))
    assert item_to_message(left).calls == ()
    assert item_to_message(left).text == f"Looking for {FORGOTTEN}.\nlook {{LIM"


@given(st.sampled_from(["user", "assistant", "system", "tool"]), WORDS, st.none() | WORDS.filter(lambda s: len(s) < 99))
def test_every_other_message_is_kept_word_for_word(role: str, text: str, speaker: str | None) -> None:
    message = Message(role, text, speaker, metadata={"a": 1}, occurred_at=NOW)
    assert kept(message).text == text
    assert again(message) == replace(message, id="id", number=7)


@pytest.mark.parametrize("text", ["", "  ", "Two flights."])
def test_a_result_is_given_back_with_its_call_tool_and_failure(text: str) -> None:
    message = Message("tool", text, answers="call_1", tool="search_flights", failed=True)
    assert again(message).chat_message == ChatMessage("tool", text, answers="call_1", failed=True)
    assert again(message).tool == "search_flights"
    assert kept(message).sources == (Source("search_flights", "tool"),)


def test_trust_follows_who_speaks() -> None:
    trust = [kept(Message(role, "x")).sources[0].trust for role in ("user", "system", "assistant", "tool")]
    assert trust == [1.0, 1.0, 0.7, 0.5]


@for_each("junk", [
    {"own": 1, "size": 3, "calls": [["x"]]},
    {"own": 1, "size": 3, "calls": [[1, 2, 0, 1, True]]},
    {"own": 1, "size": 3, "calls": [["a", "b", 0, 3, False]]},
    {"own": "1", "size": 3},
    {"own": 1, "size": 3, "calls": 7},
    ["own"], "text", None, {"answers": 7, "tool": [], "failed": "yes"},
])  # fmt: skip
def test_a_row_with_metadata_that_engrain_did_not_write_is_still_read(junk: Any) -> None:
    item = replace(kept(Message("assistant", "[1]")), metadata={RESERVED_KEY: junk, "mine": 1})
    found = item_to_message(item)
    assert (found.text, found.calls, found.metadata) == ("[1]", (), {"mine": 1})


@for_each(
    ("message", "error", "words"),
    [
        (Message("robot", "Hi."), InvalidInput, "Known: user, assistant, system, tool"),
        (Message("user", 5), InvalidInput, "must be a str"),  # type: ignore[arg-type]
        (Message("user", ""), EmptyText, "empty"),
        (Message("assistant", " "), EmptyText, "empty"),
        (Message("user", "a\x00b"), BadText, "NUL"),
        (Message("user", "Hi.", calls=(FLIGHTS,)), InvalidInput, "only an assistant's"),
        (Message("assistant", "Hi.", calls=("x",)), InvalidInput, "ToolCalls"),  # type: ignore[arg-type]
        (Message("assistant", calls=(ToolCall("1", ""),)), EmptyText, "name of a called tool"),
        (Message("assistant", calls=(ToolCall("1", "f", {"x": object()}),)), InvalidInput, "not plain JSON"),
        (Message("assistant", calls=(ToolCall("1", "f", []),)), InvalidInput, "must be a dict"),  # type: ignore[arg-type]
        (Message("user", "Hi.", answers="1"), InvalidInput, "result of a tool"),
        (Message("user", "Hi.", failed=True), InvalidInput, "result of a tool"),
        (Message("user", "Hi.", event="party"), InvalidInput, "Known: decision"),
        (Message("user", "Hi.", metadata={RESERVED_KEY: 1}), InvalidInput, "engrain's own"),
        (Message("user", "Hi.", metadata={1: 1}), InvalidInput, "keys must be str"),  # type: ignore[dict-item]
        (Message("user", "Hi.", occurred_at="yesterday"), InvalidInput, "ISO 8601"),
        (Message("user", "x" * 1_000_001), TooLarge, "limit"),
    ],
)
def test_bad_values_are_named(message: Message, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        message_to_note(check_message(message), "monday")


def test_messages_of_the_anthropic_api_are_understood() -> None:
    found = parse_messages(
        [
            {"role": "user", "content": "To Quito, please."},
            {
                "id": "msg_1", "type": "message", "model": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 1},
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "text", "text": "Looking.", "citations": None},
                    {"type": "tool_use", "id": "a", "name": "search", "input": {"to": "UIO"}},
                    {"type": "tool_use", "id": "b", "name": "now", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "Two."}]},
                    {"type": "tool_result", "tool_use_id": "b", "content": "Broken.", "is_error": True},
                    {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
        ]
    )  # fmt: skip
    assert found == [
        Message("user", "To Quito, please."),
        Message("assistant", "Looking.", calls=(ToolCall("a", "search", {"to": "UIO"}), ToolCall("b", "now"))),
        Message("tool", "Two.", answers="a", tool="search"),
        Message("tool", "Broken.", answers="b", tool="now", failed=True),
        Message("user", "Go on."),
        Message("tool", "", answers="c"),
    ]


def test_messages_of_the_openai_api_are_understood() -> None:
    function = {"name": "search", "arguments": '{"to": "UIO"}'}
    broken = {"name": "search", "arguments": '{"to": "UI'}
    found = parse_messages(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "name": "Ana", "content": [{"type": "text", "text": "To"}, {"type": "text", "text": "Q"}]},
            {
                "role": "assistant", "content": None, "refusal": None, "annotations": [],
                "tool_calls": [
                    {"id": "a", "type": "function", "function": function},
                    {"id": "b", "type": "function", "function": broken},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "Two."},
        ]
    )  # fmt: skip
    assert found == [
        Message("system", "Be brief."),
        Message("user", "To\nQ", "Ana"),
        Message(
            "assistant",
            calls=(ToolCall("a", "search", {"to": "UIO"}), ToolCall("b", "search", malformed='{"to": "UI')),
        ),
        Message("tool", "Two.", answers="a", tool="search"),
    ]


@for_each(
    ("block", "text"),
    [
        ({"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}}, "[image]"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "[image]"),
        ({"type": "input_image", "image_url": "https://example.com/a.png"}, "[image]"),
        ({"type": "input_audio", "input_audio": {"data": "UklGRg=="}}, "[audio]"),
        ({"type": "document", "source": {"type": "url"}}, "[document]"),
        ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, "[server_tool_use]"),
        ({"type": 'x]\n- "made up"'}, "[x-madeup]"),
        ({"type": "]\n"}, "[block]"),
        ({"type": "input_text", "text": "What is it?"}, "What is it?"),
        ({"type": "output_text", "text": "A cat."}, "A cat."),
        ({"type": "refusal", "refusal": "No."}, "No."),
        ("Just text.", "Just text."),
    ],
)
def test_what_is_not_text_is_noted_and_nothing_around_it_is_lost(block: Any, text: str) -> None:
    look = {"type": "text", "text": "Look:"}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [look, block]}
    found = parse_messages(
        [
            {"role": "user", "content": "Before."},
            {"role": "user", "content": [look, block, {"type": "text", "text": "Nice?"}]},
            {"role": "assistant", "content": [block]},
            {"role": "user", "content": [result]},
        ]
    )
    assert [message.text for message in found] == ["Before.", f"Look:\n{text}\nNice?", text, f"Look:\n{text}"]
    for form in (to_anthropic, to_openai):
        # What goes out is text in both forms, and comes back as the same.
        sent = form([message.chat_message for message in found[:3]])
        assert [one.text for one in parse_messages(sent)][-1] == text


def test_our_own_form_is_understood() -> None:
    call = {"id": "a", "name": "search", "arguments": {}}
    assert parse_messages(
        [
            Message("user", "Hi."),
            {"role": "assistant", "text": "Yes?", "calls": [call], "metadata": {"a": 1}, "speaker": None},
            {"role": "tool", "text": "x", "answers": "a", "failed": True},
        ]
    ) == [
        Message("user", "Hi."),
        Message("assistant", "Yes?", calls=(ToolCall("a", "search"),), metadata={"a": 1}),
        Message("tool", "x", answers="a", tool="search", failed=True),
    ]


@for_each(
    ("value", "error", "words"),
    [
        ("Hi.", InvalidInput, "takes a list"),
        ({"role": "user", "content": "Hi."}, InvalidInput, "takes a list"),
        (5, InvalidInput, "takes a list"),
        (["Hi."], InvalidInput, "not str"),
        ([{"content": "Hi."}], InvalidInput, "needs a role"),
        ([{"role": "robot", "content": "Hi."}], InvalidInput, "unknown role 'robot'"),
        ([{"role": None, "content": "Hi."}], InvalidInput, "unknown role None"),
        ([{"role": "user", "content": [{"text": "Hi."}]}], InvalidInput, 'with a "type"'),
        ([{"role": "user", "content": [7]}], InvalidInput, 'with a "type"'),
        ([{"role": "user", "content": 7}], InvalidInput, "content must be a list"),
        ([{"role": "user", "content": [{"type": "text", "text": 7}]}], InvalidInput, "must be a str"),
        ([{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}], InvalidInput, "name of a called tool"),
        ([{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": 7}]}],
         InvalidInput, "must be a dict"),
        ([{"role": "system", "content": [{"type": "tool_result", "tool_use_id": "a"}]}], InvalidInput, "of the user"),
        ([{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_use"}]}]}], InvalidInput, "text"),
        ([{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom"}]}], InvalidInput, "a function call"),
        ([{"role": "assistant", "tool_calls": "f()"}], InvalidInput, "tool_calls must be a list"),
        ([{"role": "user", "content": "Hi.", "function_call": {"name": "f"}}], UnknownKey, "function_call"),
        ([{"role": "user", "text": "Hi.", "mood": "good"}], UnknownKey, "mood"),
        ([{"role": "assistant", "text": "Hi.", "calls": [{"id": "a"}]}], InvalidInput, "needs another value"),
        ([{"role": "assistant", "text": "Hi.", "calls": ["a"]}], InvalidInput, "must be a dict"),
        (({"role": "user", "content": "x"} for _ in range(10_001)), TooLarge, "in several calls"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_named(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_messages(value)
