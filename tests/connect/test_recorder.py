"""Events of real clients, as they were recorded, become a memory of the repository."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from examples import for_each

from engrain.connect.clients import Place, find_client
from engrain.connect.connect_home import ConnectHome, open_store, switch
from engrain.connect.events import read_event, strip_context
from engrain.connect.recorder import EventRecorder
from engrain.connect.repository import find_repository, normalize_remote
from engrain.connect.session_texts import PROMPT_TOKENS, START_TOKENS
from engrain.connect.spool import put_event
from engrain.connect.what_to_keep import Excerpt
from engrain.memory import Memory, Store

PAYLOADS = Path(__file__).parent / "payloads"
CLIENTS = ("claude", "codex", "gemini", "copilot", "opencode")
SECRETS = (
    "sk-ant-api03-AbCdEf0123456789AbCdEf0123456789AbCdEf0123456789",
    "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
    "AKIAIOSFODNN7EXAMPLE",
    "4111 1111 1111 1111",
    "xoxb-1234567890-abcdefghijklmnop",
    "hunter-tulip-9",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "proj"
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", "git@example.org:ana/app.git"], check=True)
    return folder


@pytest.fixture
def store(home: ConnectHome) -> Iterator[Store]:
    with open_store(home, background=False) as opened:
        yield opened


@pytest.fixture
def recorder(store: Store, home: ConnectHome) -> EventRecorder:
    return EventRecorder(store, home, user="ana")


@pytest.fixture
def memory(store: Store) -> Memory:
    return store.memory(agent="example.org/ana/app", user="ana")


def message(client: str, event: str, project: Path, /, **payload: Any) -> dict[str, Any]:
    common = {"session_id": "s1", "cwd": str(project), "hook_event_name": event}
    return {"client": client, "event": event, "payload": common | payload, "at": 1_794_833_000.0 + len(payload)}


def read_payloads(client: str, project: Path) -> Iterator[dict[str, Any]]:
    """The events of a recorded session, in our repository; those of opencode as its plugin sends them."""
    for path in sorted((PAYLOADS / client).glob("*.json")):
        recorded = json.loads(path.read_text())
        event, payload = recorded["event"], recorded.get("stdin")
        if payload is None:
            event, payload = as_plugin(event, recorded["data"])
        yield {"client": client, "event": event, "payload": payload | {"cwd": str(project)}, "at": 1_794_833_000.0}


def as_plugin(event: str, data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if event == "chat.message":
        parts = data["output"]["parts"]
        text = "\n".join(part["text"] for part in parts)
        return "prompt", {"session_id": data["input"]["sessionID"], "prompt": text, "turn_id": parts[0]["messageID"]}
    if event == "tool.execute.after":
        asked, said = data["input"], data["output"]
        about = {"session_id": asked["sessionID"], "tool_use_id": asked["callID"], "command": asked["args"]["command"]}
        return "tool", about | {"output": said["output"], "exit": said["metadata"]["exit"]}
    if event == "event.session.idle":
        session = data["properties"]["sessionID"]
        return "answer", {"session_id": session, "turn_id": "last", "answer": "FAKE-ANSWER: run `make test`."}
    return event, {"session_id": "none"}


def block_of(output: dict[str, Any]) -> str:
    return str(output.get("additionalContext") or output.get("hookSpecificOutput", {}).get("additionalContext", ""))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_recorded_session_leaves_prompt_answer_error_and_solution(
    client: str, recorder: EventRecorder, memory: Memory, project: Path
) -> None:
    for event in read_payloads(client, project):
        recorder.answer(event)
    for event in read_payloads(client, project):
        recorder.answer(event)  # nothing twice
    [session] = memory.sessions.list()
    messages = memory.session(session.session).messages()
    assert [one.text for one in messages if one.role == "user" and "tabs" in one.text] == [
        next(one.text for one in messages if "always use tabs" in one.text)
    ]
    errors = [one for one in messages if one.text.startswith("Error: ")]
    solutions = [one for one in messages if one.text.startswith("Resolved: ")]
    assert len(errors) == len(solutions) == 1
    assert "no_such_module_xyz" in errors[0].text
    assert "tests passed" in solutions[0].text
    answers = [one for one in messages if one.text.startswith("FAKE-ANSWER")]
    assert len(answers) == (client != "copilot")  # its answer is in a transcript that does not exist here


CURSOR = {"conversation_id": "c1", "generation_id": "g1", "cursor_version": "2.4.0", "transcript_path": None}
SHELL = {"tool_name": "Shell", "tool_input": {"command": "npm test"}}
VSCODE = {"sessionId": "v1", "timestamp": "2026-02-09T10:30:00.000Z", "transcript_path": "/tmp/x.json"}
TERMINAL = {"tool_name": "run_in_terminal", "tool_input": {"command": "npm test"}}
WORKED = {"tool_input": {"command": "pnpm test"}, "tool_use_id": "t2"}
# As the clients document them: neither was tried.
DOCUMENTED: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "cursor": [
        ("sessionStart", CURSOR | {"session_id": "c1", "is_background_agent": False}),
        ("beforeSubmitPrompt", CURSOR | {"prompt": "in this repo we never use tabs", "attachments": []}),
        ("postToolUseFailure", CURSOR | SHELL | {"error_message": "vitest: not found", "tool_use_id": "t1"}),
        ("postToolUse", CURSOR | SHELL | WORKED | {"tool_output": '{"exitCode":0,"stdout":"12 passed"}'}),
        ("afterAgentResponse", CURSOR | {"text": "The tests pass."}),
        ("sessionEnd", CURSOR | {"session_id": "c1", "reason": "completed"}),
    ],
    "vscode": [
        ("SessionStart", VSCODE | {"source": "new"}),
        ("UserPromptSubmit", VSCODE | {"prompt": "in this repo we never use tabs"}),
        ("PostToolUse", VSCODE | TERMINAL | {"tool_response": "sh: vitest: command not found", "tool_use_id": "t1"}),
        ("PostToolUse", VSCODE | TERMINAL | WORKED | {"tool_response": "12 passed"}),
    ],
}


@pytest.mark.parametrize("client", DOCUMENTED)
def test_a_documented_session_leaves_prompt_answer_error_and_solution(
    client: str, recorder: EventRecorder, memory: Memory, project: Path, home: ConnectHome
) -> None:
    edit = find_client(client).list_edits(Place(home, project, project))[-1]
    hooks = json.loads(edit.add(""))["hooks"]
    assert set(hooks) == {event for event, _ in DOCUMENTED[client]}
    for event, payload in DOCUMENTED[client]:
        command = shlex.split(hooks[event][0]["command"].removesuffix(" || true"))
        assert command[-2:] == [client, event]  # the payloads name it each in another way
        place = {"workspace_roots": [str(project)]} if client == "cursor" else {"cwd": str(project)}
        recorder.answer({"client": client, "event": event, "payload": payload | place, "at": 1_794_833_000.0})
    [session] = memory.sessions.list()
    texts = [one.text for one in memory.session(session.session).messages()]
    assert [text.partition(":")[0] for text in texts if "npm test" in text] == ["Error", "Resolved"]
    assert "in this repo we never use tabs" in texts
    assert ("The tests pass." in texts) == (client == "cursor")  # VS Code documents no event with the answer
    assert [item.text for item in memory.list({"metadata.coding": "rule"})] == ["in this repo we never use tabs"]


@for_each("client", CLIENTS)
def test_every_payload_is_read_or_ignored(client: str, tmp_path: Path) -> None:
    for event in read_payloads(client, tmp_path):
        found = read_event(event)
        assert found is None or (found.session.startswith(client) and found.folder == str(tmp_path))


def test_one_session_recalls_what_another_was_told(recorder: EventRecorder, project: Path) -> None:
    told = "Remember that the staging port is 4711."
    recorder.answer(message("claude", "UserPromptSubmit", project, prompt=told, prompt_id="p1"))
    again = message("codex", "UserPromptSubmit", project, prompt="Which port does staging use?", session_id="s2")
    assert "4711" in block_of(recorder.answer(again))
    same = message("claude", "UserPromptSubmit", project, prompt="Which port does staging use?", prompt_id="p2")
    assert block_of(recorder.answer(same)) == ""  # the session said it itself
    more = message("codex", "UserPromptSubmit", project, prompt="And the port of staging was?", session_id="s2")
    assert "4711" not in block_of(recorder.answer(more))  # shown already


def test_nothing_is_shown_twice_in_a_session_even_by_another_process(
    recorder: EventRecorder, store: Store, home: ConnectHome, project: Path
) -> None:
    told = "Remember that the staging port is 4711."
    recorder.answer(message("claude", "UserPromptSubmit", project, prompt=told, prompt_id="p1"))

    def ask(asked: EventRecorder, number: int, session: str = "s2") -> str:
        about = {"session_id": session, "turn_id": f"t{number}"}
        return block_of(
            asked.answer(message("codex", "UserPromptSubmit", project, prompt="Which port does staging use?", **about))
        )

    assert "4711" in ask(recorder, 1)
    assert ask(recorder, 2) == ""
    recorder.save_sessions()
    restarted = EventRecorder(store, home, user="ana")
    assert ask(restarted, 3) == ""
    assert "4711" in ask(restarted, 4, "s3")
    compacted = message("codex", "SessionStart", project, session_id="s2")
    assert "4711" in block_of(restarted.answer(compacted))  # the client has lost what it was shown
    assert ask(restarted, 5) == ""


def test_a_hook_in_settings_and_plugin_is_answered_once(recorder: EventRecorder, project: Path) -> None:
    recorder.answer(message("claude", "UserPromptSubmit", project, prompt="we never use tabs here", prompt_id="p1"))
    events = [
        message("claude", "SessionStart", project, session_id="s2", source="startup"),
        message("claude", "UserPromptSubmit", project, session_id="s2", prompt="do we use tabs here?", prompt_id="p2"),
    ]
    for event in events:
        twice = [recorder.answer(event | {"at": event["at"] + number}) for number in range(2)]
        assert twice[1] == {}
    assert recorder.answer(events[0] | {"payload": {**events[0]["payload"], "source": "compact"}}) != {}


def test_two_prompts_of_one_turn_are_both_kept(recorder: EventRecorder, memory: Memory, project: Path) -> None:
    prompts = ["rename the parser please", "and the lexer as well"]
    for prompt in prompts:
        recorder.answer(message("codex", "UserPromptSubmit", project, prompt=prompt, turn_id="t1"))
    assert [one.text for one in memory.session("codex-s1").messages()] == prompts


def test_a_copy_in_the_spool_of_a_recorded_failure_is_solved_no_second_time(
    recorder: EventRecorder, memory: Memory, home: ConnectHome, project: Path
) -> None:
    def run(command: str, event: str = "PostToolUse", **result: str) -> dict[str, Any]:
        about = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": command}
        return message("claude", event, project, **about, **result)

    failed = run("npm test", "PostToolUseFailure", error="no tests found")
    recorder.answer(failed)
    recorder.answer(run("npm run check", tool_response="3 passed"))
    put_event(home, failed)  # the hook had waited for its answer in vain
    assert recorder.take_spooled() == 1
    recorder.answer(run("npm run verify", tool_response="3 passed"))
    texts = [one.text for one in memory.session("claude-s1").messages()]
    assert [text.partition(":")[0] for text in texts] == ["Error", "Resolved"]


def test_an_event_that_meets_a_defect_holds_up_no_other(
    recorder: EventRecorder, memory: Memory, home: ConnectHome, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(text: str, *_: object) -> list[Excerpt]:
        return [] if "second" in text else [][1]

    monkeypatch.setattr("engrain.connect.recorder.read_prompt", read)
    for number, prompt in enumerate(("the first one", "the second one")):
        put_event(home, message("claude", "UserPromptSubmit", project, prompt=prompt, prompt_id=f"p{number}"))
    assert recorder.take_spooled() == 2
    assert list(home.spool.iterdir()) == []
    assert [one.text for one in memory.session("claude-s1").messages()] == ["the second one"]


def test_a_rule_that_a_session_repeats_is_not_shown_to_it(recorder: EventRecorder, project: Path) -> None:
    rule = "in this repo we never commit the dist folder"
    for number, session in enumerate(("s1", "s2")):
        about = {"session_id": session, "prompt_id": f"p{number}"}
        recorder.answer(message("claude", "UserPromptSubmit", project, prompt=rule, **about))
    asked = {"prompt": "may I commit the dist folder now?", "prompt_id": "p9"}
    assert block_of(recorder.answer(message("claude", "UserPromptSubmit", project, session_id="s2", **asked))) == ""
    assert "dist" in block_of(recorder.answer(message("claude", "UserPromptSubmit", project, session_id="s3", **asked)))


def test_a_session_starts_with_rules_wishes_and_commands(recorder: EventRecorder, project: Path) -> None:
    for number, prompt in enumerate(("in this repo we never commit dist/", "I prefer short commit messages.")):
        recorder.answer(message("claude", "UserPromptSubmit", project, prompt=prompt, prompt_id=f"p{number}"))
    ran = {"tool_name": "Bash", "tool_input": {"command": "make check"}, "tool_response": {"stdout": "ok"}}
    recorder.answer(message("claude", "PostToolUse", project, tool_use_id="t1", **ran))
    block = block_of(recorder.answer(message("gemini", "SessionStart", project, session_id="s2")))
    assert '"in this repo we never commit dist/"' in block
    assert '"I prefer short commit messages."' in block
    assert '"make check"' in block
    other = project.parent / "other"
    other.mkdir()
    block = block_of(recorder.answer(message("claude", "SessionStart", other, session_id="s3")))
    assert "short commit messages" in block  # a wish of the user holds everywhere
    assert "dist/" not in block


def test_blocks_stay_within_their_budgets(recorder: EventRecorder, store: Store, project: Path) -> None:
    for number in range(30):
        rule = f"in this repo we always write module number {number} of the billing service with {'care ' * 20}."
        recorder.answer(message("claude", "UserPromptSubmit", project, prompt=rule, prompt_id=f"p{number}"))
    count = store.services.count_tokens
    start = block_of(recorder.answer(message("claude", "SessionStart", project, session_id="s2")))
    asked = message(
        "claude", "UserPromptSubmit", project, prompt="How do we write the billing service?", session_id="s2"
    )
    prompt = block_of(recorder.answer(asked))
    assert 200 < count(start) <= START_TOKENS
    assert 50 < count(prompt) <= PROMPT_TOKENS
    assert max(len(start), len(prompt)) <= 9_000


def test_secrets_and_private_parts_reach_no_file(
    recorder: EventRecorder, store: Store, home: ConnectHome, project: Path
) -> None:
    keys = " ".join(SECRETS[:5])
    prompt = message("claude", "UserPromptSubmit", project, prompt=f"use {keys} <private>{SECRETS[5]}</private> please")
    failed = {
        "tool_name": "Bash",
        "tool_input": {"command": f"deploy --token {SECRETS[1]}"},
        "error": f"denied: {keys}",
    }
    error = message("claude", "PostToolUseFailure", project, tool_use_id="t1", **failed)
    output = {"tool_name": "Bash", "tool_input": {"command": "make env"}, "tool_response": {"stdout": keys}}
    worked = message("claude", "PostToolUse", project, tool_use_id="t2", **output)
    for one in (prompt, error, worked):
        put_event(home, one)
        recorder.answer(one)
    written = b"".join(path.read_bytes() for path in home.folder.rglob("*") if path.is_file())
    assert [secret for secret in SECRETS if secret.encode() in written] == []
    assert recorder.take_spooled() == 3
    assert list(home.spool.iterdir()) == []


def test_a_subagent_gets_nothing_and_leaves_its_answer(recorder: EventRecorder, memory: Memory, project: Path) -> None:
    for path in sorted((PAYLOADS / "claude-more").glob("*.json")):
        recorded = json.loads(path.read_text())
        payload = recorded["stdin"] | {"cwd": str(project)}
        recorder.answer({"client": "claude", "event": recorded["event"], "payload": payload})
    session = "claude-11111111-2222-4333-8444-555555555555"
    texts = [(one.speaker, one.text[:20]) for one in memory.session(session).messages(50)]
    assert len([speaker for speaker, _ in texts if speaker == "subagent"]) == 2
    tool = {"tool_name": "Bash", "tool_input": {"command": "make x"}, "agent_id": "a1", "error": "bad"}
    assert read_event(message("claude", "PostToolUseFailure", project, **tool)) is None
    assert read_event(message("claude", "SubagentStop", project, agent_type="", last_assistant_message="x")) is None


def test_the_answer_of_copilot_is_kept_once_though_it_comes_late(
    recorder: EventRecorder, memory: Memory, project: Path, user_folder: Path
) -> None:
    path = user_folder / ".copilot/session-state/s1/events.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"type": "user.message"}\n')

    def send(event: str, at: int) -> None:
        payload = {"sessionId": "s1", "cwd": str(project), "timestamp": at, "transcriptPath": str(path)}
        recorder.answer({"client": "copilot", "event": event, "payload": payload, "at": float(at)})

    send("agentStop", 1)  # too early: nothing is there yet
    with path.open("a") as file:
        file.write('{"type": "assistant.message", "data": {"content": "All done.", "messageId": "m1"}}\n')
    for at, event in enumerate(("sessionEnd", "agentStop", "sessionEnd"), 2):
        send(event, at)
    assert [one.text for one in memory.session("copilot-s1").messages()] == ["All done."]


def test_an_answer_that_copilot_writes_after_its_session_ended_is_kept(
    recorder: EventRecorder, memory: Memory, project: Path, user_folder: Path
) -> None:
    path = user_folder / ".copilot/session-state/s2/events.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"type": "user.message"}\n')
    payload = {"sessionId": "s2", "cwd": str(project), "timestamp": 1, "transcriptPath": str(path)}
    recorder.answer({"client": "copilot", "event": "sessionEnd", "payload": payload, "at": 1.0})
    assert recorder.take_spooled() == 0  # it waits for the answer
    with path.open("a") as file:
        file.write('{"type": "assistant.message", "data": {"content": "All done.", "messageId": "m1"}}\n')
    assert recorder.take_spooled() == 1
    assert [one.text for one in memory.session("copilot-s2").messages()] == ["All done."]


def test_ten_sessions_at_once_lose_nothing(recorder: EventRecorder, memory: Memory, project: Path) -> None:
    def talk(number: int) -> None:
        about = {"session_id": f"n{number}", "prompt_id": "p1"}
        recorder.answer(message("claude", "UserPromptSubmit", project, prompt=f"question {number} of ten", **about))
        recorder.answer(message("claude", "Stop", project, last_assistant_message=f"answer {number} of ten", **about))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(talk, range(10)))
    kept = [one.text for number in range(10) for one in memory.session(f"claude-n{number}").messages()]
    assert sorted(kept) == sorted(f"{kind} {number} of ten" for kind in ("question", "answer") for number in range(10))


def test_a_switched_off_repository_keeps_and_shows_nothing(
    recorder: EventRecorder, memory: Memory, home: ConnectHome, project: Path
) -> None:
    switch(home, False, find_repository(project).name)
    recorder.answer(message("claude", "UserPromptSubmit", project, prompt="we never use tabs here", prompt_id="p1"))
    assert memory.list() == []
    switch(home, True, find_repository(project).name)
    recorder.answer(message("claude", "UserPromptSubmit", project, prompt="we never use tabs here", prompt_id="p2"))
    assert memory.list({"kind": "fact"})[0].text == "we never use tabs here"


def test_a_kept_rule_can_be_explained_and_forgotten(recorder: EventRecorder, memory: Memory, project: Path) -> None:
    prompt = "in this repo we never commit dist/, so keep it out. now fix the build"
    recorder.answer(message("claude", "UserPromptSubmit", project, prompt=prompt, prompt_id="p1"))
    [fact] = memory.list({"kind": "fact"})
    assert fact.metadata["coding"] == "rule"
    [cited] = memory.explain(fact.id).item.sources[0].cites
    row = memory.get(cited.item)
    assert row is not None
    assert row.text[cited.start : cited.end] == fact.text
    memory.forget(fact.id)
    assert "dist/" not in "".join(one.text for one in memory.list(history=True))


def test_a_command_that_runs_every_day_is_one_item(recorder: EventRecorder, memory: Memory, project: Path) -> None:
    for number in range(4):
        worked = {"tool_name": "Bash", "tool_input": {"command": "make check"}, "tool_response": {"stdout": "ok"}}
        about = {"session_id": f"s{number}", "tool_use_id": f"t{number}"}
        recorder.answer(message("claude", "PostToolUse", project, **worked, **about))
    assert [item.text for item in memory.list({"metadata.coding": "command"})] == ["make check"]


def test_worktrees_and_subfolders_share_a_memory_and_strangers_do_not(project: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "feature"], check=True)
    (project / "src/deep").mkdir(parents=True)
    assert (
        find_repository(project / "src/deep").name == find_repository(tmp_path / "tree").name == "example.org/ana/app"
    )
    assert find_repository(tmp_path / "tree").branch == "feature"
    for owner in ("x", "y"):
        subprocess.run(["git", "init", "-q", str(tmp_path / owner / "app")], check=True)
    assert find_repository(tmp_path / "x/app").name != find_repository(tmp_path / "y/app").name
    assert find_repository("/no/such/folder").name == "/no/such/folder"


@for_each(
    "url, name",
    [
        ("git@github.com:Ana/App.git", "github.com/ana/app"),
        ("https://ana:secret@github.com/Ana/app/", "github.com/ana/app"),
        ("ssh://git@host.example:2222/group/sub/app.git", "host.example/group/sub/app"),
        ("/srv/git/app.git", ""),
        ("file:///srv/git/app.git", ""),
        ("../app", ""),
    ],
)
def test_a_remote_has_one_name_in_every_form(url: str, name: str) -> None:
    assert normalize_remote(url) == name


def test_blocks_of_hooks_are_not_the_users_words() -> None:
    text = "<hook_context>old</hook_context>\n\n<engrain-memory>\nx\n</engrain-memory>\nhello"
    assert strip_context(text) == "hello"


def test_a_session_can_be_undone_with_what_it_left(
    recorder: EventRecorder, store: Store, memory: Memory, project: Path
) -> None:
    wishes = store.memory(user="ana")
    for number, text in enumerate(("in this repo we never commit dist/", "I prefer short commit messages")):
        recorder.answer(message("claude", "UserPromptSubmit", project, prompt=text, prompt_id=f"p{number}"))
    assert len(memory.list({"kind": "fact"})) == len(wishes.list({"kind": "fact"})) == 1
    for agent in ("example.org/ana/app", None):
        store.undo("claude-s1", user="ana", agent=agent)
    assert memory.list() == wishes.list() == []
