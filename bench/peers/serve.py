"""Answer for one peer over stdin and stdout, a JSON line each way: it runs in the peers' own environment.

    python serve.py NAME FOLDER

{"op": "add", "space": …, "docs": [[id, text], …], "vectors": "file.npy"}      all at once, as the peer likes it best
{"op": "add_one", "space": …, "doc": [id, text], "vector": […]}                one durable write
{"op": "search", "space": …, "text": …, "vector": […], "n": 10}                → {"docs": [id, …]}

Every answer has the seconds the peer itself took ("wall" and "cpu"), so that talking to it is not part of the figure.
No peer embeds anything: all get the vectors that engrain made of the same texts.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import sys
import time
from pathlib import Path

os.environ.update(
    MEM0_TELEMETRY="False",
    ANONYMIZED_TELEMETRY="False",
    POSTHOG_DISABLED="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
)

import numpy as np  # after the switches above: some peers read them when they are imported

DIMENSION = 384
CHROMA_BATCH = 5_000


class Chroma:
    package = "chromadb"

    def __init__(self, folder):
        import chromadb
        from chromadb.config import Settings

        self.client = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))

    def _collection(self, space):
        return self.client.get_or_create_collection(
            f"space-{space}", metadata={"hnsw:space": "cosine"}, embedding_function=None
        )

    def add(self, space, ids, texts, vectors):
        collection = self._collection(space)
        for start in range(0, len(ids), CHROMA_BATCH):
            part = slice(start, start + CHROMA_BATCH)
            collection.add(ids[part], embeddings=vectors[part], documents=texts[part])

    def search(self, space, text, vector, n):
        found = self._collection(space).query(query_embeddings=[vector], n_results=n, include=["documents"])
        return list(zip(found["ids"][0], found["documents"][0], strict=True))


class Mem0:
    """infer=False: texts are kept as they are, no model is called. Its own default store, Qdrant in local mode."""

    package = "mem0ai"

    def __init__(self, folder):
        from mem0 import Memory

        store = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": DIMENSION}
        unused = {"api_key": "none", "openai_base_url": "http://127.0.0.1:9"}
        self.memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "llm": {"provider": "openai", "config": unused},
                "embedder": {"provider": "openai", "config": unused},
                "history_db_path": str(folder / "history.db"),
            }
        )
        self.memory.embedding_model = self
        self.vectors = {}

    def embed(self, text, memory_action=None):
        return self.vectors[text]

    def embed_batch(self, texts, memory_action=None):
        return [self.vectors[text] for text in texts]

    def add(self, space, ids, texts, vectors):
        for id, text, vector in zip(ids, texts, vectors, strict=True):
            self.vectors[text] = [float(value) for value in vector]
            message = [{"role": "user", "content": text}]
            self.memory.add(message, user_id=space, metadata={"doc": id}, infer=False)
            del self.vectors[text]

    def search(self, space, text, vector, n):
        self.vectors[text.strip()] = list(vector)
        found = self.memory.search(text, filters={"user_id": space}, top_k=n, threshold=0.0)
        return [(one["metadata"]["doc"], one["memory"]) for one in found["results"]]


class SqliteVec:
    """WAL and synchronous=FULL, as engrain; each space is a partition of the table."""

    package = "sqlite-vec"

    def __init__(self, folder):
        import apsw
        import sqlite_vec

        self.db = apsw.Connection(str(folder / "vec.db"))
        self.db.enable_load_extension(True)
        self.db.load_extension(sqlite_vec.loadable_path())
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("pragma synchronous = full")
        self.db.execute("create table doc (n integer primary key, id text, text text)")
        self.db.execute(
            "create virtual table vec using vec0"
            f" (n integer primary key, space text partition key, vector float[{DIMENSION}] distance_metric=cosine)"
        )

    def add(self, space, ids, texts, vectors):
        self.db.execute("begin immediate")
        for id, text, vector in zip(ids, texts, vectors, strict=True):
            self.db.execute("insert into doc (id, text) values (?, ?)", (id, text))
            n = self.db.last_insert_rowid()
            raw = np.asarray(vector, dtype=np.float32).tobytes()
            self.db.execute("insert into vec (n, space, vector) values (?, ?, ?)", (n, space, raw))
        self.db.execute("commit")

    def search(self, space, text, vector, n):
        raw = np.asarray(vector, dtype=np.float32).tobytes()
        found = self.db.execute(
            "select id, text from (select n, distance from vec where space = ? and vector match ? and k = ?)"
            " join doc using (n) order by distance",
            (space, raw, n),
        )
        return list(found)


class Lance:
    """A flat scan, which is exact."""

    package = "lancedb"

    def __init__(self, folder):
        import lancedb

        self.db = lancedb.connect(folder)
        self.tables = {}

    def add(self, space, ids, texts, vectors):
        import pyarrow as pa

        flat = pa.array(np.asarray(vectors, dtype=np.float32).ravel())
        rows = pa.table({"id": ids, "text": texts, "vector": pa.FixedSizeListArray.from_arrays(flat, DIMENSION)})
        if space in self.tables:
            self.tables[space].add(rows)
        else:
            self.tables[space] = self.db.create_table(space, rows)
        self.index(space)

    def index(self, space):
        pass

    def search(self, space, text, vector, n):
        asked = self.tables[space].search(vector).distance_type("cosine")
        return [(row["id"], row["text"]) for row in asked.select(["id", "text", "_distance"]).limit(n).to_list()]


class LanceHybrid(Lance):
    """The same with its own full-text index (English stems, stop words out) and its own reciprocal-rank fusion."""

    def index(self, space):
        table = self.tables[space]
        if table.list_indices():
            table.optimize()
        else:
            table.create_fts_index("text", language="English", stem=True, remove_stop_words=True, replace=True)

    def search(self, space, text, vector, n):
        words = "".join(letter if letter.isalnum() else " " for letter in text)
        asked = self.tables[space].search(query_type="hybrid").vector(vector).text(words)
        return [(row["id"], row["text"]) for row in asked.distance_type("cosine").limit(n).to_list()]


PEERS = {"chromadb": Chroma, "mem0": Mem0, "sqlite-vec": SqliteVec, "lancedb": Lance, "lancedb hybrid": LanceHybrid}


def answer(peer, asked):
    if asked["op"] == "add":
        ids, texts = map(list, zip(*asked["docs"], strict=True))
        work = peer.add, (asked["space"], ids, texts, np.load(asked["vectors"]))
    elif asked["op"] == "add_one":
        id, text = asked["doc"]
        work = peer.add, (asked["space"], [id], [text], np.asarray([asked["vector"]], dtype=np.float32))
    elif asked["op"] == "search":
        work = peer.search, (asked["space"], asked["text"], asked["vector"], asked["n"])
    else:
        raise ValueError(f"unknown op {asked['op']!r}")
    cpu, wall = time.process_time(), time.perf_counter()
    found = work[0](*work[1])
    took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return took if found is None else {"docs": [id for id, _ in found], **took}


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    # Whatever a peer prints goes to stderr: stdout is the line to the caller.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    peer = PEERS[name](folder)
    print(json.dumps({"version": importlib.metadata.version(peer.package)}), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(peer, json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
