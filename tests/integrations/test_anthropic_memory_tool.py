"""EngrainMemoryTool answers as Anthropic's own file tool does, but for differences that are listed here.

- The size of a folder is that of its files, not that of a directory on some disk.
- A path such as /memoriesx is refused.
- A rename whose source is missing makes no folder.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic.lib.tools", reason="make test-integrations runs it")

from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool
from engrain_conformance.embedder import HashEmbedder
from integration_kit import Figures, count_bytes, open_store

from engrain import Memory, Store
from engrain.integrations.anthropic import AsyncEngrainMemoryTool, EngrainMemoryTool
from engrain.integrations.anthropic.files import MAX_VERSIONS, SPACE

NAMES = ("a", "b", "notes.md", "ü.txt", ".hidden", "a b")
WORDS = ("tea", "coffee\n", "x", "line one\nline two\n", "", "日本\n")


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with open_store(request.param, tmp_path) as opened:
        yield opened.memory(user="ana")


def call(tool: Any, **command: Any) -> tuple[str, str]:
    try:
        return "ok", tool.call(command)
    except ToolError as exc:
        return "error", str(exc)
    except OSError:
        return "error", "of the disk"


def without_folder_sizes(text: str) -> str:
    lines = text.split("\n")
    if not lines[0].startswith("Here're the files"):
        return text
    of_folders = [line if n > 1 and not line.endswith("/") else line.partition("\t")[2] for n, line in enumerate(lines)]
    return "\n".join(of_folders)


def random_path(chance: random.Random) -> str:
    parts = chance.choices(NAMES, k=chance.randint(0, 3))
    if chance.random() < 0.05:
        parts.insert(chance.randint(0, len(parts)), chance.choice(["..", ".", ""]))
    return "/".join(["/memories", *parts])


def random_command(chance: random.Random, known: list[str]) -> dict[str, Any]:
    act = chance.choices(["view", "create", "str_replace", "insert", "delete", "rename"], [5, 6, 4, 4, 1, 2])[0]
    path = chance.choice([random_path(chance), *known, *known, *known])
    text = "".join(chance.choices(WORDS, k=chance.randint(0, 4)))
    command: dict[str, Any] = {"command": act, "path": path}
    if act == "view" and chance.random() < 0.4:
        command["view_range"] = chance.choice([[1, 1], [2, -1], [1, 99], [0, 2], [5, 3]])
    if act == "create":
        command |= {"path": random_path(chance), "file_text": text}
    if act == "str_replace":
        command |= {"old_str": chance.choice(["tea", "line", "coffee", "x"]), "new_str": chance.choice(WORDS)}
    if act == "insert":
        command |= {"insert_line": chance.randint(-1, 4), "insert_text": text}
    if act == "rename":
        target = f"/memories/{chance.choice(NAMES)}{chance.randint(0, 9)}"
        command = {"command": act, "old_path": path, "new_path": target}
    return command


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 1_000), ("postgres", 500)])
def test_random_commands_answer_as_the_tool_of_the_sdk(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    with open_store(backend, tmp_path) as opened:
        ours, theirs = EngrainMemoryTool(opened.memory(user="ana")), BetaLocalFilesystemMemoryTool(str(tmp_path / "x"))
        chance, known, done = random.Random(17), list[str](), 0
        for _ in range(steps):
            command = random_command(chance, known)
            (mine, answer), (other, wanted) = call(ours, **command), call(theirs, **command)
            assert mine == other, (command, answer, wanted)
            if wanted != "of the disk":
                assert without_folder_sizes(answer) == without_folder_sizes(wanted), command
            done += mine == "ok"
            if command["command"] == "create" and mine == "ok":
                known.append(command["path"])
        assert done > steps / 4
    figures.show("random commands equal to `BetaLocalFilesystemMemoryTool`", backend, steps)
    figures.name_packages("anthropic")


def test_paths_outside_are_refused(memory: Memory) -> None:
    tool = EngrainMemoryTool(memory)
    for path in ("/etc/passwd", "/memoriesx", "/memories/../x", "/memories/a/../../x", "", "/memories/a\x00b"):
        assert call(tool, command="create", path=path, file_text="x")[0] == "error", path
    assert memory.records.keys(SPACE) == []


def test_earlier_versions_are_kept_and_go_with_the_file(memory: Memory) -> None:
    tool, path = EngrainMemoryTool(memory), "/memories/notes.md"
    call(tool, command="create", path=path, file_text="0\n")
    for n in range(MAX_VERSIONS + 5):
        call(tool, command="str_replace", path=path, old_str=f"{n}\n", new_str=f"{n + 1}\n")
    versions = tool.files.list_versions(path)
    assert len(versions) == MAX_VERSIONS
    assert versions[0].text == f"{MAX_VERSIONS + 4}\n"
    call(tool, command="rename", old_path=path, new_path="/memories/old/notes.md")
    assert tool.files.list_versions("/memories/old/notes.md") == versions
    call(tool, command="delete", path="/memories/old")
    assert memory.records.keys(SPACE) == []


def test_deleting_and_erasing_leave_no_byte(tmp_path: Path) -> None:
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as opened:
        for name in ("ana", "ben"):
            tool = EngrainMemoryTool(opened.memory(user=name))
            for file in ("secret", "other"):
                text = f"zephyrquokka-{name}-{file}\n" * 99
                call(tool, command="create", path=f"/memories/{file}.md", file_text=text)
                call(tool, command="insert", path=f"/memories/{file}.md", insert_line=0, insert_text="first")
        call(EngrainMemoryTool(opened.memory(user="ana")), command="delete", path="/memories/secret.md")
        assert count_bytes(tmp_path, "zephyrquokka-ana-secret") == 0
        assert opened.erase(user="ana").receipt
        assert count_bytes(tmp_path, "zephyrquokka-ana") == 0
        assert count_bytes(tmp_path, "zephyrquokka-ben") > 0


# A local server that speaks the Messages API

SCRIPT: list[dict[str, Any]] = [
    {"command": "create", "path": "/memories/ana.md", "file_text": "Ana likes oolong.\n"},
    {"command": "view", "path": "/memories/ana.md"},
]


class Api(BaseHTTPRequestHandler):
    """Calls the tool with the script's commands, one after another, then ends the turn."""

    seen: list[Any]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append(asked)
        turn = len(self.seen) - 1  # a request may have the new messages alone
        content: list[dict[str, Any]] = [{"type": "text", "text": "Done."}]
        if turn < len(SCRIPT):
            content = [{"type": "tool_use", "id": f"t{turn}", "name": "memory", "input": SCRIPT[turn]}]
        answer = {
            "id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": "tool_use" if turn < len(SCRIPT) else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[tuple[str, list[Any]]]:
    seen: list[Any] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Api", (Api,), {"seen": seen}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()


ASKED: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 100,
    "max_iterations": 9,
    "messages": [{"role": "user", "content": "I like oolong."}],
}


def test_a_tool_runner_keeps_what_claude_writes(
    memory: Memory, api: tuple[str, list[Any]], request: pytest.FixtureRequest, figures: Figures
) -> None:
    url, seen = api
    client = Anthropic(base_url=url, api_key="none")
    final = client.beta.messages.tool_runner(**ASKED, tools=[EngrainMemoryTool(memory)]).until_done()
    assert final.content[0].text == "Done."
    results = [one["content"] for one in seen[-1]["messages"] if one["role"] == "user"]
    assert "Ana likes oolong." in str(results[-1])
    assert memory.records.read(SPACE, [("file", "ana.md")])[0].body == b"Ana likes oolong.\n"
    figures.show("`tool_runner` against a local server", request.node.callspec.params["memory"], "yes")


def test_the_async_tool_runner_too(
    memory: Memory, api: tuple[str, list[Any]], request: pytest.FixtureRequest, figures: Figures
) -> None:
    async def use() -> Any:
        client = AsyncAnthropic(base_url=api[0], api_key="none")
        return await client.beta.messages.tool_runner(**ASKED, tools=[AsyncEngrainMemoryTool(memory)]).until_done()

    assert asyncio.run(use()).content[0].text == "Done."
    assert memory.records.read(SPACE, [("file", "ana.md")])[0].body == b"Ana likes oolong.\n"
    figures.show("async `tool_runner` against a local server", request.node.callspec.params["memory"], "yes")
