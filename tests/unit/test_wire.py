"""Whatever a conversation holds, both APIs accept the form in which it is sent, and nothing of it is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st
from wire_rules import Rejected, check_anthropic, check_anthropic_request, check_openai, check_openai_request

from engrain.core.chat.render import (
    CONVERSATION_OPENING,
    NO_RESULT,
    split_system,
    to_anthropic,
    to_openai,
    tools_to_anthropic,
    tools_to_openai,
)
from engrain.core.errors import InvalidInput
from engrain.core.model.messages import NO_OUTPUT, ChatMessage, ChatReply, ChatRequest, ToolCall, ToolSpec


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def calls(*ids: str, text: str = "") -> ChatMessage:
    return ChatMessage("assistant", text, tuple(ToolCall(id, "look", {"at": id}) for id in ids))


def result(id: str | None, text: str = "seen", failed: bool = False) -> ChatMessage:
    return ChatMessage("tool", text, answers=id, failed=failed)


def results_of(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Ids and texts of the results, in their order, in either form."""
    found = [
        (block["tool_use_id"], block["content"])
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return found or [(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"]


BOTH = pytest.mark.parametrize("form", [to_anthropic, to_openai])

# Usual conversations


def test_a_conversation_with_tools_in_the_form_of_anthropic() -> None:
    said = [user("Look."), calls("a", "b", text="I do."), result("a", "sun"), result("b", "no", True), user("And?")]
    written = to_anthropic(said)
    check_anthropic(written)
    assert written == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I do."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "a"}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {"at": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "sun"},
                {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
                {"type": "text", "text": "And?"},
            ],
        },
    ]


def test_a_conversation_with_tools_in_the_form_of_openai() -> None:
    said = [
        ChatMessage("system", "Be brief."),
        user("Look."),
        calls("a", "b"),
        result("a", "sun"),
        result("b", "no", True),
    ]
    written = to_openai(said)
    check_openai(written)
    assert written == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "a"}'}},
                {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"at": "b"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sun"},
        {"role": "tool", "tool_call_id": "b", "content": "The tool failed: no"},
    ]


def test_system_messages_are_split_off_and_joined() -> None:
    said = [ChatMessage("system", "One."), user("Hi."), ChatMessage("system", " "), ChatMessage("system", "Two.")]
    assert split_system(said) == ("One.\n\nTwo.", (user("Hi."),))
    assert to_anthropic(said) == to_anthropic([user("Hi.")])
    assert [message["role"] for message in to_openai(said)] == ["system", "user"]


# Calls and results that do not fit together


@BOTH
def test_a_call_without_a_result_is_told_so(form: Any) -> None:
    assert results_of(form([user("Look."), calls("a", "b"), result("b"), user("Well?")])) == [
        ("a", NO_RESULT),
        ("b", "seen"),
    ]


@BOTH
def test_a_result_without_a_call_is_quoted(form: Any) -> None:
    written = json.dumps(form([user("Look."), result("lost", "line one\nline two"), result(None, "by nobody")]))
    assert "not recorded:\\n> line one\\n> line two" in written
    assert "> by nobody" in written
    assert "tool_call_id" not in written
    assert "tool_use_id" not in written


@BOTH
def test_a_second_result_of_one_call_is_quoted(form: Any) -> None:
    written = form([user("Look."), calls("a"), result("a", "first"), result("a", "second")])
    assert results_of(written) == [("a", "first")]
    assert "> second" in json.dumps(written)


@BOTH
def test_a_late_result_comes_to_its_call(form: Any) -> None:
    written = form([user("Look."), calls("a"), user("Hurry."), ChatMessage("assistant", "Wait."), result("a", "late")])
    assert results_of(written) == [("a", "late")]
    assert "not recorded" not in json.dumps(written)


@BOTH
def test_a_result_before_its_call_answers_nothing(form: Any) -> None:
    assert results_of(form([user("Look."), result("a", "early"), calls("a")])) == [("a", NO_RESULT)]


@BOTH
def test_an_id_used_again_belongs_to_the_nearest_call(form: Any) -> None:
    said = [user("Look."), calls("0"), calls("0", "0"), result("0", "second"), result("0", "third")]
    texts = [text for _, text in results_of(form(said))]
    assert texts == [NO_RESULT, "second", "third"]


@BOTH
@pytest.mark.parametrize("id", ["", "with space", "x" * 41, "ünïcode", "a.b:c", "lone \ud800"])
def test_an_id_that_a_service_refuses_is_replaced(form: Any, id: str) -> None:
    ((sent, text),) = results_of(form([user("Look."), calls(id), result(id)]))
    assert sent == "call00001"
    assert text == "seen"


# Texts that a service refuses


@BOTH
def test_an_empty_text_is_left_out(form: Any) -> None:
    assert form([user("Hi."), ChatMessage("assistant", " \n"), user(""), user("Still there?")]) == form(
        [user("Hi."), user("Still there?")]
    )


@BOTH
def test_an_empty_output_says_so(form: Any) -> None:
    assert results_of(form([user("Look."), calls("a"), result("a", " ")])) == [("a", NO_OUTPUT)]


@BOTH
def test_a_conversation_that_begins_with_the_assistant_gets_an_opening(form: Any) -> None:
    first = form([ChatMessage("assistant", "Hello.")])[0]
    assert first["role"] == "user"
    assert CONVERSATION_OPENING in json.dumps(first)


def test_a_last_word_of_the_assistant_has_no_white_space_behind() -> None:
    assert to_anthropic([user("Hi."), ChatMessage("assistant", "So: \n")])[-1]["content"] == [
        {"type": "text", "text": "So:"}
    ]


@BOTH
def test_nothing_said_is_nothing_sent(form: Any) -> None:
    assert form([]) == []
    assert form([user(" "), ChatMessage("assistant", "")]) == []


@BOTH
def test_a_lone_surrogate_does_not_stop_the_conversation(form: Any) -> None:
    json.dumps(form([user("bad \ud800"), calls("a"), result("a", "\udfff")]), ensure_ascii=False).encode()


@BOTH
def test_a_malformed_call_shows_what_the_model_wrote(form: Any) -> None:
    call = ToolCall("a", "look at", malformed='{"at": ')
    written = form([user("Look."), ChatMessage("assistant", calls=(call,)), result("a", "That was no JSON.", True)])
    assert "look_at" in json.dumps(written)
    block = written[1]
    sent = (
        block["content"][0]["input"]
        if form is to_anthropic
        else json.loads(block["tool_calls"][0]["function"]["arguments"])
    )
    assert sent == {"malformed": '{"at": '}


def test_arguments_that_are_not_json_are_a_typed_error() -> None:
    with pytest.raises(InvalidInput, match="not plain JSON"):
        to_openai([user("Look."), ChatMessage("assistant", calls=(ToolCall("a", "look", {"at": {1, 2}}),))])


# Any conversation

IDS = st.sampled_from(["a", "b", "c", "", "no good", "call00001", "call00002", "x" * 50])
TEXTS = st.one_of(st.sampled_from(["", " ", "\n", "text", " text \n", "\ud800"]), st.text(max_size=20))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CALLS = st.builds(
    ToolCall,
    IDS,
    st.sampled_from(["look", "", "not a name!", "n" * 99]),
    st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    st.sampled_from(["", "", "{", "[1]"]),
)
SAID = st.one_of(
    st.builds(ChatMessage, st.sampled_from(["user", "assistant", "system"]), TEXTS),
    st.builds(ChatMessage, st.just("assistant"), TEXTS, st.lists(CALLS, max_size=3).map(tuple)),
    st.builds(ChatMessage, st.just("tool"), TEXTS, answers=IDS | st.none(), failed=st.booleans()),
)
CONVERSATIONS = st.lists(SAID, max_size=12)


@given(CONVERSATIONS)
def test_anthropic_accepts_any_conversation(said: list[ChatMessage]) -> None:
    if written := to_anthropic(said):
        check_anthropic(written)
        json.dumps(written, ensure_ascii=False).encode()


@given(CONVERSATIONS)
def test_openai_accepts_any_conversation(said: list[ChatMessage]) -> None:
    if written := to_openai(said):
        check_openai(written)
        json.dumps(written, ensure_ascii=False).encode()


@given(st.lists(st.integers(0, 3), max_size=12), st.randoms(use_true_random=False))
def test_nothing_said_is_lost(kinds: list[int], random: Any) -> None:
    said = [
        [
            user(f"<u{at}>"),
            ChatMessage("assistant", f"<a{at}>"),
            calls(f"<{at % 4}>", text=f"<c{at}>"),
            result(f"<{random.randrange(5)}>", f"<r{at}>"),
        ][kind]
        for at, kind in enumerate(kinds)
    ]
    for form in (to_anthropic, to_openai):
        written = json.dumps(form(said))
        assert all(written.count(one.text) == 1 for one in said)


@given(CONVERSATIONS)
def test_what_was_sent_stays_when_the_user_speaks_again(said: list[ChatMessage]) -> None:
    """So that a service can keep the beginning of a prompt in its cache."""
    written = to_anthropic([*said, user("First.")])
    longer = to_anthropic([*said, user("First."), ChatMessage("assistant", "Yes."), user("Second.")])
    assert longer[: len(written)] == written


# Tools and values


def test_tools_are_offered_in_both_forms() -> None:
    tool = ToolSpec("look", "Looks.", {"type": "object"})
    message = [{"role": "user", "content": "Look."}]
    check_openai_request({"model": "m", "max_tokens": 1, "messages": message, "tools": tools_to_openai([tool])})
    written = to_anthropic([user("Look.")])
    check_anthropic_request({"model": "m", "max_tokens": 1, "messages": written, "tools": tools_to_anthropic([tool])})


@for_each(
    "make",
    [
        lambda: ToolSpec("two words", "Looks."),
        lambda: ToolSpec("", "Looks."),
        lambda: ToolSpec("x" * 65, "Looks."),
        lambda: ToolSpec("look", "Looks.", {"type": "string"}),
        lambda: ChatMessage("robot", "Hi."),  # type: ignore[arg-type]
        lambda: ChatMessage("user", None),  # type: ignore[arg-type]
        lambda: ChatMessage("user", "Hi.", (ToolCall("a", "look"),)),
        lambda: ChatMessage("user", "Hi.", answers="a"),
        lambda: ChatRequest((user("Hi."),), max_tokens=0),
        lambda: ChatRequest((user("Hi."),), timeout=0),
        lambda: ChatRequest((user("Hi."),), timeout=float("nan")),
        lambda: ChatRequest((user("Hi."),), tools=(ToolSpec("look", ""), ToolSpec("look", ""))),
    ],
)
def test_what_cannot_be_said_is_a_typed_error(make: Any) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_a_reply_is_the_next_message() -> None:
    call = ToolCall("a", "look")
    assert ChatReply("I look.", (call,), "tools", "m").chat_message == ChatMessage("assistant", "I look.", (call,))


# The rules that the tests above rely on


TOOL_USE = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "seen"}
TEXT = {"type": "text", "text": "Hi."}


@for_each(
    "messages",
    [
        [],
        [("assistant", [TEXT])],
        [("user", [TEXT]), ("user", [TEXT])],
        [("user", [])],
        [("user", [{"type": "text", "text": " "}])],
        [("user", [TEXT]), ("assistant", [TOOL_USE])],
        [("user", [TEXT]), ("assistant", [TOOL_USE]), ("user", [TEXT])],
        [("user", [TEXT]), ("assistant", [TOOL_USE]), ("user", [TEXT, TOOL_RESULT])],
        [("user", [TEXT]), ("assistant", [TOOL_USE]), ("user", [TOOL_RESULT, TOOL_RESULT])],
        [("user", [TEXT]), ("assistant", [TOOL_USE, TOOL_USE]), ("user", [TOOL_RESULT])],
        [("user", [TOOL_RESULT])],
        [
            ("user", [TEXT]),
            ("assistant", [{**TOOL_USE, "id": "a b"}]),
            ("user", [{**TOOL_RESULT, "tool_use_id": "a b"}]),
        ],
        [("user", [TEXT]), ("assistant", [{"type": "text", "text": "So "}])],
        [("system", [TEXT])],
    ],
)
def test_the_rules_of_anthropic_refuse(messages: Any) -> None:
    with pytest.raises(Rejected):
        check_anthropic([{"role": role, "content": content} for role, content in messages])


CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
USER = {"role": "user", "content": "Hi."}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "seen"}


@for_each(
    "messages",
    [
        [],
        [USER, CALLING],
        [USER, CALLING, USER],
        [USER, ANSWER],
        [USER, CALLING, ANSWER, ANSWER],
        [USER, {**CALLING, "tool_calls": []}],
        [USER, {**CALLING, "tool_calls": [{**CALL, "id": "x" * 41}]}, {**ANSWER, "tool_call_id": "x" * 41}],
        [USER, {"role": "assistant", "content": None}],
        [USER, {**CALLING, "tool_calls": [{**CALL, "function": {"name": "look", "arguments": {}}}]}, ANSWER],
        [USER, {"role": "system", "content": "Be brief."}],
        [USER, USER],
    ],
)
def test_the_rules_of_openai_refuse(messages: Any) -> None:
    with pytest.raises(Rejected):
        check_openai(messages)
