"""Measure the search side of the embedded store: each arm at 100k items in a scope, in a 1 % scope, cold and fresh."""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import numpy as np

from engrain.core.identity import Scope
from engrain.core.model.items import Vectors, Words
from engrain.core.model.queries import VectorQuery, WordQuery
from engrain.stores.sqlite import schema
from engrain.stores.sqlite.checksums import list_triggers, seal_rows
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.dialect import IndexRows
from engrain.stores.sqlite.index import vectors as vector_index
from engrain.stores.sqlite.index.view import IndexCache

Answer = TypeVar("Answer")
SEED = 20_251
VOCABULARY = 50_000
WORDS = 25
DIMENSION = 384
MODEL = "bench/384"
BIG, MIDDLE, SMALL = Scope(user="big"), Scope(user="middle"), Scope(user="small")
START = 1_700_000_000_000_000
QUERIES = 200
SCHEMA = Path(schema.__file__).parent / "migrations" / "0001_schema.sql"
ITEM = (
    "insert into item (id, scope, changed, kind, importance, trust, traits, recorded_at, valid_from, place, session,"
    " speaker, role, hash, text) values (?, ?, ?, 'message', 0.5, 1.0, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Db:
    """The little that the index needs of a connection."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("cache_size", -64_000)
        self.guarded = Connection(self.connection)  # with the functions that check rows

    def run(self, sql: str, args: Any = ()) -> None:
        self.connection.execute(sql, args)

    def rows(self, sql: str, args: Any = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, args).fetchall()

    def read(self, fn: Callable[[Db], Answer]) -> Answer:
        self.connection.execute("begin")
        try:
            return fn(self)
        finally:
            self.connection.execute("commit")


class World:
    """Texts from a Zipf vocabulary; unit vectors in topics, with a spectrum that falls as that of real embeddings does.

    The cosine to a query's 1st, 10th, 100th, 1,000th and 10,000th neighbour is about .77, .70, .51, .41 and .27.
    """

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        shares = 1 / (np.arange(VOCABULARY) + 2.7) ** 1.05
        self.cumulative = np.cumsum(shares / shares.sum())
        self.terms = self.random.choice(2**32, VOCABULARY, replace=False).astype(np.uint32)
        spectrum = (np.arange(DIMENSION) + 4.0) ** -0.7
        turned = np.linalg.qr(self.random.standard_normal((DIMENSION, DIMENSION)))[0]
        self.spread = (spectrum / np.linalg.norm(spectrum))[:, None] * turned
        self.centre = self.random.standard_normal(DIMENSION) / np.sqrt(DIMENSION) * 0.3
        self.topics = self.random.standard_normal((2000, DIMENSION)) @ self.spread

    def vectors(self, count: int) -> np.ndarray:
        topics = self.topics[self.random.integers(len(self.topics), size=count)]
        found = topics + self.random.standard_normal((count, DIMENSION)) @ self.spread * 0.8 + self.centre
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

    def words(self, count: int, each: int = WORDS) -> np.ndarray:
        return np.searchsorted(self.cumulative, self.random.random((count, each)))


def pairs(terms: np.ndarray) -> bytes:
    words, counts = np.unique(terms, return_counts=True)
    return np.column_stack((words.astype("<u4"), counts.astype("<u4"))).tobytes()


class Writing:
    """Puts items into the store as the store itself does, in sessions of 40 with five speakers."""

    def __init__(self, db: Db, world: World) -> None:
        self.db, self.world, self.number = db, world, 0

    def add(self, scopes: list[int]) -> float:
        """Seconds of CPU that the index rows took."""
        vectors, words = self.world.vectors(len(scopes)), self.world.words(len(scopes))
        entries = []
        for place, scope in enumerate(scopes):
            entries.append(self._item(scope, words[place], vectors[place]))
        began = time.process_time()
        IndexRows(self.db).write(entries)
        return time.process_time() - began

    def _item(self, scope: int, words: np.ndarray, vector: np.ndarray) -> tuple[int, Words, Vectors]:
        number = self.number = self.number + 1
        text = " ".join(f"w{word:04x}" for word in words.tolist())
        traits = 1 if number % 50 == 0 else 4 * (number % 3 == 0)
        now, session = START + number, f"session-{scope}-{number // 40}"
        speaker, role = f"Speaker {number % 5}", "user" if number % 2 else "assistant"
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        place = (f"{number:026d}", scope, number, traits, now, now, number % 40, session, speaker, role, digest, text)
        self.db.run(ITEM, place)
        row = self.db.connection.last_insert_rowid()
        return row, Words(pairs(self.world.terms[words]), 1), Vectors(MODEL, (vector.tobytes(),))


def build(path: Path, world: World, size: int) -> tuple[Db, Writing]:
    db = Db(path)
    db.run("pragma journal_mode = wal")
    for statement in SCHEMA.read_text().split(";\n"):
        db.run(statement)
    seal_rows(db.guarded)
    db.guarded.add_triggers(list_triggers())
    for number, scope in enumerate((BIG, MIDDLE, SMALL), 1):
        db.run("insert into scope (scope, id) values (?, ?)", (number, scope.id))
    writing, seconds = Writing(db, world), 0.0
    # The small scope lies between the items of the big one, the middle one in a piece.
    scopes = [3 if place % 101 == 100 else 1 for place in range(size * 101 // 100)] + [2] * (size // 10)
    db.run("begin")
    for first in range(0, len(scopes), 500):
        seconds += writing.add(scopes[first : first + 500])
    db.run("commit")
    db.run("pragma wal_checkpoint(truncate)")
    report("index rows, each (µs CPU)", 1e6 * seconds / len(scopes))
    report("disk, bytes per item", path.stat().st_size / len(scopes))
    for name, used in tables(db):
        report(f"  {name}", used / len(scopes))
    return db, writing


def tables(db: Db) -> list[tuple[str, int]]:
    try:
        return db.rows("select name, sum(pgsize) from dbstat group by name having sum(pgsize) > 100000 order by 2 desc")
    except apsw.Error:
        return []


def report(what: str, *values: float) -> None:
    print(f"{what:<44}" + "".join(f"{value:>12,.2f}" for value in values), flush=True)  # noqa: T201


class Timed:
    """CPU and wall time of each arm, in milliseconds."""

    def __init__(self) -> None:
        self.cpu: dict[str, list[float]] = {}
        self.wall: dict[str, list[float]] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        answer = work()
        self.cpu.setdefault(name, []).append(1e3 * (time.process_time() - cpu))
        self.wall.setdefault(name, []).append(1e3 * (time.perf_counter() - wall))
        return answer

    def show(self, title: str) -> None:
        print(f"\n{title:<44}{'CPU p50':>12}{'CPU p95':>12}{'wall p50':>12}  ms")  # noqa: T201
        for name, cpu in self.cpu.items():
            high = statistics.quantiles(cpu, n=20)[-1] if len(cpu) > 1 else cpu[0]
            report(name, statistics.median(cpu), high, statistics.median(self.wall[name]))


class Questions:
    """Vectors near the items; three to eight words as they fall in texts, and in every second one a rare word."""

    def __init__(self, world: World) -> None:
        self.vectors = world.vectors(QUERIES)
        self.terms = []
        for place, drawn in enumerate(world.words(QUERIES, 8)):
            words = drawn[: 3 + place % 6].tolist() + [20_000 + 97 * place] * (place % 2)
            self.terms.append(tuple(dict.fromkeys(world.terms[words].tolist())))


def arms(index: IndexCache, scope: Scope, questions: Questions, number: int, timed: Timed) -> None:
    vector, terms = questions.vectors[number], questions.terms[number]
    cpu = time.process_time()
    nearest = timed("nearest, 100", lambda: index.nearest(VectorQuery(vector, MODEL, scope, limit=100)))
    best = timed("best by words, 100", lambda: index.best(WordQuery(terms, scope, limit=100)))
    ids = [*nearest.ids, *(hit.id for hit in best.hits)]
    timed("cosines of up to 200", lambda: index.cosines(VectorQuery(vector, MODEL, scope), ids))
    timed("counts of up to 200", lambda: index.counts(WordQuery(terms, scope), ids))
    timed("speakers", lambda: index.speakers(scope))
    timed.cpu.setdefault("all together", []).append(1e3 * (time.process_time() - cpu))
    timed.wall.setdefault("all together", []).append(timed.cpu["all together"][-1])


def open_index(db: Db) -> IndexCache:
    return IndexCache(db.read, lambda _: 2 * START, 1 << 30)


def warm(db: Db, scope: Scope, questions: Questions, title: str) -> IndexCache:
    index, timed = open_index(db), Timed()
    arms(index, scope, questions, 0, Timed())
    for number in range(QUERIES):
        arms(index, scope, questions, number, timed)
    timed.show(title)
    report("held in memory, MB", index.usage()["bytes"] / 1e6)
    return index


def cold(db: Db, scope: Scope, questions: Questions, title: str) -> None:
    timed = Timed()
    vector, terms = questions.vectors[0], questions.terms[0]
    for _ in range(5):
        index = open_index(db)
        timed("items and vectors", lambda index=index: index.nearest(VectorQuery(vector, MODEL, scope, limit=100)))
        timed("words", lambda index=index: index.best(WordQuery(terms, scope, limit=100)))
        timed.cpu.setdefault("all", []).append(sum(timed.cpu[name][-1] for name in list(timed.cpu)[:2]))
        timed.wall.setdefault("all", []).append(sum(timed.wall[name][-1] for name in list(timed.wall)[:2]))
    timed.show(title)


def fresh(index: IndexCache, writing: Writing, questions: Questions) -> None:
    """The arms right after a remember, and when there is nothing to catch up with."""
    timed = Timed()
    for number in range(QUERIES):
        writing.db.run("begin")
        writing.add([1])
        writing.db.run("commit")
        # Another question the second time: an answer may not come out of what the first one left.
        for when, question in (("after a remember", number), ("with nothing new", number - 100)):
            cpu, wall = time.process_time(), time.perf_counter()
            arms(index, BIG, questions, question, Timed())
            timed.cpu.setdefault(when, []).append(1e3 * (time.process_time() - cpu))
            timed.wall.setdefault(when, []).append(1e3 * (time.perf_counter() - wall))
    timed.show("all arms")
    after, before = (statistics.median(times) for times in timed.cpu.values())
    report("catching up (difference)", after - before)


def check_exact(db: Db, index: IndexCache, questions: Questions) -> None:
    sql = "select item.id, v.windows from item join vector v on v.key = (1 << 40) + item.n where scope = 1"
    ids, blobs = zip(*db.rows(sql), strict=True)
    matrix = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(ids), -1)
    for vector in questions.vectors[:20]:
        true = matrix.astype(np.float64) @ vector.astype(np.float64)
        best = [ids[place] for place in np.argsort(-true, kind="stable")[:100]]
        assert index.nearest(VectorQuery(vector, MODEL, BIG, limit=100)).ids == best
    report("exact by brute force, of 20 questions", 20)


def fts5(db: Db, questions: Questions, world: World) -> None:
    """What the same questions cost with FTS5, the scope as a token of its own."""
    word_of = {term: f"w{place:04x}" for place, term in enumerate(world.terms.tolist())}
    db.run("create virtual table fts using fts5(wall, body, content='')")
    began = time.process_time()
    db.run("begin")
    db.run("insert into fts (rowid, wall, body) select n, 'scope' || scope, text from item")
    db.run("commit")
    report("FTS5, each row (µs CPU)", 1e6 * (time.process_time() - began) / db.rows("select count(*) from item")[0][0])
    timed = Timed()
    for terms in questions.terms:
        words = " OR ".join(word_of[term] for term in terms)
        match = f"wall : scope1 AND body : ({words})"
        for name, order in (("candidates, rowids only", ""), ("its own bm25, 100", "order by rank limit 100")):
            sql = f"select rowid from fts where fts match ? {order}"
            timed(f"FTS5, {name}", lambda sql=sql, match=match: db.rows(sql, (match,)))
    timed.show("FTS5")
    for name, used in tables(db):
        if name.startswith("fts"):
            report(f"  {name}, bytes per item", used / db.rows("select count(*) from item")[0][0])
    db.run("drop table fts")


def yardstick() -> None:
    """The same work every time: 20 ms and 2 ms on the idle machine of the decision records; more says it is shared."""
    numbers = np.random.default_rng(1).integers(0, 2**63, 2_200_000)
    timed = Timed()
    matrix = np.ones((100_000, DIMENSION), dtype=np.int8)
    for _ in range(15):
        timed("sorting 2.2 million numbers", lambda: np.sort(numbers))
        if vector_index.numkong:
            timed("bare int8 scan of 100,000", lambda: vector_index.numkong.dot(matrix[:1], matrix))
    timed.show("yardstick")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--fts5", action="store_true", help="the word arm by FTS5 as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = World()
        db, writing = build(Path(folder) / "bench.db", world, given.items)
        questions = Questions(world)
        yardstick()
        cold(db, BIG, questions, f"cold, {given.items:,} items")
        cold(db, MIDDLE, questions, f"cold, {given.items // 10:,} items")
        index = warm(db, BIG, questions, f"{given.items:,} items, {'numkong' if vector_index.numkong else 'numpy'}")
        check_exact(db, index, questions)
        warm(db, SMALL, questions, f"{given.items // 100:,} items of {given.items:,}")
        fresh(index, writing, questions)
        if vector_index.numkong:
            vector_index.numkong = None
            warm(db, BIG, questions, f"{given.items:,} items, numpy")
        if given.fts5:
            fts5(db, questions, world)


if __name__ == "__main__":
    main()
