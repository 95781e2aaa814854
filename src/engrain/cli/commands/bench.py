"""The command `engrain bench recall`, and its report as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from engrain.cli.output import show_progress

if TYPE_CHECKING:
    from engrain.core.model.recall import Effort

Report = Mapping[str, Any]
MEASURES = {
    "r5": "R@5", "r10": "R@10", "ndcg10": "NDCG@10", "mrr": "MRR", "rb1000": "RB1000", "rb1000_whole": "whole",
    "kept1000": "kept",
}  # fmt: skip


@click.group()
def bench() -> None:
    """Measure recall quality on your own data.

    \b
    Example:
      engrain bench recall ~/data/my-questions
    """


@bench.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--effort", type=click.Choice(["quick", "thorough"]), default="quick", show_default=True,
              help="As in `engrain recall`.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the JSON to this file.")
def recall(folders: tuple[Path, ...], effort: Effort, as_json: bool, out: Path | None) -> None:
    """Ask the questions of FOLDERS and score the documents that recall returns.

    A folder has docs.jsonl.gz (space, id, session, turn, ts, speaker, role, text, caption) and questions.jsonl.gz
    (space, id, question, category, gold). Each space becomes a separate memory.

    \b
    Examples:
      engrain bench recall ~/data/my-questions
      engrain bench recall ~/data/my-questions --json --out report.json
    """
    from engrain.bench.recall import read_folder, run_recall
    from engrain.config import Settings
    from engrain.factory import open_embedder

    read = [read_folder(folder) for folder in folders]
    with show_progress("", None, as_json) as progress:
        report = run_recall(read, open_embedder(Settings()), effort=effort, progress=progress)
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    if as_json:
        click.echo(text, nl=False)
    else:
        Console().print(format_report(report))


def format_report(report: Report) -> RenderableType:
    parts: list[RenderableType] = []
    for name, folder in report["folders"].items():
        parts.append(_format_systems(name, folder))
        parts += [_format_categories(name, folder), _format_floor(folder), Text()]
    return Group(*parts)


def _format_systems(name: str, folder: Report) -> Table:
    title = f"{name}: {folder['items']:,} items, {folder['with_gold']:,} questions with known answers"
    table = new_table(title, "", *MEASURES.values())
    for system, found in folder["systems"].items():
        style = "bold" if system == "engrain" else ""
        table.add_row(system, *(f"{found['all'][key]:.3f}" for key in MEASURES), style=style)
    return table


def _format_categories(name: str, folder: Report) -> Table:
    table = new_table(f"{name}: engrain by category of question", "", "questions", *MEASURES.values())
    for category, found in folder["systems"]["engrain"]["categories"].items():
        table.add_row(category, str(found["questions"]), *(f"{found[key]:.3f}" for key in MEASURES))
    return table


def _format_floor(folder: Report) -> Text:
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
