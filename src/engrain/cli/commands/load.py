"""The command that brings a file into the memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import click

from engrain.cli.command import verb
from engrain.cli.context import Session
from engrain.cli.output import faint, many, progress, safe
from engrain.core.errors import BadFile, BadLine

if TYPE_CHECKING:
    from engrain.transfer.load import LoadResult

SHOWN = 20
ORIGINS = ("engrain", "notes", "mem0", "chatgpt", "claude")
READ = {"engrain": ("row",), "notes": ("note",), "mem0": ("memory", "memories")}
MEANING = {
    "added": "new",
    "repeated": "known already",
    "replaced": "replaced an older value",
    "behind": "older than what their slot holds",
    "kept_out": "kept out, as forgotten or erased here",
}


@verb(
    "load",
    examples=(
        "engrain load ana.jsonl --dry-run",
        "engrain load notes.jsonl --skip-bad --source support-chat",
        "engrain load chatgpt-export.zip --facts",
        "engrain load conversations.json --from claude --skip-bad",
        """echo '{"text": "Ana likes tea.", "importance": 0.7}' | engrain load -""",
    ),
    prints="How many were new, known already or kept out; each bad line with its number and what is wrong with it.",
)
@click.argument("file", type=click.File("rb"), metavar="FILE|-")
@click.option("--from", "form", type=click.Choice(ORIGINS), help="What the file is, if it does not show by itself.")
@click.option("--dry-run", is_flag=True, help="Prove the file and say what would come of it; write nothing.")
@click.option("--skip-bad", is_flag=True, help="Of notes and chats: write the good ones even if others are bad.")
@click.option("--facts", is_flag=True, help="Of chats: keep the facts, too, that the user told about themselves.")
@click.option("--source", metavar="NAME", help="The source of notes that name none.")
@click.option("--other-scope", is_flag=True, help="Take the export of another user, agent or tenant, or of several.")
def load(cli: Session, file: BinaryIO, dry_run: bool, **terms: object) -> None:
    """Bring in an export, notes, or what another memory or chat exported.

    An export of engrain comes back item for item. Notes are JSON Lines: each line is {"text": …} or a whole note: text,
    importance, slot, metadata, source, occurred_at, place {session, number, speaker, role}, relation {subject,
    relation, object}. mem0's list is known too, and what ChatGPT and Claude give to download. All lines are checked
    first: if one is bad, nothing is written. The same file again adds only what is new. What was forgotten stays
    forgotten.
    """
    # What would come into a store that is not there yet is seen in one that leaves nothing behind.
    where = replace(cli, store=":memory:") if dry_run and not cli.exists() else cli
    total = _total(file)
    try:
        with where.memory(makes=True) as memory, progress("Loading", total, cli.json) as done:
            loaded = memory.load(file, dry_run=dry_run, progress=done, **terms)  # type: ignore[arg-type]
    except BadFile as wrong:
        bad = wrong.lines
        cli.answer({"written": False, "bad": bad}, lambda: (*_bad(bad), _refused(len(bad), total is not None)))
        click.get_current_context().exit(1)
    cli.answer(loaded, lambda: _report(loaded))


def _total(file: BinaryIO) -> int | None:
    """How much there is to do where the file shows it: an export tells its rows, of which items get vectors too."""
    if not file.seekable():
        return None
    first = file.readline(65_536)
    file.seek(0)
    try:
        rows = json.loads(first)["rows"]
        return int(sum(rows.values()) + rows.get("item", 0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _report(loaded: LoadResult) -> Iterator[str]:
    yield from _bad(loaded.bad)
    if lines := loaded.kept_out_lines:
        more = f" and {many(len(lines) - SHOWN, 'other')}; --json lists all" if len(lines) > SHOWN else ""
        yield faint(f"kept out: line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:SHOWN]))}{more}")
    counts = [(count, MEANING[name]) for name in MEANING if (count := getattr(loaded, name))]
    unit = READ.get(loaded.form, ("message",))
    skipped = f"; {many(len(loaded.bad), 'bad line')} skipped" if loaded.bad else ""
    form = "" if loaded.form in ("engrain", "notes") else f" from {loaded.form}"
    if counts and not (loaded.added or loaded.replaced or loaded.behind):
        opening = f"Nothing {'was' if loaded.written else 'would be'} loaded{form}"
        (first, meaning), *counts = counts
        parts = [f"{many(first, *unit)} {meaning}"]
    else:
        opening = f"{'Loaded' if loaded.written else 'Would load'} {many(loaded.read, *unit)}{form}"
        parts = []
    parts += [f"{count:,} {meaning}" for count, meaning in counts]
    parts += [f"{many(loaded.facts, 'fact')} drawn from them"] if loaded.facts else []
    yield f"{opening}: {', '.join(parts) or 'nothing to do'}{skipped}."


def _bad(lines: Sequence[BadLine]) -> Iterator[str]:
    for one in lines[:SHOWN]:
        yield f"{click.style(f'line {one.line}', fg='red')}: {safe(one.message)}"
    if len(lines) > SHOWN:
        yield faint(f"… and {many(len(lines) - SHOWN, 'bad line')} more; --json lists all.")


def _refused(count: int, export: bool) -> str:
    advice = (
        "An export is loaded whole or not at all: take the file as it was written, or export it anew."
        if export
        else "Mend them, or add --skip-bad to write the others."
    )
    return f"Nothing was written: {many(count, 'bad line')}. {advice}"
