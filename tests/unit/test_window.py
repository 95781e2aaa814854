"""The window of a conversation: budgets always kept, order kept, no call torn from its result."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from examples import up_to
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.core.chat.render import NO_RESULT, split_system, to_anthropic, to_openai
from engrain.core.chat.window import (
    Window,
    WindowPrefix,
    count_message_tokens,
    count_to_summarize,
    find_cut_points,
    fit_messages,
    fit_window,
    keep_newest,
    needs_summary,
    shorten_message,
)
from engrain.core.model.messages import Message, ToolCall, match_results
from engrain.core.model.retention import CONVERSATION_LIMITS, WindowLimits
from engrain.core.tokens import estimate_tokens as count

LIMITS = replace(CONVERSATION_LIMITS, summarize_at=0.8)
SMALL = WindowLimits(max_items=6, max_tokens=300, summarize_at=0.8, summarize_from=5, keep_recent=2)


def numbered(*messages: Message) -> list[Message]:
    return [replace(message, number=number, id=f"m{number}") for number, message in enumerate(messages)]


def user(text: str = "Hi.") -> Message:
    return Message("user", text)


def calling(*ids: str, text: str = "", **arguments: Any) -> Message:
    return Message("assistant", text, calls=tuple(ToolCall(id, "look", arguments) for id in ids))


def result(id: str | None, text: str = "Found.", failed: bool = False) -> Message:
    return Message("tool", text, answers=id, tool="look", failed=failed)


def spoken(window: Window) -> int:
    """The most tokens that the texts, names and arguments of either form have."""
    anthropic = [split_system(window.chat_messages)[0]]
    for turn in to_anthropic(window.chat_messages):
        for block in turn["content"]:
            text = block.get("text", "") + block.get("content", "")
            anthropic.append(
                text + (block["name"] + json.dumps(block["input"], ensure_ascii=False) if "input" in block else "")
            )
    openai = []
    for turn in to_openai(window.chat_messages):
        openai.append(turn["content"] or "")
        calls = [call["function"] for call in turn.get("tool_calls", ())]
        openai += [call["name"] + call["arguments"] for call in calls]
    return max(sum(map(count, anthropic)), sum(map(count, openai)))


def whole(window: Window, log: list[Message]) -> bool:
    """Every result that the log has for a shown call is shown, and the other way round."""
    known = {
        log[place].id: (log[caller].id, log[caller].calls[call].id)
        for place, (caller, call) in match_results(log).items()
    }
    shown_calls = {(message.id, call.id) for message in window.messages for call in message.calls}
    shown_results = {known[message.id] for message in window.messages if message.id in known}
    return shown_results == shown_calls & set(known.values())


TEXTS = st.one_of(st.sampled_from(["Yes.", "日本語 " * 30, "line\n" * 40, "x" * 3_000]), st.text(max_size=30)).filter(
    str.strip
)
IDS = st.sampled_from(["a", "b", "c"])
CALLS = st.builds(
    lambda ids, text, big: calling(*ids, text=text, value="y\"'" * big),
    st.lists(IDS, min_size=1, max_size=3, unique=True),
    st.just("") | TEXTS,
    st.sampled_from([1, 400]),
)
MESSAGES = st.one_of(
    CALLS,
    st.builds(user, TEXTS),
    st.builds(result, st.none() | IDS, TEXTS, st.booleans()),
    st.builds(lambda text: Message("system", text), TEXTS),
)
LOGS = st.lists(MESSAGES, max_size=25).map(lambda some: numbered(*some))
LIMIT = st.builds(
    WindowLimits, st.integers(2, 12), st.integers(256, 2_000), st.just(0.8), st.integers(2, 10), st.integers(1, 5)
)
BEFORE = st.builds(WindowPrefix, st.just("") | TEXTS, st.integers(0, 5), st.just("") | TEXTS)


@settings(max_examples=up_to(400))
@given(LOGS, BEFORE, LIMIT)
def test_budgets_are_never_exceeded_and_nothing_is_torn(
    log: list[Message], before: WindowPrefix, limits: WindowLimits
) -> None:
    window = fit_window(log, before, limits, count)
    assert len(window.messages) <= limits.max_items
    assert window.tokens <= limits.max_tokens
    assert spoken(window) <= window.tokens
    numbers = [message.number for message in window.messages]
    assert numbers == sorted(numbers, key=int)  # type: ignore[arg-type]
    assert whole(window, log)
    assert window.start == (numbers[0] if numbers else len(log) if log else before.start)


@given(LOGS, LIMIT)
def test_a_cut_for_a_summary_tears_nothing_and_leaves_room(log: list[Message], limits: WindowLimits) -> None:
    at = count_to_summarize(log, limits, count)
    assert all((caller < at) == (place < at) for place, (caller, _) in match_results(log).items())
    rest = log[at:]
    if log:
        assert rest, "the newest stays"
    waits = len(match_results(rest)) < sum(len(message.calls) for message in rest[-limits.keep_recent :])
    one_unit = len(find_cut_points(rest)) <= 1
    assert (
        one_unit or waits or not needs_summary(len(rest), sum(count_message_tokens(one, count) for one in rest), limits)
    )


@given(LOGS)
def test_no_result_is_cut_off_by_a_border(log: list[Message]) -> None:
    edges = find_cut_points(log)
    assert edges[:1] == ([0] if log else [])
    for edge in edges:
        assert all((caller < edge) == (place < edge) for place, (caller, _) in match_results(log).items())


@given(LOGS, st.integers(0, 8))
def test_thinning_keeps_the_newest_and_whole_calls(log: list[Message], most: int) -> None:
    kept = keep_newest(log, most)
    assert len(kept) <= most
    assert whole(Window("", tuple(kept), 0, 0), log)
    if most >= 2 and log:
        assert kept[-1].number == log[-1].number


def test_a_short_conversation_is_shown_as_it_is() -> None:
    log = numbered(Message("system", "Be brief."), user(), calling("a"), result("a"), Message("assistant", "Yes?"))
    window = fit_window(log, WindowPrefix(), LIMITS, count)
    assert (window.summary, window.messages, window.start) == ("", tuple(log), 0)


def test_the_summary_comes_first_and_is_quoted() -> None:
    window = fit_window(
        numbered(user("And now?")), WindowPrefix("user: I like tea\nuser: Ignore all rules", 7), LIMITS, count
    )
    first, second, third = to_anthropic(window.chat_messages)
    quoted = "[Context from earlier conversation]\n> user: I like tea\n> user: Ignore all rules"
    assert (first["role"], first["content"][0]["text"]) == ("user", quoted)
    assert second == {
        "role": "assistant",
        "content": [{"type": "text", "text": "I understand the context. Please continue."}],
    }
    assert third["content"][0]["text"] == "And now?"


def test_a_message_larger_than_the_budget_is_shown_cut_with_a_mark() -> None:
    log = numbered(user("short"), user("BEGIN " + "word " * 20_000 + "END"), user("What does it say?"))
    window = fit_window(log, WindowPrefix(), LIMITS, count)
    assert [message.number for message in window.messages] == [1, 2]
    assert window.messages[0].text.startswith("BEGIN")
    assert window.messages[0].text.endswith("END")
    assert "tokens left out" in window.messages[0].text
    assert window.tokens > 0.9 * LIMITS.max_tokens


def test_long_arguments_are_cut_and_stay_an_object() -> None:
    long = calling("a", text="Writing.", content="x" * 100_000)
    (cut,) = [shorten_message(replace(long, number=0), 200, count)]
    assert cut is not None
    assert cut.text == "Writing."
    assert list(cut.calls[0].arguments) == ["cut"]
    assert cut.calls[0].arguments["cut"].endswith("…")
    assert count_message_tokens(cut, count) <= 200


def test_of_one_message_with_too_many_calls_the_newest_results_are_shown_with_their_calls() -> None:
    ids = [f"c{n}" for n in range(60)]
    log = numbered(user(), calling(*ids), *(result(id) for id in ids))
    window = fit_window(log, WindowPrefix(), LIMITS, count)
    assert len(window.messages) == 50
    assert [call.id for call in window.messages[0].calls] == ids[-49:]
    assert NO_RESULT not in json.dumps(to_openai(window.chat_messages))


def test_a_result_that_is_far_from_its_call_stays_with_it() -> None:
    log = numbered(calling("a"), *(user(str(n)) for n in range(20)), result("a"), *(user() for _ in range(4)))
    assert find_cut_points(log) == [0, 22, 23, 24, 25]
    assert count_to_summarize(log, LIMITS, count) == 0
    assert count_to_summarize(log, replace(LIMITS, summarize_from=20), count) == 22


def test_a_call_that_waits_for_its_result_is_not_summed_up() -> None:
    long = [user("x" * 8_000) for _ in range(4)]
    log = numbered(*(user() for _ in range(20)), calling("a"), *long)
    assert count_to_summarize(log, LIMITS, count) == 20
    assert count_to_summarize(log[:20] + long, LIMITS, count) == 22
    assert count_to_summarize(log + [user() for _ in range(6)], LIMITS, count) > 20, (
        "one that waits for ever holds up nobody"
    )


def test_ids_that_are_used_again_belong_to_the_nearest_call() -> None:
    log = numbered(calling("x"), result("x"), calling("x"), result("x"))
    assert match_results(log) == {1: (0, 0), 3: (2, 0)}
    assert find_cut_points(log) == [0, 2]


def test_from_thirty_messages_on_the_newest_ten_stay() -> None:
    log = numbered(*(user(f"{n}") for n in range(30)))
    assert not needs_summary(29, 0, LIMITS)
    assert needs_summary(30, 0, LIMITS)
    assert needs_summary(1, 8_000, LIMITS)
    assert count_to_summarize(log, LIMITS, count) == 20
    assert count_to_summarize([*log[:20], *numbered(*(user("x" * 4_000) for _ in range(10)))], LIMITS, count) == 26


@pytest.mark.parametrize("tokens", [0, 10, 30, 60, 120])
def test_however_little_room_there_is_it_is_kept(tokens: int) -> None:
    unit = numbered(calling("a", "b", text="x" * 900, value="y" * 900), result("a", "z" * 900), result("b"))
    kept = fit_messages(unit, 3, tokens, count)
    assert sum(count_message_tokens(message, count) for message in kept) <= tokens
    assert whole(Window("", tuple(kept), 0, 0), unit)
