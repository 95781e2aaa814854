"""The commands `engrain bench recall` and `engrain bench speed`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Report = dict[str, Any]

json_option = click.option("--json", "as_json", is_flag=True, help="The report as JSON, and nothing else.")
plot_option = click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this SVG file."
)
out_option = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON here as well.")
peers_option = click.option("--peers", is_flag=True, help="Next to others; first: make bench PEERS=1.")


@click.group()
def bench() -> None:
    """Measure quality of recall, and speed, on this machine.

    \b
    Examples:
      engrain bench speed --items 1000,10000
      engrain bench recall ~/data/locomo-dev
    """


@bench.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@peers_option
@json_option
@out_option
@plot_option
def recall(folders: tuple[Path, ...], peers: bool, as_json: bool, out: Path | None, plot: Path | None) -> None:
    """Ask the questions of FOLDERS through the public recall, and say how much of the evidence comes back.

    A folder holds docs.jsonl.gz (space, id, session, turn, ts, speaker, role, text, caption) and questions.jsonl.gz
    (space, id, question, category, gold). Each space is a memory of its own.

    \b
    Examples:
      engrain bench recall ~/data/locomo-dev ~/data/beam100K-dev
      engrain bench recall ~/data/locomo-dev --peers --plot recall.svg
    """
    from harness.svg import recall_plot
    from harness.targets import recall_targets

    from engrain.bench.folders import read_folder
    from engrain.bench.recall import run_recall
    from engrain.bench.show import recall_tables
    from engrain.config import Settings
    from engrain.factory import open_embedder

    read = [read_folder(folder) for folder in folders]
    with _steps() as step:
        report = run_recall(read, open_embedder(Settings()), peers=peers, progress=step)
    report["targets"] = recall_targets(report)
    _give(report, recall_tables, as_json=as_json, out=out)
    if plot:
        plot.write_text(recall_plot(report), encoding="utf-8")


@bench.command()
@click.option("--items", default="1000,10000,100000", show_default=True, help="How many items, one run for each.")
@click.option("--million", is_flag=True, help="A run with a million items as well; takes 5 GB of disk for a while.")
@click.option("--short", is_flag=True, help="Few repeats: to see that it runs. Taken for granted below 1,000 items.")
@peers_option
@json_option
@out_option
@plot_option
def speed(
    items: str, million: bool, short: bool, peers: bool, as_json: bool, out: Path | None, plot: Path | None
) -> None:
    """Time writing, each arm of recall, the start, memory and disk, with made-up texts and a fixed seed.

    \b
    Examples:
      engrain bench speed
      engrain bench speed --items 1000,10000 --peers
    """
    from harness.speed import MILLION, run_speed
    from harness.svg import speed_plot

    from engrain.bench.show import speed_tables

    sizes = _sizes(items) + ([MILLION] if million else [])
    with _steps() as step:
        report = run_speed(sizes, short=short or max(sizes) < 1_000, peers=peers, stage=lambda name: step(name, 0, 0))
    _give(report, speed_tables, as_json=as_json, out=out)
    if plot:
        plot.write_text(speed_plot(report), encoding="utf-8")


def _sizes(items: str) -> list[int]:
    try:
        sizes = sorted({int(part) for part in items.replace("_", "").split(",")})
    except ValueError as exc:
        raise click.UsageError(f"--items takes numbers such as 1000,10000, not {items!r}.") from exc
    if sizes[0] < 1:
        raise click.UsageError("--items must be at least 1.")
    return sizes


def _give(report: Report, tables: Callable[[Report], Any], *, as_json: bool, out: Path | None) -> None:
    from engrain.bench.show import machine_line

    text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    if as_json:
        click.echo(text, nl=False)
        return
    console = Console()
    console.print(tables(report))
    console.print(machine_line(report))


@contextmanager
def _steps() -> Iterator[Callable[[str, int, int], None]]:
    """One line that moves, on stderr: what is done now, and how far it is where that is known."""
    shown = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task("starting", total=None)

        def step(name: str, done: int, total: int) -> None:
            progress.update(line, description=name, completed=done, total=total or None)

        yield step
