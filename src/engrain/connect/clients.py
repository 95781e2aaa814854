"""The coding agents that can be connected: their files, events and entries."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from engrain import __version__
from engrain.connect import json_text
from engrain.connect.connect_home import ConnectHome, write_file
from engrain.connect.settings_changes import FileEdit
from engrain.core.errors import ConfigError, Conflict, InvalidInput
from engrain.core.validation import suggest_name

NAME = "engrain"
HOOK_SCRIPT = Path(__file__).with_name("hook.py")
MCP_SCRIPT = Path(__file__).with_name("mcp_front.py")
HOOK_MARK = "engrain/connect/hook.py"
HOOK_SECONDS = 10  # the hook itself ends after one; on a busy machine its start alone takes seconds
_SHELL_TOOLS = "Bash"
_VSCODE = "Library/Application Support/Code/User" if sys.platform == "darwin" else ".config/Code/User"
BOM = "\ufeff"
_BLANK = BOM + " \t\r\n"
_MANIFEST = ".claude-plugin/plugin.json"
_ABOUT = "A memory of earlier sessions: local, without a key and without a model call."
_AUTHOR = {"name": "engrain"}
_OUR_TABLE = re.compile(rf"\s*\[mcp_servers\.{NAME}[\].]")


Members = Mapping[Any, Any]  # the value of each path of keys


@dataclass(frozen=True)
class Place:
    """Where a client is connected: for this user, or for one repository alone."""

    home: ConnectHome
    user_folder: Path
    project: Path | None = None

    def choose(self, for_user: str, for_project: str = "") -> Path:
        """The path of a settings file, which in most repositories is that of the user."""
        if self.project is None:
            return self.user_folder / for_user
        return self.project / (for_project or for_user)

    def hook_command(self, client: str, event: str = "") -> str:
        """The command of a hook: by the absolute path of this interpreter, without its site packages."""
        words = [sys.executable, "-I", "-S", str(HOOK_SCRIPT), str(self.home.folder), client, event]
        # Without its script Python exits with 2, by which clients block the prompt: engrain may be uninstalled.
        return f"{shlex.join(word for word in words if word)} || true"

    def mcp_command(self) -> list[str]:
        # With the folder: Codex starts its servers without our environment.
        return [sys.executable, "-I", "-S", str(MCP_SCRIPT), str(self.home.folder)]


@dataclass(frozen=True)
class Client:
    """One coding agent: how to see that it is installed, and which files to change."""

    name: str
    title: str
    commands: tuple[str, ...]
    folder: str
    list_edits: Callable[[Place], list[FileEdit]]
    advice: str = ""

    def is_installed(self, user_folder: Path) -> bool:
        return any(shutil.which(command) for command in self.commands) or (user_folder / self.folder).is_dir()


def find_client(name: str) -> Client:
    if name not in CLIENTS:
        raise InvalidInput(f"unknown client {name!r}.{suggest_name(name, CLIENTS)} Known: {', '.join(CLIENTS)}.")
    return CLIENTS[name]


def edit_json(path: Path, members: Members, hooks: Mapping[str, Any] | None = None) -> FileEdit:
    """An edit of a JSON file: members that we set, and hooks by event, each appended to the list of its event."""

    def add(text: str) -> str:
        for where, value in members.items():
            if json_text.lookup(text, where) is None:
                text = json_text.set_member(text, where, value)
        for event, entry in (hooks or {}).items():
            text = json_text.append_element(text, ("hooks", event), entry)
        return text if text.endswith("\n") else text + "\n"

    def remove(text: str) -> str:
        if not text.strip():
            return text
        for where in members:
            if NAME in where:
                text = json_text.remove_member(text, where)
        text = json_text.remove_marked(text, HOOK_MARK) if hooks else text
        own = {where: value for where, value in members.items() if NAME not in where}
        left = json_text.read(text)
        return "" if not left or left == {where[0]: value for where, value in own.items()} else text

    def holds(text: str) -> bool:
        listed = [(json_text.lookup(text, ("hooks", event)) or [], entry) for event, entry in (hooks or {}).items()]
        known = [(where, value) for where, value in members.items() if NAME in where]
        return all(json_text.lookup(text, where) == value for where, value in known) and all(
            entry in entries for entries, entry in listed
        )

    return FileEdit(path, add, remove, holds)


def edit_own_file(path: Path, content: str) -> FileEdit:
    """An edit of a file that is ours alone."""
    return FileEdit(path, lambda _: content, lambda _: "", lambda text: text == content)


def edit_toml_server(path: Path, command: Sequence[str]) -> FileEdit:
    """An edit of Codex's config.toml: one table at its end."""
    table = f"mcp_servers.{NAME}"
    lines = [f"[{table}]", f"command = {json.dumps(command[0])}", f"args = {json.dumps(list(command[1:]))}"]

    def add(text: str) -> str:
        line = "\r\n" if "\r\n" in text else "\n"
        head = f"{text.rstrip()}{line}{line}" if text.strip(_BLANK) else text
        added = head + line.join(lines) + line
        advice = f"has its servers in another form than tables: add [{table}] by hand"
        _read_toml(path, text)
        if NAME not in _find_servers(_read_toml(path, added, advice)):
            raise ConfigError(f"{path} {advice}.")
        return added

    def remove(text: str) -> str:
        left, value = _drop_toml_tables(text), _read_toml(path, text)
        if _find_servers(value).pop(NAME, None) is None:
            return text
        if _drop_empty(_read_toml(path, left)) != _drop_empty(value):
            raise ConfigError(f"{path} names {table} in another form: remove it by hand.")
        return left

    def holds(text: str) -> bool:
        server = _find_servers(_read_toml(path, text)).get(NAME, {})
        return [server.get("command"), *server.get("args", [])] == list(command)

    return FileEdit(path, add, remove, holds)


def _drop_toml_tables(text: str) -> str:
    """Drop our table, and tables in it: Codex keeps there which tools the user approved."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = _OUR_TABLE.match(line) is not None
        if not inside:
            kept.append(line)
    if inside and kept and not kept[-1].strip():
        kept.pop()
    return "".join(kept)


def _read_toml(path: Path, text: str, problem: str = "is not TOML: correct it first") -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as exc:  # Python refuses to read a number of 4,300 digits
        raise ConfigError(f"{path} {problem} ({exc}).") from exc


def _find_servers(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("mcp_servers")
    return found if isinstance(found, dict) else {}


def _drop_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if inner != {}}


def _group(command: str, matcher: str | None = None, **options: Any) -> dict[str, Any]:
    """A hook in the form that Claude Code began and Codex and Gemini CLI share."""
    group = {} if matcher is None else {"matcher": matcher}
    return {**group, "hooks": [{"type": "command", "command": command, **options}]}


def _server(place: Place, **more: Any) -> dict[str, Any]:
    command, *args = place.mcp_command()
    return {**more, "command": command, "args": args}


def _list_claude_hooks(place: Place) -> dict[str, dict[str, Any]]:
    """The hooks of Claude Code by event, as in its settings and in a plugin."""
    hook = place.hook_command("claude")
    quiet = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "SessionEnd")
    tools = ("PostToolUse", "PostToolUseFailure")
    return {event: _group(hook, timeout=HOOK_SECONDS) for event in quiet} | {
        event: _group(hook, _SHELL_TOOLS, timeout=HOOK_SECONDS) for event in tools
    }


def _list_claude_server(place: Place) -> dict[str, Any]:
    return _server(place, type="stdio") | {"env": {}}


def _edit_claude(place: Place) -> list[FileEdit]:
    where: tuple[str, ...] = ("mcpServers", NAME)
    if place.project is not None:
        where = ("projects", str(place.project), *where)
    settings = place.choose(".claude/settings.json", ".claude/settings.local.json")
    server = edit_json(place.user_folder / ".claude.json", {where: _list_claude_server(place)})
    return [server, edit_json(settings, {}, _list_claude_hooks(place))]


def _edit_codex(place: Place) -> list[FileEdit]:
    hook = place.hook_command("codex")
    events = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
    hooks = {event: _group(hook, timeout=3 if event == "SessionEnd" else HOOK_SECONDS) for event in events}
    server = edit_toml_server(place.choose(".codex/config.toml"), place.mcp_command())
    return [server, edit_json(place.choose(".codex/hooks.json"), {}, hooks)]


def _edit_gemini(place: Place) -> list[FileEdit]:
    hook, events = (
        place.hook_command("gemini"),
        ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd"),
    )
    hooks = {event: _group(hook, "*", name=NAME, timeout=HOOK_SECONDS * 1000) for event in events}
    return [edit_json(place.choose(".gemini/settings.json"), {("mcpServers", NAME): _server(place)}, hooks)]


def _edit_copilot(place: Place) -> list[FileEdit]:
    events = ("sessionStart", "userPromptSubmitted", "postToolUse", "agentStop", "sessionEnd")
    hooks = {
        event: [{"type": "command", "bash": place.hook_command("copilot", event), "timeoutSec": HOOK_SECONDS}]
        for event in events
    }
    content = json.dumps({"version": 1, "hooks": hooks}, indent=2) + "\n"
    own = edit_own_file(place.choose(".copilot/hooks/engrain.json", ".github/hooks/engrain.json"), content)
    if place.project is not None:
        return [own]  # servers are set for the user alone
    server = _server(place, type="local") | {"tools": ["*"]}
    return [edit_json(place.choose(".copilot/mcp-config.json"), {("mcpServers", NAME): server}), own]


def _edit_opencode(place: Place) -> list[FileEdit]:
    script = resources.files("engrain.connect").joinpath("opencode.js").read_text("utf-8")
    hook = [sys.executable, "-I", "-S", str(HOOK_SCRIPT), str(place.home.folder), "opencode"]
    server = {"type": "local", "command": place.mcp_command(), "enabled": True}
    settings = place.choose(".config/opencode/opencode.json", "opencode.json")
    # opencode reads both names; the one that exists is the user's.
    settings = other if (other := settings.with_suffix(".jsonc")).exists() else settings
    plugin = place.choose(".config/opencode/plugins/engrain.js", ".opencode/plugins/engrain.js")
    script = script.replace("HOOK_COMMAND", json.dumps(hook))
    return [edit_json(settings, {("mcp", NAME): server}), edit_own_file(plugin, script)]


def _edit_cursor(place: Place) -> list[FileEdit]:
    events = ("sessionStart", "beforeSubmitPrompt", "postToolUse", "postToolUseFailure", "afterAgentResponse")
    hooks = {event: {"command": place.hook_command("cursor", event)} for event in (*events, "sessionEnd")}
    server = edit_json(place.choose(".cursor/mcp.json"), {("mcpServers", NAME): _server(place)})
    return [server, edit_json(place.choose(".cursor/hooks.json"), {("version",): 1}, hooks)]


def _edit_vscode(place: Place) -> list[FileEdit]:
    servers = {("servers", NAME): _server(place, type="stdio")}
    settings = edit_json(place.choose(f"{_VSCODE}/mcp.json", ".vscode/mcp.json"), servers)
    if place.project is None:
        return [settings]  # hooks are documented for repositories alone
    hooks = {
        event: [{"type": "command", "command": place.hook_command("vscode", event), "timeout": HOOK_SECONDS}]
        for event in ("SessionStart", "UserPromptSubmit", "PostToolUse")
    }
    content = json.dumps({"hooks": hooks}, indent=2) + "\n"
    return [settings, edit_own_file(place.project / ".github/hooks/engrain-vscode.json", content)]


_TRUST_ADVICE = "Codex runs a new hook only after you trust it: open codex, type /hooks, and trust engrain."
_DOCUMENTED = "Made from its documentation, not tried with it."
_TOOLS_ALONE = f"{_DOCUMENTED} VS Code has hooks in repositories alone: connect those with --project."
CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("claude", "Claude Code", ("claude",), ".claude", _edit_claude),
        Client("codex", "Codex", ("codex",), ".codex", _edit_codex, _TRUST_ADVICE),
        Client("gemini", "Gemini CLI", ("gemini",), ".gemini", _edit_gemini),
        Client("copilot", "Copilot CLI", ("copilot",), ".copilot", _edit_copilot),
        Client("opencode", "opencode", ("opencode",), ".config/opencode", _edit_opencode),
        Client("cursor", "Cursor", ("cursor", "cursor-agent"), ".cursor", _edit_cursor, _DOCUMENTED),
        Client("vscode", "VS Code", ("code",), _VSCODE, _edit_vscode, _TOOLS_ALONE),
    )
}


def write_plugin(place: Place, folder: Path) -> list[Path]:
    """Write a folder that Claude Code installs as a plugin, or write it anew. Conflict if it holds something else."""
    if folder.exists() and not (folder / _MANIFEST).exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty: nothing was written. Name a new folder.")
    entry = {"name": NAME, "source": "./", "description": _ABOUT}
    files: dict[str, Any] = {
        _MANIFEST: {"name": NAME, "version": __version__, "description": _ABOUT, "author": _AUTHOR},
        ".claude-plugin/marketplace.json": {
            "name": NAME, "description": _ABOUT, "owner": _AUTHOR, "plugins": [entry],
        },
        "hooks/hooks.json": {"hooks": {event: [group] for event, group in _list_claude_hooks(place).items()}},
        ".mcp.json": {"mcpServers": {NAME: _list_claude_server(place)}},
    }  # fmt: skip
    for name, value in files.items():
        write_file(folder / name, (json.dumps(value, indent=2) + "\n").encode())
    return [folder / name for name in files]
