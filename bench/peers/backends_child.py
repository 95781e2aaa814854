"""Answer for one peer that uses a server, over stdin and stdout, a JSON line each way.

    python backends_child.py NAME URL

{"op": "add", "ids": […], "texts": […], "vectors": "file.npy"}       all at once, as the peer likes it best
{"op": "search", "text": …, "vector": […], "n": 10}                  the nearest, or of Redis the newest

Every answer has the seconds the peer itself took. No peer embeds anything: all get engrain's vectors.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from urllib.parse import urlsplit

os.environ.update(ANONYMIZED_TELEMETRY="False", DO_NOT_TRACK="1")

import numpy as np

DIMENSION = 384
DAY = 86_400


class LangGraph:
    """PostgresStore with pgvector as it comes: HNSW over cosine distances."""

    def __init__(self, url):
        from langgraph.store.postgres import PostgresStore

        self.vectors = {}
        index = {"dims": DIMENSION, "embed": self.embed, "fields": ["text"], "distance_type": "cosine"}
        self.context = PostgresStore.from_conn_string(url, index=index)
        self.store = self.context.__enter__()
        self.store.setup()

    def embed(self, texts):
        return [self.vectors[text] for text in texts]

    def add(self, ids, texts, vectors):
        from langgraph.store.base import PutOp

        self.vectors = dict(zip(texts, vectors, strict=True))
        self.store.batch([PutOp(("bench",), id, {"text": text}) for id, text in zip(ids, texts, strict=True)])

    def search(self, text, vector, n):
        self.vectors = {text: vector}
        return [one.key for one in self.store.search(("bench",), query=text, limit=n)]


class Chroma:
    """A collection with its defaults over cosine distances."""

    def __init__(self, url):
        import chromadb
        from chromadb.config import Settings

        where = urlsplit(url)
        client = chromadb.HttpClient(where.hostname, where.port, settings=Settings(anonymized_telemetry=False))
        self.collection = client.create_collection(
            f"plain-{uuid.uuid4().hex[:8]}", metadata={"hnsw:space": "cosine"}, embedding_function=None
        )

    def add(self, ids, texts, vectors):
        self.collection.add(ids, embeddings=vectors, documents=texts)

    def search(self, text, vector, n):
        return self.collection.query(query_embeddings=[vector], n_results=n, include=["documents"])["ids"][0]


class Redis:
    """What a program writes by hand: a hash with a TTL and a list by time, in one MULTI."""

    def __init__(self, url):
        import redis

        self.client = redis.Redis.from_url(url, decode_responses=True)

    def add(self, ids, texts, vectors):
        with self.client.pipeline(transaction=True) as pipe:
            for id, text in zip(ids, texts, strict=True):
                pipe.hset(f"plain:{id}", mapping={"text": text, "kind": "turn", "importance": "0.5"})
                pipe.expire(f"plain:{id}", DAY)
                pipe.zadd("plain:all", {id: time.time()})
            pipe.execute()

    def search(self, text, vector, n):
        ids = self.client.zrevrange("plain:all", 0, n - 1)
        with self.client.pipeline(transaction=False) as pipe:
            for id in ids:
                pipe.hgetall(f"plain:{id}")
            pipe.execute()
        return ids


PEERS = {"langgraph": LangGraph, "chromadb": Chroma, "redis": Redis}


def main():
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a peer prints is not for the caller
    peer = PEERS[sys.argv[1]](sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "add":
            work = peer.add, (asked["ids"], asked["texts"], np.load(asked["vectors"]).tolist())
        else:
            work = peer.search, (asked["text"], asked["vector"], asked["n"])
        began = time.perf_counter()
        found = work[0](*work[1])
        print(json.dumps({"wall": time.perf_counter() - began, "found": found}), file=out, flush=True)


if __name__ == "__main__":
    main()
