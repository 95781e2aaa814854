"""Talk to the peers, each in a process of its own in the environment that `make bench PEERS=1` makes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from engrain.bench.recall import Doc, FoundDocument
from engrain.core.errors import ConfigError, EngrainError
from harness.compare import Batch, EmbeddedQuestion, Matrix

PEERS = ("chromadb", "mem0", "sqlite-vec", "lancedb", "lancedb hybrid")


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds that a peer spent itself."""

    wall: float
    cpu: float


class Peer:
    def __init__(self, name: str, folder: Path) -> None:
        root = peers_root()
        self.name = name
        self._folder = folder / name.replace(" ", "-")
        self._folder.mkdir(parents=True)
        self._errors = (self._folder / "stderr.txt").open("wb")
        self._process = subprocess.Popen(
            [root / ".venv-peers" / "bin" / "python", root / "bench" / "peers" / "serve.py", name, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self.version = str(self._heard()["version"])
        self.last = Took(0, 0)
        # A budget is spent on what was said, not on the name that was put in front of it.
        self._sizes: dict[tuple[str, str], int] = {}

    def add(self, batch: Batch) -> None:
        vectors = self._folder / "vectors.npy"
        np.save(vectors, batch.vectors)
        docs = [(doc.id, doc.line) for doc in batch.docs]
        self._sizes |= {(batch.space, doc.id): len(doc.text) for doc in batch.docs}
        self._ask({"op": "add", "space": batch.space, "docs": docs, "vectors": str(vectors)})

    def add_one(self, doc: Doc, vector: Matrix) -> None:
        self._sizes[doc.space, doc.id] = len(doc.text)
        self._ask({"op": "add_one", "space": doc.space, "doc": (doc.id, doc.line), "vector": vector.tolist()})

    def search(self, space: str, asked: EmbeddedQuestion, n: int) -> list[FoundDocument]:
        vector = asked.vector.tolist()
        heard = self._ask({"op": "search", "space": space, "text": asked.text, "vector": vector, "n": n})
        sizes = [(doc, self._sizes[space, doc]) for doc in heard["docs"]]
        return [FoundDocument(doc, size, size) for doc, size in sizes]

    def close(self) -> None:
        self._process.communicate()
        self._errors.close()

    def _ask(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(asked) + b"\n")
        self._process.stdin.flush()
        heard = self._heard()
        self.last = Took(heard["wall"], heard["cpu"])
        return heard

    def _heard(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.flush()
            why = (self._folder / "stderr.txt").read_text(encoding="utf-8", errors="replace").strip()
            raise EngrainError(f"the peer {self.name} stopped: {why.splitlines()[-1] if why else 'no reason given'}")
        return orjson.loads(line)  # type: ignore[no-any-return]


@contextmanager
def open_peers(folder: Path) -> Iterator[list[Peer]]:
    peers: list[Peer] = []
    try:
        for name in PEERS:
            peers.append(Peer(name, folder))
        yield peers
    finally:
        for peer in peers:
            peer.close()


def peers_root() -> Path:
    """The clone of the repository that holds the peers and their environment."""
    root = Path(__file__).parents[2]
    if (root / ".venv-peers" / "bin" / "python").exists():
        return root
    raise ConfigError("the peers are not installed. In a clone of engrain run: make bench PEERS=1")
