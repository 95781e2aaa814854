"""Time engrain and its peers in turns on the same items: writing many, writing one, searching."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engrain.bench.recall import Doc
from engrain.memory import Memory
from harness.compare import Batch, EmbeddedQuestion
from harness.peers import Peer, Took, open_peers
from harness.synthetic import Corpus, Matrix, PreparedEmbedder, Query, turns
from harness.timing import Times, timed

SPACE = "side"
HITS = 10
WARM = 5

Turn = Callable[[int], Took]


def side_by_side(folder: Path, corpus: Corpus, prepared: PreparedEmbedder, plan: tuple[int, int]) -> dict[str, Any]:
    """`plan` is (items, runs). No system embeds: engrain's embedder hands out the vectors the peers are given."""
    items, runs = plan
    texts, vectors = corpus.items(0, items + runs)
    queries = corpus.queries(runs, items)
    prepared.prepare(texts, vectors)
    prepared.prepare([query.text for query in queries], np.stack([query.vector for query in queries]))
    docs = [Doc(SPACE, str(number), text) for number, text in enumerate(texts)]
    with (
        open_peers(folder / "peers") as peers,
        Memory(folder / "side.db", user=SPACE, embedder=prepared, background=False) as memory,
    ):
        report: dict[str, Any] = {"items": items, "runs": runs, "systems": {"engrain": {}}}
        bulk = timed(lambda: memory.remember_many(turns(texts[:items])))[0]
        report["systems"]["engrain"]["bulk_rows_per_second"] = items / bulk
        for peer in peers:
            peer.add(Batch(SPACE, docs[:items], vectors[:items]))
            report["systems"][peer.name] = {"version": peer.version, "bulk_rows_per_second": items / peer.last.wall}
        one: dict[str, Turn] = {"engrain": lambda at: Took(*timed(lambda: memory.remember(texts[items + at])))}
        search: dict[str, Turn] = {"engrain": lambda at: Took(*timed(lambda: _recall(memory, queries[at])))}
        for peer in peers:
            one[peer.name] = _adder(peer, docs[items:], vectors[items:])
            search[peer.name] = _searcher(peer, queries)
        _in_turns(search, min(runs, WARM))
        searched, added = _in_turns(search, runs), _in_turns(one, runs)
    for name, figures in report["systems"].items():
        figures |= {"search_ms": searched[name], "add_one_ms": added[name]}
    return report


def _in_turns(turns: dict[str, Turn], runs: int) -> dict[str, Any]:
    """Every system does number 0, then every system number 1: whatever else the machine does falls on all alike."""
    took: dict[str, list[Took]] = {name: [] for name in turns}
    for at in range(runs):
        for name, turn in turns.items():
            took[name].append(turn(at))
    return {
        name: Times([one.wall for one in some], [one.cpu for one in some]).milliseconds for name, some in took.items()
    }


def _recall(memory: Memory, query: Query) -> None:
    memory.recall(query.text, n=HITS, min_relevance=0)


def _adder(peer: Peer, docs: list[Doc], vectors: Matrix) -> Turn:
    def add(at: int) -> Took:
        peer.add_one(docs[at], vectors[at])
        return peer.last

    return add


def _searcher(peer: Peer, queries: list[Query]) -> Turn:
    def search(at: int) -> Took:
        peer.search(SPACE, EmbeddedQuestion(queries[at].text, queries[at].vector), HITS)
        return peer.last

    return search
