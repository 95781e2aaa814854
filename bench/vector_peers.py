"""A full recall next to the bare vector queries of chromadb and sqlite-vec, in turns in one process.

    python bench/vector_peers.py [--items 5000] [--queries 200]

It needs chromadb and sqlite-vec in the environment. All get the same vectors, on disk; the time is the CPU of the whole
process, with all threads. engrain searches words and vectors, ranks, and loads the items; the others only name the
nearest vectors.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import chromadb
import numpy as np
import sqlite_vec
from harness.synthetic import Corpus, Matrix, PreparedEmbedder, turns

from engrain import Memory
from engrain.config import Settings
from engrain.factory import open_embedder

HITS, WARM = 10, 10


def open_chroma(folder: Path, vectors: Matrix) -> Callable[[Matrix], Any]:
    client = chromadb.PersistentClient(str(folder / "chroma"))
    collection = client.create_collection("items", metadata={"hnsw:space": "cosine"})
    for start in range(0, len(vectors), 1_000):
        some = vectors[start : start + 1_000]
        collection.add(ids=[str(start + number) for number in range(len(some))], embeddings=some)
    return lambda vector: collection.query(query_embeddings=[vector], n_results=HITS, include=["distances"])


def open_sqlite_vec(folder: Path, vectors: Matrix) -> Callable[[Matrix], Any]:
    db = apsw.Connection(str(folder / "vec.db"))
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    db.execute(f"create virtual table item using vec0(embedding float[{vectors.shape[1]}] distance_metric=cosine)")
    with db:
        for number, vector in enumerate(vectors):
            db.execute("insert into item (rowid, embedding) values (?, ?)", (number, vector.tobytes()))
    sql = "select rowid, distance from item where embedding match ? order by distance limit ?"
    return lambda vector: db.execute(sql, (vector.tobytes(), HITS)).fetchall()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--queries", type=int, default=200)
    given = parser.parse_args()
    embedder = PreparedEmbedder(open_embedder(Settings()).model)
    corpus = Corpus(embedder.model.dimension)
    texts, vectors = corpus.items(0, given.items)
    queries = corpus.queries(given.queries, given.items)
    embedder.prepare(texts, vectors)
    embedder.prepare([one.text for one in queries], np.stack([one.vector for one in queries]))
    cpu: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as place,
        Memory(Path(place) / "agent.db", user="bench", embedder=embedder, background=False) as memory,
    ):
        memory.remember_many(turns(texts))
        chroma, vec = open_chroma(Path(place), vectors), open_sqlite_vec(Path(place), vectors)
        for number, query in enumerate(queries):
            asked: dict[str, Callable[[], Any]] = {
                "engrain, recall": lambda: memory.recall(query.text, n=HITS, min_relevance=0),  # noqa: B023
                "chromadb, vectors": lambda: chroma(query.vector),  # noqa: B023
                "sqlite-vec, vectors": lambda: vec(query.vector),  # noqa: B023
            }
            for name, run in asked.items():
                began = time.process_time()
                run()
                if number >= WARM:
                    cpu.setdefault(name, []).append(1e3 * (time.process_time() - began))
    for name, times in cpu.items():
        print(f"{name:<24}{statistics.median(times):8.2f} ms of CPU")  # noqa: T201


if __name__ == "__main__":
    main()
