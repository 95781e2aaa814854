"""Write the figures of results/*.json into README.md: python bench/figures.py"""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness.targets import recall_targets, speed_targets

HERE = Path(__file__).parent
MET = {True: "met", False: "**missed**", None: ""}


def main() -> None:
    recall, speed = (json.loads((HERE / "results" / f"{name}.json").read_text()) for name in ("recall", "speed"))
    parts = [
        "### Recall\n\n![R@10 and RB1000 of each system](results/recall.svg)",
        *(folder_table(name, folder) for name, folder in recall["folders"].items()),
        "### Speed\n\n![Milliseconds by number of items](results/speed.svg)",
        targets(recall_targets(recall) + speed_targets(speed)),
        sizes(speed["sizes"]),
        *([peers(speed["peers"])] if "peers" in speed else []),
        f"{machine(recall['machine'], 'Recall')} {machine(speed['machine'], 'Speed')}",
    ]
    page = (HERE / "README.md").read_text()
    made = "<!-- figures -->\n\n" + "\n\n".join(parts) + "\n\n<!-- end of figures -->"
    (HERE / "README.md").write_text(
        re.sub(r"<!-- figures -->.*<!-- end of figures -->", lambda _: made, page, flags=re.S)
    )


def folder_table(name: str, folder: dict) -> str:
    rows = []
    for system, found in folder["systems"].items():
        lead = folder["engrain_minus"].get(system)
        ahead = [interval(lead[measure]) for measure in ("r10", "rb1000")] if lead else ["", ""]
        scores = [f"{found['all'][measure]:.3f}" for measure in ("r10", "ndcg10", "rb1000", "rb1000_whole")]
        rows.append([f"**{system}**" if system == "engrain" else system, *scores, *ahead])
    floor = folder["floor"]
    note = (
        f"{folder['items']:,} items, {folder['with_gold']} questions with evidence. "
        f"With the floor on, R@10 is {floor['cost_r10']:.3f} lower; "
        f"of the {floor['without_gold']} questions without evidence {floor['returned_nothing']:.0%} come back empty."
    )
    heads = [name, "R@10", "NDCG@10", "RB1000", "whole", "engrain ahead by, R@10", "RB1000"]
    return f"{table(heads, rows)}\n\n{note}"


def interval(lead: dict) -> str:
    return f"{lead['mean']:+.3f} [{lead['low']:+.3f}, {lead['high']:+.3f}]"


def targets(rows: list[dict]) -> str:
    return table(
        ["what", "target", "here", "", "made of"],
        [[row["what"], row["target"], row["figure"], MET[row["met"]], row["why"]] for row in rows],
    )


def sizes(found: dict) -> str:
    rows = []
    for size, one in found.items():
        search = one["search"]
        rows.append(
            [
                f"{int(size):,}",
                f"{one['bulk_rows_per_second']:,.0f}",
                *(f"{search[arm]['cpu_p50']:.2f}" for arm in ("vectors", "words", "recall")),
                f"{search['recall']['cpu_p95']:.2f}",
                f"{one['small_scope']['recall']['cpu_p50']:.2f}",
                f"{one['memory_bytes']['store_and_search'] / 1e6:,.0f}",
                f"{one['disk_bytes_per_item']:,.0f}",
            ]
        )
    heads = ["items", "bulk rows/s", "vectors", "words", "recall", "p95", "recall, 1 % scope", "MB held", "bytes/item"]
    return "Milliseconds of CPU, p50:\n\n" + table(heads, rows)


def peers(found: dict) -> str:
    """Times as multiples of engrain's own in the same run: those hold on another machine, milliseconds do not."""
    ours = found["systems"]["engrain"]
    rows = []
    for name, one in found["systems"].items():
        search, add = (one[act]["wall_p50"] for act in ("search_ms", "add_one_ms"))
        own_search, own_add = (ours[act]["wall_p50"] for act in ("search_ms", "add_one_ms"))
        bulk = one["bulk_rows_per_second"] / ours["bulk_rows_per_second"]
        label = f"**{name}**" if name == "engrain" else f"{name} {one['version']}"
        rows.append(
            [label, f"{search / own_search:.2f} ×", f"{add / own_add:.2f} ×", f"{bulk:.2f} ×", SYNCS.get(name, "")]
        )
    heads = ["", "time of a search", "time to add one", "bulk rate", "fsyncs of one add"]
    title = f"In turns, {found['items']:,} items, given vectors, engrain = 1 ({own_search:.1f} ms, {own_add:.1f} ms, "
    return f"{title}{ours['bulk_rows_per_second']:,.0f} rows/s):\n\n" + table(heads, rows)


# Counted once with strace over twenty single adds.
SYNCS = {"engrain": "1", "chromadb": "8", "mem0": "8", "sqlite-vec": "1", "lancedb": "0", "lancedb hybrid": "0"}


def machine(facts: dict, what: str) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    return (
        f"{what}: {facts['cpu']}, {facts['cores']} cores, load {facts['load_before']} at the start, {facts['system']}, "
        f"Python {facts['python']}, SQLite {facts['sqlite']}, {packages}."
    )


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *["---"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
