"""A chat service in a process of its own, and an agent on it that dies at the point it is told to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dying import DyingVfs, Points
from engrain_conformance.embedder import HashEmbedder
from forked import end_forked, start_forked
from task_classes import Outside
from wire_server import Body, Says, WireServer

from engrain import AgentReply, AgentWithMemory, Memory, tool
from engrain.core.model.messages import ChatReply, ChatRequest
from engrain.ports import Model
from engrain.providers.chat import AnthropicModel, OpenAIModel

TASK, SAID = "t", "Where are 7 and 8? Mail it to Ana."
STEPS = 3


class Service:
    """What it answers depends on how many results it is shown, so that whoever asks again gets the same."""

    def __init__(self, folder: Path) -> None:
        self._note = folder / "requests"
        self._address = folder / "address"

    @contextmanager
    def running(self) -> Iterator[None]:
        process = start_forked(self._serve)
        try:
            while not self._address.exists():
                assert process.is_alive(), "the service did not start"
                time.sleep(0.01)
            yield
        finally:
            end_forked(process)

    @property
    def requests(self) -> int:
        return len(self._note.read_bytes()) if self._note.exists() else 0

    def model(self, kind: str) -> Model:
        url = self._address.read_text()
        if kind == "anthropic":
            return AnthropicModel("claude-test", base_url=url, timeout=120.0)
        return OpenAIModel("gpt-test", base_url=f"{url}/v1", timeout=120.0)

    def _serve(self) -> None:
        with WireServer() as server:
            server.script = [self._answer] * 10_000
            waiting = self._address.with_suffix(".new")
            waiting.write_text(server.anthropic_url)
            waiting.rename(self._address)
            while True:
                time.sleep(60)

    def _answer(self, body: Body) -> Says:
        with self._note.open("ab") as note:
            note.write(b"x")
        results = sum(_results(message) for message in body["messages"])
        if results == 0:
            return Says("I look.", [("look", {"parcel": 7}), ("look", {"parcel": 8})])
        return Says("", [("mail", {"to": "ana"})]) if results == 2 else Says("Both are in Lisbon.")


def _results(message: dict[str, Any]) -> int:
    if message["role"] == "tool":
        return 1
    blocks = message["content"] if isinstance(message["content"], list) else []
    return sum(block["type"] == "tool_result" for block in blocks)


class DyingModel:
    """May die right before it asks, and right after it was answered."""

    name = "dying"

    def __init__(self, model: Model, points: Points) -> None:
        self._model, self._points = model, points

    def reply(self, ask: ChatRequest) -> ChatReply:
        self._points()
        reply = self._model.reply(ask)
        self._points()
        return reply


def open_memory(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


def run(memory: Memory, model: Model, outside: Outside) -> AgentReply:
    def look(parcel: int) -> str:
        return outside.do(f"look {parcel}")

    @tool(effect=True)
    def mail(to: str) -> str:
        return outside.do(f"mail {to}")

    return AgentWithMemory(memory, model, [look, mail], session="s").run(SAID, task_id=TASK)


def play(path: Path, service: Service, kind: str, fatal: int | None) -> int:
    """Run the turn to its end, or die at a point; the number of points there were."""
    points = Points(fatal)
    vfs = DyingVfs(points)
    memory = open_memory(path)
    run(memory, DyingModel(service.model(kind), points), Outside(path.with_suffix(".out"), points))
    memory.close()
    vfs.unregister()
    return points.count
