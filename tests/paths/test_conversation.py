"""What conversation memory promises: the log whole, the window within its budgets, nobody's turns mixed up."""

from __future__ import annotations

import json
import logging
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from episodic_kit import ANA, opened
from examples import REFERENCE, for_each
from forked import LIMIT

from engrain.core.chat.window import ACKNOWLEDGEMENT
from engrain.core.errors import BackendMissing, BadText, Conflict, EngrainError, InvalidInput, TooLarge, UnknownKey
from engrain.core.identity import Scope
from engrain.core.model.items import FORGOTTEN
from engrain.core.model.messages import Message, ToolCall
from engrain.core.model.plans import Forget, Plan
from engrain.core.model.queries import Summary
from engrain.core.model.retention import CONVERSATION_LIMITS
from engrain.core.tokens import estimate_tokens
from engrain.ingest import summaries
from engrain.ingest.summaries import CLEARED_PROGRESS, load_summary
from engrain.ports import Services
from engrain.tiers.conversation import ConversationMemory

CALL = ToolCall("c1", "search", {"to": "UIO", "deep": [1, None, {"é": "日本"}]})


@pytest.fixture(params=["sqlite", REFERENCE])
def kit(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Iterator[Services]:
    made = opened(request.param, tmp_path, clock)
    yield made
    made.items.close()


@pytest.fixture
def talk(kit: Services) -> ConversationMemory:
    return ConversationMemory(kit, ANA, "monday")


def chatter(talk: ConversationMemory, count: int, start: int = 0) -> list[str]:
    """Turns of the two sides, each with a number of its own."""
    for n in range(start, start + count):
        talk.add("assistant" if n % 2 else "user", f"Turn {n} is about topic {n % 7}.")
    return [f"Turn {n} is about topic {n % 7}." for n in range(start, start + count)]


def words(window_or_list: Any) -> list[str]:
    return [message.text for message in getattr(window_or_list, "messages", window_or_list)]


# The window


def test_the_defaults_are_those_of_the_table() -> None:
    limits = CONVERSATION_LIMITS
    assert (limits.max_items, limits.max_tokens, limits.summarize_from, limits.keep_recent) == (50, 10_000, 30, 10)


def test_a_short_conversation_is_shown_word_for_word(talk: ConversationMemory) -> None:
    said = chatter(talk, 29)
    assert words(talk.window()) == said
    assert (talk.summary, talk.window().start) == ("", 0)


def test_from_thirty_messages_on_all_but_the_newest_ten_are_summed_up(talk: ConversationMemory, kit: Services) -> None:
    said = chatter(talk, 30)
    window = talk.window()
    assert words(window) == said[-10:]
    assert window.start == 20
    stored = kit.log.summary(ANA, "monday")
    assert stored == Summary(window.summary, 20, 1, "digest")
    assert "Turn 0" in window.summary
    assert words(talk.last(100)) == said, "the log stays whole"


def test_nothing_is_summed_up_twice(talk: ConversationMemory) -> None:
    chatter(talk, 75)
    lines = talk.summary.splitlines()
    assert len(lines) == len(set(lines)) == 60
    assert [int(line.split()[2]) for line in lines] == list(range(60))


# test_scenes.py has 500 turns by default.
@pytest.mark.slow
def test_a_conversation_of_500_turns_stays_within_its_budget_and_finds_its_third(talk: ConversationMemory) -> None:
    talk.add("user", "Hello.")
    talk.add("assistant", "Hello! How can I help?")
    talk.add("user", "The locker code is 7731, the blue one.")
    for n in range(500):
        talk.add("assistant" if n % 2 else "user", f"Turn {n}: " + "some words that go on and on. " * (n % 40))
        if n % 50 == 0:
            window = talk.window()
            assert len(window.messages) <= 50
            assert window.tokens <= 10_000
    assert talk.search("locker code")[0].number == 2
    assert len(talk) == 503


def test_long_messages_are_summed_up_early(talk: ConversationMemory) -> None:
    for n in range(20):
        talk.add("user", f"{n} " + "long words " * 200)
        assert talk.window().tokens <= 10_000
    assert talk.window().start > 0
    assert talk.window().messages[-1].text.startswith("19 ")


def test_a_call_and_its_results_stay_together_at_the_cut(talk: ConversationMemory) -> None:
    calls = tuple(ToolCall(f"c{n}", "look", {}) for n in range(4))
    chatter(talk, 17)
    talk.add_many([Message("assistant", calls=calls), *(Message("tool", "Found.", answers=one.id) for one in calls)])
    chatter(talk, 8, 22)
    window = talk.window()
    assert window.start == 17
    assert window.messages[0].calls == calls


def test_what_opens_the_session_as_a_system_message_is_always_shown(talk: ConversationMemory) -> None:
    talk.add("system", "You are a pirate.")
    assert talk.system_for_llm() == "You are a pirate."
    chatter(talk, 60)
    assert talk.window().start > 0
    assert talk.system_for_llm() == "You are a pirate."
    assert talk.messages_for_llm("openai")[0] == {"role": "system", "content": "You are a pirate."}
    assert "pirate" not in talk.summary
    assert "pirate" not in json.dumps(talk.messages_for_llm("anthropic"))


def test_both_forms_begin_with_the_summary_as_quoted_context(talk: ConversationMemory) -> None:
    said = chatter(talk, 30)
    first, second, *rest = talk.messages_for_llm("openai")
    assert first["content"].startswith("[Context from earlier conversation]\n> user: Turn 0")
    assert second == {"role": "assistant", "content": ACKNOWLEDGEMENT}
    assert [one["content"] for one in rest] == said[-10:]
    assert len(talk.messages_for_llm()) == len(rest) + 2
    with pytest.raises(InvalidInput, match="anthropic"):
        talk.messages_for_llm("gemini")  # type: ignore[arg-type]


def test_calls_are_sent_back_exactly(talk: ConversationMemory) -> None:
    talk.add("user", "To Quito.")
    talk.add_many([Message("assistant", "Looking.", calls=(CALL,)), Message("tool", "Two flights.", answers="c1")])
    _, turn, answer = talk.messages_for_llm("anthropic")
    assert turn["content"][1] == {"type": "tool_use", "id": "c1", "name": "search", "input": CALL.arguments}
    assert answer["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "Two flights."}]
    talk.add("assistant", "There are two.")
    assert talk.messages_for_llm("openai")[2] == {"role": "tool", "tool_call_id": "c1", "content": "Two flights."}


def test_a_result_without_its_call_and_a_call_without_result_are_kept_and_sent(talk: ConversationMemory) -> None:
    talk.add("user", "Hi.")
    talk.add_many([{"role": "tool", "tool_call_id": "lost", "content": "Orphan."}])
    talk.add_many([Message("assistant", calls=(CALL,))])
    talk.add("user", "Well?")
    assert [message.role for message in talk.last(4)] == ["user", "tool", "assistant", "user"]
    for form in ("anthropic", "openai"):
        sent = json.dumps(talk.messages_for_llm(form))  # type: ignore[arg-type]
        assert "Orphan." in sent
        assert "no result was recorded" in sent


def test_clear_empties_the_window_and_not_the_log(talk: ConversationMemory, kit: Services) -> None:
    said = chatter(talk, 40)
    talk.clear()
    window = talk.window()
    assert (window.messages, window.summary, window.tokens, window.start) == ((), "", 0, 40)
    assert talk.messages_for_llm() == []
    assert words(talk.last(100)) == said
    assert talk.search("Turn 3 ")[0].number == 3
    new = chatter(talk, 30, 40)
    assert words(talk.window()) == new[-10:]
    assert "Turn 39" not in talk.summary
    assert "Turn 40" in talk.summary


def test_what_was_cleared_does_not_come_back_when_the_summary_is_dropped(
    talk: ConversationMemory, kit: Services
) -> None:
    chatter(talk, 12)
    talk.clear()
    chatter(talk, 30, 12)
    assert "Turn 12" in talk.summary
    kit.items.apply(Plan(ANA, (Forget(talk.last(100)[15].id or ""),)))
    assert talk.summary == ""
    talk.add("user", "Go on.")
    talk.summarize()
    assert "Turn 12" in talk.summary
    assert "Turn 11" not in json.dumps(talk.messages_for_llm())


def test_a_window_that_was_half_cleared_is_cleared(talk: ConversationMemory, kit: Services) -> None:
    """As by a process that died after it had noted where, and before it had dropped the summary."""
    chatter(talk, 40)
    kit.log.advance(ANA, "monday", CLEARED_PROGRESS, 40)
    assert (talk.window().messages, talk.summary, talk.messages_for_llm()) == ((), "", [])
    chatter(talk, 30, 40)
    assert "Turn 39" not in json.dumps(talk.messages_for_llm())
    assert "Turn 40" in talk.summary


# Summaries


def test_a_forgotten_message_is_in_no_summary(talk: ConversationMemory, kit: Services) -> None:
    talk.add("user", "The secret word is xyzzy.")
    chatter(talk, 30, 1)
    assert "xyzzy" in talk.summary
    kit.items.apply(Plan(ANA, (Forget(talk.last(100)[0].id or ""),)))
    assert "xyzzy" not in json.dumps(talk.messages_for_llm())
    talk.summarize()
    assert "Turn 1" in talk.summary
    assert "xyzzy" not in talk.summary


def test_words_that_are_forgotten_while_the_summary_is_made_are_never_in_it(
    talk: ConversationMemory, kit: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = talk.add("user", "The secret word is xyzzy.")
    chatter(talk, 28, 1)
    made = summaries.write_digest

    def forgets_meanwhile(*args: Any) -> str:
        kit.items.apply(Plan(ANA, (Forget(secret),)))
        return made(*args)

    stored: list[str] = []
    store = kit.log.summarize

    def watched(*args: Any) -> None:
        store(*args)
        stored.append(args[2].text)

    monkeypatch.setattr(summaries, "write_digest", forgets_meanwhile)
    monkeypatch.setattr(kit.log, "summarize", watched)
    chatter(talk, 1, 29)
    talk.summarize()
    assert "Turn 1" in talk.summary
    assert stored
    assert not any("xyzzy" in text for text in stored), "not even until the next write: a process may die there"


def test_a_summary_made_before_two_others_were_forgotten_is_not_taken_for_the_next(
    talk: ConversationMemory, kit: Services
) -> None:
    """A version that began anew would let a model's late answer bring the forgotten words back."""
    secret = talk.add("user", "The secret word is xyzzy.")
    chatter(talk, 29, 1)
    slow = kit.log.summary(ANA, "monday")
    assert slow is not None
    late = replace(slow, text="They spoke of xyzzy.", version=slow.version + 1, by="slow-model")
    kit.items.apply(Plan(ANA, (Forget(secret),)))
    for _ in range(3):
        talk.summarize()
        assert not summaries.store_summary(kit, ANA, "monday", late)
        chatter(talk, 30, 100)
    assert "xyzzy" not in talk.summary


def test_a_session_that_has_lost_its_summary_is_summed_up_again_in_parts(
    talk: ConversationMemory, kit: Services
) -> None:
    chatter(talk, 450)
    first = talk.last(1_000)[0]
    kit.items.apply(Plan(ANA, (Forget(first.id or ""),)))
    assert talk.summary == ""
    assert talk.window().tokens <= 10_000
    chatter(talk, 1, 450)
    assert load_summary(kit, ANA, "monday").start == 441
    assert talk.window().start == 441


def test_a_summary_that_fails_fails_nobody(
    talk: ConversationMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> str:
        raise RuntimeError("no digest today")

    with monkeypatch.context() as patched, caplog.at_level(logging.CRITICAL):
        patched.setattr(summaries, "write_digest", broken)
        said = chatter(talk, 80)
    assert words(talk.last(100)) == said
    assert words(talk.window()) == said[-50:]
    assert talk.summary_error == "no digest today"
    chatter(talk, 1, 80)
    assert talk.summary_error is None
    assert talk.window().start > 50


def test_of_two_who_sum_up_one_wins_and_the_other_reads_again(kit: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, yours = (ConversationMemory(kit, ANA, "monday") for _ in range(2))
    chatter(mine, 29)
    made = summaries.write_digest
    calls: list[int] = []

    def meanwhile(*args: Any) -> str:
        calls.append(len(args[0]))
        if len(calls) == 1:
            yours.add("user", "Turn 29 is yours.")
        return made(*args)

    monkeypatch.setattr(summaries, "write_digest", meanwhile)
    mine.add("user", "Turn 30 is mine.")
    stored = kit.log.summary(ANA, "monday")
    assert stored is not None
    assert stored.version == 1
    assert len(calls) >= 2
    lines = mine.summary.splitlines()
    assert len(lines) == len(set(lines))


def test_a_models_summary_is_the_beginning_of_the_next_one(talk: ConversationMemory, kit: Services) -> None:
    chatter(talk, 30)
    better = Summary("They went through topics one by one.", 20, 2, "small-model")
    assert summaries.store_summary(kit, ANA, "monday", better)
    assert not summaries.store_summary(kit, ANA, "monday", better), "the second comes too late"
    chatter(talk, 20, 30)
    assert talk.summary.splitlines()[0] == better.text
    assert "Turn 20" in talk.summary
    assert "Turn 19" not in talk.summary


# Search


@pytest.mark.parametrize(
    ("query", "number"),
    [("harbour lane", 0), ("HARBOUR", 0), ("arbou", 0), ("22 h", 0), ("flight", 1), ("东京", 2), ("straße", 3)],
)
def test_whatever_a_message_contains_finds_it(talk: ConversationMemory, query: str, number: int) -> None:
    texts = ["I live at 22 Harbour Lane.", "The flights leave at nine.", "我住在东京。", "Die Strasse ist lang."]
    talk.add_many([Message("user", text) for text in texts])
    chatter(talk, 60, 4)
    assert talk.search(query, 1)[0].number == number


def test_search_stays_in_its_session_and_scope(kit: Services, talk: ConversationMemory) -> None:
    ConversationMemory(kit, ANA, "tuesday").add("user", "The secret is blue.")
    ConversationMemory(kit, Scope(user="ben"), "monday").add("user", "The secret is red.")
    assert talk.search("secret") == []
    talk.add("user", "My secret is green.")
    assert words(talk.search("secret", 10)) == ["My secret is green."]


def test_the_words_of_a_call_are_found(talk: ConversationMemory) -> None:
    talk.add_many([Message("assistant", calls=(CALL,))])
    (found,) = talk.search("UIO")
    assert found.calls == (CALL,)


# Export and import


def filled(talk: ConversationMemory, clock: SetClock) -> ConversationMemory:
    talk.add("system", "Be brief.")
    talk.add("user", "I live at \u2028 22\tHarbour Lane.\r\n  # not a comment: 'x' \"y\" \x85", speaker="Ana")
    clock.advance(3.25)
    talk.add_many(
        [
            Message("assistant", calls=(CALL, ToolCall("c2", "broken", malformed='{"a'))),
            Message("tool", "", answers="c1", failed=True),
            Message("tool", "2026-11-15", answers="c2"),
            Message("assistant", "yes", metadata={"mood": None, "n": 1.5, "when": "2026-11-15"}),
            Message("user", "Earlier.", occurred_at="2019-03-01T10:00:00.123456+02:00"),
            Message("assistant", "We use Postgres.", event="decision"),
        ]
    )
    chatter(talk, 40, 8)
    return talk


@pytest.mark.parametrize("form", ["export", "export_json", "export_yaml"])
def test_an_export_comes_back_exactly(
    talk: ConversationMemory, clock: SetClock, tmp_path: Path, form: str, kit: Services
) -> None:
    filled(talk, clock)
    forgotten = talk.last(100)[-3]
    kit.items.apply(Plan(ANA, (Forget(forgotten.id or ""),)))
    exported = getattr(talk, form)()
    other = opened("sqlite", tmp_path / "other", clock) if (tmp_path / "other").mkdir() is None else None
    assert other is not None
    copy = ConversationMemory(other, Scope(user="ben"), "monday")
    clock.advance(86_400)
    assert copy.load(exported).added == 47
    assert copy.export() == talk.export()
    assert copy.window() == replace(talk.window(), messages=copy.window().messages)
    assert copy.messages_for_llm() == talk.messages_for_llm()
    assert [replace(one, id=None) for one in copy.last(100)] == [replace(one, id=None) for one in talk.last(100)]
    assert (copy.load(exported).added, copy.load(exported).known) == (0, 47)
    assert copy.export() == talk.export()
    other.items.close()


def test_a_cleared_window_comes_back_cleared(talk: ConversationMemory, kit: Services, clock: SetClock) -> None:
    chatter(talk, 35)
    talk.clear()
    chatter(talk, 3, 35)
    copy = ConversationMemory(kit, Scope(user="ben"), "monday")
    copy.load(talk.export_json())
    assert words(copy.window()) == words(talk.window())
    assert copy.export() == talk.export()
    assert kit.log.progress(Scope(user="ben"), "monday", CLEARED_PROGRESS) == 35


def test_what_was_forgotten_does_not_come_back_with_an_import(talk: ConversationMemory, kit: Services) -> None:
    talk.add("user", "I live in Lima.")
    talk.add("user", "Hello.")
    exported = talk.export()
    talk.add("user", "Forget my city.")
    assert talk.load(exported).kept_out == 1
    assert words(talk.last(2)) == ["Hello.", f"Forget {FORGOTTEN}."]
    copy = ConversationMemory(kit, ANA, "copy")
    assert copy.load(exported).kept_out == 1
    assert words(copy.last(9)) == ["Hello."]


def test_an_import_over_another_conversation_is_refused(talk: ConversationMemory, kit: Services) -> None:
    chatter(talk, 3)
    exported = talk.export()
    other = ConversationMemory(kit, ANA, "other")
    chatter(other, 2)
    other.add("user", "Something else.")
    with pytest.raises(Conflict, match="new session"):
        other.load(exported)
    assert words(other.last(9))[-1] == "Something else."
    assert len(other) == 3


def bad(**changes: Any) -> dict[str, Any]:
    message = {"number": 0, "role": "user", "text": "Hi.", "at": "2026-11-15T00:00:00+00:00"}
    whole = {"format": "engrain.conversation", "version": 1, "session": "s", "messages": [message]}
    for name, value in changes.items():
        (message if name in ("number", "role", "text", "at", "calls", "metadata", "mood") else whole)[name] = value
    return whole


@for_each(
    ("data", "error"),
    [
        (None, InvalidInput), ([], InvalidInput), ({}, InvalidInput), ("", InvalidInput), ("{", InvalidInput),
        ("{\"a\": " + "[" * 100_000, InvalidInput), ("- " * 3_000, InvalidInput), ("\x00", InvalidInput),
        ("a: &a [1]\nb: *a", InvalidInput), ("!!python/object/apply:os.system ['true']", InvalidInput),
        (bad(format="other"), InvalidInput), (bad(version=2), InvalidInput), (bad(extra=1), UnknownKey),
        (bad(messages="x"), InvalidInput), (bad(messages=["x"]), InvalidInput), (bad(role="robot"), InvalidInput),
        (bad(text=""), InvalidInput), (bad(text=None), InvalidInput), (bad(text="a\x00"), BadText),
        (bad(text="x" * 1_000_001), TooLarge), (bad(number=-1), InvalidInput), (bad(number="0"), InvalidInput),
        (bad(at="soon"), InvalidInput), (bad(at=None), InvalidInput), (bad(mood="good"), UnknownKey),
        (bad(metadata={"engrain": {}}), InvalidInput), (bad(metadata=[1]), InvalidInput),
        (bad(calls=[{"id": "a", "name": "f"}]), InvalidInput), (bad(role="assistant", calls=[{"id": 1}]), InvalidInput),
        (bad(role="assistant", calls=[{"id": "a", "name": "f", "arguments": []}]), InvalidInput),
        (bad(cleared=5), InvalidInput), (bad(cleared=-1), InvalidInput), (bad(summary="x"), InvalidInput),
        (bad(summary={"text": "x", "upto": 9}), InvalidInput), (bad(summary={"text": 1, "upto": 0}), InvalidInput),
        (bad(session=5), InvalidInput),
        (bad(messages=[bad()["messages"][0], bad()["messages"][0]]), InvalidInput),
    ],
)  # fmt: skip
def test_bad_imports_are_named_and_write_nothing(talk: ConversationMemory, data: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        talk.load(data)
    assert len(talk) == 0


def test_a_bad_transcript_says_what_it_is_once(talk: ConversationMemory) -> None:
    for text in ("{", "a: [", "a: *b", "\x00"):
        with pytest.raises(InvalidInput) as caught:
            talk.load(text)
        assert str(caught.value).count("conversation") == 1, caught.value


def test_references_in_yaml_are_refused(talk: ConversationMemory) -> None:
    bomb = "metadata: {a: &a [1, 1], b: [*a, *a]}"
    text = (
        "format: engrain.conversation\nversion: 1\nmessages:\n- {number: 0, role: user, text: Hi., at: 2026-11-15, %s}"
    )
    with pytest.raises(InvalidInput, match="references"):
        talk.load(text % bomb)
    assert talk.load(text % "metadata: {a: [1, 1]}").added == 1


def test_without_the_package_yaml_says_how_to_get_it(talk: ConversationMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    chatter(talk, 1)
    for ask in (talk.export_yaml, lambda: talk.load("format: x")):
        with pytest.raises(BackendMissing, match=r"engrain\[yaml\]"):
            ask()
    assert talk.export_json()


# Several at once


def test_of_two_workers_who_have_seen_the_same_one_is_told(kit: Services, talk: ConversationMemory) -> None:
    chatter(talk, 4)

    def answer(n: int) -> bool:
        worker = ConversationMemory(kit, ANA, "monday")
        try:
            worker.add_many([Message("assistant", f"Answer {n}."), Message("user", f"Thanks {n}.")], expect=4)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(answer, range(8))) == 1
    assert len(talk) == 6


def test_threads_append_calls_and_results_that_stay_together(kit: Services, talk: ConversationMemory) -> None:
    def work(n: int) -> None:
        worker = ConversationMemory(kit, ANA, "monday")
        for turn in range(6):
            id = f"{n}-{turn}"
            worker.add_many([Message("assistant", calls=(ToolCall(id, "look", {}),)), Message("tool", id, answers=id)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    log = talk.last(1_000)
    assert [message.number for message in log] == list(range(72))
    assert all(call.calls[0].id == answer.answers for call, answer in zip(log[::2], log[1::2], strict=True))
    window = talk.window()
    assert len(window.messages) <= 50
    assert "no result was recorded" not in json.dumps(talk.messages_for_llm())


def _append(path: str, worker: int, expecting: bool) -> int:
    """Ten pairs, each written when the session is as long as was seen, or at any time."""
    kit = opened("sqlite", Path(path), SetClock())
    talk = ConversationMemory(kit, ANA, "monday")
    refused = 0
    for turn in range(10):
        pair = [Message("user", f"{worker}.{turn} asks"), Message("assistant", f"{worker}.{turn} answers")]
        while True:
            try:
                talk.add_many(pair, expect=len(talk) if expecting else None, request_id=f"{worker}.{turn}")
                break
            except Conflict:
                refused += 1
    kit.items.close()
    return refused


@pytest.mark.parametrize("expecting", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_processes_append_side_by_side(tmp_path: Path, expecting: bool) -> None:
    opened("sqlite", tmp_path, SetClock()).items.close()
    context = multiprocessing.get_context("fork")
    with context.Pool(3) as pool:
        pool.starmap_async(_append, [(str(tmp_path), worker, expecting) for worker in range(3)]).get(LIMIT)
    kit = opened("sqlite", tmp_path, SetClock())
    log = ConversationMemory(kit, ANA, "monday").last(1_000)
    kit.items.close()
    assert [message.number for message in log] == list(range(60))
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert all(ask.text.split()[0] == answer.text.split()[0] for ask, answer in pairs)
    for worker in "012":
        mine = [ask.text.split()[0] for ask, _ in pairs if ask.text.startswith(f"{worker}.")]
        assert mine == [f"{worker}.{turn}" for turn in range(10)]


# Bad input


def test_bad_values_are_named_and_nothing_is_written(talk: ConversationMemory) -> None:
    wrong: Sequence[tuple[Any, dict[str, Any]]] = [
        ([Message("robot", "Hi.")], {}),
        ([Message("user", "Hi."), Message("user", "")], {}),
        ([{"role": "user", "content": [{"image": "iVBORw0KGgo="}]}], {}),
        ([Message("user", "Hi.")], {"expect": -1}),
        ([Message("user", "Hi.")], {"expect": "0"}),
        ([Message("user", "Hi.")], {"request_id": ""}),
        ("Hi.", {}),
    ]
    for messages, values in wrong:
        with pytest.raises(EngrainError):
            talk.add_many(messages, **values)
    for call in (lambda: talk.last(0), lambda: talk.search(" "), lambda: talk.search("x", 0)):
        with pytest.raises(InvalidInput):
            call()
    assert len(talk) == 0


def test_limits_are_checked(kit: Services) -> None:
    for wrong in ({"max_items": 1}, {"max_tokens": 10}, {"keep_recent": 30}, {"summarize_from": 1}):
        with pytest.raises(InvalidInput):
            ConversationMemory(kit, ANA, "monday", replace(CONVERSATION_LIMITS, **wrong))
    with pytest.raises(InvalidInput):
        ConversationMemory(kit, ANA, "")


def test_a_counter_of_ones_own_is_used(kit: Services) -> None:
    counting = replace(kit, count_tokens=lambda text: 2 * estimate_tokens(text))
    talk = ConversationMemory(counting, ANA, "monday")
    for n in range(12):
        talk.add("user", f"{n} " + "long words " * 300)
    assert talk.window().tokens <= 10_000
    assert sum(map(counting.count_tokens, words(talk.window()))) <= 10_000
