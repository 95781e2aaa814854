"""Load the past: the transcripts that coding agents keep, read as the events that their hooks would have sent."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from engrain.connect.connect_home import ConnectHome, read_json, write_file
from engrain.connect.events import HookEvent, read_event, strip_context
from engrain.connect.recorder import EventRecorder
from engrain.connect.repository import find_repository, make_scopes
from engrain.core.clock import check_time
from engrain.core.errors import InvalidInput
from engrain.core.model.results import Progress
from engrain.core.validation import suggest_name
from engrain.memory import Store
from engrain.ports.plain_files import open_plain
from engrain.transfer.export import MAX_LINE_BYTES, read_lines
from engrain.transfer.foreign_databases import read_foreign_rows

LOADED_FILE = "loaded.json"
SAVE_SECONDS = 1.0
# Their hooks and transcripts share no ids: a session that hooks recorded is not loaded again.
_WITHOUT_IDS = ("gemini", "copilot")
_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\s+- (\S[^\n]*)")
_CODEX_EXIT = re.compile(r"(?:Process exited with code|\"exit_code\": ?|Exit code:?) ?(\d{1,9})")
_CODEX_OUTPUT = re.compile(r"\A.*?^Output:\n", re.DOTALL | re.MULTILINE)
_CODEX_SHELL = ("/bin/bash", "bash", "-lc")
# Clients put instructions and states into the user's turn: these are in tags or say so.
_NOT_TYPED = re.compile(r"\s*(?:<[a-z_-]+>|# AGENTS\.md instructions|Caveat: The messages below)")

Line = Mapping[str, Any]


@dataclass(frozen=True)
class PastResult:
    """Counts of a load: transcripts read and unchanged, and the events in them."""

    transcripts: int
    unchanged: int
    events: int


def load_transcripts(
    store: Store, home: ConnectHome, client: str, progress: Progress | None = None, user_folder: Path | None = None
) -> PastResult:
    """Load every transcript of a client. An interrupted load continues, and a second one reads only what changed."""
    paths = list_transcripts(client, user_folder or Path.home())
    known, recorder = read_json(home.folder / LOADED_FILE), EventRecorder(store, home)
    read = unchanged = events = 0
    saved = time.monotonic()
    try:
        for done, path in enumerate(paths):
            if progress is not None:
                progress("transcripts", done, len(paths))
            about = path.stat()
            mark = f"{about.st_size}-{about.st_mtime_ns}"
            if known.get(str(path)) == mark:
                unchanged += 1
                continue
            if str(path) in known or client not in _WITHOUT_IDS or not _was_recorded(store, client, path):
                events += recorder.load(read_transcript(client, path))
            read += 1
            known[str(path)] = mark
            if time.monotonic() - saved > SAVE_SECONDS:
                _save(home, known)
                saved = time.monotonic()
    finally:
        if read:
            _save(home, known)
    return PastResult(read, unchanged, events)


def _save(home: ConnectHome, known: dict[str, str]) -> None:
    write_file(home.folder / LOADED_FILE, json.dumps(known).encode())


def _was_recorded(store: Store, client: str, path: Path) -> bool:
    event = next(read_transcript(client, path), None)
    if event is None:
        return False
    own, _ = make_scopes(find_repository(event.folder))
    return bool(store.memory(agent=own.agent, user=own.user).session(event.session).messages(1))


@dataclass
class TranscriptReader:
    """The session of a transcript as far as it was read. The last answer before the next prompt is the final one."""

    client: str
    session: str = ""
    folder: str = ""
    turn: str = ""
    answer: tuple[str, Any] | None = None
    calls: dict[str, str] = field(default_factory=dict)

    def prompt(self, text: str, at: Any) -> Iterator[HookEvent]:
        yield from self.finish()
        typed = strip_context(text)
        if typed and not _NOT_TYPED.match(typed):
            yield from self._build("prompt", at, prompt=typed)

    def note_answer(self, text: str, at: Any) -> None:
        if text.strip():
            self.answer = (text, at)

    def tool(self, call: str, output: str, failed: bool, at: Any) -> Iterator[HookEvent]:
        command = self.calls.pop(call, "")
        if command:
            about = {"command": command, "output": output, "exit": int(failed), "tool_use_id": call}
            yield from self._build("tool", at, **about)

    def finish(self) -> Iterator[HookEvent]:
        """Yield the final answer of the turn."""
        if self.answer is not None:
            (text, at), self.answer = self.answer, None
            yield from self._build("answer", at, answer=text)

    def _build(self, kind: str, at: Any, **values: Any) -> Iterator[HookEvent]:
        payload = {"session_id": self.session, "cwd": self.folder, "turn_id": self.turn or str(at), **values}
        event = read_event({"client": self.client, "event": kind, "payload": payload, "at": _to_seconds(at)})
        if event is not None:
            yield event


def read_claude(line: Line, reader: TranscriptReader) -> Iterator[HookEvent]:
    if line.get("isSidechain") or line.get("isMeta") or line.get("type") not in ("user", "assistant"):
        return
    reader.session, reader.folder = str(line.get("sessionId", "")), str(line.get("cwd") or reader.folder)
    content, at = line.get("message", {}).get("content"), line.get("timestamp")
    blocks: list[dict[str, Any]] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    if line["type"] == "assistant":
        reader.calls |= {
            block["id"]: block["input"].get("command", "") for block in blocks if block.get("name") == "Bash"
        }
        reader.note_answer(_join_texts(blocks), at)
        return
    for block in blocks:
        if block.get("type") == "tool_result":
            text = _join_texts(block.get("content"))
            yield from reader.tool(str(block.get("tool_use_id")), text, bool(block.get("is_error")), at)
    if text := _join_texts(blocks):
        events = [*reader.finish()]  # of the turn before
        reader.turn = str(line.get("promptId") or line.get("uuid") or "")
        yield from [*events, *reader.prompt(text, at)]


def read_codex(line: Line, reader: TranscriptReader) -> Iterator[HookEvent]:
    payload, at = line.get("payload", {}), line.get("timestamp")
    kind = payload.get("type") if line.get("type") in ("response_item", "event_msg") else line.get("type")
    if kind == "session_meta":
        reader.session, reader.folder = str(payload.get("id", "")), str(payload.get("cwd", ""))
    elif kind == "turn_context":
        reader.turn = str(payload.get("turn_id", ""))
    elif kind == "message" and payload.get("role") == "user":
        yield from reader.prompt(_join_texts(payload.get("content")), at)
    elif kind == "message" and payload.get("role") == "assistant":
        reader.note_answer(_join_texts(payload.get("content")), at)
    elif kind == "function_call":
        reader.calls[str(payload.get("call_id"))] = _read_codex_command(str(payload.get("arguments", "")))
    elif kind == "function_call_output":
        output = str(payload.get("output", ""))
        code = _CODEX_EXIT.search(output)
        failed = code is not None and code[1] != "0"
        yield from reader.tool(str(payload.get("call_id")), _CODEX_OUTPUT.sub("", output), failed, at)


def read_gemini(line: Line, reader: TranscriptReader) -> Iterator[HookEvent]:
    if "sessionId" in line:
        reader.session = str(line["sessionId"])
    messages = line.get("$set", {}).get("messages", []) if "$set" in line else [line]
    for message in messages:
        kind, at, content = message.get("type"), message.get("timestamp"), message.get("content")
        text = _join_texts(content) if isinstance(content, list) else str(content or "")
        if kind == "user":
            if found := _WORKSPACE.search(text):
                reader.folder = found[1].strip()
            reader.turn = str(message.get("id", ""))
            yield from reader.prompt(text, at)
        elif kind == "gemini":
            for call in message.get("toolCalls", ()):
                reader.calls[call["id"]] = call.get("args", {}).get("command", "")
                output = json.dumps(call.get("result", ""))
                yield from reader.tool(call["id"], output, "Exit Code: " in output and "Exit Code: 0" not in output, at)
            reader.note_answer(text, at)


def read_copilot(line: Line, reader: TranscriptReader) -> Iterator[HookEvent]:
    kind, data, at = line.get("type"), line.get("data", {}), line.get("timestamp")
    if kind == "session.start":
        reader.session, reader.folder = str(data.get("sessionId", "")), str(data.get("context", {}).get("cwd", ""))
    elif kind == "user.message":
        reader.turn = str(data.get("messageId", ""))
        yield from reader.prompt(str(data.get("content", "")), at)
    elif kind == "assistant.message":
        reader.note_answer(str(data.get("content") or ""), at)
    elif kind == "tool.execution_start" and data.get("toolName") == "bash":
        reader.calls[str(data.get("toolCallId"))] = str(data.get("arguments", {}).get("command", ""))
    elif kind == "tool.execution_complete":
        code = data.get("shellExecution", {}).get("exitCode", 0)
        output = str(data.get("result", {}).get("detailedContent", ""))
        yield from reader.tool(str(data.get("toolCallId")), output, bool(code), at)


LineReader = Callable[[Line, TranscriptReader], Iterator[HookEvent]]
# The files of each client below the user's folder, and how a line of them is read.
TRANSCRIPTS: Mapping[str, tuple[str, LineReader]] = {
    "claude": (".claude/projects/*/*.jsonl", read_claude),
    "codex": (".codex/sessions/*/*/*/rollout-*.jsonl", read_codex),
    "gemini": (".gemini/tmp/*/chats/*.jsonl", read_gemini),
    "copilot": (".copilot/session-state/*/events.jsonl", read_copilot),
}
_OPENCODE = ".local/share/opencode/opencode.db"
LOADABLE = (*TRANSCRIPTS, "opencode")


def find_pattern(client: str) -> str:
    """Return where a client keeps its transcripts, below the user's folder."""
    if client not in LOADABLE:
        known = f"{suggest_name(client, LOADABLE)} Known: {', '.join(LOADABLE)}."
        raise InvalidInput(f"{client!r} keeps no transcripts that engrain reads.{known}")
    return _OPENCODE if client == "opencode" else TRANSCRIPTS[client][0]


def list_transcripts(client: str, user_folder: Path) -> list[Path]:
    """The transcripts that a client keeps, oldest first."""
    pattern = find_pattern(client)
    found = [path for path in user_folder.glob(pattern) if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def read_transcript(client: str, path: Path) -> Iterator[HookEvent]:
    """Yield the events of a transcript. A line that is not complete yet, or of another shape, is skipped."""
    if client == "opencode":
        yield from _read_opencode(path)
        return
    read_line, reader = TRANSCRIPTS[client][1], TranscriptReader(client)
    with open_plain(path) as file:
        for _, raw in read_lines(file, MAX_LINE_BYTES):
            try:
                line = json.loads(raw or b"")
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                yield from _skip_other_shapes(partial(read_line, line, reader))
    yield from reader.finish()


def _read_opencode(path: Path) -> Iterator[HookEvent]:
    statement = (
        "select s.id, s.directory, m.id, m.data, p.data, m.time_created from session s"
        " join message m on m.session_id = s.id join part p on p.message_id = m.id"
        " where s.parent_id is null order by s.time_created, m.time_created, p.time_created"
    )
    reader = TranscriptReader("opencode")
    for row in read_foreign_rows(path, "a database of opencode", ["session", "message", "part"], statement):
        yield from _skip_other_shapes(partial(_read_opencode_part, row, reader))
    yield from reader.finish()


def _read_opencode_part(row: tuple[Any, ...], reader: TranscriptReader) -> Iterator[HookEvent]:
    session, folder, id, message, raw, at = row
    part, role = json.loads(raw), json.loads(message).get("role")
    if session != reader.session:
        yield from reader.finish()
    reader.session, reader.folder = session, folder
    if part.get("type") == "text" and not part.get("synthetic"):
        if role == "user":
            yield from reader.finish()
            reader.turn = id
            yield from reader.prompt(part.get("text", ""), at)
        else:
            reader.turn = id
            reader.note_answer(part.get("text", ""), at)
    elif part.get("type") == "tool" and part.get("tool") == "bash":
        state = part.get("state", {})
        reader.calls[part["callID"]] = str(state.get("input", {}).get("command", ""))
        failed = bool(state.get("metadata", {}).get("exit"))
        yield from reader.tool(part["callID"], str(state.get("output", "")), failed, at)


def _skip_other_shapes(read: Callable[[], Iterator[HookEvent]]) -> Iterator[HookEvent]:
    """Yield the events of one line. A client may write lines that no version known to us has written."""
    try:
        yield from [*read()]
    except (AttributeError, ArithmeticError, KeyError, TypeError, ValueError, RecursionError, InvalidInput):
        return


def _join_texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _read_codex_command(arguments: str) -> str:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    command = values.get("cmd", values.get("command", "")) if isinstance(values, dict) else ""
    if isinstance(command, list):
        command = " ".join(str(word) for word in command if word not in _CODEX_SHELL)
    return str(command)


def _to_seconds(at: Any) -> float:
    if isinstance(at, (int, float)):
        return at / 1000
    return check_time(str(at), "timestamp").timestamp() if at else 0.0
