"""The command that reads many texts from JSON Lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import click

from engrain.cli.jsonl import BadLine, Loaded, read
from engrain.cli.progress import progress
from engrain.cli.session import Session
from engrain.cli.shown import faint, many, safe
from engrain.cli.verbs import verb

if TYPE_CHECKING:
    from engrain.core.plans import Outcome
    from engrain.memory import Memory

SHOWN = 20
MEANING = {
    "added": "new",
    "repeated": "known already",
    "replaced": "replaced an older value",
    "behind": "older than what their slot holds",
    "kept_out": "kept out, because they were forgotten here",
}


@verb(
    "import",
    examples=(
        "engrain import notes.jsonl",
        "engrain import chat.jsonl --skip-bad --source support-chat",
        """echo '{"text": "Ana likes tea.", "importance": 0.7}' | engrain import -""",
    ),
    prints="How many were new, known already or kept out; each bad line with its number and what is wrong with it.",
)
@click.argument("file", type=click.File("rb"), metavar="FILE.jsonl|-")
@click.option("--skip-bad", is_flag=True, help="Write the good lines even if others are bad.")
@click.option("--source", metavar="NAME", help="The source of lines that name none.")
def load(cli: Session, file: BinaryIO, skip_bad: bool, source: str | None) -> None:
    """Keep many texts from a JSON Lines file.

    Each line is {"text": …} or a whole note: text, importance, slot, metadata, source, occurred_at, place {session,
    number, speaker, role}, relation {subject, relation, object}. All lines are checked first: if one is bad, nothing is
    written. The same file again, or the same file grown, adds only what is new. What was forgotten stays forgotten.
    """
    with progress("Reading", None, cli.json) as done:
        loaded = read(file, source, done)
    outcomes: list[Outcome] = []
    if loaded.notes and (skip_bad or not loaded.bad):
        with cli.memory(makes=True) as memory:
            outcomes = _written(memory, loaded, cli.json)
    counts: Counter[str] = Counter(one.status for one in outcomes)
    failed = bool(loaded.bad) and not skip_bad
    answer = {"read": len(loaded.notes) + len(loaded.bad), "bad": loaded.bad, "written": not failed}
    cli.answer(answer | {key: counts[key] for key in MEANING}, lambda: _report(counts, loaded.bad, failed))
    if failed:
        click.get_current_context().exit(1)


PART = 2_048  # so that an interrupted import can say how far it came


def _written(memory: Memory, loaded: Loaded, quiet: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        with progress("Importing", len(loaded.notes), quiet) as done:
            for start in range(0, len(loaded.notes), PART):
                outcomes += memory.remember_many(loaded.notes[start : start + PART], progress=done)
    except KeyboardInterrupt:
        click.echo(
            f"{len(outcomes):,} of {len(loaded.notes):,} notes are written. Repeat the import to go on.", err=True
        )
        raise
    return outcomes


def _report(counts: Counter[str], bad: Sequence[BadLine], failed: bool) -> Iterator[str]:
    for one in bad[:SHOWN]:
        yield f"{click.style(f'line {one.line}', fg='red')}: {safe(one.message)}"
    if len(bad) > SHOWN:
        yield faint(f"… and {many(len(bad) - SHOWN, 'bad line')} more; --json lists all.")
    if failed:
        yield f"Nothing was written: {many(len(bad), 'bad line')}. Mend them, or add --skip-bad to write the rest."
        return
    parts = [f"{counts[status]:,} {meaning}" for status, meaning in MEANING.items() if counts[status]]
    skipped = f"; {many(len(bad), 'bad line')} skipped" if bad else ""
    yield f"Imported {many(sum(counts.values()), 'note')}: {', '.join(parts) or 'nothing to do'}{skipped}."
