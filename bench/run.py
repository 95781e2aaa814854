"""Compare engrain with other systems: `python bench/run.py recall FOLDER…` and `python bench/run.py speed`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import orjson
from harness.compare import System
from harness.machine import facts
from rich.console import Console

from engrain.cli.output import show_progress

Report = dict[str, Any]

json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else.")
plot_option = click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this SVG.")
out_option = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON here as well.")
peers_option = click.option("--peers", is_flag=True, help="Next to other systems; first: make bench PEERS=1.")


@click.group()
def main() -> None:
    """Measure recall and speed on this machine, next to other systems."""


@main.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@peers_option
@json_option
@out_option
@plot_option
def recall(folders: tuple[Path, ...], peers: bool, as_json: bool, out: Path | None, plot: Path | None) -> None:
    """Ask the questions of FOLDERS of engrain, of simple baselines and, with --peers, of other systems.

    \b
    Example:
      python bench/run.py recall ~/data/locomo-dev --peers --plot recall.svg
    """
    from harness.compare import compare_recall
    from harness.show import comparison_tables
    from harness.svg import recall_plot
    from harness.targets import recall_targets

    from engrain.bench.recall import read_folder
    from engrain.config import Settings
    from engrain.factory import open_embedder

    read = [read_folder(folder) for folder in folders]
    with show_progress("", None) as progress:
        embedder = open_embedder(Settings())
        report = compare_recall(read, embedder, lambda place: open_others(place, peers), progress)
    report |= {"machine": facts(), "targets": recall_targets(report)}
    write_report(report, comparison_tables, as_json=as_json, out=out)
    if plot:
        plot.write_text(recall_plot(report), encoding="utf-8")


@contextmanager
def open_others(place: Path, peers: bool) -> Iterator[Sequence[System]]:
    from harness.baselines import baselines
    from harness.peers import open_peers

    if peers:
        with open_peers(place) as opened:
            yield [*baselines(), *opened]
    else:
        yield baselines()


@main.command()
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
      python bench/run.py speed
      python bench/run.py speed --items 1000,10000 --peers
    """
    from harness.show import speed_tables
    from harness.speed import MILLION, run_speed
    from harness.svg import speed_plot

    sizes = parse_sizes(items) + ([MILLION] if million else [])
    with show_progress("", None) as step:
        report = run_speed(sizes, short=short or max(sizes) < 1_000, peers=peers, stage=lambda name: step(name, 0, 0))
    write_report(report, speed_tables, as_json=as_json, out=out)
    if plot:
        plot.write_text(speed_plot(report), encoding="utf-8")


def parse_sizes(items: str) -> list[int]:
    try:
        sizes = sorted({int(part) for part in items.replace("_", "").split(",")})
    except ValueError as exc:
        raise click.UsageError(f"--items takes numbers such as 1000,10000, not {items!r}.") from exc
    if sizes[0] < 1:
        raise click.UsageError("--items must be at least 1.")
    return sizes


def write_report(report: Report, tables: Callable[[Report], Any], *, as_json: bool, out: Path | None) -> None:
    from harness.show import machine_line

    text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    if as_json:
        click.echo(text, nl=False)
        return
    console = Console()
    console.print(tables(report))
    console.print(machine_line(report))


if __name__ == "__main__":
    main()
