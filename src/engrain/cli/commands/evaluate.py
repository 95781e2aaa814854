"""The command `engrain evaluate`: play a script through a fresh memory, and show how well it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson
from rich.console import Console
from rich.table import Table

from engrain.cli.output import show_progress

if TYPE_CHECKING:
    from engrain.bench.evaluate import Report

# measure: what the table says of it, and whether the count should be high or low
_MEASURES = {
    "kept": ("statements that became a fact", "high"),
    "clipped": ("facts that hold only a part of their statement", "low"),
    "false_facts": ("messages with nothing to keep that left a fact", "low"),
    "extra_facts": ("facts from parts of a message that nobody listed", "low"),
    "replaced": ("older facts that stopped being current", "high"),
    "forgotten": ("facts that are gone after a request to forget", "high"),
    "answers": ("questions with the answer in the prompt", "high"),
    "current": ("questions with no stale value first, in the prompt", "high"),
    "found": ("questions with the answer among the hits of recall", "high"),
    "fresh": ("questions with no stale value first, among the hits", "high"),
    "always": ("standing wishes in the prompt", "high"),
    "empty": ("questions about something else without a hit", "high"),
    "true_lines": ("lines that the profile or the facts should have", "high"),
    "false_lines": ("lines that they should not have", "low"),
    "repeats": ("hits that only repeat another hit", "low"),
    "repeated_lines": ("lines of the prompt that only repeat another line", "low"),
}


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
    table = Table(title=path, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", justify="right")
    table.add_column("should be", style="dim")
    for name, (label, wanted) in _MEASURES.items():
        tally = getattr(report, name)
        if tally.of:
            table.add_row(
                label,
                f"{tally.right} of {tally.of}",
                f"{tally.right / tally.of:.2f}",
                "all" if wanted == "high" else "0",
            )
    return table


def _print_misses(report: Report) -> None:
    for name, (_, wanted) in _MEASURES.items():
        tally = getattr(report, name)
        wrong = tally.misses if wanted == "high" else tally.hits
        for line in wrong:
            click.echo(f"{'not ' if wanted == 'high' else ''}{name}: {line}")
