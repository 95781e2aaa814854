"""Keep texts of two users with one peer, delete one user's as its documentation says, and end.

    python erasing_child.py NAME FOLDER < {"ana": [text, …], "bob": [text, …]}

Prints how many of each user can still be found by asking, and the seconds that the deletion took. What is left in the
files is for the caller to look at.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import serve  # switches telemetry off before a peer is imported

DIMENSION = serve.DIMENSION


def vector(text):
    """Any will do: nothing is searched by meaning here."""
    return np.random.default_rng(abs(hash(text))).standard_normal(DIMENSION).tolist()


class Mem0(serve.Mem0):
    def embed(self, text, memory_action=None):
        return vector(text)

    def embed_batch(self, texts, memory_action=None):
        return [vector(text) for text in texts]

    def keep(self, user, texts):
        for text in texts:
            self.memory.add([{"role": "user", "content": text}], user_id=user, infer=False)

    def delete(self, user):
        self.memory.delete_all(user_id=user)

    def count(self, user):
        return len(self.memory.get_all(filters={"user_id": user}, top_k=10_000)["results"])

    def close(self):
        self.memory.close()


class Chroma:
    def __init__(self, folder):
        import chromadb
        from chromadb.config import Settings

        client = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))
        self.collection = client.get_or_create_collection("memories", embedding_function=None)

    def keep(self, user, texts):
        ids = [f"{user}-{n}" for n in range(len(texts))]
        vectors = [vector(text) for text in texts]
        self.collection.add(ids, embeddings=vectors, documents=texts, metadatas=[{"user": user}] * len(texts))

    def delete(self, user):
        self.collection.delete(where={"user": user})

    def count(self, user):
        return len(self.collection.get(where={"user": user})["ids"])

    def close(self):
        pass


class Lance:
    def __init__(self, folder):
        import lancedb

        self.db = lancedb.connect(folder)
        self.table = None

    def keep(self, user, texts):
        rows = [{"user": user, "text": text, "vector": vector(text)} for text in texts]
        if self.table is None:
            self.table = self.db.create_table("memories", rows)
        else:
            self.table.add(rows)

    def delete(self, user):
        self.table.delete(f"user = '{user}'")

    def count(self, user):
        return self.table.count_rows(f"user = '{user}'")

    def close(self):
        pass


class LangGraph:
    """SqliteStore, a namespace for each user."""

    def __init__(self, folder):
        from langgraph.store.sqlite import SqliteStore

        self.context = SqliteStore.from_conn_string(str(folder / "store.db"))
        self.store = self.context.__enter__()
        self.store.setup()

    def keep(self, user, texts):
        for n, text in enumerate(texts):
            self.store.put(("memories", user), str(n), {"text": text})

    def delete(self, user):
        for one in self.store.search(("memories", user), limit=10_000):
            self.store.delete(("memories", user), one.key)

    def count(self, user):
        return len(self.store.search(("memories", user), limit=10_000))

    def close(self):
        self.context.__exit__(None, None, None)


class SqliteVec:
    def __init__(self, folder):
        import apsw
        import sqlite_vec

        self.db = apsw.Connection(str(folder / "vec.db"))
        self.db.enable_load_extension(True)
        self.db.load_extension(sqlite_vec.loadable_path())
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("create table doc (n integer primary key, user text, text text)")
        self.db.execute(f"create virtual table vec using vec0 (n integer primary key, vector float[{DIMENSION}])")

    def keep(self, user, texts):
        with self.db:
            for text in texts:
                self.db.execute("insert into doc (user, text) values (?, ?)", (user, text))
                raw = np.asarray(vector(text), dtype=np.float32).tobytes()
                self.db.execute("insert into vec (n, vector) values (?, ?)", (self.db.last_insert_rowid(), raw))

    def delete(self, user):
        with self.db:
            self.db.execute("delete from vec where n in (select n from doc where user = ?)", (user,))
            self.db.execute("delete from doc where user = ?", (user,))

    def count(self, user):
        return self.db.execute("select count(*) from doc where user = ?", (user,)).get

    def close(self):
        self.db.close()


PEERS = {"mem0": Mem0, "chromadb": Chroma, "lancedb": Lance, "langgraph": LangGraph, "sqlite-vec": SqliteVec}


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    # Whatever a peer prints goes to stderr: stdout is the line to the caller.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    users = json.load(sys.stdin)
    peer = PEERS[name](folder)
    for user, texts in users.items():
        peer.keep(user, texts)
    began = time.perf_counter()
    peer.delete("ana")
    took = time.perf_counter() - began
    found = {user: peer.count(user) for user in users}
    peer.close()
    print(json.dumps({"found": found, "seconds": took}), file=out, flush=True)


if __name__ == "__main__":
    main()
