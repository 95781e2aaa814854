"""Run every measurement of speed, one after the other, into one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from engrain.config import Settings
from engrain.factory import open_embedder
from harness.child import local_model
from harness.crowd import processes, threads_against_one
from harness.machine import facts
from harness.reads import exactness, search_times
from harness.side_by_side import side_by_side
from harness.start import cold_recall, held_memory, import_time, installed_bytes
from harness.synthetic import Corpus, PreparedEmbedder
from harness.targets import speed_targets
from harness.writes import disk_bytes, fill, one_by_one, syncs_each, with_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Embedder

SIZES = (1_000, 10_000, 100_000)
MILLION = 1_000_000
SMALL_SHARE = 100  # one item in so many is in the small scope
COLD_TO = 100_000

Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each thing is done."""

    pairs: int = 500
    syncs: int = 200
    queries: int = 200
    embedded: tuple[int, int] = (512, 4)  # texts in a round, rounds
    threads: tuple[float, int] = (1.5, 3)  # seconds of a round, rounds
    process_seconds: float = 5.0
    starts: int = 7
    peer_items: int = 5_000
    peer_runs: int = 100


FULL = Effort()
SHORT = Effort(30, 20, 20, (16, 2), (0.2, 1), 0.5, 1, 200, 10)


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    folder: Path
    corpus: Corpus
    prepared: PreparedEmbedder
    embedder: Embedder
    effort: Effort
    stage: Stage


def run_speed(
    sizes: Sequence[int], *, short: bool = False, peers: bool = False, stage: Stage = lambda _: None
) -> dict[str, Any]:
    model = local_model()
    effort = SHORT if short else FULL
    with TemporaryDirectory(prefix="engrain-bench-") as place:
        bench = Bench(
            Path(place), Corpus(model.dimension), PreparedEmbedder(model), open_embedder(Settings()), effort, stage
        )
        report: dict[str, Any] = {"machine": facts(), "short": short, **_writing(bench), "sizes": {}}
        for size in sorted(sizes):
            report["sizes"][str(size)] = _size(bench, size)
        report |= _starting(bench)
        if peers:
            stage(f"{effort.peer_items:,} items: next to the peers")
            report["peers"] = side_by_side(
                bench.folder, bench.corpus, bench.prepared, (effort.peer_items, effort.peer_runs)
            )
    report["targets"] = speed_targets(report)
    return report


def _writing(bench: Bench) -> dict[str, Any]:
    folder, corpus, prepared, effort = bench.folder, bench.corpus, bench.prepared, bench.effort
    bench.stage("one remember, next to a bare commit")
    pairs = one_by_one(folder, corpus, prepared, effort.pairs)
    bench.stage("syncs of one remember")
    syncs = syncs_each(folder, corpus, prepared, effort.syncs)
    bench.stage("32 threads, next to one")
    threads = threads_against_one(folder, prepared, pairs["bare_commit"]["wall_p50"], effort.threads)
    bench.stage("6 processes on one file")
    together = processes(folder, effort.process_seconds)
    bench.stage("bulk with the local embedder, next to the embedder alone")
    embedded = with_embedder(folder, corpus, bench.embedder, *effort.embedded)
    return {"remember": pairs, "syncs": syncs, "threads": threads, "processes": together, "bulk_embedded": embedded}


def _size(bench: Bench, size: int) -> dict[str, Any]:
    store = bench.folder / f"items-{size}.db"
    corpus, prepared, queries = bench.corpus, bench.prepared, bench.effort.queries
    small = max(1, size // SMALL_SHARE)
    bench.stage(f"{size:,} items: writing")
    found: dict[str, Any] = {**fill(store, corpus, prepared, (size, small))}
    found["disk_bytes_per_item"] = disk_bytes(store) / (size + small)
    bench.stage(f"{size:,} items: searching")
    found["search"] = search_times(store, "bench", corpus, prepared, queries)
    found["small_scope"] = {"items": small, **search_times(store, "small", corpus, prepared, queries)}
    found["exactness"] = exactness(store, size, corpus, prepared, min(20, queries))
    bench.stage(f"{size:,} items: memory and cold start")
    found["memory_bytes"] = held_memory(store)
    if size <= COLD_TO:
        found["cold_recall"] = cold_recall(store, bench.effort.starts)
    for path in bench.folder.glob(store.name + "*"):
        path.unlink()
    return found


def _starting(bench: Bench) -> dict[str, Any]:
    bench.stage("import and install")
    return {"import": import_time(bench.effort.starts), "install": installed_bytes()}
