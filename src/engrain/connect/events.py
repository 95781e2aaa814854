"""Read the events of each client into one form, and write the answer in the form of the client."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from engrain.connect.commands import looks_failed
from engrain.core.errors import EngrainError
from engrain.ports.plain_files import open_plain

EventKind = Literal["start", "prompt", "tool", "answer", "subagent", "end"]

_KINDS: Mapping[str, EventKind] = {
    **dict.fromkeys(("SessionStart", "sessionStart", "session-start"), "start"),
    **dict.fromkeys(
        ("UserPromptSubmit", "BeforeAgent", "userPromptSubmitted", "beforeSubmitPrompt", "prompt"), "prompt"
    ),
    **dict.fromkeys(
        ("PostToolUse", "PostToolUseFailure", "AfterTool", "postToolUse", "postToolUseFailure", "tool"), "tool"
    ),
    **dict.fromkeys(("Stop", "AfterAgent", "agentStop", "afterAgentResponse", "answer"), "answer"),
    "SubagentStop": "subagent",
    **dict.fromkeys(("SessionEnd", "sessionEnd"), "end"),
}  # fmt: skip
_SHELLS = frozenset({
    "bash", "shell", "run_shell_command", "local_shell", "exec_command", "run_in_terminal", "runinterminal", "terminal",
})  # fmt: skip
# Blocks that a client or engrain itself puts around or into a prompt.
_HOOK_CONTEXT = re.compile(r"<hook_context>.*?</hook_context>\s*", re.DOTALL)
_OUR_CONTEXT = re.compile(r"<engrain-memory>.*?</engrain-memory>\s*", re.DOTALL)
_WRAPPED = re.compile(r'"[^"]+"')
_GEMINI_FRAME = re.compile(
    r"</?untrusted_context>|^Output: |^Process Group PGID: \d+$|^Background PIDs: .*$", re.MULTILINE
)
_EXIT = re.compile(r"(?:^Exit [Cc]ode:? |completed with exit code )(\d{1,9})", re.MULTILINE)
_CURSOR_EXIT = re.compile(r'\A\{"exitCode": ?(\d{1,9})\b')
_EXIT_LINE = re.compile(r"^(?:Exit [Cc]ode:? \d+\n?|<shellId: \d+ completed with exit code \d+>\n?)", re.MULTILINE)
MAX_OUTPUT_CHARACTERS = 20_000
MAX_TRANSCRIPT_BYTES = 1 << 20


@dataclass(frozen=True)
class HookEvent:
    """One event of a client. `key` identifies it: the same event read twice has the same key."""

    client: str
    name: str
    kind: EventKind
    session: str
    folder: str
    key: str
    at: datetime | None = None
    text: str = ""
    command: str = ""
    output: str = ""
    failed: bool = False

    @property
    def lacks_answer(self) -> bool:
        """Tell if a session ended whose last answer is not in its transcript yet. Copilot may write it afterwards."""
        return self.client == "copilot" and self.kind == "end" and not self.text

    @property
    def request(self) -> str:
        """The same for an event that comes twice. A client may give two prompts of one turn the same key."""
        words = f"{self.text}\0{self.command}"
        return f"{self.key}:{zlib.crc32(words.encode('utf-8', 'replace')):08x}"


def read_event(message: Mapping[str, Any]) -> HookEvent | None:
    """Read what the hook sent; None for an event that nobody needs, such as a tool call of a subagent."""
    client, name, payload = (message.get(part) for part in ("client", "event", "payload"))
    if not isinstance(payload, dict) or not isinstance(client, str) or not isinstance(name, str) or name not in _KINDS:
        return None
    kind = _KINDS[name]
    session = _first(payload, "session_id", "sessionId", "conversation_id")
    folder = _first(payload, "cwd") or _find_root(payload)
    if not session or not folder or not _concerns_us(kind, payload):
        return None
    at = _read_time(message.get("at"))
    text, message_id, command, output, failed = "", "", "", "", False
    if kind == "prompt":
        text = strip_context(_first(payload, "prompt"))
    elif kind in ("answer", "subagent"):
        text, message_id = _read_answer(payload)
    elif kind == "end" and client == "copilot":
        text, message_id = _read_last_answer(
            str(Path.home() / f".copilot/session-state/{Path(session).name}/events.jsonl")
        )
    elif kind == "tool":
        command, output, failed = _read_tool(name, payload)
    if (kind in ("prompt", "answer", "subagent") and not text.strip()) or (kind == "tool" and not command.strip()):
        return None
    # The session of Copilot may end before its answer is in the transcript: its end brings the same message again.
    about = "answer" if message_id else kind
    key = f"{client}:{session}:{about}:{message_id or _find_key(payload, message)}"
    return HookEvent(client, name, kind, f"{client}-{session}", folder, key, at, text, command, output, failed)


def make_output(client: str, name: str, block: str) -> dict[str, Any]:
    """The answer that adds a block to the context, in the form of the client; empty for no block."""
    if not block:
        return {}
    if client in ("copilot", "opencode"):
        return {"additionalContext": block}
    if client == "cursor":
        return {"additional_context": block}
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": block}}


def strip_context(text: str) -> str:
    """Remove the blocks that hooks added to a prompt: recalled text must not be kept as the user's."""
    typed = _OUR_CONTEXT.sub("", _HOOK_CONTEXT.sub("", text)).strip()
    # `opencode run` puts the whole prompt into quotes.
    return typed[1:-1] if _WRAPPED.fullmatch(typed) else typed


def _concerns_us(kind: EventKind, payload: Mapping[str, Any]) -> bool:
    if kind == "subagent":
        return bool(payload.get("agent_type"))  # compacting a conversation fires one without a type
    return not payload.get("agent_id")


def _first(payload: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := payload.get(name), str)), "")


def _find_root(payload: Mapping[str, Any]) -> str:
    roots = payload.get("workspace_roots")
    return roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""


def _read_time(at: Any) -> datetime | None:
    """The time of an event in seconds since 1970; None if there is none, or it is in no calendar."""
    try:
        return datetime.fromtimestamp(float(at), UTC) if at else None
    except (OSError, OverflowError, TypeError, ValueError):
        return None


def _find_key(payload: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    if message.get("event") in ("SessionStart", "sessionStart"):
        return _first(payload, "source")
    known = _first(payload, "tool_use_id", "agent_id", "turn_id", "prompt_id", "generation_id", "timestamp")
    return known or str(payload.get("timestamp") or message.get("at") or "")


def _read_answer(payload: Mapping[str, Any]) -> tuple[str, str]:
    known = _first(payload, "last_assistant_message", "prompt_response", "answer", "text")
    return (known, "") if known else _read_last_answer(_first(payload, "transcriptPath"))


def _read_last_answer(path: str) -> tuple[str, str]:
    """The last answer in a transcript of Copilot, which sends none with its event, and the id of that message."""
    if not path.endswith("events.jsonl"):
        return "", ""
    try:
        with open_plain(path) as file:
            file.seek(max(0, file.seek(0, 2) - MAX_TRANSCRIPT_BYTES))
            lines = file.read(MAX_TRANSCRIPT_BYTES).splitlines()
    except (OSError, EngrainError):
        return "", ""
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        kind, data = (event.get("type"), event.get("data")) if isinstance(event, dict) else (None, None)
        if kind == "user.message":
            return "", ""
        if kind == "assistant.message" and isinstance(data, dict) and data.get("content"):
            return str(data["content"]), str(data.get("messageId", ""))
    return "", ""


def _read_tool(name: str, payload: Mapping[str, Any]) -> tuple[str, str, bool]:
    """The command of a shell tool, its output, and whether it failed. No command for any other tool."""
    tool = _first(payload, "tool_name", "toolName") or "bash"
    arguments = payload.get("tool_input") or payload.get("toolArgs") or payload
    command = arguments.get("command") if isinstance(arguments, dict) else None
    if isinstance(command, list):
        command = " ".join(map(str, command))
    if not isinstance(command, str) or tool.lower() not in _SHELLS:
        return "", "", False
    output = _read_output(payload)
    exit_code = payload.get("exit") if isinstance(payload.get("exit"), int) else None
    if exit_code is None and (match := _EXIT.search(output) or _CURSOR_EXIT.search(output)):
        exit_code = int(match[1])
    guessed = name.endswith("Failure") or looks_failed(output)
    failed = guessed if exit_code is None else exit_code != 0
    output = _EXIT_LINE.sub("", output).strip()
    return command, output[-MAX_OUTPUT_CHARACTERS:], failed


def _read_output(payload: Mapping[str, Any]) -> str:
    names = ("tool_response", "toolResult", "tool_output", "output", "error", "error_message")
    result = next((payload[name] for name in names if name in payload), "")
    if isinstance(result, dict):
        parts = [result.get(name) for name in ("stdout", "stderr", "llmContent", "textResultForLlm", "output")]
        result = "\n".join(part for part in parts if isinstance(part, str) and part)
    if not isinstance(result, str):
        return ""
    return _GEMINI_FRAME.sub("", result).strip()
