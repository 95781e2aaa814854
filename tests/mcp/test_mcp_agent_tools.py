"""An agent uses the tools of real MCP servers, over stdin and stdout and over HTTP."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from mcp_kit import SOURCES, http_server

from engrain import AgentWithMemory, AsyncAgentWithMemory, AsyncMemory, McpServerFailed, Memory, mcp_tools
from engrain.core.identity import Scope
from engrain.core.model.messages import ChatReply, ChatRequest, ToolCall
from engrain.server.access import OpenAccess


class Scripted:
    name = "scripted"

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = list(calls)

    def reply(self, ask: ChatRequest) -> ChatReply:
        if not self.calls:
            return ChatReply("done", (), "end", self.name)
        name, arguments = self.calls.pop(0)
        return ChatReply("", (ToolCall("c", name, arguments),), "tools", self.name)


class Parallel(Scripted):
    """Asks three things in its first reply."""

    def reply(self, ask: ChatRequest) -> ChatReply:
        if ask.messages[-1].role == "tool":
            return ChatReply("done", (), "end", self.name)
        calls = [ToolCall(f"c{n}", "recall", {"query": f"note {n}"}) for n in range(3)]
        return ChatReply("", tuple(calls), "tools", self.name)


def command(store: Path) -> list[str]:
    return [sys.executable, "-m", "engrain", "mcp", "--store", str(store), "--user", "ben"]


def test_an_agent_calls_the_tools_of_a_server_that_it_starts(tmp_path: Path) -> None:
    with (
        Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder(), background=False) as memory,
        mcp_tools(command(tmp_path / "other.db"), env={"PYTHONPATH": SOURCES}, prefix="notes_") as tools,
    ):
        by_name = {tool.name: tool for tool in tools}
        assert {"notes_remember", "notes_recall"} <= by_name.keys()
        assert not by_name["notes_recall"].effect  # the server calls it read-only
        model = Scripted(
            ("notes_remember", {"text": "The gate code is 4711."}),
            ("notes_recall", {"query": "What is the gate code?"}),
            ("notes_correct", {"id": "nothing", "text": "x"}),
        )
        calls = AgentWithMemory(memory, model, tools).run("Note the gate code.").calls
        assert "4711" in calls[1].result
        assert [call.failed for call in calls] == [False, False, True]


@pytest.mark.parametrize("with_key", [True, False], ids=["a key in a header", "no key"])
def test_an_agent_calls_the_tools_of_a_server_over_http(tmp_path: Path, with_key: bool) -> None:
    access = None if with_key else OpenAccess(Scope(user="ben"))
    with http_server(tmp_path, access) as server:
        headers = {"Authorization": f"Bearer {server.add_key('ben', user='ben')}"} if with_key else None
        model = Scripted(
            ("remember", {"text": "The gate code is 4711."}), ("recall", {"query": "What is the gate code?"})
        )
        with (
            Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder(), background=False) as memory,
            mcp_tools(server.url, headers=headers) as tools,
        ):
            calls = AgentWithMemory(memory, model, tools).run("Note the gate code.").calls
        assert [call.failed for call in calls] == [False, False]
        assert "4711" in calls[1].result


def test_an_async_agent_calls_tools_at_once(tmp_path: Path) -> None:
    async def use() -> list[str]:
        with mcp_tools(command(tmp_path / "other.db"), env={"PYTHONPATH": SOURCES}) as tools:
            async with AsyncMemory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as memory:
                agent = AsyncAgentWithMemory(memory, Parallel(), tools)
                return [call.result for call in (await agent.run("What is noted?")).calls if not call.failed]

    assert len(asyncio.run(use())) == 3


DYING = """
import os
from mcp.server import MCPServer
server = MCPServer("dying")
@server.tool()
def die() -> str:
    os._exit(1)
server.run()
"""


@pytest.mark.filterwarnings("error")
def test_a_server_that_dies_or_is_left_is_a_typed_error() -> None:
    with mcp_tools([sys.executable, "-c", DYING]) as (die,):
        for _ in range(2):
            with pytest.raises(McpServerFailed, match="die failed: Connection closed"):
                die.function()
    with pytest.raises(McpServerFailed, match="block has ended"):
        die.function()


def test_a_wrong_key_is_a_typed_error(tmp_path: Path) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    with http_server(tmp_path) as server, pytest.raises(McpServerFailed), mcp_tools(server.url, headers=wrong):
        pass


def test_a_server_that_cannot_be_started_or_reached_is_a_typed_error(tmp_path: Path) -> None:
    for server in ([sys.executable, "-c", "raise SystemExit(3)"], ["no-such-program"], "http://127.0.0.1:9/mcp"):
        with pytest.raises(McpServerFailed), mcp_tools(server, timeout=20):
            pass
