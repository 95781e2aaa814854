"""The past comes in once: transcripts, and files with rules."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engrain.cli.main import root
from engrain.connect.connect_home import ConnectHome, open_store
from engrain.connect.events import HookEvent, read_event
from engrain.connect.recorder import EventRecorder
from engrain.connect.repository import Repository, find_user
from engrain.connect.rule_files import BEGIN, END, load_rule_files, write_rule_block
from engrain.connect.transcripts import PastResult, load_transcripts
from engrain.core.errors import ConfigError
from engrain.memory import Memory, Store

AT = "2026-11-16T12:00:0{}.000Z"
BAD, GOOD = "npm test", "pnpm vitest run"


def claude(folder: str) -> list[dict[str, Any]]:
    common = {"sessionId": "s1", "cwd": folder, "isSidechain": False}

    def line(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        return {**common, "type": kind, "timestamp": AT.format(number), "message": {"content": content}, **more}

    def call(number: int, id: str, command: str) -> dict[str, Any]:
        return line(
            number, "assistant", [{"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}]
        )

    def result(number: int, id: str, text: str, failed: bool) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": failed}
        return line(number, "user", [block])

    return [
        {"type": "queue-operation", "sessionId": "s1"},
        line(0, "user", "we never use npm here", promptId="p1"),
        line(0, "user", "<command-name>/clear</command-name>", promptId="p0"),
        call(1, "t1", BAD),
        result(2, "t1", "Exit code 1\nMissing script", True),
        call(3, "t2", GOOD),
        result(4, "t2", "ok", False),
        line(5, "assistant", [{"type": "text", "text": "All tests pass."}]),
        line(6, "user", "a subagent", isSidechain=True) | {"isSidechain": True},
    ]


def codex(folder: str) -> list[dict[str, Any]]:
    def item(number: int, **payload: Any) -> dict[str, Any]:
        return {"type": "response_item", "timestamp": AT.format(number), "payload": payload}

    def text(role: str, said: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": said}]}

    def run(number: int, id: str, command: str, output: str) -> list[dict[str, Any]]:
        asked = item(number, type="function_call", call_id=id, arguments=json.dumps({"cmd": command}))
        return [asked, item(number, type="function_call_output", call_id=id, output=output)]

    return [
        {"type": "session_meta", "timestamp": AT.format(0), "payload": {"id": "s1", "cwd": folder}},
        {"type": "turn_context", "timestamp": AT.format(0), "payload": {"turn_id": "p1"}},
        item(0, **text("user", "<environment_context>x</environment_context>")),
        item(1, **text("user", "we never use npm here")),
        *run(2, "t1", BAD, "Process exited with code 1\nOutput:\nMissing script"),
        *run(3, "t2", GOOD, "Process exited with code 0\nOutput:\nok"),
        item(4, **text("assistant", "All tests pass.")),
    ]


def gemini(folder: str) -> list[dict[str, Any]]:
    def call(id: str, command: str, output: str) -> dict[str, Any]:
        result = [{"functionResponse": {"response": {"output": output}}}]
        return {"id": id, "name": "run_shell_command", "args": {"command": command}, "result": result}

    context = f"<session_context>\n- **Workspace Directories:**\n  - {folder}\n- more"
    said = "<hook_context>old</hook_context>\n\nwe never use npm here"
    calls = [call("t1", BAD, "Missing script\nExit Code: 1"), call("t2", GOOD, "ok")]
    return [
        {"sessionId": "s1", "kind": "main"},
        {
            "$set": {
                "messages": [{"id": "m0", "timestamp": AT.format(0), "type": "user", "content": [{"text": context}]}]
            }
        },
        {"id": "m1", "timestamp": AT.format(1), "type": "user", "content": [{"text": said}]},
        {"id": "m2", "timestamp": AT.format(2), "type": "gemini", "content": "", "toolCalls": calls},
        {"id": "m3", "timestamp": AT.format(3), "type": "gemini", "content": "All tests pass."},
    ]


def copilot(folder: str) -> list[dict[str, Any]]:
    def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "timestamp": AT.format(number), "data": data}

    def run(number: int, id: str, command: str, code: int) -> list[dict[str, Any]]:
        arguments, result = {"command": command}, {"detailedContent": "output"}
        start = event(number, "tool.execution_start", toolCallId=id, toolName="bash", arguments=arguments)
        exit_code = {"exitCode": code}
        return [start, event(number, "tool.execution_complete", toolCallId=id, shellExecution=exit_code, result=result)]

    return [
        event(0, "session.start", sessionId="s1", context={"cwd": folder}),
        event(1, "user.message", content="we never use npm here", messageId="m1"),
        *run(2, "t1", BAD, 1),
        *run(3, "t2", GOOD, 0),
        event(4, "assistant.message", content="All tests pass."),
    ]


FILES = {
    "claude": (".claude/projects/-x/s1.jsonl", claude),
    "codex": (".codex/sessions/2026/11/16/rollout-1.jsonl", codex),
    "gemini": (".gemini/tmp/x/chats/1.jsonl", gemini),
    "copilot": (".copilot/session-state/s1/events.jsonl", copilot),
}


@pytest.fixture
def store(home: ConnectHome) -> Iterator[Store]:
    with open_store(home, background=False) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "proj"
    folder.mkdir()
    return folder


@pytest.fixture
def memory(store: Store, project: Path) -> Memory:
    return store.memory(agent=str(project), user=find_user())


@pytest.mark.parametrize("client", list(FILES))
def test_a_transcript_is_loaded_once_and_again_when_it_grew(
    client: str, store: Store, home: ConnectHome, user_folder: Path, project: Path, memory: Memory
) -> None:
    name, make = FILES[client]
    path = user_folder / name
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in make(str(project))) + '{"type": "cut off')
    assert load_transcripts(store, home, client) == PastResult(1, 0, 4)
    assert load_transcripts(store, home, client) == PastResult(0, 1, 0)
    path.write_text(path.read_text())
    path.touch()
    assert load_transcripts(store, home, client).transcripts <= 1
    texts = [one.text for one in memory.session(f"{client}-s1").messages(50)]
    assert texts.count("we never use npm here") == texts.count("All tests pass.") == 1
    assert [text for text in texts if text.startswith("Error: ") and BAD in text] != []
    assert [text for text in texts if text.startswith("Resolved: ") and GOOD in text] != []
    assert [one.text for one in memory.list({"kind": "fact", "metadata.coding": "rule"})] == ["we never use npm here"]


def test_a_line_with_an_impossible_folder_stops_no_load(
    store: Store, home: ConnectHome, user_folder: Path, project: Path, memory: Memory
) -> None:
    path = user_folder / FILES["claude"][0]
    path.parent.mkdir(parents=True)
    hostile = [claude(folder)[1] | {"sessionId": "s0"} for folder in ("/etc\0", "/\ud800", "../" * 500)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*hostile, *claude(str(project))]))
    load_transcripts(store, home, "claude")
    assert "we never use npm here" in [one.text for one in memory.session("claude-s1").messages(50)]


def test_a_session_that_hooks_recorded_is_not_loaded_again(
    store: Store, home: ConnectHome, user_folder: Path, project: Path, memory: Memory
) -> None:
    payload = {"session_id": "s1", "cwd": str(project), "prompt": "we never use npm here", "prompt_id": "p1"}
    live = {"client": "claude", "event": "UserPromptSubmit", "payload": payload, "at": 1_794_830_400.0}
    EventRecorder(store, home).answer(live)
    path = user_folder / FILES["claude"][0]
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in claude(str(project))))
    load_transcripts(store, home, "claude")
    texts = [one.text for one in memory.session("claude-s1").messages(50)]
    assert texts.count("we never use npm here") == 1


def test_files_with_rules_are_pinned_items_with_path_and_hash(memory: Memory, project: Path) -> None:
    (project / "AGENTS.md").write_text("Run make check before you commit.")
    repository = Repository(str(project), project)
    assert load_rule_files(memory, repository) == [project / "AGENTS.md"]
    assert load_rule_files(memory, repository) == []
    (project / "AGENTS.md").write_text("Run make test before you commit.")
    load_rule_files(memory, repository)
    [item] = memory.list({"kind": "fact"})
    assert (item.text, item.pinned, item.metadata["path"]) == ("Run make test before you commit.", True, "AGENTS.md")
    assert item.trust < 1


def test_kept_rules_are_written_into_their_block_alone(memory: Memory, project: Path) -> None:
    path, repository = project / "AGENTS.md", Repository(str(project), project)
    mine = "# Mine\r\n\r\nRun make check.\r\n"
    path.write_bytes(mine.encode())
    memory.remember("we never use npm here", metadata={"coding": "rule"})
    rules = memory.list({"metadata.coding": "rule"})
    assert write_rule_block(path, rules)
    written = path.read_bytes().decode()
    assert written.startswith(mine)
    assert written[len(mine) :].split("\r\n") == ["", BEGIN, "- we never use npm here", END, ""]
    assert not write_rule_block(path, rules)
    load_rule_files(memory, repository)
    [item] = memory.list({"pinned": True})
    assert item.text == "# Mine\n\nRun make check."  # without our own block
    path.write_bytes((written + "Later.\r\n").encode())
    assert write_rule_block(path, [])
    assert path.read_bytes().decode() == mine + "Later.\r\n"
    path.write_text(f"{BEGIN}\nx")
    with pytest.raises(ConfigError, match="damaged"):
        write_rule_block(path, rules)
    assert path.read_text() == f"{BEGIN}\nx"
    assert write_rule_block(project / "CLAUDE.md", rules)
    assert (project / "CLAUDE.md").read_text() == f"{BEGIN}\n- we never use npm here\n{END}\n"


def make_past(project: Path, prompts: int) -> Iterator[HookEvent]:
    for number in range(prompts):
        payload = {"session_id": "s0", "cwd": str(project), "prompt": f"look at file {number}", "turn_id": f"t{number}"}
        event = read_event({"client": "codex", "event": "prompt", "payload": payload, "at": time.time() - 8e6})
        assert event is not None
        yield event


def test_recap_and_rules_show_and_change_what_agents_are_told(
    store: Store, home: ConnectHome, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(root, words, catch_exceptions=False, prog_name="engrain")
        assert result.exit_code == 0, result.output
        return str(result.output)

    recorder = EventRecorder(store, home)
    for number, prompt in enumerate(
        ("we never use npm here", "I prefer short answers", "let's go with zod, yup is out")
    ):
        payload = {"session_id": "s1", "cwd": str(project), "prompt": prompt, "prompt_id": f"p{number}"}
        recorder.answer({"client": "claude", "event": "UserPromptSubmit", "payload": payload, "at": time.time()})
    monkeypatch.chdir(project)
    assert "1 session, 3 prompts." in run("recap")
    assert "claude: we never use npm here (+2)" in run("recap")
    assert "let's go with zod" in run("recap", "--days", "7")
    recorder.load(make_past(project, 20))
    monkeypatch.setattr("engrain.cli.commands.connect.PAGE", 5)
    assert "1 session, 3 prompts." in run("recap")  # though a past was loaded since
    assert "2 sessions, 23 prompts." in run("recap", "--days", "300")
    told = json.loads(run("rules", "--json"))
    [wish] = told["About the user"]
    assert wish["text"] == "I prefer short answers"
    decision, rule = told["Holds in this repository"]
    run("rules", "--edit", rule["id"], "we never use npm or yarn here")
    run("rules", "--forget", wish["id"])
    assert "npm or yarn" in run("rules")
    assert "short answers" not in run("rules")
    (project / "AGENTS.md").write_text("Run make check.")
    assert "AGENTS.md" in run("rules", "--read")
    assert "AGENTS.md" in run("rules")
    assert "2 rules written into CLAUDE.md." in run("rules", "--write", "CLAUDE.md")
    assert "- let's go with zod, yup is out" in (project / "CLAUDE.md").read_text()
    assert decision["text"] in run("rules")
    for words in (
        ("rules", "--read", "--forget", rule["id"]),
        ("recap", "--store", "x.db"),
        ("rules", "--user", "ana"),
    ):
        assert CliRunner().invoke(root, words).exit_code == 2
