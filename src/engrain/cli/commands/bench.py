"""Commands that measure recall: bench, and evaluate on your own sessions."""

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
    from engrain.bench.evaluate import Report
    from engrain.core.model.recall import Effort


Figures = Mapping[str, Any]
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


def format_report(report: Figures) -> RenderableType:
    parts: list[RenderableType] = []
    for name, folder in report["folders"].items():
        parts.append(_format_systems(name, folder))
        parts += [_format_categories(name, folder), _format_floor(folder), Text()]
    return Group(*parts)


def _format_systems(name: str, folder: Figures) -> Table:
    title = f"{name}: {folder['items']:,} items, {folder['with_gold']:,} questions with known answers"
    table = new_table(title, "", *MEASURES.values())
    for system, found in folder["systems"].items():
        style = "bold" if system == "engrain" else ""
        table.add_row(system, *(f"{found['all'][key]:.3f}" for key in MEASURES), style=style)
    return table


def _format_categories(name: str, folder: Figures) -> Table:
    table = new_table(f"{name}: engrain by category of question", "", "questions", *MEASURES.values())
    for category, found in folder["systems"]["engrain"]["categories"].items():
        table.add_row(category, str(found["questions"]), *(f"{found[key]:.3f}" for key in MEASURES))
    return table


def _format_floor(folder: Figures) -> Text:
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


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--misses", is_flag=True, help="List what went wrong.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def evaluate(files: tuple[Path, ...], misses: bool, as_json: bool) -> None:
    """Play scripts of sessions through a fresh memory, and score what it keeps, replaces, forgets and answers.

    A script is a file of JSON Lines, played from top to bottom:

    \b
      {"type": "message", "text": "we moved to Graz!",
       "keeps": [{"id": "city", "text": "we moved to Graz"}]}
      {"type": "question", "text": "Where do I live?",
       "answers": ["Graz"], "stale": ["Vienna"]}
      {"type": "profile", "true": ["Graz"], "false": ["Vienna"]}

    Your own store is not touched. docs/how-to/evaluate-a-memory.md describes every field.

    Prints: a table for each script, and one for all of them.

    \b
    Examples:
      engrain evaluate my-sessions.jsonl
      engrain evaluate my-sessions.jsonl --misses
      engrain evaluate sessions/*.jsonl --json > report.json
    """
    from engrain.bench.evaluate import add_reports, evaluate_files
    from engrain.config import Settings
    from engrain.factory import open_embedder

    with show_progress("", None, as_json) as progress:
        reports = evaluate_files(files, open_embedder(Settings()), progress=progress)
    if as_json:
        plain = {path: report.to_dict() for path, report in reports.items()}
        click.echo(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
        return
    for path, report in reports.items():
        Console().print(_format_report(path, report))
        if misses:
            _print_misses(report)
    if len(reports) > 1:
        Console().print(_format_report(f"all {len(reports)} scripts", add_reports(reports.values())))


def _format_report(path: str, report: Report) -> Table:
    from engrain.bench.evaluate import MEASURES

    table = new_table(path, "", " ", " ")
    table.add_column("should be", style="dim")
    for name, (label, wanted) in MEASURES.items():
        tally = getattr(report, name)
        if tally.of:
            share = f"{tally.right / tally.of:.2f}"
            table.add_row(label, f"{tally.right} of {tally.of}", share, "all" if wanted == "high" else "0")
    return table


def _print_misses(report: Report) -> None:
    from engrain.bench.evaluate import MEASURES

    for name, (_, wanted) in MEASURES.items():
        tally = getattr(report, name)
        for line in tally.misses if wanted == "high" else tally.hits:
            click.echo(f"{'not ' if wanted == 'high' else ''}{name}: {line}")
