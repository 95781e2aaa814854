"""No invisible character of a stored text reaches a model or a terminal: blocks, JSON, MCP answers, hooks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder
from lazy_classes import Client
from mcp_kit import local_server, run

from engrain import Memory, Note, Store
from engrain.cli.main import root
from engrain.connect.connect_home import ConnectHome
from engrain.connect.recorder import EventRecorder
from engrain.core.model.items import Source
from engrain.core.text.invisible import escape_invisible, escape_invisible_json

# Tags that spell a word, zero-width marks, direction marks, C1, ESC, DEL, soft hyphen, filler, variation selectors.
HIDDEN = (
    "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    + "\u200b\u200c\u200d\u2060\ufeff\u200e\u200f\u202a\u202e\u2066\u2069\u0085\u009b\x1b\x7f\xad\u3164\ufe0f\U000e0100"
)
SEEN_WORD = "kettle"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
        fill(memory)
    return path


def fill(memory: Memory) -> None:
    memory.remember(f"The kettle{HIDDEN} is mine.", slot="user.kettle", metadata={f"k{HIDDEN}": f"v{HIDDEN}"})
    memory.remember(Note(f"The kettle{HIDDEN} is hot.", source=Source(f"a{HIDDEN} page", "web")).text)
    memory.remember(f"The kettle{HIDDEN} is red.", source=Source(f"a{HIDDEN} page", "web"))
    memory.relations.add(f"Ana{HIDDEN}", f"owns{HIDDEN}", f"kettle{HIDDEN}")
    memory.procedural.learn(f"boil the kettle{HIDDEN}", [f"fill{HIDDEN} the kettle"])
    session = memory.session(f"tea{HIDDEN}")
    session.add_message("user", f"Always answer about the kettle{HIDDEN} in Spanish.", speaker=f"Ana{HIDDEN}")
    session.add_message("assistant", f"The kettle{HIDDEN} boils.")
    session.add_message("tool", f"kettle{HIDDEN}: 100 degrees", speaker=f"kettle{HIDDEN}")
    memory.episodic.record_error(f"the kettle{HIDDEN} is broken")
    with memory.task(f"tea{HIDDEN}", goal=f"boil the kettle{HIDDEN}") as task:
        task.step("one", lambda: f"kettle{HIDDEN}")
        task.outcome = f"the kettle{HIDDEN} boiled"


def find_hidden(text: str) -> set[str]:
    return {f"U+{ord(mark):04X}" for mark in HIDDEN if mark in text}


def check_text(text: str) -> None:
    assert SEEN_WORD in text or text == ""
    assert find_hidden(text) == set()
    assert escape_invisible(text) == text


COMMANDS = (
    ("recall", "where is the kettle?"), ("prompt", "where is the kettle?"), ("list",), ("list", "--kind", "message"),
    ("status",), ("sessions",), ("tasks",), ("memories",), ("profile",), ("working",), ("export",), ("audit",),
    ("doctor",), ("procedures",), ("slots",), ("history", "user.kettle"), ("log",),
)  # fmt: skip


@pytest.mark.parametrize("form", ["--json", ""])
def test_commands_escape_them(store: Path, form: str) -> None:
    tried = []
    for command in COMMANDS:
        words = ["--store", str(store), "--user", "ana", *command, *([form] if form else [])]
        result = CliRunner().invoke(root, words)
        if result.exit_code == 2:
            continue  # no such command, or no such form
        tried.append(command[0])
        assert find_hidden(result.output) == set(), command
        if form and result.exit_code == 0:
            assert escape_invisible_json(result.output) == result.output, command
    assert {"recall", "list", "status", "tasks", "audit", "doctor"} <= set(tried), tried


def test_the_value_of_an_escaped_json_text_is_the_stored_one(store: Path) -> None:
    words = ["--store", str(store), "--user", "ana", "list", "--json"]
    lines = CliRunner().invoke(root, words).output.splitlines()
    assert f"The kettle{HIDDEN} is mine." in [json.loads(line)["text"] for line in lines]


def test_blocks_and_working_memory_escape_them(store: Path) -> None:
    with Memory(store, user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.start_session(f"tea{HIDDEN}")
        memory.working.start(f"boil the kettle{HIDDEN}", goal=f"a hot{HIDDEN} kettle")
        memory.working.step(f"the kettle{HIDDEN} sings", f"pour{HIDDEN}", {f"cup{HIDDEN}": f"full{HIDDEN}"})
        memory.working.set_variable(f"sugar{HIDDEN}", f"none{HIDDEN}")
        check_text(str(memory.recall("where is the kettle?", n=20)))
        check_text(memory.prompt("where is the kettle?"))
        check_text(memory.working.context())
        check_text(str(memory.start_session("another")))


def test_answers_of_tools_escape_them(store: Path) -> None:
    async def use(client: Client) -> None:
        listed = await client.call_tool("list_items", {"n": 50})
        assert listed.structured_content is not None
        ids = [item["id"] for item in listed.structured_content["items"]]
        assert len(ids) > 5
        calls = [
            ("recall", {"query": "where is the kettle?", "n": 20}),
            ("list_items", {"n": 50}),
            ("start_session", {"session": "another"}),
            *(("explain", {"id": id}) for id in ids),
            ("forget", {"ids": ids[:3], "dry_run": True}),
        ]
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            whole = result.content[0].text + json.dumps(result.structured_content, ensure_ascii=False)
            assert find_hidden(whole) == set(), name

        for address in ("engrain://profile", *(f"engrain://item/{id}" for id in ids)):
            read = await client.read_resource(address)
            assert find_hidden(read.contents[0].text) == set(), address
        asked = (("prompt", {"request": "where is the kettle?"}), ("summary", {"session": f"tea{HIDDEN}"}))
        for name, arguments in asked:
            told = await client.get_prompt(name, arguments)
            check_text(told.messages[0].content.text)

    with local_server(store) as server:
        run(Client(server), use)


def test_the_output_of_the_hook_escapes_them(tmp_path: Path) -> None:
    home, project = ConnectHome(tmp_path / "home").prepare(), tmp_path / "project"
    project.mkdir()
    with Store(tmp_path / "store.db", embedder=HashEmbedder(), background=False) as store:
        recorder = EventRecorder(store, home)

        def send(event: str, session: str, **payload: str) -> str:
            about = {"session_id": session, "cwd": str(project), **payload}
            return json.dumps(recorder.answer({"client": "claude", "event": event, "payload": about}))

        for number, said in enumerate((f"we never use the kettle{HIDDEN} here", f"I prefer the red kettle{HIDDEN}")):
            send("UserPromptSubmit", "s1", prompt=said, prompt_id=f"p{number}")
        told = [
            send("SessionStart", "s2"),
            send("UserPromptSubmit", "s2", prompt="do we use the kettle here?", prompt_id="p9"),
        ]
    contexts = [json.loads(one)["hookSpecificOutput"]["additionalContext"] for one in told if one != "{}"]
    assert contexts
    for context in contexts:
        check_text(context)
