"""50 threads write, each to a scope of its own: views of one store, or a Memory each.

python bench/views.py [views|memories] [SECONDS]"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

THREADS = 50


@dataclass(frozen=True)
class Model:
    """Without a class of engrain's, so that older versions can be measured too."""

    name: str = "stub"
    hash: str = "1"
    dimension: int = 384
    floor: float = 0.2
    mean: float = 0.15
    deviation: float = 0.12
    key: str = "stub:1:384"


class Stub:
    """Vectors that cost nothing."""

    def __init__(self) -> None:
        self.model = Model()
        self._row = np.full(384, 384**-0.5, np.float32)

    def windows(self, text: str) -> list[str]:
        return [text]

    def embed(self, texts: Any, kind: str) -> Any:
        return np.tile(self._row, (len(texts), 1))


def main(kind: str, seconds: float) -> None:
    from engrain import Memory

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        stub = Stub()
        if kind == "views":
            from engrain import Store

            store = Store(path, embedder=stub, background=False)
            memories = [store.memory(user=f"user-{n}") for n in range(THREADS)]
        else:
            memories = [Memory(path, user=f"user-{n}", embedder=stub, background=False) for n in range(THREADS)]
        counts = [0] * THREADS
        go, over = threading.Event(), threading.Event()

        def write(number: int) -> None:
            go.wait()
            while not over.is_set():
                memories[number].remember(f"Note {counts[number]} of user {number} is about the harbour.")
                counts[number] += 1

        threads = [threading.Thread(target=write, args=(n,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        began = time.perf_counter()
        go.set()
        time.sleep(seconds)
        over.set()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        print(f"{kind}: {sum(counts) / took:,.0f} writes/s, {min(counts)} to {max(counts)} each")  # noqa: T201
        for memory in memories:
            memory.close()
        if kind == "views":
            store.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "views", float(sys.argv[2]) if len(sys.argv) > 2 else 10.0)
