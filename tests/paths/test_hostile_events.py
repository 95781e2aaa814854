"""Keys of the server, and the folder of connect: its spool, its breaker and transcripts of other programs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engrain_conformance.embedder import HashEmbedder
from hostile_kit import Attack, check_attacks

from engrain import Store
from engrain.connect.connect_home import ConnectHome
from engrain.connect.hook import read_breaker
from engrain.connect.recorder import EventRecorder
from engrain.connect.transcripts import load_transcripts
from engrain.server.keys import ApiKey, KeyFile


def use_keys(**fields: object) -> Attack:
    def attack(folder: Path) -> None:
        keys = KeyFile(folder / "keys.json")
        secret = keys.add(ApiKey("", "phone", "", ("read",), user="ana"))
        document = json.loads((folder / "keys.json").read_text())
        name = next(name for name, value in document.items() if isinstance(value, (list, dict)))
        entries = document[name] if isinstance(document[name], list) else list(document[name].values())
        if "old" in fields:
            fields["replaced"], entries[0]["sha256"] = entries[0]["sha256"], "0" * 64
        entries[0].update({name: value for name, value in fields.items() if name != "old"})
        (folder / "keys.json").write_text(json.dumps(document))
        keys = KeyFile(folder / "keys.json")
        keys.list()
        assert keys.find("engrain_") is None
        assert keys.find("") is None
        found = keys.find(secret)
        assert found is None or found.rights == ("read",) or "rights" in fields, "it got more rights"
        keys.rotate("phone")

    return attack


def hear_hook(breaker: str) -> Attack:
    """The hook waits for nobody for half a minute at most, whatever its file says."""

    def attack(folder: Path) -> None:
        (folder / "breaker").write_text(breaker)
        failures, until = read_breaker(str(folder / "breaker"))
        assert failures >= 0
        assert until < time.time() + 60, "it is deaf for ever"

    return attack


def spool(name: str | bytes, content: bytes) -> Attack:
    """An event that nobody can use keeps the next one from nobody."""

    def attack(folder: Path) -> None:
        home = ConnectHome(folder / "home").prepare()
        with open(os.path.join(os.fsencode(home.spool), os.fsencode(name)), "wb") as file:
            file.write(content)
        (home.spool / "z.json").write_text(json.dumps(make_event({"prompt": "in this repo we always use pnpm"})))
        with Store(folder / "store.db", embedder=HashEmbedder(), background=False) as store:
            EventRecorder(store, home).take_spooled()
            assert not list(home.spool.iterdir()), "the spool is stuck"
            assert store.memories(), "the event behind it is lost"

    return attack


def make_event(
    payload: object, client: object = "claude", event: object = "prompt", **fields: object
) -> dict[str, Any]:
    about = {"session_id": "s", "cwd": "/"}
    payload = {**about, **payload} if isinstance(payload, dict) else payload
    return {"client": client, "event": event, "payload": payload, **fields}


def spool_event(payload: object, **fields: object) -> Attack:
    return spool("0.json", json.dumps(make_event(payload, **fields)).encode())


def load_past(client: str, place: str, *lines: object) -> Attack:
    def attack(folder: Path) -> None:
        path = folder / "user" / place
        path.parent.mkdir(parents=True)
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        home = ConnectHome(folder / "home").prepare()
        with Store(folder / "store.db", embedder=HashEmbedder(), background=False) as store:
            load_transcripts(store, home, client, user_folder=folder / "user")

    return attack


def claude(**fields: object) -> dict[str, Any]:
    line = {
        "type": "user",
        "uuid": "u",
        "parentUuid": "u",
        "sessionId": "s",
        "cwd": "/",
        "timestamp": "2026-01-01T00:00:00Z",
    }
    return {**line, "message": {"role": "user", "content": "we always use pnpm here"}, **fields}


PAST = ".claude/projects/p/s.jsonl"
TIMES = (
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    10**400,
    -(10**400),
    2**70,
    True,
    [],
    {},
    "1e400",
    "nan",
)

BAD_FOLDERS = ("a\0b", "\ud800", "../..", "a" * 10_000, "~nobody/x", "~\0/x", [], 5)
BAD_MESSAGES = (None, [], {"role": [], "content": {}}, {"role": "user", "content": [[]]})


def codex(kind: str, at: object, **payload: object) -> dict[str, Any]:
    return {"timestamp": at, "type": kind, "payload": payload}


def load_looped(folder: Path) -> None:
    (folder / "user" / ".claude" / "projects").mkdir(parents=True)
    (folder / "user" / ".claude" / "projects" / "p").symlink_to(folder / "user")
    load_past("claude", ".claude/projects/q/s.jsonl", claude())(folder)


def link_past(folder: Path) -> None:
    (folder / "user" / ".claude" / "projects" / "p").mkdir(parents=True)
    (folder / "user" / ".claude" / "projects" / "p" / "s.jsonl").symlink_to("/dev/zero")
    load_past("claude", ".claude/projects/q/s.jsonl", claude())(folder)


CONNECT: dict[str, Attack] = {
    "a key for all rights": use_keys(rights=["read", "root"]),
    "a key without a hash": use_keys(sha256=""),
    "a key with a hash of a list": use_keys(sha256=[]),
    "a key with a hash that is no ASCII": use_keys(sha256="é" * 64),
    "a key whose old secret is empty": use_keys(replaced="", replaced_until="9999-12-31T23:59:59"),
    "a key until a time that is none": use_keys(replaced="0" * 64, replaced_until="0001-01-01T00:00:00+14:00"),
    "a key until a number": use_keys(replaced="é", replaced_until=1e308),
    "an old key until a number": use_keys(old=True, replaced_until=5),
    "an old key until a moment without a zone": use_keys(old=True, replaced_until="2026-01-01T00:00:00"),
    "an old key until a word": use_keys(old=True, replaced_until="forever"),
    "a key with limits that are none": use_keys(limits={"requests_per_second": float("nan")}),
    "a key with limits without an end": use_keys(limits={"requests_per_second": float("inf"), "items_per_day": 2**70}),
    "a key with a scope of a list": use_keys(user=[], chooses="user"),
    "a key that reads itself": use_keys(reads=[["ana"], {"user": {"a": 1}}]),
    "a breaker for ever": hear_hook('{"failures": 5, "until": 1e300}'),
    "a breaker without an end": hear_hook('{"failures": 5, "until": Infinity}'),
    "a breaker of a number of digits": hear_hook('{"failures": ' + "9" * 300 + ', "until": 1}'),
    "an event with a name that is no UTF-8": spool(b"\xff\xfe.json", b'{"event": "prompt", "payload": {}}'),
    "an event with a name of line breaks": spool("0\n\x1b.json", b'{"event": "prompt"}'),
    "an event of half a character": spool("0.json", b'{"event": "\\ud800", "payload": {"prompt": "\\udfff"}}'),
    "an event of numbers": spool("0.json", b'{"event": 1e400, "at": NaN, "client": -0}'),
    "an event of lists": spool_event([], client=[], event=[]),
    "an event with a name of a list": spool_event({}, event=["prompt"]),
    "an event after every calendar": spool_event({"prompt": "we use pnpm"}, at=1e18),
    "an event at no time": spool_event({"prompt": "we use pnpm"}, at={"a": 1}),
    "an event in a folder that is a number": spool_event({"prompt": "we use pnpm", "cwd": "", "workspace_roots": [5]}),
    "an event in folders that are a number": spool_event({"prompt": "we use pnpm", "cwd": "", "workspace_roots": 5}),
    "an event in a folder of nobody": spool_event({"prompt": "we use pnpm", "cwd": "~nobody-here\0/x"}),
    "an event in a folder without an end": spool_event({"prompt": "we use pnpm", "cwd": "/a" * 5_000}),
    "an exit code of 5,000 digits": spool_event(
        {"command": "make", "tool_response": "Exit code: " + "9" * 5_000}, event="PostToolUse"
    ),
    "times that are none": load_past("claude", PAST, *(claude(timestamp=at, uuid=str(at)) for at in TIMES)),
    "a message that is its own answer": load_past("claude", PAST, *[claude()] * 50),
    "a folder that is none": load_past("claude", PAST, *(claude(cwd=cwd) for cwd in BAD_FOLDERS)),
    "a session that is none": load_past("claude", PAST, *(claude(sessionId=id) for id in BAD_FOLDERS)),
    "contents of every kind": load_past("claude", PAST, *(claude(message=message) for message in BAD_MESSAGES)),
    "folders in a circle": load_looped,
    "a transcript of zeros without an end": link_past,
    "times of Codex": load_past(
        "codex",
        ".codex/sessions/2026/01/01/rollout-x.jsonl",
        *(codex("session_meta", at, id="s", cwd="/", timestamp=at) for at in TIMES),
        *(codex("event_msg", at, type="user_message", message="we use pnpm") for at in TIMES),
    ),
}


def test_keys_events_and_transcripts_are_data_or_a_typed_error(
    tmp_path: Path, report_counts: Callable[..., None]
) -> None:
    report_counts(files=check_attacks(tmp_path, CONNECT))
