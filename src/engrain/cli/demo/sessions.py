"""Scenes about coming back: days later, forty-seven sessions later, and after five hundred turns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from engrain.cli.demo.stage import Stage
from engrain.core.clock import system_clock

TURNS = 500


@dataclass
class Calendar:
    """A clock that a scene can move."""

    days: float = 0

    def __call__(self) -> datetime:
        return system_clock() + timedelta(days=self.days)


def three_days_later(stage: Stage) -> None:
    stage.names["Calendar"] = Calendar
    stage.run("clock = Calendar()  # a clock that this demo can move", silent=True)
    stage.run('ben = Memory("ben.db", user="ben", clock=clock)')
    stage.leaving.append(stage.names["ben"].close)
    stage.run('opening = ben.start_session("monday")', silent=True)
    stage.run('ben.add_message("user", "The nightly import on heron times out.")', silent=True)
    stage.run('error = ben.record_error("The nightly import timed out after 30 s.")', silent=True)
    stage.run('ben.record_resolution(error, "Its time-out is 120 s now.")', silent=True)
    stage.run("closing = ben.end_session()", silent=True)
    stage.run("clock.days += 3", silent=True)
    told = stage.run('print(ben.start_session("thursday"))')
    kinds = stage.run("[event.kind for event in ben.episodic.recent()]")
    stage.fact("came_back_to", told.strip(), "heron" in told and "120 s" in told)
    stage.fact("episodes_left", kinds, "turn" not in kinds and "error" in kinds)
    stage.say("The last summary and what was important are there; ordinary episodes have expired. No model was used.")


def forty_seven_sessions_later(stage: Stage) -> None:
    stage.run('ben.add_message("user", "Remember that I prefer aisle seats.")', silent=True)
    stage.run(
        "for number in range(2, 48):\n"
        "    clock.days += 1\n"
        '    opening = ben.start_session(f"session {number}")\n'
        '    id = ben.add_message("user", f"Nothing new on day {number}.")\n',
        silent=True,
    )
    stage.run("then = clock()", silent=True)
    stage.run('question = "Which seat shall I book?"', silent=True)
    found = stage.run("ben.recall(question, n=1).hits[0].text")
    stage.fact("session_47", found.strip(), "aisle" in found)
    stage.run("clock.days += 1", silent=True)
    stage.run('ben.add_message("user", "I prefer window seats now.")', silent=True)
    now = stage.run("ben.recall(question, n=1).hits[0].text")
    before = stage.run("ben.recall(question, n=1, as_of=then).hits[0].text")
    stage.fact("session_48", now.strip(), "window" in now)
    stage.fact("as_of_session_47", before.strip(), "aisle" in before)
    stage.say("Said once in passing, used in session 47, changed in session 48. The old value still answers as_of.")


def five_hundred_turns(stage: Stage) -> None:
    stage.run("from engrain import Message", silent=True)
    stage.run('opening = ben.start_session("a long day")', silent=True)
    stage.run(
        f"for turn in range(1, {TURNS + 1}):\n"
        '    said = "My locker word is marmalade." if turn == 3 else "Go on."\n'
        '    ids = ben.add_messages([Message("user", said),\n'
        '                            Message("assistant", f"{turn} is sorted.")])\n',
        silent=True,
    )
    stage.run("window = ben.conversation.window()", silent=True)
    stage.run("len(window.messages), window.tokens")
    window = stage.names["window"]
    found = stage.run('ben.recall("What is the word of my locker?", n=1).hits[0].text')
    stage.fact("window_messages", len(window.messages), len(window.messages) <= 50)
    stage.fact("window_tokens", window.tokens, window.tokens <= 10_000)
    stage.fact("turn_3_is_found", found.strip(), "marmalade" in found)
    stage.say(f"{2 * TURNS:,} messages are in the log, few of them in the window, and turn 3 is still found.")
