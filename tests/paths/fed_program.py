"""A program that writes to a store with a Chroma server beside it, and dies where it is told to."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from engrain_conformance.drafts import EMBEDDER, add, fact

from engrain.stores.sqlite import SqliteStore
from engrain.stores.vectors.chroma import ChromaServer
from engrain.stores.vectors.outbox_index import OutboxVectorIndex


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(path: str, url: str, where: str) -> None:
    store, server = SqliteStore(path), ChromaServer(url)
    index = OutboxVectorIndex(store, server, EMBEDDER)
    add(store, *(fact(f"First {n}.") for n in range(5)))
    index.feed(100)
    add(store, *(fact(f"Second {n}.") for n in range(5)))
    if where == "before the server has it":
        server.put = die  # type: ignore[method-assign]
    else:
        store.settle = die  # type: ignore[method-assign]
    index.feed(100)


if __name__ == "__main__":
    main(*sys.argv[1:])
