"""The three scenes that the product comes from, each on the real store with the real embedder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory

pytestmark = pytest.mark.meaning

DAY = 86_400


def test_the_user_who_comes_back_after_three_days(memory: Memory, clock: SetClock) -> None:
    memory.start_session("monday")
    memory.remember("The staging database is called heron.")
    memory.add_message("user", "The nightly import fails with a time-out on heron.")
    memory.add_message("assistant", "I will look at the import job.")
    memory.add_message("user", "Good morning, by the way.")
    error = memory.episodic.record_error("The nightly import timed out after 30 s.")
    memory.episodic.record_resolution(error, "The time-out of the import is 120 s now.")
    memory.episodic.record_decision("The import runs at 03:00 instead of midnight.", "the backup is over by then")
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is not None

    clock.advance(3 * DAY)
    opening = memory.start_session("thursday")
    assert opening.summary is not None
    assert opening.summary.text == closing.summary.text
    told = " ".join(item.text for item in opening.episodes)
    assert "120 s" in told
    assert "03:00" in told
    assert "Good morning" not in told
    # Ordinary episodes are over; what was important is still there, and so is what was said.
    lately = [event.text for event in memory.episodic.recent(50)]
    assert not any("Good morning" in text for text in lately)
    assert any("heron" in hit.text for hit in memory.recall("What is the staging database called?").hits)
    assert "heron" in str(memory.recall("Which database had the time-out?"))


def test_a_preference_of_session_1_is_used_in_session_47_and_replaced_in_session_48(
    memory: Memory, clock: SetClock
) -> None:
    memory.start_session("1")
    memory.add_message("user", "Remember that I prefer aisle seats when I fly.")
    for number in range(2, 47):
        clock.advance(DAY)
        memory.start_session(str(number))
        memory.add_message("user", f"Here is the weather report number {number}, nothing else is new.")
    clock.advance(DAY)
    memory.start_session("47")
    before = clock()
    found = memory.recall("Which seat should I book for the flight?")
    assert "aisle" in str(found)

    clock.advance(DAY)
    memory.start_session("48")
    memory.add_message("user", "I prefer window seats now.")
    now = memory.recall("Which seat should I book?", n=20)
    facts = [hit.text for hit in now.hits if hit.item.kind == "fact"]
    assert any("window" in text for text in facts)
    assert not any("aisle" in text for text in facts)
    # What was said stays in the log, and wherever recall tells of it, it says that it is over.
    told = [entry for entry in str(now).split("\n- ") if "aisle" in entry]
    assert told
    assert all('now "I prefer window seats now"' in entry for entry in told)
    then = [hit.text for hit in memory.recall("Which seat should I book?", as_of=before).hits]
    assert any("aisle" in text for text in then)
    assert not any("window" in text for text in then)


def test_a_summary_says_which_of_its_words_no_longer_hold(memory: Memory, clock: SetClock) -> None:
    memory.start_session("1")
    memory.add_message("user", "The deadline is 15 November. The budget report goes to Carla.")
    memory.end_session()
    assert "held until" not in str(memory.recall("When is the deadline?"))
    clock.advance(DAY)
    before = clock()
    clock.advance(DAY)
    memory.start_session("2")
    memory.add_message("user", "No, the deadline is 1 December.")
    # Beside the message that it repeats, it is not returned.
    (summary,) = memory.recall("When is the deadline?", where={"kind": "summary"})
    assert "15 November" in summary.text
    assert [(old.text, old.now) for old in summary.outdated] == [
        ("The deadline is 15 November", "the deadline is 1 December")
    ]
    then = memory.recall("When is the deadline?", as_of=before)
    assert not any(hit.outdated for hit in then.hits)


def test_a_conversation_of_500_turns_stays_within_its_budget_and_forgets_nothing(
    open_memory: Callable[..., Memory], clock: SetClock
) -> None:
    """With a small embedder: the demo has the same scene with the one that comes with us."""
    memory = open_memory(embedder=HashEmbedder())
    memory.start_session("long")
    for turn in range(1, 501):
        clock.advance(30)
        said = (
            "My locker code word is marmalade." if turn == 3 else f"Please sort file {turn} by date and then by size."
        )
        memory.add_message("user", said)
        memory.add_message("assistant", f"File {turn} is sorted by date and then by size, and saved again.")
        if turn % 50 == 0:
            window = memory.conversation.window()
            assert window.tokens <= 10_000
            assert len(window.messages) <= 50
    for form in ("anthropic", "openai"):
        sent = memory.conversation.messages_for_llm(form)
        assert sum(memory_tokens(one) for one in sent) <= 11_000
    assert len(memory.conversation.last(1_000)) == 1_000
    assert "marmalade" in str(memory.recall("What is the code word of my locker?"))


def memory_tokens(message: object) -> int:
    return len(str(message)) // 4


def test_ordinary_episodes_last_a_day_and_not_less(memory: Memory, clock: SetClock) -> None:
    memory.start_session("s")
    memory.add_message("user", "It rains a little here.")
    clock.advance(timedelta(hours=23, minutes=59).total_seconds())
    assert [event.text for event in memory.episodic.recent(5)] == ["It rains a little here."]
    clock.advance(120)
    assert memory.episodic.recent(5) == []
