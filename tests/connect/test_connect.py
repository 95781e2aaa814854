"""Connecting keeps foreign entries, and disconnecting restores every file."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from examples import for_each, up_to
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain import Store
from engrain.cli.main import root
from engrain.connect import json_text, settings_changes
from engrain.connect.clients import CLIENTS, HOOK_MARK, Place, write_plugin
from engrain.connect.connect_home import ConnectHome, open_store
from engrain.connect.connector import Connector, list_connections
from engrain.connect.settings_changes import ChangeLedger
from engrain.connect.status import are_hooks_trusted
from engrain.core.errors import ConfigError, Conflict, NotFound

COMMENTED = """{
  // my own settings
  "model": "opus", /* keep */
  "hooks": {
    "SessionStart": [
      {"matcher": "startup", "hooks": [{"type": "command", "command": "echo mine"}]}, // first
    ],
    "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]
  },
  "mcpServers": {"other": {"command": "x"}}
}
"""
FOREIGN: dict[str, str] = {
    ".claude.json": '{"numStartups": 3,"mcpServers":{"other":{"command":"x"}}}',
    ".claude/settings.json": COMMENTED,
    ".codex/config.toml": '# mine\nmodel = "o5"\n\n[mcp_servers.other] # theirs\ncommand = "x"\n',
    ".codex/hooks.json": '{\n\t"hooks": {\n\t\t"Stop": []\n\t}\n}',
    ".gemini/settings.json": COMMENTED.replace("\n", "\r\n"),
    ".copilot/mcp-config.json": "{}",
    ".config/opencode/opencode.jsonc": '{ "$schema": "https://opencode.ai/config.json", // yes\n}\n',
    ".cursor/hooks.json": '{"version": 1, "hooks": {"stop": [{"command": "mine"}]}}\n',
}


def write_foreign(folder: Path) -> dict[Path, bytes]:
    for name, text in FOREIGN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return read_all(folder)


def read_all(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def drop_empty(value: Any) -> Any:
    """Without empty containers of settings: an empty list of hooks may leave together with ours."""
    if isinstance(value, dict):
        kept = {key: drop_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in ({}, [])}
    return value


def folders(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_dir()}


@pytest.mark.parametrize("client", list(CLIENTS))
@pytest.mark.parametrize("foreign", [False, True])
def test_disconnect_restores_every_file_byte_for_byte(
    client: str, foreign: bool, home: ConnectHome, user_folder: Path
) -> None:
    before = write_foreign(user_folder) if foreign else {}
    made = folders(user_folder)
    changes = Connector(home).connect(client)
    assert all(change.changes for change in changes)
    assert read_all(user_folder) != before
    Connector(home).disconnect(client)
    assert read_all(user_folder) == before
    assert folders(user_folder) == made
    assert list(home.backups.glob("*")) == []


@for_each("client", list(CLIENTS))
def test_connecting_twice_is_connecting_once(client: str, home: ConnectHome, user_folder: Path) -> None:
    before = write_foreign(user_folder)
    Connector(home).connect(client)
    once = read_all(user_folder)
    assert not any(change.changes for change in Connector(home).connect(client))
    assert read_all(user_folder) == once
    Connector(home).disconnect(client)
    assert read_all(user_folder) == before


@for_each("client", list(CLIENTS))
def test_a_file_that_changed_since_loses_only_our_entries(client: str, home: ConnectHome, user_folder: Path) -> None:
    write_foreign(user_folder)
    Connector(home).connect(client)
    changed = [change.path for change in Connector(home).preview(client) if change.path.suffix in (".json", ".jsonc")]
    for path in changed:
        path.write_text(json_text.set_member(path.read_text(), ("addedLater",), {"by": "somebody"}))
    Connector(home).disconnect(client)
    for path in changed:
        if not path.exists():
            continue  # a file of ours alone
        text = path.read_text()
        assert HOOK_MARK not in text
        assert "mcp_front.py" not in text
        original = FOREIGN.get(str(path.relative_to(user_folder)), "{}")
        expected = json_text.read(original) | {"addedLater": {"by": "somebody"}}
        assert drop_empty(json_text.read(text)) == drop_empty(expected)
        assert all(word in text for word in ("// my own settings", "/* keep */") if word in original)


def test_codex_keeps_comments_and_tables(home: ConnectHome, user_folder: Path) -> None:
    write_foreign(user_folder)
    path = user_folder / ".codex/config.toml"
    Connector(home).connect("codex")
    servers = tomllib.loads(path.read_text())["mcp_servers"]
    assert set(servers) == {"other", "engrain"}
    path.write_text(
        path.read_text() + '\n[mcp_servers.engrain.tools.recall]\napproval_mode = "never"\n\n[later]\na = 1\n'
    )
    Connector(home).disconnect("codex")
    assert path.read_text() == FOREIGN[".codex/config.toml"] + "\n[later]\na = 1\n"


def test_an_entry_that_the_user_made_before_comes_back(home: ConnectHome, user_folder: Path) -> None:
    path = user_folder / ".claude.json"
    path.write_text('{"mcpServers": {"engrain": {"command": "mine"}}}')
    Connector(home).connect("claude")
    assert json.loads(path.read_text())["mcpServers"]["engrain"]["command"] != "mine"
    Connector(home).disconnect("claude")
    assert path.read_text() == '{"mcpServers": {"engrain": {"command": "mine"}}}'


def test_a_foreign_command_in_our_group_stays(home: ConnectHome, user_folder: Path) -> None:
    Connector(home).connect("claude")
    path = user_folder / ".claude/settings.json"
    value = json.loads(path.read_text())
    value["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "mine"})
    path.write_text(json.dumps(value))
    Connector(home).disconnect("claude")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}


def test_a_link_to_the_settings_stays_a_link(home: ConnectHome, user_folder: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (user_folder / ".gemini").mkdir()
    link = user_folder / ".gemini/settings.json"
    link.symlink_to(real)
    Connector(home).connect("gemini")
    assert link.is_symlink()
    assert HOOK_MARK in real.read_text()
    Connector(home).disconnect("gemini")
    assert link.is_symlink()
    assert real.read_text() == "{}"


def test_a_broken_file_is_refused_and_left_alone(home: ConnectHome, user_folder: Path) -> None:
    path = user_folder / ".cursor/mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {\n nonsense')
    with pytest.raises(ConfigError, match=r"mcp.json: line 2 is not JSON: correct it first. Nothing was changed"):
        Connector(home).connect("cursor")
    assert path.read_text() == '{"mcpServers": {\n nonsense'
    with pytest.raises(NotFound):
        Connector(home).disconnect("opencode")


NASTY_JSON = {
    "with a mark": "\ufeff" + COMMENTED,
    "with CRLF": COMMENTED.replace("\n", "\r\n"),
    "with tabs": COMMENTED.replace("  ", "\t"),
    "in one line": '{"model":"opus","hooks":{"Stop":[]},"mcpServers":{}} // mine',
    "without an end of line": COMMENTED.rstrip("\n"),
    "empty": "",
    "blank": " \r\n\t\n",
    "with strange keys": '{"a\\"b": 1, "é//": ["/* no */"], "\\u0041": {}}\n',
}
NASTY_TOML = {
    "with a mark": "\ufeff" + FOREIGN[".codex/config.toml"],
    "with CRLF": FOREIGN[".codex/config.toml"].replace("\n", "\r\n"),
    "with our table in a text": 'text = """\n[mcp_servers.engrain]\n"""\n',
    "without an end of line": 'model = "o5" # mine',
    "empty": "",
    "blank": "\n\n",
    "with a dotted key": 'mcp_servers.other.command = "x"\n',
}


@for_each("kind", list(NASTY_JSON))
def test_any_settings_are_restored(kind: str, home: ConnectHome, user_folder: Path) -> None:
    for client, name in (("gemini", ".gemini/settings.json"), ("cursor", ".cursor/hooks.json")):
        path = user_folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(NASTY_JSON[kind].encode())
        Connector(home).connect(client)
        added = path.read_bytes().decode()
        assert json_text.read(added).keys() >= (json_text.read(NASTY_JSON[kind]) or {}).keys()
        lines = [line.rstrip(",") for line in NASTY_JSON[kind].splitlines()]
        assert [line for line in lines if line.strip() and "{" not in line and line not in added] == []
        assert ("\r\n" in added) == ("\r\n" in NASTY_JSON[kind].strip())
        assert not any(change.changes for change in Connector(home).connect(client))
        Connector(home).disconnect(client)
        assert path.read_bytes().decode() == NASTY_JSON[kind]


@for_each("kind", list(NASTY_TOML))
def test_any_config_of_codex_is_restored(kind: str, home: ConnectHome, user_folder: Path) -> None:
    path = user_folder / ".codex/config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(NASTY_TOML[kind].encode())
    Connector(home).connect("codex")
    added = path.read_bytes().decode()
    assert added.startswith(NASTY_TOML[kind].rstrip())
    assert "engrain" in tomllib.loads(added.removeprefix("\ufeff"))["mcp_servers"]
    Connector(home).disconnect("codex")
    assert path.read_bytes().decode() == NASTY_TOML[kind]


@for_each(
    "text",
    ['mcp_servers = {other = {command = "x"}}\n', "[broken\n", "[[mcp_servers]]\na = 1\n", b"\xff\xfe\x00"],
)
def test_a_config_that_cannot_be_extended_stays(text: str | bytes, home: ConnectHome, user_folder: Path) -> None:
    path = user_folder / ".codex/config.toml"
    path.parent.mkdir(exist_ok=True)
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="config"):
        Connector(home).connect("codex")
    assert read_all(user_folder) == {path: content}
    assert ChangeLedger(home).list_clients() == []


def test_a_read_only_file_is_refused_before_anything_is_written(home: ConnectHome, user_folder: Path) -> None:
    before = write_foreign(user_folder)
    protected = user_folder / ".claude/settings.json"
    protected.chmod(0o400)
    with pytest.raises(ConfigError, match=r"settings.json is read-only: nothing was changed"):
        Connector(home).connect("claude")
    assert read_all(user_folder) == before
    assert ChangeLedger(home).list_clients() == []
    protected.chmod(0o600)
    Connector(home).connect("claude")
    connected = read_all(user_folder)
    protected.chmod(0o400)
    with pytest.raises(ConfigError, match="read-only"):
        Connector(home).disconnect("claude")
    assert read_all(user_folder) == connected
    protected.chmod(0o640)
    Connector(home).disconnect("claude")
    assert read_all(user_folder) == before
    assert protected.stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_takes_the_others_back(
    home: ConnectHome, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_foreign(user_folder)
    write = settings_changes.write_file

    def fail(path: Path, content: bytes) -> None:
        if path.name == "settings.json" and HOOK_MARK.encode() in content:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(settings_changes, "write_file", fail)
    with pytest.raises(ConfigError, match=r"No space left on device. Nothing was changed"):
        Connector(home).connect("claude")
    assert read_all(user_folder) == before
    assert ChangeLedger(home).list_clients() == []


def test_a_link_to_nothing_stays_a_link_to_nothing(home: ConnectHome, user_folder: Path, tmp_path: Path) -> None:
    (user_folder / ".gemini").mkdir()
    link = user_folder / ".gemini/settings.json"
    link.symlink_to(tmp_path / "nowhere.json")
    Connector(home).connect("gemini")
    assert HOOK_MARK in (tmp_path / "nowhere.json").read_text()
    Connector(home).disconnect("gemini")
    assert link.is_symlink()
    assert not link.exists()


def test_a_project_has_its_own_files(home: ConnectHome, user_folder: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    for client in CLIENTS:
        Connector(home).connect(client)
    for_user = read_all(user_folder)
    for client in CLIENTS:
        Connector(home, project).connect(client)
    assert HOOK_MARK in (project / ".claude/settings.local.json").read_text()
    assert "engrain" in json.loads((user_folder / ".claude.json").read_text())["projects"][str(project)]["mcpServers"]
    for client in CLIENTS:
        Connector(home, project).disconnect(client)
    assert read_all(user_folder) == for_user
    assert [path for path in project.iterdir() if path.name != ".git"] == []


def test_a_plugin_has_the_hooks_of_the_settings(home: ConnectHome, user_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    write_plugin(Place(home, user_folder), folder)
    Connector(home).connect("claude")
    settings = json.loads((user_folder / ".claude/settings.json").read_text())
    assert json.loads((folder / "hooks/hooks.json").read_text()) == settings
    assert json.loads((folder / ".claude-plugin/plugin.json").read_text())["name"] == "engrain"
    write_plugin(Place(home, user_folder), folder)  # anew, after an upgrade
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    with pytest.raises(Conflict, match="nothing was written"):
        write_plugin(Place(home, user_folder), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_client_that_is_not_there_says_nothing_of_trust(tmp_path: Path) -> None:
    assert are_hooks_trusted(HOOK_MARK, tmp_path, "no-such-client") is None
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o700)
    assert are_hooks_trusted(HOOK_MARK, tmp_path, str(silent)) is None


# Any JSON text: what is added can be taken out, and everything else keeps its bytes.

KEYS = st.sampled_from(["a", "b", "hooks", "mcpServers", "Stop", "é"])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False, width=16)
SCALARS = st.none() | st.booleans() | st.text(max_size=5) | NUMBERS


def objects(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    values = SCALARS if depth == 0 else SCALARS | objects(depth - 1) | st.lists(SCALARS, max_size=3)
    return st.dictionaries(KEYS.filter(lambda key: key not in ("hooks", "mcpServers", "Stop")), values, max_size=3)


@st.composite
def texts(draw: st.DrawFn) -> str:
    value = draw(objects(2))
    if draw(st.booleans()):
        value["hooks"] = draw(st.dictionaries(st.sampled_from(["Stop", "Start"]), st.lists(objects(1), max_size=2)))
    if draw(st.booleans()):
        value["mcpServers"] = draw(objects(1))
    text = json.dumps(value, indent=draw(st.sampled_from([None, 1, 2, "\t"])), ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    if draw(st.booleans()) and "\n" in text:
        text = text.replace("{\n", "{ // note\n", 1)
    if draw(st.booleans()) and value and text.endswith("\n}"):
        text = text[:-2] + ", // last\n}"
    return draw(st.sampled_from(["", "\ufeff", "// head\n"])) + text + draw(st.sampled_from(["", "\n", "\n// tail\n"]))


EDITS: list[Callable[[str], str]] = [
    lambda text: json_text.set_member(text, ("mcpServers", "engrain"), {"command": "x", "args": ["y"]}),
    lambda text: json_text.append_element(text, ("hooks", "Stop"), {"hooks": [{"command": HOOK_MARK}]}),
]


@given(texts())
@settings(max_examples=up_to(100), deadline=None)
def test_added_entries_can_be_taken_out_of_any_json_text(text: str) -> None:
    before = json_text.read(text)
    added = text
    for edit in EDITS:
        added = edit(added)
    value = json_text.read(added)
    assert value["mcpServers"]["engrain"] == {"command": "x", "args": ["y"]}
    assert value["hooks"]["Stop"][-1] == {"hooks": [{"command": HOOK_MARK}]}
    left = json_text.remove_marked(json_text.remove_member(added, ("mcpServers", "engrain")), HOOK_MARK)
    assert drop_empty(json_text.read(left)) == drop_empty(before)
    for comment in ("// note", "// last", "// head", "// tail", "\ufeff"):
        assert (comment in left) == (comment in text)


def test_the_commands(user_folder: Path, home: ConnectHome) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(root, words, catch_exceptions=False, prog_name="engrain")
        assert result.exit_code == 0, result.output
        return str(result.output)

    (user_folder / ".gemini").mkdir()
    assert "+++" in run("connect", "gemini", "--dry-run")
    assert not (user_folder / ".gemini/settings.json").exists()
    assert "Gemini CLI connected." in run("connect", "gemini")
    assert "was connected already" in run("connect", "gemini")
    status = json.loads(run("connect", "--status", "--json"))
    assert [one["client"] for one in status["clients"] if one["connected"]] == ["gemini"]
    assert status["resident"] is None
    found = next(one for one in status["findings"] if one["name"] == "Gemini CLI")
    assert (found["state"], found["why"]) == ("pass", "connected; never heard")
    (user_folder / ".gemini/settings.json").write_text("{}")
    assert "Gemini CLI" in run("connect", "--status")
    assert "lack entries of ours" in run("connect", "--status")
    run("connect", "gemini")
    assert "off everywhere" in run("connect", "off")
    assert home.off.exists()
    run("connect", "on")
    assert not home.off.exists()
    run("connect", "codex")
    assert ChangeLedger(home).list_clients() == ["gemini", "codex"]
    assert "disconnected" in run("disconnect")
    assert ChangeLedger(home).list_clients() == []  # so that the resident process ends
    assert not (user_folder / ".gemini/settings.json").exists()


def test_status_and_disconnect_know_every_repository(
    user_folder: Path, home: ConnectHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> Any:
        result = CliRunner().invoke(root, [*words, "--json"], catch_exceptions=False, prog_name="engrain")
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    project, gone = tmp_path / "project", tmp_path / "gone"
    settings = user_folder / ".claude.json"
    settings.write_text('{"projects": {}, "theme": "dark"}')
    for folder in (project, gone):
        folder.mkdir()
        monkeypatch.chdir(folder)
        run("connect", "claude", "--project")
    run("connect", "claude")
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(gone)
    (project / ".claude/settings.local.json").write_text("{}")
    found = {(one["client"], one["project"]): one for one in run("connect", "--status")["clients"]}
    assert {key: one["complete"] for key, one in found.items()} == {
        ("claude", None): True, ("claude", str(project)): False,
    }  # fmt: skip
    advice = CliRunner().invoke(root, ["connect", "--status"]).output
    assert f"cd {project} && engrain connect claude --project" in " ".join(advice.split())
    assert str(settings) in run("disconnect")["claude"]
    assert settings.read_text() == '{"projects": {}, "theme": "dark"}'
    assert not list_connections(home)
    assert "nothing is connected" in CliRunner().invoke(root, ["disconnect"]).output


def test_another_store_is_one_that_a_process_can_serve(user_folder: Path, home: ConnectHome, tmp_path: Path) -> None:
    refused = CliRunner().invoke(root, ["--store", "http://localhost:1", "connect", "gemini"])
    assert "resident process" in refused.output
    assert not list_connections(home)
    CliRunner().invoke(root, ["--store", str(tmp_path / "other.db"), "connect", "gemini"], catch_exceptions=False)
    assert home.store == str(tmp_path / "other.db")
    assert "omit --user" in CliRunner().invoke(root, ["connect", "gemini", "--user", "ana"]).output


def test_doctor_checks_the_store_of_connected_agents_if_there_is_no_other(
    user_folder: Path, home: ConnectHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> dict[str, Any]:
        result = CliRunner().invoke(root, [*words, "--json"], prog_name="engrain")
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENGRAIN_STORE", raising=False)
    assert CliRunner().invoke(root, ["doctor"]).exit_code != 0  # nothing is connected, and there is no store
    Connector(home).connect("gemini")
    early = run("doctor")
    assert (early["ok"], early["store"], early["findings"]) == (True, home.store, [])
    assert "does not exist yet" in CliRunner().invoke(root, ["doctor"]).output
    with open_store(home, background=False) as store:
        store.memory(user="ana").remember("we never use tabs here")
    later = run("doctor")
    assert (later["store"], later["empty"], len(later["findings"])) == (home.store, False, 35)
    assert "Gemini CLI" in [one["name"] for one in later["agents"]]
    assert "there is no store" in CliRunner().invoke(root, ["--store", "other.db", "doctor"]).output
    Store("engrain.db").close()
    assert "store" not in run("doctor")  # that of this folder comes first
