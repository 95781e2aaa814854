"""The command `engrain bench recall`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@click.group()
def bench() -> None:
    """Measure the quality of recall on your own data.

    \b
    Example:
      engrain bench recall ~/data/my-questions
    """


@bench.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON to this file as well.")
def recall(folders: tuple[Path, ...], as_json: bool, out: Path | None) -> None:
    """Ask the questions of FOLDERS through recall and score the evidence that comes back.

    A folder holds docs.jsonl.gz (space, id, session, turn, ts, speaker, role, text, caption) and questions.jsonl.gz
    (space, id, question, category, gold). Each space becomes a memory of its own.

    \b
    Examples:
      engrain bench recall ~/data/my-questions
      engrain bench recall ~/data/my-questions --json --out report.json
    """
    from engrain.bench.folders import read_folder
    from engrain.bench.recall import run_recall
    from engrain.bench.show import recall_tables
    from engrain.config import Settings
    from engrain.factory import open_embedder

    read = [read_folder(folder) for folder in folders]
    with show_progress() as progress:
        report = run_recall(read, open_embedder(Settings()), progress=progress)
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    if as_json:
        click.echo(text, nl=False)
    else:
        Console().print(recall_tables(report))


@contextmanager
def show_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show one moving line on stderr: the present stage, and how far it is where that is known."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task("starting", total=None)

        def update(stage: str, done: int, total: int) -> None:
            progress.update(line, description=stage, completed=done, total=total or None)

        yield update
