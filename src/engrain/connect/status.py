"""Report on a connected memory: each client, the resident process, the switch, and events that wait."""

from __future__ import annotations

import json
import selectors
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from engrain.connect.clients import CLIENTS, HOOK_MARK, Client
from engrain.connect.connect_home import HEARD_FILE, ConnectHome, list_switched_off, read_json
from engrain.connect.connector import Connector, list_connections
from engrain.core.validation import count_noun
from engrain.server.resident import ask, find_place

CODEX_SECONDS = 10.0
_REQUESTS = (
    {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "engrain", "version": "1"}}},
    {"method": "initialized"},
)


@dataclass(frozen=True)
class ClientState:
    """The state of one client, for the user or in one repository.

    `trusted` is None if the client does not ask for trust, or does not answer.
    """

    client: str
    title: str
    project: str | None
    connected: bool
    complete: bool
    trusted: bool | None
    files: tuple[str, ...]
    last_heard: datetime | None
    advice: str

    def judge(self) -> Finding:
        name = f"{self.title} in {self.project}" if self.project else self.title
        heard = self.last_heard
        when = "never heard" if heard is None else f"last heard {heard.astimezone():%Y-%m-%d %H:%M}"
        command = f"engrain connect {self.client}"
        if self.project:
            command = f"cd {shlex.quote(self.project)} && {command} --project"
        if not self.connected:
            return Finding(name, "pass", "not connected", command)
        if not self.complete:
            return Finding(name, "fail", f"its settings lack entries of ours; {when}", command)
        if self.trusted is False:
            return Finding(name, "fail", f"connected, but its hooks are not trusted; {when}", self.advice)
        trusted = ", trusted" if self.trusted else ""
        advice = self.advice if heard is None and not self.trusted else ""
        return Finding(name, "pass", f"connected{trusted}; {when}", advice)


@dataclass(frozen=True)
class Finding:
    """A line of the report, and what to do about it."""

    name: str
    state: Literal["pass", "warn", "fail"]
    why: str
    fix: str = ""


@dataclass(frozen=True)
class ConnectStatus:
    """The whole report."""

    store: str
    resident: int | None
    answers: bool
    off: bool
    off_in: Sequence[str]
    waiting: int
    clients: Sequence[ClientState]

    def list_findings(self) -> Iterator[Finding]:
        yield self._judge_resident()
        if self.waiting:
            yield Finding("spool", "warn", f"{count_noun(self.waiting, 'event')} wait", "the next event takes them in")
        if self.off:
            yield Finding("switch", "warn", "off everywhere: nothing is kept or shown", "engrain connect on")
        for name in self.off_in:
            yield Finding("switch", "warn", f"off in {name}", "engrain connect on --project")
        yield from (state.judge() for state in self.clients if state.connected)

    def _judge_resident(self) -> Finding:
        name = "resident process"
        if self.resident is None:
            return Finding(name, "pass", "not running; the next event starts it")
        if not self.answers:
            return Finding(name, "fail", f"process {self.resident} does not answer", f"kill -9 {self.resident}")
        return Finding(name, "pass", f"running, process {self.resident}")


def read_status(home: ConnectHome, folder: Path) -> ConnectStatus:
    """Read the state of everything. Codex is asked for its trust from this folder."""
    heard, place, own = read_json(home.folder / HEARD_FILE), find_place(home.store), Connector(home)
    installed = [(client.name, own) for client in own.find_installed() if not own.list_files(client.name)]
    # A repository may be gone, with the files in it.
    found = [one for one in list_connections(home) if one[1].project is None or one[1].project.exists()] + installed
    found.sort(key=lambda one: (str(one[1].project or ""), [*CLIENTS].index(one[0])))
    clients = [_read_client(CLIENTS[name], connector, heard.get(name), folder) for name, connector in found]
    pid = place.read_pid()
    answers = pid is not None and ask(place) is not None
    waiting = len(list(home.spool.glob("*.json")))
    return ConnectStatus(home.store, pid, answers, home.off.exists(), list_switched_off(home), waiting, clients)


def _read_client(client: Client, connector: Connector, heard: float | None, folder: Path) -> ClientState:
    files = connector.list_files(client.name)
    complete = bool(files) and not any(change.changes for change in connector.preview(client.name))
    return ClientState(
        client.name,
        client.title,
        str(connector.project) if connector.project else None,
        bool(files),
        complete,
        are_hooks_trusted(HOOK_MARK, folder) if complete and client.name == "codex" else None,
        tuple(map(str, files)),
        None if heard is None else datetime.fromtimestamp(heard, UTC),
        client.advice,
    )


def are_hooks_trusted(mark: str, folder: Path, command: str = "codex") -> bool | None:
    """True if Codex runs every hook with this mark in its command; None if it is not installed or does not say.

    Codex skips a hook that its user does not trust, without a word.
    """
    program = shutil.which(command)
    if program is None:
        return None
    try:
        hooks = [hook for hook in list_hooks(program, folder) if mark in str(hook.get("command"))]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return bool(hooks) and all(hook.get("enabled") and hook.get("trustStatus") == "trusted" for hook in hooks)


def list_hooks(program: str, folder: Path) -> list[Mapping[str, Any]]:
    """Return what Codex knows of the hooks that hold in a folder, by a request to its app server."""
    asked = (*_REQUESTS, {"id": 2, "method": "hooks/list", "params": {"cwds": [str(folder)]}})
    with subprocess.Popen(
        [program, "app-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
    ) as server:
        try:
            assert server.stdin is not None, "a pipe was asked for"
            server.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in asked))
            server.stdin.flush()
            for line in _read_lines(server):
                answer = json.loads(line)
                if answer.get("id") == 2:
                    return [hook for place in answer["result"]["data"] for hook in place["hooks"]]
        finally:
            server.kill()
    raise ValueError("no answer")


def _read_lines(server: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield the lines of the server until it ends or the time is up."""
    assert server.stdout is not None, "a pipe was asked for"
    end, rest = time.monotonic() + CODEX_SECONDS, b""
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            part = server.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not part:
                return
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
