"""Measure what a turn of an agent costs, model and embedding aside: python bench/agent.py [--turns N] [--out FILE].

Turns and bare commits alternate: a turn, then the rows that it wrote once more, as one bare FULL commit into the same
schema. The model answers at once, and the vectors were made before. `cpu_ms` is what a turn takes of the processor; the
rest of `turn_ms` is waiting, for the disk and for whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import numpy as np
from harness.syncs import watched_syncs
from harness.synthetic import Corpus, PreparedEmbedder
from harness.synthetic import turns as earlier
from harness.twin import Twin

from engrain import AgentWithMemory, Memory
from engrain.config import Settings
from engrain.core.model.messages import ChatReply, ChatRequest, ToolCall
from engrain.factory import open_embedder
from engrain.tiers.conversation import ConversationMemory

ITEMS, WARM = 1_000, 40
TARGET = 5.0


class Texts:
    """Made-up questions and answers, with their vectors at hand."""

    def __init__(self) -> None:
        model = open_embedder(Settings()).model
        self.embedder = PreparedEmbedder(model)
        corpus = Corpus(model.dimension)
        self.items, vectors = corpus.items(0, 2 * ITEMS)
        self.embedder.prepare(self.items, vectors)
        queries = corpus.queries(ITEMS, ITEMS)
        self.questions = [query.text for query in queries]
        self.embedder.prepare(self.questions, np.stack([query.vector for query in queries]))

    def answer(self, number: int) -> str:
        return self.items[ITEMS + number % ITEMS]


class Answering:
    """Answers at once; with `calls`, it asks for a tool before that."""

    name = "bench"

    def __init__(self, texts: Texts, calls: bool) -> None:
        self._texts = texts
        self._calls = calls
        self._number = 0

    def reply(self, ask: ChatRequest) -> ChatReply:
        self._number += 1
        if self._calls and ask.messages[-1].role == "user":
            return ChatReply("I look.", (ToolCall("a", "look", {"number": self._number}),), "tools", self.name)
        return ChatReply(self._texts.answer(self._number), (), "end", self.name)


class Parts:
    """How long each part of a turn takes."""

    CALLS = (
        ("recall", Memory, "recall"),
        ("log", ConversationMemory, "take"),
        ("window", ConversationMemory, "window"),
    )

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {name: [] for name, _, _ in self.CALLS}
        self._plain = [(place, verb, getattr(place, verb)) for _, place, verb in self.CALLS]

    def __enter__(self) -> Parts:
        for (name, _, _), (place, verb, call) in zip(self.CALLS, self._plain, strict=True):
            setattr(place, verb, self._timed(self.took[name], call))
        return self

    def __exit__(self, *_: object) -> None:
        for place, verb, call in self._plain:
            setattr(place, verb, call)

    def _timed(self, took: list[float], call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                took.append(time.perf_counter() - began)

        return timed


def turns(folder: Path, texts: Texts, kind: str, count: int) -> dict[str, Any]:
    took: list[float] = []
    cpu: list[float] = []
    bare: list[float] = []

    def look(number: int) -> str:
        """Look at something."""
        return texts.answer(number + 500)

    with Memory(folder / f"{kind}.db", user="bench", embedder=texts.embedder, background=False) as memory:
        memory.remember_many(earlier(texts.items[:ITEMS]))
        agent = AgentWithMemory(memory, Answering(texts, kind != "talk"), [look], session="s")

        def turn(number: int) -> None:
            agent.run(texts.questions[number], task_id=f"turn-{number}" if kind == "durable" else None)

        for number in range(WARM):
            turn(number)
        with Twin(folder / f"{kind}.db", folder / f"{kind}-twin.db") as twin, Parts() as parts:
            for number in range(WARM, WARM + count):
                began = time.process_time()
                took.append(seconds(lambda: turn(number)))  # noqa: B023
                cpu.append(time.process_time() - began)
                rows = twin.new_rows()
                bare.append(seconds(lambda: twin.commit(rows)))  # noqa: B023
    report: dict[str, Any] = {"turns": count}
    for name, share in (("p50", 0.5), ("p10", 0.1)):
        turn_s, cpu_s, bare_s = (sorted(side)[int(share * count)] for side in (took, cpu, bare))
        times = {"turn_ms": 1e3 * turn_s, "cpu_ms": 1e3 * cpu_s, "bare_ms": 1e3 * bare_s}
        report[name] = {**times, "ratio": turn_s / bare_s}
    each = {f"{name}_ms": 1e3 * sum(some) / count for name, some in parts.took.items()}
    report["mean"] = {"turn_ms": 1e3 * sum(took) / count, **each, "bare_ms": 1e3 * sum(bare) / count}
    return report


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--turns", type=int, default=100)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    report: dict[str, Any] = {"machine": machine, "load_average": os.getloadavg()[0], "target": TARGET}
    texts = Texts()
    with TemporaryDirectory(prefix="engrain-bench-") as name:
        for kind in ("talk", "one tool", "durable"):
            report[kind] = turns(Path(name), texts, kind, given.turns)
        slow = Path(name) / "slow"
        slow.mkdir()
        # As on a disk that really writes through: both sides go through the layer.
        with watched_syncs(0.002):
            for kind in ("talk", "one tool", "durable"):
                report[f"{kind}, syncs of 2 ms"] = turns(slow, texts, kind, given.turns)
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
