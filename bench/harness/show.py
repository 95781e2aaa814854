"""Render targets, speed and the machine as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engrain.cli.commands.bench import format_report, new_table
from harness.targets import recall_targets

Report = Mapping[str, Any]


def comparison_tables(report: Report) -> RenderableType:
    leads = [_leads(name, folder) for name, folder in report["folders"].items() if folder["engrain_minus"]]
    return Group(format_report(report), *leads, targets_table(recall_targets(report)))


def _leads(name: str, folder: Report) -> Table:
    table = new_table(f"{name}: engrain is ahead by (95 % interval)", "", "R@10", "RB1000")
    for system, lead in folder["engrain_minus"].items():
        table.add_row(system, _interval(lead["r10"]), _interval(lead["rb1000"]))
    return table


def _interval(lead: Report) -> str:
    return f"{lead['mean']:+.3f} [{lead['low']:+.3f}, {lead['high']:+.3f}]"


def speed_tables(report: Report) -> RenderableType:
    parts: list[RenderableType] = [_sizes(report["sizes"]), Text()]
    if "peers" in report:
        parts += [_peers(report["peers"]), Text()]
    parts.append(targets_table(report["targets"]))
    return Group(*parts)


def targets_table(rows: Iterable[Report]) -> Table:
    table = new_table("Targets", "what", "target", "here", "", "")
    for row in rows:
        met = {True: Text("met", "green"), False: Text("missed", "bold red"), None: Text("–", "dim")}[row["met"]]
        table.add_row(row["what"], row["target"], row["figure"], met, Text(row["why"], "dim"))
    return table


def machine_line(report: Report) -> Text:
    facts = report["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    where = f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_before']}"
    return Text(f"{where} · Python {facts['python']}, SQLite {facts['sqlite']} · {packages}", "dim")


def _sizes(sizes: Report) -> Table:
    columns = ("bulk/s", "vectors", "words", "recall", "p95", "1 % scope", "cold s", "MB held", "B/item")
    table = new_table("By number of items in one scope (milliseconds of CPU, p50)", "items", *columns)
    for size, found in sizes.items():
        search, cold = found["search"], found.get("cold_recall")
        table.add_row(
            f"{int(size):,}",
            f"{found['bulk_rows_per_second']:,.0f}",
            *(f"{search[arm]['cpu_p50']:.2f}" for arm in ("vectors", "words", "recall")),
            f"{search['recall']['cpu_p95']:.2f}",
            f"{found['small_scope']['recall']['cpu_p50']:.2f}",
            f"{cold['seconds']:.2f}" if cold else "–",
            f"{found['memory_bytes']['store_and_search'] / 1e6:,.0f}",
            f"{found['disk_bytes_per_item']:,.0f}",
        )
    return table


def _peers(peers: Report) -> Table:
    title = f"In turns with the peers, {peers['items']:,} items, given vectors (milliseconds, wall, p50 and p95)"
    table = new_table(title, "", "version", "search", "p95", "add one", "p95", "bulk rows/s")
    for name, found in peers["systems"].items():
        figures = [found[act][f"wall_p{share}"] for act in ("search_ms", "add_one_ms") for share in (50, 95)]
        style = "bold" if name == "engrain" else ""
        times = (f"{figure:.2f}" for figure in figures)
        table.add_row(name, found.get("version", ""), *times, f"{found['bulk_rows_per_second']:,.0f}", style=style)
    return table
