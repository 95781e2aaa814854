"""Time writing: one durable remember against a bare commit, many at once, and the embedder's share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from engrain.memory import Memory
from harness.syncs import watched_syncs
from harness.synthetic import Corpus, PreparedEmbedder, turns
from harness.timing import Times, median, timed
from harness.twin import Twin

if TYPE_CHECKING:
    from engrain.ports.search import Embedder

PART = 100_000
# Texts of these measurements lie far behind those of the stores that are searched.
FAR = 10_000_000


def one_by_one(folder: Path, corpus: Corpus, prepared: PreparedEmbedder, pairs: int) -> dict[str, Any]:
    """Alternately a remember and a bare FULL commit of the rows it wrote, into a file of the same schema."""
    texts, vectors = corpus.items(FAR, pairs + 1)
    prepared.prepare(texts, vectors)
    ours: list[tuple[float, float]] = []
    bare: list[tuple[float, float]] = []
    with Memory(folder / "pairs.db", user="bench", embedder=prepared) as memory:
        memory.remember(texts[-1])
        with Twin(folder / "pairs.db", folder / "twin.db") as twin:
            for text in texts[:pairs]:
                ours.append(timed(lambda text=text: memory.remember(text)))  # type: ignore[misc]
                rows = twin.new_rows()
                bare.append(timed(lambda rows=rows: twin.commit(rows)))  # type: ignore[misc]
    sides = {"remember": _times(ours), "bare_commit": _times(bare)}
    return {
        "pairs": pairs,
        **{name: side.milliseconds for name, side in sides.items()},
        "ratio_p50": median(sides["remember"].wall) / median(sides["bare_commit"].wall),
        "added_cpu_p50_ms": (median(sides["remember"].cpu) - median(sides["bare_commit"].cpu)) * 1e3,
    }


def syncs_each(folder: Path, corpus: Corpus, prepared: PreparedEmbedder, count: int) -> dict[str, Any]:
    """How many syncs each of `count` remembers waits for, and how many more there were in the background."""
    texts, vectors = corpus.items(FAR + 20_000, count + 1)
    prepared.prepare(texts, vectors)
    each = []
    with watched_syncs() as syncs, Memory(folder / "syncs.db", user="bench", embedder=prepared) as memory:
        memory.remember(texts[-1])
        for text in texts[:count]:
            before = syncs.waited_for
            memory.remember(text)
            each.append(syncs.waited_for - before)
        beside = syncs.in_background
    odd = sum(one != 1 for one in each)
    return {"remembers": count, "median": median(each), "most": max(each), "not_one": odd, "in_background": beside}


def fill(store: Path, corpus: Corpus, prepared: PreparedEmbedder, counts: tuple[int, int]) -> dict[str, float]:
    """A store with so many items in the scope "bench" and so many in "small"; how many rows remember_many did."""
    wall, cpu = 0.0, 0.0
    with Memory(store, user="bench", embedder=prepared) as big, Memory(store, user="small", embedder=prepared) as small:
        for memory, first, count in ((big, 0, counts[0]), (small, counts[0], counts[1])):
            for start in range(0, count, PART):
                texts, vectors = corpus.items(first + start, min(PART, count - start))
                prepared.prepare(texts, vectors)
                notes = turns(texts, start)
                took = timed(lambda memory=memory, notes=notes: memory.remember_many(notes))  # type: ignore[misc]
                wall, cpu = wall + took[0], cpu + took[1]
                prepared.clear()
    rows = sum(counts)
    return {"bulk_rows_per_second": rows / wall, "bulk_rows_per_cpu_second": rows / cpu}


def with_embedder(folder: Path, corpus: Corpus, embedder: Embedder, size: int, rounds: int) -> dict[str, Any]:
    """remember_many with the real embedder, alternately with the embedder alone on other texts of the same kind."""
    from engrain.ingest.write import BATCH_SIZE

    embedder.embed(["warm"], "document")
    ours: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    with Memory(folder / "embedded.db", user="bench", embedder=embedder) as memory:
        for number in range(2 * rounds):
            texts, _ = corpus.items(FAR + 100_000 + number * size, size)
            if number % 4 in (0, 3):  # first one, then the other begins
                notes = turns(texts, number * size)
                ours.append(timed(lambda notes=notes: memory.remember_many(notes)))  # type: ignore[misc]
            else:
                alone.append(timed(lambda texts=texts: _embed(embedder, texts, BATCH_SIZE)))  # type: ignore[misc]
    shares = [one[0] / other[0] for one, other in zip(alone, ours, strict=True)]
    return {
        "texts": size * rounds,
        "embedder_texts_per_second": size * rounds / sum(wall for wall, _ in alone),
        "bulk_texts_per_second": size * rounds / sum(wall for wall, _ in ours),
        "share": median(shares),
        "shares": shares,
        "cpu_share": sum(cpu for _, cpu in alone) / sum(cpu for _, cpu in ours),
    }


def disk_bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in store.parent.glob(store.name + "*"))


def _embed(embedder: Embedder, texts: list[str], batch: int) -> None:
    for start in range(0, len(texts), batch):
        embedder.embed(texts[start : start + batch], "document")


def _times(pairs: list[tuple[float, float]]) -> Times:
    return Times([wall for wall, _ in pairs], [cpu for _, cpu in pairs])
