"""`engrain chat` talks, says what it needs, and loses no session."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from wire_server import Says, Sends, WireServer, fails

from engrain import Memory
from engrain.cli.main import root
from engrain.providers import http

Chat = Callable[..., Result]


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as running:
        yield running
        assert running.refused == []


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def chat(store: Path, server: WireServer, monkeypatch: pytest.MonkeyPatch) -> Chat:
    monkeypatch.setenv("ENGRAIN_AGENT_MODEL", "openai:gpt-test")

    def call(said: str, *args: str, code: int = 0) -> Result:
        options = ["--store", str(store), "--user", "ana", "chat", "--url", server.openai_url, *args]
        result = CliRunner().invoke(root, options, input=said)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return call


def log(store: Path, session: str) -> list[tuple[str, str]]:
    with Memory(store, user="ana", background=False) as memory:
        return [(one.role, one.text) for one in memory.session(session).conversation.last(100)]


def test_each_line_is_answered_and_the_session_is_kept(chat: Chat, server: WireServer, store: Path) -> None:
    server.script = [Says("Hello, Ana."), Says("You are welcome.")]
    shown = chat("Hello.\n\n   \nThanks.\n", "--session", "monday")
    assert shown.stdout == "Hello, Ana.\nYou are welcome.\n"
    assert "1 step · 13 tokens in, 7 out" in shown.stderr
    assert "Session monday has ended. Its summary: engrain get " in shown.stderr
    assert log(store, "monday") == [
        ("user", "Hello."),
        ("assistant", "Hello, Ana."),
        ("user", "Thanks."),
        ("assistant", "You are welcome."),
    ]


def test_the_summary_is_where_it_is_said_to_be(chat: Chat, server: WireServer) -> None:
    server.script = [Says("The ferry to Tavira leaves at ten.")]
    said = chat("When does the ferry leave?\n").stderr.split("Its summary: engrain ")[1]
    got = CliRunner().invoke(root, shlex.split(said))
    assert "ferry to Tavira" in got.output


def test_a_session_is_gone_on_with(chat: Chat, server: WireServer) -> None:
    chat("My cat is called Miau.\n/quit\nnever said\n", "--session", "monday")
    chat("What is my cat called?\n", "--session", "monday")
    assert "My cat is called Miau." in json.dumps(server.asked[-1].body["messages"])
    assert "never said" not in json.dumps(server.asked[-1].body["messages"])


def test_json_is_a_line_for_each_answer_and_one_for_the_session(chat: Chat, server: WireServer) -> None:
    server.script = [Says("", [("remember", {"text": "Ana likes tea."})]), Says("Noted."), fails(400, "no credit")]
    shown = chat("I like tea.\nAnd you?\n/recall tea\n/status\n", "--session", "monday", "--json", code=1)
    answer, error, recall, status, end = map(json.loads, shown.stdout.splitlines())
    assert (answer["text"], answer["steps"], answer["stopped"]) == ("Noted.", 2, "end")
    assert answer["calls"][0]["tool"] == "remember"
    assert error["error"]["type"] == "ModelFailed"
    assert any("tea" in hit["text"] for hit in recall["hits"])
    assert (status["agent"]["failures"], status["agent"]["calls"]) == (1, 3)
    assert end["session"] == "monday"
    assert end["summary"]["slot"] == "session:monday"


def test_calls_of_tools_are_shown_beside_the_answer(chat: Chat, server: WireServer) -> None:
    server.script = [Says("", [("remember", {"text": "Ana likes tea."}), ("nothing", {})]), Says("Noted.")]
    shown = chat("I like tea.\n")
    assert shown.stdout == "Noted.\n"
    assert "remember(text='Ana likes tea.') → Noted." in shown.stderr
    assert "nothing() ✗ There is no tool 'nothing'." in shown.stderr


def test_a_stored_text_cannot_steer_the_terminal(chat: Chat, server: WireServer) -> None:
    server.script = [Says("red \x1b[31m text", [("remember", {"text": "\x1b[2J"})]), Says("\x1b]0;title\x07 done")]
    shown = chat("Hello.\n")
    assert "\x1b" not in shown.stdout + shown.stderr
    assert "\\u001b]0;title\\u0007 done" in shown.stdout


def test_the_commands(chat: Chat, server: WireServer, store: Path) -> None:
    with Memory(store, user="ana", background=False) as memory:
        id = memory.remember("The spare key lies under the blue pot.")
    shown = chat(f"/help\n/recall spare key\n/forget {id}\n/recall spare key\n/status\n")
    assert "/recall QUESTION" in shown.stdout
    assert shown.stdout.count("under the blue pot") == 1
    assert "Forgot 1 item." in shown.stdout
    assert "Nothing relevant is remembered." in shown.stdout
    assert "0, of which 0 failed" in shown.stdout
    assert server.asked == [], "commands cost nothing"
    assert "There was nothing to summarize." in shown.stderr
    assert "unknown command" in chat("/nonsense\nHello.\n", code=1).stderr


def test_an_error_ends_neither_the_talk_nor_the_session(chat: Chat, server: WireServer, store: Path) -> None:
    server.script = [fails(400, "no credit"), Says("There you are.")]
    shown = chat("Hello?\nAre you there?\n/forget nonsense\n/recall\n", "--session", "s", code=1)
    assert shown.stdout == "There you are.\n"
    assert shown.stderr.count("Error:") == 3
    assert "no credit" in shown.stderr
    assert ("user", "Hello?") in log(store, "s")


def test_another_attempt_is_told_in_one_line_and_logged_nowhere(
    chat: Chat, server: WireServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    server.script = [fails(503), Says("There."), fails(503), Says("There.")]
    shown = chat("Are you there?\n")
    assert shown.stdout == "There.\n"
    assert shown.stderr.count("Trying again in ") == 1
    assert "Trying again" not in caplog.text
    assert "Trying" not in chat("Are you there?\n", "--json").output


def test_with_no_model_it_says_how_to_set_one(store: Path) -> None:
    shown = CliRunner().invoke(root, ["--store", str(store), "chat"])
    assert shown.exit_code == 1
    assert isinstance(shown.exception, SystemExit)
    for word in ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY", "ollama:", "--url", "ENGRAIN_AGENT_MODEL"):
        assert word in shown.stderr
    assert not store.exists()


@pytest.mark.parametrize(("model", "words"), [("anthropic", "ANTHROPIC_API_KEY"), ("nonsense", "unknown model")])
def test_a_model_that_cannot_be_opened_makes_no_store(store: Path, model: str, words: str) -> None:
    shown = CliRunner().invoke(root, ["--store", str(store), "chat", "--model", model])
    assert shown.exit_code == 1
    assert words in shown.stderr
    assert not store.exists()


def test_the_main_model_is_asked_for_answers_alone(chat: Chat, server: WireServer) -> None:
    chat("Hello.\n" * 10)
    assert len(server.asked) == 10, "it was asked for summaries as well"


# Processes of their own


def started(store: Path, server: WireServer, **extra: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "engrain", "--store", str(store), "--user", "ana", "chat"]
    command += ["--model", "openai:gpt-test", "--url", server.openai_url, "--session", "s"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAIN_")}
    return subprocess.Popen(command, env=clean, **extra)


def wait_until(what: Callable[[], Any]) -> None:
    ends = time.monotonic() + 180
    while not what():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.01)


def test_ctrl_c_stops_an_answer_and_not_the_session(store: Path, server: WireServer) -> None:
    server.script = [Says("too late", delay=600), Says("Here I am.")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(store, server, **pipes) as talk:
        assert talk.stdin
        talk.stdin.write(b"Think long.\n")
        talk.stdin.flush()
        wait_until(lambda: server.asked)
        time.sleep(0.2)
        talk.send_signal(signal.SIGINT)
        out, err = talk.communicate(b"Are you there?\n", timeout=180)
    assert (talk.returncode, out.decode()) == (0, "Here I am.\n"), err.decode()
    assert "Stopped." in err.decode()
    assert "has ended" in err.decode()
    said = log(store, "s")
    assert [text for role, text in said if role == "user"] == ["Think long.", "Are you there?"]


def test_a_terminal_gets_a_prompt_and_answers_as_they_come_and_ctrl_d_ends_it(store: Path, server: WireServer) -> None:
    pieces = [{"delta": {"content": "Hello, "}}, {"delta": {"content": "Ana."}}, {"delta": {}, "finish_reason": "stop"}]
    first, *rest = [b"data: " + json.dumps({"choices": [{"index": 0, **one}]}).encode() + b"\n\n" for one in pieces]
    pause = b": nothing yet\n\n" * 20  # a second of it
    content = first + pause + b"".join(rest) + b"data: [DONE]\n\n"
    server.script = [Sends(content=content, headers={"Content-Type": "text/event-stream"}, drip=0.003)]
    master, slave = pty.openpty()
    with started(store, server, stdin=slave, stdout=slave, stderr=slave, close_fds=True) as talk:
        os.close(slave)
        assert b"in session s. /help lists the commands." in read_until(master, b"> ")
        os.write(master, b"hi\n")
        assert b"Ana." not in read_until(master, b"Hello, ")
        assert read_until(master, b"\n> ").startswith(b"Ana.")
        os.write(master, b"\x04")
        read_until(master, b"Session s has ended.")
        assert talk.wait(180) == 0
    os.close(master)
    assert log(store, "s")[-1] == ("assistant", "Hello, Ana.")


def read_until(terminal: int, mark: bytes) -> bytes:
    shown = b""
    ends = time.monotonic() + 180
    while mark not in shown:
        assert time.monotonic() < ends, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 10_000)
    return shown
