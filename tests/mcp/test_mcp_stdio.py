"""The command `engrain mcp` with the real client, in both versions of the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lazy_classes import Client, StdioServerParameters
from mcp_kit import MODERN, SOURCES, VERSIONS, call, fail, run, stdio

from engrain import Memory
from engrain.cli.main import root
from engrain.server.resident import ask, connect, find_place, stop


def test_an_agent_remembers_recalls_and_forgets_and_the_next_process_goes_on(tmp_path: Path) -> None:
    """In both versions of the protocol, each in a process of its own on one file."""

    async def use(client: Client) -> str:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "recall", "remember", "correct", "forget", "list_items", "explain", "add_messages", "start_session",
        ]  # fmt: skip
        begun = await call(client, "start_session")
        await call(client, "add_messages", messages=[{"role": "user", "content": "I'm allergic to peanuts."}])
        made = await call(client, "remember", text="Ana lives in Quito.", slot="user.city")
        found = await call(client, "recall", query="Where does Ana live?")
        assert found["items"][0]["id"] == made["id"]
        gone = await call(client, "forget", ids=[made["id"]], dry_run=False)
        assert gone["ids"] == [made["id"]]
        assert "Quito" not in str(await call(client, "recall", query="Where does Ana live?"))
        assert "no item 'nothing'" in await fail(client, "explain", id="nothing")
        assert client.protocol_version == VERSIONS[client.mode]
        return str(begun["context"])

    first, second = (run(Client(stdio(tmp_path / "store.db"), mode=mode), use) for mode in VERSIONS)
    assert "peanuts" not in first
    assert "allergic to peanuts" in second


def test_a_resident_process_serves_the_agent_while_it_runs(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with connect(store):
        found = ask(find_place(store))
        assert found is not None

    async def use(client: Client) -> None:
        made = await call(client, "remember", text="Ana lives in Quito.", slot="user.city")
        assert list_owners(store) == {found["pid"]}
        assert (await call(client, "recall", query="Where does Ana live?"))["items"][0]["id"] == made["id"]
        shown = await call(client, "forget", ids=[made["id"]])
        assert (shown["ids"], shown["dry_run"]) == ([made["id"]], True)
        begun = await call(client, "start_session")
        assert "Quito" in begun["context"]
        assert "Quito" in str((await client.read_resource("engrain://profile")).contents)
        await call(client, "add_messages", messages=[{"role": "user", "content": "I work at Acme."}])
        assert "no item 'nothing'" in await fail(client, "explain", id="nothing")
        assert await asyncio.to_thread(stop, store)
        after = await call(client, "recall", query="Where does Ana work?")
        assert any("Acme" in item["text"] for item in after["items"])
        assert found["pid"] not in list_owners(store)

    try:
        run(Client(stdio(store), mode=MODERN), use)
    finally:
        stop(store)


def list_owners(store: Path) -> set[int]:
    """Return the processes that have the file open."""
    owners = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == str(store):
                owners.add(int(link.parts[2]))
    return owners


@pytest.mark.slow
def test_two_servers_on_one_file_lose_nothing(tmp_path: Path) -> None:
    count = 20

    async def write(name: str) -> list[str]:
        async with Client(stdio(tmp_path / "store.db"), mode=MODERN) as client:
            texts = [f"{name} saw comet number {number}." for number in range(count)]
            made = await asyncio.gather(*(call(client, "remember", text=text) for text in texts))
            return [one["id"] for one in made]

    async def both() -> list[list[str]]:
        return await asyncio.gather(write("Bela"), write("Cleo"))

    first, second = asyncio.run(both())
    with Memory(tmp_path / "store.db", user="ana", background=False) as memory:
        assert {item.id for item in memory.list(limit=1_000)} == {*first, *second}
    assert len({*first, *second}) == 2 * count


INITIALIZE = {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
}  # fmt: skip


def call_by_hand(store: Path, tool: str, **arguments: str) -> tuple[subprocess.Popen[str], list[dict[str, Any]]]:
    """Start the command, call a tool with plain JSON, and return the process and its two answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "engrain", "mcp", "--store", str(store)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={"PYTHONPATH": SOURCES},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    for request in (
        {"id": 1, "method": "initialize", "params": INITIALIZE},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
    process.stdin.flush()
    return process, [json.loads(process.stdout.readline()) for _ in range(2)]


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGKILL))],
)
def test_a_signal_ends_the_server_and_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Until then stdout carries nothing but the protocol."""
    process, answers = call_by_hand(tmp_path / "store.db", "remember", text="Ana lives in Quito.")
    process.send_signal(number)
    # stdin is still open: an agent may have died without closing it.
    assert process.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
    assert [answer["id"] for answer in answers] == [1, 2]
    assert process.communicate()[0] == ""
    with Memory(tmp_path / "store.db", background=False) as memory:
        assert [item.id for item in memory.list()] == [answers[1]["result"]["structuredContent"]["id"]]


def test_without_the_extra_the_command_says_what_to_install() -> None:
    blocked = "import sys; sys.modules['mcp'] = None; from engrain.cli import main; main()"
    command, environment = [sys.executable, "-c", blocked, "mcp", "--user", "ana"], {"PYTHONPATH": SOURCES}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1
    assert 'engrain mcp needs mcp, which is not installed. Run: pip install "engrain[mcp]".' in done.stderr


@pytest.mark.slow
def test_read_only_offers_no_tool_that_writes(tmp_path: Path) -> None:
    with Memory(tmp_path / "store.db", user="ana", background=False) as memory:
        memory.remember("Ana lives in Quito.")

    async def use(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["recall", "list_items", "explain"]
        assert (await call(client, "recall", query="Where does Ana live?"))["items"][0]["text"] == "Ana lives in Quito."
        assert "Unknown tool" in await fail(client, "remember", text="Ana lives in Lima.")

    run(Client(stdio(tmp_path / "store.db", "--read-only"), mode=MODERN), use)


def test_wrong_options_end_the_command_with_advice(tmp_path: Path) -> None:
    def start(*options: str) -> str:
        done = CliRunner().invoke(root, ["mcp", "--store", str(tmp_path / "store.db"), *options])
        assert done.exit_code != 0
        assert done.stdout == ""
        return f"{done.stderr}{done.exception}"

    assert "Did you mean 'recall'?" in start("--tools", "recal")
    assert "--read-only offers recall" in start("--tools", "remember", "--read-only")
    assert "engrain keys add NAME" in start("--http")


def test_switching_the_memory_off_closes_every_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    arguments = ["-m", "engrain", "mcp", "--repository", "--home", str(home)]
    server = StdioServerParameters(
        command=sys.executable, args=arguments, env={"PYTHONPATH": SOURCES}, cwd=str(project)
    )

    monkeypatch.chdir(project)

    def switch(*words: str) -> None:
        done = CliRunner().invoke(root, ["connect", *words], env={"ENGRAIN_HOME": str(home)})
        assert done.exit_code == 0, done.output

    async def use(client: Client) -> None:
        made = await call(client, "remember", text="The build needs Node 22.")
        message = {"role": "assistant", "content": "hello"}
        calls: dict[str, dict[str, Any]] = {
            "recall": {"query": "Which Node?"}, "remember": {"text": "The build needs Node 24."},
            "correct": {"id": made["id"], "text": "The build needs Node 24."}, "forget": {"ids": [made["id"]]},
            "list_items": {}, "explain": {"id": made["id"]}, "add_messages": {"messages": [message]},
            "start_session": {},
        }  # fmt: skip
        assert set(calls) == {tool.name for tool in (await client.list_tools()).tools}
        for words in ((), ("--project",)):
            switch("off", *words)
            for tool, given in calls.items():
                told = await fail(client, tool, **given)
                assert "switched off" in told, tool
                assert "Node" not in told, tool
            switch("on", *words)
            found = await call(client, "recall", query="Which Node does the build need?")
            assert [item["text"] for item in found["items"]] == ["The build needs Node 22."]

    run(Client(server, mode=MODERN), use)
