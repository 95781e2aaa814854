"""Measure engrain on servers next to what is used there by hand.

    PYTHONPATH=tests python bench/backends.py --peers PYTHON [--out FILE]      speed, side by side
    PYTHONPATH=tests python bench/backends.py --sizes [--out FILE]             bytes in each store

PYTHON is one that has bench/peers/backends_requirements.txt. Real servers are started on loopback as in the tests, with
their syncs on. Both sides take turns within one run: the machine is the same for both, whatever else it does meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import servers
from chroma_server import new_server
from harness.synthetic import Corpus, PreparedEmbedder
from redis_server import start_redis

from engrain import Memory
from engrain.core.identity import Scope
from engrain.core.model.queries import EmbeddingModel
from engrain.core.model.sessions import Episode
from engrain.stores.redis import RedisStore

CHILD = Path(__file__).parent / "peers" / "backends_child.py"
MODEL = EmbeddingModel("prepared", "0" * 12, 384)
HITS = 10
BULK, ROUNDS = 500, 5
BENCH = Scope(user="bench")


class Peer:
    def __init__(self, python: str, name: str, url: str, folder: Path) -> None:
        self._vectors = folder / f"{name}.npy"
        self._process = subprocess.Popen(
            [python, str(CHILD), name, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def add(self, ids: list[str], texts: list[str], vectors: Any) -> float:
        np.save(self._vectors, vectors)
        return self._ask({"op": "add", "ids": ids, "texts": texts, "vectors": str(self._vectors)})

    def search(self, text: str, vector: Any) -> float:
        return self._ask({"op": "search", "text": text, "vector": vector.tolist(), "n": HITS})

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, asked: dict[str, Any]) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the peer ended; see its message above")
        return float(json.loads(line)["wall"])


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def figures(ours: list[float], theirs: list[float], count: int = 1) -> dict[str, Any]:
    """Milliseconds of one, and the median of the pairs' ratios."""
    return {
        "engrain_ms": 1e3 * statistics.median(ours) / count,
        "other_ms": 1e3 * statistics.median(theirs) / count,
        "ratio": statistics.median(one / other for one, other in zip(ours, theirs, strict=True)),
        "pairs": len(ours),
    }


class Work:
    """The same texts, vectors and questions for both sides."""

    def __init__(self, items: int, runs: int) -> None:
        corpus = Corpus(MODEL.dimension)
        self.items, self.runs = items, runs
        self.texts, self.vectors = corpus.items(0, items + runs + BULK * ROUNDS)
        self.queries = corpus.queries(runs, items)
        self.embedder = PreparedEmbedder(MODEL)
        self.embedder.prepare(self.texts, self.vectors)
        self.embedder.prepare([one.text for one in self.queries], np.stack([one.vector for one in self.queries]))

    def part(self, start: int, count: int) -> tuple[list[str], list[str], Any]:
        ids = [str(n) for n in range(start, start + count)]
        return ids, self.texts[start : start + count], self.vectors[start : start + count]


def beside(memory: Memory, peer: Peer, work: Work, settle: Callable[[], Any]) -> dict[str, Any]:
    memory.remember_many(work.texts[: work.items])
    settle()
    for start in range(0, work.items, BULK):
        peer.add(*work.part(start, min(BULK, work.items - start)))
    searched: tuple[list[float], list[float]] = ([], [])
    added: tuple[list[float], list[float]] = ([], [])
    bulk: tuple[list[float], list[float]] = ([], [])
    settled: list[float] = []
    for query in [*work.queries[:5], *work.queries]:  # five to warm up
        searched[0].append(seconds(lambda: memory.recall(query.text, n=HITS, min_relevance=0)))  # noqa: B023
        searched[1].append(peer.search(query.text, query.vector))
    for at in range(work.items, work.items + work.runs):
        added[0].append(seconds(lambda: memory.remember(work.texts[at])))  # noqa: B023
        added[1].append(peer.add(*work.part(at, 1)))
    settle()
    for number in range(ROUNDS):
        start = work.items + work.runs + number * BULK
        ids, texts, vectors = work.part(start, BULK)
        bulk[0].append(seconds(lambda: memory.remember_many(texts)))  # noqa: B023
        settled.append(bulk[0][-1] + seconds(settle))
        bulk[1].append(peer.add(ids, texts, vectors))
    return {
        "recall": figures(searched[0][5:], searched[1][5:]),
        "add": figures(*added),
        "bulk": figures(*bulk, BULK),
        "bulk_until_the_server_has_it": figures(settled, bulk[1], BULK),
    }


def on_postgres(python: str, folder: Path, work: Work) -> dict[str, Any]:
    server = servers.start_postgres()
    peer = Peer(python, "langgraph", server.url("postgres"), folder)
    with Memory(server.url(), user="bench", embedder=work.embedder, background=False) as memory:
        found = beside(memory, peer, work, lambda: None)
    peer.close()
    server.stop()
    return found


def on_chroma(python: str, folder: Path, work: Work) -> dict[str, Any]:
    server = new_server()
    settings = folder / "chroma.toml"
    settings.write_text(f'[stores]\ndefault = "{folder}/chroma.db"\nvectors = "{server.url}"\n')
    peer = Peer(python, "chromadb", server.url, folder)
    with Memory(settings, user="bench", embedder=work.embedder, background=False) as memory:
        feed = memory.store.services.feed
        assert feed is not None

        def settle() -> None:
            while feed.feed(BULK):
                pass

        found = beside(memory, peer, work, settle)
    peer.close()
    server.kill()
    return found


def on_redis(python: str, folder: Path, work: Work) -> dict[str, Any]:
    server = start_redis()
    peer = Peer(python, "redis", f"{server.url}/1", folder)
    store = RedisStore(server.url)
    now = datetime.now(UTC)

    def add(n: int) -> None:
        at = now + timedelta(microseconds=n)
        store.episodes.add(BENCH, Episode(str(n), "s", "turn", work.texts[n], 0.5, at, at + timedelta(days=1)))

    added: tuple[list[float], list[float]] = ([], [])
    read: tuple[list[float], list[float]] = ([], [])
    for n in range(work.items):
        added[0].append(seconds(lambda: add(n)))  # noqa: B023
        added[1].append(peer.add(*work.part(n, 1)))
    for query in work.queries:
        read[0].append(seconds(lambda: store.episodes.recent(BENCH, "s", HITS, now)))
        read[1].append(peer.search(query.text, query.vector))
    peer.close()
    store.close()
    server.stop()
    return {"recent 10": figures(*read), "add": figures(*added)}


def sizes(folder: Path, work: Work) -> dict[str, Any]:
    """Bytes of a fact of 25 words, of a message, of an episode and of its point, each alone in a new store."""
    found: dict[str, Any] = {"items": work.items, "characters": statistics.mean(map(len, work.texts[: work.items]))}
    texts, pg = work.texts[: work.items], servers.start_postgres()
    vectors, redis, chroma = f"qdrant://{folder}/qdrant", start_redis(), new_server()
    with Memory(folder / "facts.db", user="bench", embedder=work.embedder, background=False) as memory:
        memory.remember_many(texts)
    found["sqlite fact"] = (folder / "facts.db").stat().st_size / work.items
    for name, url in (("sqlite", str(folder / "talk.db")), ("postgres", pg.url())):
        with Memory(url, user="bench", embedder=work.embedder, background=False) as memory:
            if name == "postgres":
                before = _tables(pg)
                memory.remember_many(texts)
                found["postgres fact"] = (_tables(pg) - before) / work.items
                before = _tables(pg)
            for start in range(0, work.items, 20):
                messages = [{"role": "user", "content": text} for text in texts[start : start + 20]]
                memory.add_messages(messages, session=f"session-{start // 100}")
            if name == "postgres":
                found["postgres message with its episode"] = (_tables(pg) - before) / work.items
    found["sqlite message with its episode"] = (folder / "talk.db").stat().st_size / work.items
    before = redis.client.info("memory")["used_memory"]
    store = RedisStore(redis.url)
    for n in range(work.items):
        at = datetime.now(UTC)
        store.episodes.add(
            BENCH, Episode(str(n), f"s{n // 100}", "turn", "", 0.5, at, at + timedelta(days=1), item=str(n))
        )
    found["redis episode over a message"] = (redis.client.info("memory")["used_memory"] - before) / work.items
    store.close()
    for name, url in (("chroma", chroma.url), ("qdrant local", vectors)):
        settings = folder / f"{name}.toml".replace(" ", "-")
        settings.write_text(f'[stores]\ndefault = "{folder}/{name}.db"\nvectors = "{url}"\n')
        with Memory(settings, user="bench", embedder=work.embedder, background=False) as memory:
            memory.remember_many(texts)
            while memory.store.services.feed.feed(BULK):  # type: ignore[union-attr]
                pass
    found["chroma point"] = _folder(chroma.folder / "data") / work.items
    found["qdrant local point"] = _folder(folder / "qdrant") / work.items
    for server in (pg, redis):
        server.stop()
    chroma.kill()
    return found


def _tables(server: servers.Postgres) -> int:
    import psycopg

    query = """select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')"""
    with psycopg.connect(server.url("postgres")) as connection:
        return int(connection.execute(query).fetchone()[0])  # type: ignore[index]


def _folder(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@contextmanager
def syncs_on() -> Iterator[None]:
    """The tests run Postgres without syncs, for speed; here they are what is measured."""
    kept = dict(servers._SETTINGS)
    servers._SETTINGS |= {"fsync": "on", "full_page_writes": "on"}
    yield
    servers._SETTINGS.clear()
    servers._SETTINGS |= kept


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--peers", metavar="PYTHON")
    options.add_argument("--items", type=int, default=2_000)
    options.add_argument("--runs", type=int, default=100)
    options.add_argument("--sizes", action="store_true")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    report: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "load_average": os.getloadavg()[0],
        "items": given.items,
    }
    work = Work(given.items, given.runs)
    with TemporaryDirectory(prefix="engrain-bench-") as name, syncs_on():
        folder = Path(name)
        if given.sizes:
            report["bytes"] = sizes(folder, work)
        else:
            report["postgres, langgraph"] = on_postgres(given.peers, folder, work)
            report["chroma, chromadb"] = on_chroma(given.peers, folder, work)
            report["redis, redis-py"] = on_redis(given.peers, folder, work)
    report["load_average_after"] = os.getloadavg()[0]
    text = json.dumps(report, indent=2) + "\n"
    if given.out:
        given.out.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
