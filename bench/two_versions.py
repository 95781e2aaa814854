"""Recall by two versions of engrain in turns, on copies of the same stores: equal answers, and how dear each is.

    python bench/two_versions.py OLD_SRC [--items 1000,10000,100000] [--mixed] [--servers] [--folders FOLDER…]

OLD_SRC is the `src` of the older version; the newer one is that of this file. Each runs in a process of its own, and
the two take every query in turns. No query is asked twice. Scores may differ by 1e-6, everything else must be equal.
The older version makes the stores of turns, of folders and of all kinds. With --old-order the newer one ranks as commit
5b409386 did: what it does faster is compared then, not what it orders otherwise. Its floor is another since: only hits,
their order and their scores are compared then, of questions without a floor.
With --servers: Postgres, Redis for episodes, Chroma for vectors, and all three together (PYTHONPATH=tests).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from harness.synthetic import BLOCK, SEED, SPEAKERS, Corpus, PreparedEmbedder, turns

from engrain import Memory
from engrain.bench.recall import read_folder
from engrain.config import Settings
from engrain.core.model.items import Note, Relation, SessionPosition
from engrain.core.model.recall import Recall
from engrain.factory import open_embedder

NOW = datetime(2031, 5, 4, 12, tzinfo=UTC)
BENCH = Path(__file__).parent
BATCH = 5_000
WARM = 5
SMALL_SHARE = 100  # every so many-th item belongs to a scope of its own
TOLERANCE = 1e-6
Asked = dict[str, Any]


# The child: one version


def serve() -> None:
    """Open a store, then answer one query a line."""
    opened: Memory | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "fill" in asked:
            FILLS[asked.pop("fill")](**asked)
            answer: Asked = {}
        elif "open" in asked:
            if asked.pop("old_order"):
                restore_old_order()
            embedder = open_embedder(Settings()) if asked.pop("real") else _prepare()
            opened = Memory(asked["open"], user=asked["user"], embedder=embedder, background=False, clock=lambda: NOW)
            answer = {}
        else:
            assert opened is not None
            vector = asked.pop("vector", None)
            if vector is not None:
                opened.store.services.embedder.unchecked.prepare([asked["query"]], np.array([vector], np.float32))
            cpu, wall = time.process_time(), time.perf_counter()
            found = opened.recall(**asked)
            answer = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "found": _describe(found)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def restore_old_order() -> None:
    """Rank as commit 5b409386: no frames, conditions, turn before, pairs for summaries, nor current ones first;
    orders of anybody count.

    Imported wishes, which are never shown, take places among the standing wishes as they did then.
    """
    from engrain.retrieval import query, ranking, search, selection
    from engrain.tiers import session_lifecycle

    ranking.WEIGHTS |= {"words before": 0.5, "cover before": 0.0}
    ranking._WEIGHT_COLUMN = np.array(list(ranking.WEIGHTS.values()))[:, None]
    advice = property(lambda one: "request" in one.asks and "looks_back" not in one.asks)
    query.Question.looks_forward = advice  # type: ignore[assignment, method-assign]
    query._strip_frame = lambda asked, _languages: asked
    selection._add_replies = lambda order, _reply: order
    search.MIN_COMPARED = 0
    ranking.TRUST = {"agent": 0.0}
    session_lifecycle._TRUSTED = session_lifecycle._KNOWN


def _prepare() -> PreparedEmbedder:
    return PreparedEmbedder(open_embedder(Settings()).model)


def _describe(found: Recall) -> dict[str, list[Any]]:
    hits = [
        [
            [hit.item.id, hit.text, hit.span, sorted(hit.found_by), str(hit), hit.earlier, hit.quoting, hit.in_context],
            [hit.score, hit.relevance, *(value for _, value in sorted(hit.score_parts.items()))],
        ]
        for hit in found.hits
    ]
    omitted = [[[one.reason, one.count, *one.best], [one.relevance]] for one in found.omitted]
    return {"hits": hits, "others": [*omitted, [[str(found), found.tokens], []]]}


# The parent


class Version:
    def __init__(self, source: Path) -> None:
        path = os.pathsep.join((str(source), str(BENCH)))
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip

    def ask(self, asked: Asked) -> Asked:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("one of the versions ended; see its message above")
        return dict(json.loads(line))

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def open_versions(
    sources: tuple[Path, Path], stores: tuple[str, str], user: str, real: bool = False, old_order: bool = False
) -> Iterator[list[Version]]:
    versions = [Version(source) for source in sources]
    try:
        for version, store, restored in zip(versions, stores, (False, old_order), strict=True):
            version.ask({"open": store, "user": user, "real": real, "old_order": restored})
        yield versions
    finally:
        for version in versions:
            version.close()


def compare(versions: list[Version], queries: list[Asked], turn: int = 1, order_alone: bool = False) -> Asked:
    """Ask both in turns of so many queries; the one that begins changes with every turn."""
    cpu: tuple[list[float], list[float]] = ([], [])
    different: list[str] = []
    compared = 0
    for start in range(0, len(queries), turn):
        some = queries[start : start + turn]
        answers: dict[int, list[Asked]] = {}
        for one in (0, 1) if start // turn % 2 else (1, 0):
            answers[one] = [versions[one].ask(asked) for asked in some]
            if start >= WARM:
                cpu[one].extend(answer["cpu"] * 1e3 for answer in answers[one])
        for asked, old, new in zip(some, answers[0], answers[1], strict=True):
            if order_alone and asked.get("min_relevance") != 0:
                continue
            compared += 1
            if not _are_equal(old["found"], new["found"], order_alone):
                different.append(str(asked["query"]))
    before, after = (statistics.median(times) for times in cpu)
    high = [statistics.quantiles(times, n=20)[-1] for times in cpu]
    figures = {"old": before, "new": after, "ratio": after / before, "mean_ratio": sum(cpu[1]) / sum(cpu[0])}
    return {**figures, "old_p95": high[0], "new_p95": high[1], "queries": compared, "different": different}


def _are_equal(old: dict[str, list[Any]], new: dict[str, list[Any]], order_alone: bool) -> bool:
    if order_alone:  # ids and scores
        one, other = ([[told[:1], scores[:1]] for told, scores in answer["hits"]] for answer in (old, new))
    else:
        one, other = (answer["hits"] + answer["others"] for answer in (old, new))
    return len(one) == len(other) and all(
        mine[0] == theirs[0]
        and len(mine[1]) == len(theirs[1])
        and np.allclose(mine[1], theirs[1], rtol=0, atol=TOLERANCE)
        for mine, theirs in zip(one, other, strict=True)
    )


def show(name: str, found: Asked) -> None:
    equal = found["queries"] - len(found["different"])
    line = f"{name:<34}{found['old']:9.2f}{found['new']:9.2f}{found['ratio']:8.2f}{found['mean_ratio']:8.2f}"
    print(f"{line}{found['old_p95']:9.2f}{found['new_p95']:9.2f}{equal:8,}/{found['queries']:,}", flush=True)  # noqa: T201
    for query in found["different"][:3]:
        print(f"    differs: {query[:150]}", flush=True)  # noqa: T201


# Stores and queries


def fill_turns(location: str, items: int) -> None:
    """Turns of sessions, and a hundredth of them in a scope of its own that lies between the others."""
    embedder = _prepare()
    corpus = Corpus(embedder.model.dimension)
    users = {user: Memory(location, user=user, embedder=embedder, background=False) for user in ("bench", "small")}
    for first in range(0, items, BATCH):
        texts, vectors = corpus.items(first, min(BATCH, items - first))
        embedder.prepare(texts, vectors)
        notes = turns(texts, first)
        users["small"].remember_many(notes[::SMALL_SHARE])
        users["bench"].remember_many(notes)
        embedder.clear()
    for memory in users.values():
        memory.close()


def ask_turns(corpus: Corpus, count: int, seed: int) -> list[Asked]:
    made = replace_seed(corpus, seed).queries(count, BLOCK)
    return [
        {"query": f"{one.text} {seed}-{number}", "n": 10, "min_relevance": 0, "vector": one.vector.tolist()}
        for number, one in enumerate(made)
    ]


def replace_seed(corpus: Corpus, seed: int) -> Corpus:
    """The same texts, and other queries."""
    other = Corpus(384)
    items = corpus.items
    other._seed = seed
    other.items = items  # type: ignore[method-assign]
    return other


SUBJECTS = ("my brother", "the garden", "our budget", "the old car", "Lima", "the release", "my knee", "the cat", "tea")
VERBS = ("likes", "moved to", "costs", "was painted", "needs", "forgot", "asked about", "fixed", "lost", "bought")
FRAMES = (
    "{} {} {}.", "I think {} {} {}, really.", "Does {} {} {}?", "From now on, when I ask about {}, always {} {}.",
    "I prefer that {} {} {}.", "On 3 May 2030 {} {} {} at 14:30 for $20.", "Please remember that {} {} {}!",
)  # fmt: skip
QUESTIONS = (
    "What about {} and {}?", "Who {} {}?", "when did {} {}", "List everything that {} {}", "Recommend something: {} {}",
    "How should I {} {}?", "What did Ana say about {} {} in May 2030?", "Summarize {} {}", "Is {} still {}?",
    "¿Qué pasó con {} {}?", "Was ist mit {} {} letzte Woche?", "{} {}",
)  # fmt: skip


def make_sentence(chance: random.Random, words: list[str]) -> str:
    parts = chance.choice(SUBJECTS), chance.choice(VERBS), " ".join(chance.choices(words, k=chance.randint(1, 9)))
    return chance.choice(FRAMES).format(*parts)


def fill_mixed(location: str, items: int, seed: int) -> None:
    """All kinds of items: turns of users, assistants and tools, facts in slots, relations, documents, corrections."""
    chance, embedder = random.Random(seed), _prepare()
    words = Corpus(embedder.model.dimension).vocabulary[:400]
    start = datetime(2030, 1, 1, tzinfo=UTC)
    with Memory(location, user="bench", embedder=embedder, background=False) as memory:
        notes: list[Note] = []
        for number in range(items):
            sentence, when = make_sentence(chance, words), start + timedelta(hours=number)
            kind = number % 10
            note = Note(sentence, chance.random(), occurred_at=when)
            if kind < 5:
                role = chance.choice(("user", "assistant", "tool", "user", None))
                place = SessionPosition(f"s{number // 37}", number % 37, chance.choice((*SPEAKERS, None)), role)
                text = f'Ben wrote: "{sentence}" {make_sentence(chance, words)}' if number % 9 == 0 else sentence
                note = replace(note, text=text, position=place)
            elif kind == 5:
                note = replace(note, slot=f"user.{chance.choice(words[:40])}", metadata={"part": chance.randint(0, 3)})
            elif kind == 6:
                relation = Relation(chance.choice(SPEAKERS), chance.choice(VERBS), chance.choice(words[:20]))
                note = replace(
                    note, text=f"{relation.subject} {relation.relation} {relation.object}", relation=relation
                )
            elif kind == 7:
                note = replace(note, text=" ".join(make_sentence(chance, words) for _ in range(40)), source="handbook")
            elif kind == 8:
                source = chance.choice(({"name": "page", "kind": "page"}, {"name": "Ana", "kind": "user"}))
                note = replace(note, source=None if chance.random() < 0.3 else source["name"])
            else:
                ends = when + timedelta(days=chance.choice((2, 4_000)))
                note = replace(note, expires_at=max(ends, NOW + timedelta(days=1)) if number % 20 else None)
            notes.append(note)
        ids = [one.id for one in memory.remember_many(notes) if one.id]
        for number, id in enumerate(chance.sample(ids, min(len(ids), 30))):
            item = memory.get(id)
            if item and not item.relation and number % 2:
                memory.correct(id, make_sentence(chance, words))
            elif item:
                memory.forget(id)
        for session in range(4):
            memory.start_session(f"talk-{session}")
            for _ in range(12):
                memory.add_message("user", f"{make_sentence(chance, words)} I live in {chance.choice(words).title()}.")
                memory.add_message("assistant", make_sentence(chance, words))
            memory.end_session()


def fill_folder(location: str, folder: str) -> None:
    read, embedder = read_folder(Path(folder)), open_embedder(Settings())
    for space in read.spaces:
        with Memory(location, user=space, embedder=embedder, background=False) as memory:
            memory.remember_many([doc.note for doc in read.docs_of(space)])


FILLS: dict[str, Callable[..., None]] = {"turns": fill_turns, "mixed": fill_mixed, "folder": fill_folder}


def fill_by(source: Path, **asked: Any) -> None:
    version = Version(source.resolve())
    version.ask(asked)
    version.close()


def ask_mixed(count: int, seed: int) -> list[Asked]:
    chance = random.Random(seed)
    words = Corpus(384).vocabulary[:400]
    asked: list[Asked] = []
    for number in range(count):
        query = chance.choice(QUESTIONS).format(
            chance.choice(SUBJECTS), " ".join(chance.choices(words, k=chance.randint(1, 6)))
        )
        one: Asked = {"query": f"{query} {words[number % 400]}", "n": chance.choice((1, 5, 10, 30))}
        one |= chance.choice(({}, {"min_relevance": 0}, {"budget": 400, "min_relevance": 0}, {"as_of": "2030-06-01"}))
        one |= chance.choice(
            ({}, {}, {"where": {"kind": "fact"}}, {"where": {"metadata.part": 2}}, {"min_importance": 0.6})
        )
        asked.append(one)
    return asked


def ask_folder(questions: list[str]) -> list[Asked]:
    """Each question in several forms."""
    asked: list[Asked] = []
    for question in questions:
        asked += [{"query": question, "n": 10, "min_relevance": 0}, {"query": question.lower(), "n": 5}]
        asked += [
            {"query": question + " ", "n": 100, "min_relevance": 0},
            {"query": question.rstrip("?"), "budget": 1000},
        ]
    return asked


def copy_store(path: Path) -> tuple[str, str]:
    """Two copies, so that neither version sees what the other has written."""
    copies = tuple(path.with_suffix(f".{name}.db") for name in ("old", "new"))
    for copy in copies:
        for left in copy.parent.glob(f"{copy.name}*"):
            left.unlink()
        shutil.copy(path, copy)
    return str(copies[0]), str(copies[1])


def run_folder(folder: Path, given: argparse.Namespace, sources: tuple[Path, Path]) -> Iterator[tuple[str, Asked]]:
    read, path = read_folder(folder), given.work / f"{folder.name}.db"
    if not path.exists():
        fill_by(given.old, fill="folder", location=str(path), folder=str(folder))
    together: list[Asked] = []
    for space in read.spaces:
        questions = [one.text for one in read.questions if one.space == space]
        stores = copy_store(path)
        with open_versions(sources, stores, space, True, given.old_order) as versions:
            asked = ask_folder(questions[given.skip :][: given.queries])
            together.append(compare(versions, asked, given.turn, given.old_order))
    found = {
        name: statistics.fmean(one[name] for one in together)
        for name in together[0]
        if name not in ("queries", "different")
    }
    found["queries"] = sum(one["queries"] for one in together)
    found["different"] = [query for one in together for query in one["different"]]
    yield folder.name, found


def run_servers(given: argparse.Namespace, sources: tuple[Path, Path]) -> Iterator[tuple[str, Asked]]:
    """The same turns in each kind of store, 2,000 each."""
    import servers
    from chroma_server import new_server
    from redis_server import start_redis

    corpus, chroma, redis = Corpus(384), new_server().url, start_redis().url
    postgres = f"{servers.postgres().url()}?schema=kind_"
    kinds = {
        "Postgres": (f"{postgres}a", None, None),
        "SQLite, Redis": ("", redis, None),
        "SQLite, Chroma": ("", None, chroma),
        "SQLite, Redis, Chroma": ("", redis, chroma),
        "Postgres, Redis, Chroma": (f"{postgres}b", redis, chroma),
    }
    for number, (name, (default, episodic, vectors)) in enumerate(kinds.items()):
        path = given.work / f"kind-{number}.toml"
        (given.work / f"kind-{number}.db").unlink(missing_ok=True)
        lines = ["[stores]", f'default = "{default or given.work / f"kind-{number}.db"}"']
        lines += [f'episodic = "{episodic}"'] * bool(episodic) + [f'vectors = "{vectors}"'] * bool(vectors)
        path.write_text("\n".join(lines))
        fill_turns(str(path), 2_000)
        with Memory(path, user="bench", embedder=_prepare(), background=False) as memory:
            while memory.store.services.feed and memory.store.services.feed.feed(1_000):
                pass
        with open_versions(sources, (str(path), str(path)), "bench", False, given.old_order) as versions:
            yield name, compare(versions, ask_turns(corpus, given.queries, SEED + number), given.turn)


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="src of the older version")
    parser.add_argument("--items", default="", help="sizes of synthetic stores, such as 1000,10000,100000")
    parser.add_argument("--mixed", type=int, default=0, metavar="N", help="so many stores of all kinds of items")
    parser.add_argument("--servers", action="store_true")
    parser.add_argument("--folders", nargs="*", type=Path, default=[])
    parser.add_argument("--old-order", action="store_true")
    parser.add_argument("--skip", type=int, default=0, help="so many questions of each space of a folder")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--turn", type=int, default=1, help="so many queries before the other version has its turn")
    parser.add_argument("--work", type=Path, required=True, help="where stores are made, and kept for the next run")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    sources = given.old.resolve(), BENCH.parent / "src"
    report: dict[str, Asked] = {}
    print(f"{'CPU of a recall, ms':<34}{'old':>9}{'new':>9}{'p50':>8}{'mean':>8}{'old p95':>9}{'new p95':>9}   equal")  # noqa: T201
    for name, found in run_all(given, sources):
        report[name] = found
        show(name, found)
        if given.out:
            given.out.write_text(json.dumps(report, indent=1, ensure_ascii=False))
    if any(found["different"] for found in report.values()):
        raise SystemExit("some answers differ")


def run_all(given: argparse.Namespace, sources: tuple[Path, Path]) -> Iterator[tuple[str, Asked]]:
    corpus = Corpus(384)
    for items in [int(part) for part in given.items.split(",") if part]:
        path = given.work / f"turns-{items}.db"
        if not path.exists():
            fill_by(given.old, fill="turns", location=str(path), items=items)
        for user in ("bench", "small") if items >= 100_000 else ("bench",):
            seed = int.from_bytes(hashlib.blake2b(f"{user}{items}".encode(), digest_size=4).digest(), "big")
            with open_versions(sources, copy_store(path), user, False, given.old_order) as versions:
                name = f"{items:,} turns" if user == "bench" else f"1 % of {items:,}"
                yield name, compare(versions, ask_turns(corpus, given.queries, seed), given.turn)
    for number in range(given.mixed):
        path = given.work / f"mixed-{number}.db"
        if not path.exists():
            fill_by(given.old, fill="mixed", location=str(path), items=300 + 900 * number, seed=number)
        with open_versions(sources, copy_store(path), "bench", False, given.old_order) as versions:
            found = compare(versions, ask_mixed(given.queries, number), given.turn, given.old_order)
            yield f"mixed {300 + 900 * number:,}", found
    for folder in given.folders:
        yield from run_folder(folder, given, sources)
    if given.servers:
        yield from run_servers(given, sources)


if __name__ == "__main__":
    main()
