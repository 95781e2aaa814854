"""The command that writes a memory to a file."""

from __future__ import annotations

from typing import Literal

import click

from engrain.cli.progress import progress
from engrain.cli.session import Session
from engrain.cli.shown import safe
from engrain.cli.verbs import verb


@verb(
    "export",
    examples=(
        "engrain export ana.jsonl --user ana",
        "engrain export ana.md --format markdown",
        "engrain export whole.jsonl --vectors --overwrite",
    ),
    prints="How many lines of each kind were written, and the hash of them all.",
)
@click.argument("path", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "markdown"]),
    default="jsonl",
    help="jsonl, which `engrain load` reads (default); markdown, for people.",
)
@click.option("--vectors", is_flag=True, help="With the vectors, so that a load need not make them again.")
@click.option("--overwrite", is_flag=True, help="Take the place of a file that is there.")
def export(cli: Session, path: str, form: Literal["jsonl", "markdown"], vectors: bool, overwrite: bool) -> None:
    """Write all that this memory holds to a file.

    Facts and their versions, what was said, episodes, procedures and how they turned out, tasks and their steps; with
    ids, times, sources and trust. Only you can read the file. The same memory gives the same bytes.
    """
    with cli.memory() as memory, progress("Exporting", None, cli.json) as done:
        exported = memory.export(path, form=form, vectors=vectors, overwrite=overwrite, progress=done)
    told = f"; hash {exported.hash}" if exported.hash else ""
    cli.answer(exported, lambda: [f"Wrote {exported} to {safe(path)}{told}."])
