"""Render a recall report as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Report = Mapping[str, Any]
MEASURES = {"r5": "R@5", "r10": "R@10", "ndcg10": "NDCG@10", "mrr": "MRR", "rb1000": "RB1000", "rb1000_whole": "whole"}


def recall_tables(report: Report) -> RenderableType:
    parts: list[RenderableType] = []
    for name, folder in report["folders"].items():
        parts.append(_systems(name, folder))
        if folder["engrain_minus"]:
            parts.append(_leads(name, folder))
        parts += [_categories(name, folder), _floor(folder), Text()]
    return Group(*parts)


def _systems(name: str, folder: Report) -> Table:
    title = f"{name}: {folder['items']:,} items, {folder['with_gold']:,} questions with gold"
    table = new_table(title, "", *MEASURES.values())
    for system, found in folder["systems"].items():
        style = "bold" if system == "engrain" else ""
        table.add_row(system, *(f"{found['all'][key]:.3f}" for key in MEASURES), style=style)
    return table


def _leads(name: str, folder: Report) -> Table:
    table = new_table(f"{name}: engrain is ahead by (95 % interval)", "", "R@10", "RB1000")
    for system, lead in folder["engrain_minus"].items():
        table.add_row(system, _interval(lead["r10"]), _interval(lead["rb1000"]))
    return table


def _interval(lead: Report) -> str:
    return f"{lead['mean']:+.3f} [{lead['low']:+.3f}, {lead['high']:+.3f}]"


def _categories(name: str, folder: Report) -> Table:
    table = new_table(f"{name}: engrain by kind of question", "", "questions", *MEASURES.values())
    for category, found in folder["systems"]["engrain"]["categories"].items():
        table.add_row(category, str(found["questions"]), *(f"{found[key]:.3f}" for key in MEASURES))
    return table


def _floor(folder: Report) -> Text:
    floor = folder["floor"]
    cost = f"With the floor on: R@10 {-floor['cost_r10']:+.3f}"
    if floor["silenced_with_gold"] is not None:
        cost += f", nothing returned for {floor['silenced_with_gold']:.1%} of the questions that have an answer"
    if floor["returned_nothing"] is not None:
        cost += f", for {floor['returned_nothing']:.0%} of the {floor['without_gold']} that have none"
    return Text(cost + ".")


def new_table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table
