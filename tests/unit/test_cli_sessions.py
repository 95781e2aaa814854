"""The commands that show sessions, episodes and procedures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from engrain import Memory
from engrain.cli.main import root


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "agent.db")
    with Memory(path) as memory:
        memory.start_session("monday")
        memory.add_message("user", "The wedding is in Lisbon.\x1b[31m")
        memory.episodic.record_decision("The band is Heron.", "they play jazz")
        memory.end_session()
        memory.start_session("tuesday")
        memory.add_message("user", "Hello again.", speaker="Ana")
        memory.procedural.learn("deploy", ["test", "push"], when="a release is due")
        memory.procedural.learn("deploy", ["test", "push", "watch"])
        memory.working.start("Deploy it", procedure="deploy")
        memory.working.finish(True, "out")
    return path


def run(store: str, *args: str, code: int = 0) -> str:
    done = CliRunner().invoke(root, ["--store", store, *args])
    assert done.exit_code == code, done.output
    return done.output


def test_sessions_are_listed_with_their_summaries(store: str) -> None:
    shown = run(store, "sessions")
    assert shown.index("tuesday") < shown.index("monday")
    assert "no summary yet" in shown
    assert "Lisbon" in shown
    assert "\x1b" not in shown
    assert [one["session"] for one in json.loads(run(store, "sessions", "--json"))] == ["tuesday", "monday"]


def test_one_session_shows_its_messages_and_changes_nothing(store: str) -> None:
    assert "Ana\n  Hello again." in run(store, "sessions", "tuesday")
    assert json.loads(run(store, "sessions", "tuesday", "--json"))[0]["text"] == "Hello again."
    assert "no summary yet" in run(store, "sessions")
    assert "there is no session" in run(store, "sessions", "friday", code=1)


def test_episodes_say_what_makes_them_important(store: str) -> None:
    shown = run(store, "episodes")
    assert "decision" in shown
    assert "Heron" in shown
    first = json.loads(run(store, "episodes", "--important", "--json"))[0]
    assert first["kind"] == "decision"
    assert run(store, "episodes", "--important", "--session", "monday", code=2)


def test_procedures_show_versions_and_record(store: str) -> None:
    assert "version 2, worked 1 of 1 times, at least 25%" in run(store, "procedures")
    shown = run(store, "procedures", "deploy")
    assert "version 1, replaced, not tried yet" in shown
    assert "when a release is due" in shown
    assert "3. watch" in run(store, "procedures", "--goal", "deploy a release")
    assert "there is no procedure" in run(store, "procedures", "cook", code=1)


def test_a_message_is_added_and_what_followed_from_it_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    said = ("add-message", "--session", "monday")
    shown = run(path, *said, "I live in Lima. I'm allergic to peanuts.")
    assert "fact      user.city: I live in Lima" in shown
    assert "fact      I'm allergic to peanuts" in shown
    moved = run(path, *said, "I moved to Quito.")
    assert "replaced  user.city: I live in Lima" in moved
    answer = json.loads(run(path, *said, "Noted.", "--role", "assistant", "--json"))
    assert answer["facts"] == []
    with Memory(path) as memory:
        assert [(one.role, one.text) for one in memory.sessions.messages("monday")][1:] == [
            ("user", "I moved to Quito."),
            ("assistant", "Noted."),
        ]
        assert memory.get(answer["id"]) is not None
        kept = memory.add_message("user", "My phone number is 555 0199.").facts[0]
    assert "forgot    1 item" in run(path, *said, "Please forget my phone number.")
    with Memory(path) as memory:
        assert memory.get(kept) is None


def test_the_whole_prompt_for_a_request_is_printed(tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    with Memory(path) as memory:
        memory.add_message("user", "Please always answer in two sentences. I'm allergic to peanuts.")
        whole = memory.prompt("Plan a dinner for my friends", history=False)
    assert run(path, "prompt", "Plan a dinner for my friends").rstrip("\n") == whole
    assert json.loads(run(path, "prompt", "Plan a dinner for my friends", "--json")) == {"text": whole}
    short = run(path, "prompt", "Plan a dinner for my friends", "--budget", "15")
    assert len(short) < len(whole)


def test_the_block_of_a_recall_without_hits_still_has_the_standing_wishes(tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    with Memory(path) as memory:
        memory.add_message("user", "Please always answer in two sentences.")
        assert not memory.recall("How tall is the Eiffel Tower?")
    assert "always answer in two sentences" in run(path, "recall", "How tall is the Eiffel Tower?", "--prompt")
