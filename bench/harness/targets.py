"""What engrain set out to reach, and whether a report reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The figures for the folders that the project was measured on; a folder of another name has none.
RECALL = {"locomo-dev": {"r10": 0.82, "rb1000": 0.88}, "beam100K-dev": {"r10": 0.64, "rb1000": 0.65}}

Report = Mapping[str, Any]
Row = dict[str, Any]


def speed_targets(report: Report) -> list[Row]:
    """One row for each target; `met` is None where the run did not measure it."""
    sizes = report["sizes"]
    return [
        _search(sizes.get("100000")),
        _small(sizes.get("100000")),
        _syncs(report["syncs"]),
        _remember(report["remember"]),
        _threads(report["threads"]),
        *_processes(report["processes"]),
        _bulk_embedded(report["bulk_embedded"]),
        _bulk(sizes),
        *_import(report["import"]),
        *(_cold(sizes, size, limit) for size, limit in (("10000", 1.0), ("100000", 1.5))),
        _install(report["install"]),
    ]


def recall_targets(report: Report) -> list[Row]:
    rows = []
    for name, folder in report["folders"].items():
        for measure, least in RECALL.get(name, {}).items():
            figure = folder["systems"]["engrain"]["all"][measure]
            label = {"r10": "R@10", "rb1000": "RB1000"}[measure]
            rows.append(_row(f"{name} {label}", f"≥ {least}", f"{figure:.3f}", figure >= least))
        leads = folder["engrain_minus"]
        below = [
            f"{other} {label}"
            for other, lead in leads.items()
            for label in ("r10", "rb1000")
            if not lead[label]["above"]
        ]
        why = f"not above: {', '.join(below)}" if below else ""
        rows.append(_row(f"{name}: above every other", "95 % interval", f"{len(leads)} others", not below, why))
    return rows


def _search(size: Report | None) -> Row:
    what = "search 100k, all arms and fusion, CPU p50"
    if size is None:
        return _row(what, "≤ 15 ms")
    search = size["search"]
    figure = search["recall"]["cpu_p50"]
    why = f"vectors {search['vectors']['cpu_p50']:.1f}, words {search['words']['cpu_p50']:.1f}, "
    why += f"vectors exact: {size['exactness']:.1%}"
    return _row(what, "≤ 15 ms", f"{figure:.2f} ms", figure <= 15 and size["exactness"] == 1, why)


def _small(size: Report | None) -> Row:
    what = "the same in a 1 % scope"
    if size is None:
        return _row(what, "≤ 3 ms")
    figure = size["small_scope"]["recall"]["cpu_p50"]
    return _row(what, "≤ 3 ms", f"{figure:.2f} ms", figure <= 3, f"{size['small_scope']['items']:,} items")


def _syncs(syncs: Report) -> Row:
    why = f"{syncs['not_one']} of {syncs['remembers']} waited for another number, at most {syncs['most']}; "
    why += f"{syncs['in_background']} more by checkpoints in the background"
    return _row("fsyncs of one remember", "1", f"{syncs['median']:g}", syncs["not_one"] == 0, why)


def _remember(pairs: Report) -> Row:
    ours, bare = pairs["remember"]["wall_p50"], pairs["bare_commit"]["wall_p50"]
    why = f"{ours:.2f} and {bare:.2f} ms, {pairs['pairs']} pairs; {ours - bare:.2f} ms more"
    return _row("remember over a bare FULL commit, p50", "reported", f"{pairs['ratio_p50']:.2f} ×", None, why)


def _threads(threads: Report) -> Row:
    why = f"a bare commit takes {threads['bare_commit_ms']:.1f} ms"
    if threads["slowed"]:
        why += f"; syncs drawn out to 2 ms; {threads['as_it_is']['ratio']:.1f} × as it is"
    return _row("32 threads over one", "≥ 4 ×", f"{threads['ratio']:.1f} ×", threads["ratio"] >= 4, why)


def _processes(together: Report) -> list[Row]:
    share, wait, errors = (together[name] for name in ("slowest_over_fastest", "longest_wait_seconds", "errors"))
    commits = ", ".join(map(str, together["commits"]))
    return [
        _row("6 processes, slowest over fastest", "≥ ⅓", f"{share:.2f}", share >= 1 / 3, f"commits: {commits}"),
        _row("6 processes, longest wait", "≤ 1 s", f"{wait:.2f} s", wait <= 1),
        _row("6 processes, errors", "none", str(len(errors)), not errors, "; ".join(sorted(set(errors)))),
    ]


def _bulk_embedded(bulk: Report) -> Row:
    """Settled only if all rounds say the same: writing cannot make the embedder quicker, so over 100 % is noise."""
    shares = bulk.get("shares", [bulk["share"]])
    met = True if min(shares) >= 0.97 else False if max(shares) < 0.97 else None
    why = f"{bulk['bulk_texts_per_second']:.0f} of {bulk['embedder_texts_per_second']:.0f} texts/s; "
    why += f"rounds from {min(shares):.0%} to {max(shares):.0%}"
    if max(shares) > 1.03:
        met, why = None, why + ": not settled, the machine was too busy to tell"
    return _row("bulk over the embedder's own speed", "≥ 97 %", f"{bulk['share']:.1%}", met, why)


def _bulk(sizes: Report) -> Row:
    rates = {int(size): found["bulk_rows_per_second"] for size, found in sizes.items()}
    largest = max(rates)
    why = f"at {largest:,} items; {sizes[str(largest)]['bulk_rows_per_cpu_second']:,.0f} for each second of CPU"
    return _row("bulk with given vectors", "≥ 5,000 rows/s", f"{rates[largest]:,.0f}", rates[largest] >= 5_000, why)


def _import(found: Report) -> list[Row]:
    took = found["milliseconds"]
    heavy = [name for name in found["heavy"] if name in ("numpy", "onnxruntime")]
    return [
        _row("import engrain", "≤ 80 ms", f"{took:.0f} ms", took <= 80, f"{found['modules']} modules"),
        _row("import pulls in numpy, onnxruntime", "neither", ", ".join(heavy) or "neither", not heavy),
    ]


def _cold(sizes: Report, size: str, limit: float) -> Row:
    what = f"engrain recall, cold, {int(size):,} items"
    cold = sizes.get(size, {}).get("cold_recall")
    if cold is None:
        return _row(what, f"≤ {limit:g} s")
    rest = cold["file_not_cached_seconds"]
    why = "" if rest is None else f"{rest:.2f} s with the file out of the page cache"
    return _row(what, f"≤ {limit:g} s", f"{cold['seconds']:.2f} s", cold["seconds"] <= limit, why)


def _install(found: Report) -> Row:
    size = found["bytes"] / 1e6
    first = ", ".join(f"{name} {bytes_ / 1e6:.0f}" for name, bytes_ in list(found["packages"].items())[:3])
    return _row("core install with weights", "≤ 200 MB", f"{size:.0f} MB", size <= 200, first)


def _row(what: str, target: str, figure: str = "not measured", met: bool | None = None, why: str = "") -> Row:
    return {"what": what, "target": target, "figure": figure, "met": met, "why": why}
