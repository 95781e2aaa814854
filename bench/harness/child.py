"""What has to be measured in a process of its own: python -m harness.child write|memory STORE …"""

from __future__ import annotations

import os
import sys
import time

import orjson

from engrain.config import Settings
from engrain.core.errors import EngrainError
from engrain.core.model.queries import EmbeddingModel
from engrain.factory import open_embedder
from engrain.memory import Memory
from harness.machine import resident_bytes
from harness.synthetic import BLOCK, Corpus, PreparedEmbedder


def write(store: str, seconds: float) -> None:
    """Remember until the time is up, from the moment that a line comes in."""
    prepared = PreparedEmbedder(local_model())
    with Memory(store, user="bench", embedder=prepared, background=False) as memory:
        memory.remember(f"process {os.getpid()} is here")
        _say({"ready": True})
        sys.stdin.readline()
        commits, longest, error = 0, 0.0, None
        end = time.monotonic() + seconds
        while time.monotonic() < end and error is None:
            began = time.monotonic()
            try:
                memory.remember(f"note {commits} of process {os.getpid()}")
                commits += 1
            except EngrainError as exc:
                error = f"{type(exc).__name__}: {exc}"
            longest = max(longest, time.monotonic() - began)
    _say({"commits": commits, "longest": longest, "error": error})


def memory(store: str, user: str) -> None:
    """How many bytes this process holds before the store is opened, and after it was searched."""
    corpus = Corpus(local_model().dimension)
    prepared = PreparedEmbedder(local_model())
    queries = corpus.queries(5, BLOCK)
    before = resident_bytes() or 0
    with Memory(store, user=user, embedder=prepared, background=False) as opened:
        for query in queries:
            opened.recall(query.text)
        after = resident_bytes() or 0
    _say({"before": before, "after": after})


def local_model() -> EmbeddingModel:
    """What the local embedder is called; the weights are not loaded for that."""
    return open_embedder(Settings()).model


def _say(answer: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], float(sys.argv[3]))
    else:
        memory(sys.argv[2], sys.argv[3])
