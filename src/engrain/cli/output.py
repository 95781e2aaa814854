"""Format values as lines for people, safe for a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from engrain.core.text.invisible import escape_invisible, escape_invisible_json
from engrain.core.validation import to_plain

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.core.model.results import Progress

MAX_TEXT_CHARACTERS = 600
INDENT = "  "


def escape(text: str) -> str:
    """Show the characters that nobody sees: stored text must not move the cursor, colour the screen or hide words."""
    return escape_invisible(text.replace("\r", "\\r"))


def dim(text: str) -> str:
    return click.style(text, dim=True)


def bold(text: str) -> str:
    return click.style(text, bold=True)


def terminal_width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 100))


def wrap(text: str, indent: str = "", limit: int | None = MAX_TEXT_CHARACTERS, see: str = "--json") -> Iterator[str]:
    """Wrap the text at the terminal's width. A long text is cut, with a note on which option lets you `see` it all."""
    cut = text if limit is None or len(text) <= limit else text[:limit].rstrip() + " …"
    for paragraph in escape(cut).split("\n"):
        lines = textwrap.wrap(
            paragraph, terminal_width() - len(indent), break_on_hyphens=False, replace_whitespace=False
        )
        yield from (indent + line for line in lines or [""])
    if cut is not text:
        yield dim(f"{indent}({len(text) - len(cut) + 2:,} more characters: {see} shows them)")


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def print_error(message: str, color: bool | None = None) -> None:
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {escape(message)}", err=True, color=color)


def format_item(item: Item, *, full: bool = False, see: str = "--json") -> Iterator[str]:
    yield from wrap(item.text, limit=None if full else MAX_TEXT_CHARACTERS, see=see)
    yield from map(dim, wrap(format_details(item, full=full), INDENT))


def format_details(item: Item, *, full: bool = False) -> str:
    """The id and the properties of an item. Metadata that engrain keeps for itself appears only in JSON."""
    return " · ".join([item.id, *_properties(item), *_metadata(item, full)])


def format_day(when: datetime) -> str:
    return f"{when:%Y-%m-%d}"


def _properties(item: Item) -> Iterator[str]:
    yield format_day(item.occurred_at or item.recorded_at)
    if item.slot:
        yield f"slot {item.slot}"
    if item.session:
        speaker = item.speaker or item.role
        yield f"{speaker + ' in ' if speaker else ''}{item.session} #{item.place}"
    if item.source:
        yield f"from {item.source}"
    if item.importance != 0.5:
        yield f"importance {item.importance:.2f}"
    if item.pinned:
        yield "pinned"
    if item.retracted_at:
        yield f"corrected {format_day(item.retracted_at)}"
    elif item.valid_to:
        yield f"until {format_day(item.valid_to)}"


def _metadata(item: Item, full: bool) -> Iterator[str]:
    from engrain.core.model.items import FOUND_BY, RESERVED_KEY

    for key, value in item.metadata.items():
        internal = key == RESERVED_KEY or item.kind == "summary" or (not full and (key, value) in FOUND_BY)
        if not internal:
            yield f"{key}={value}"


def format_table(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Names on the left, values on the right."""
    left = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        yield f"{dim(name.ljust(left))}  {escape(value)}"


def format_bytes(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{count:,} bytes" if unit == "bytes" else f"{amount:,.1f} {unit}"


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted name, text)."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ("no", "yes")[value] if isinstance(value, bool) else str(value)


def to_json(value: Any, indent: bool = True) -> bytes:
    import orjson

    plain = orjson.dumps(to_plain(value), option=orjson.OPT_INDENT_2 if indent else None)
    return escape_invisible_json(plain.decode()).encode()


def to_json_line(value: Any) -> bytes:
    return to_json(value, indent=False)


@contextmanager
def show_progress(label: str, total: int | None, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar on the terminal while the block runs; yields the callback for the verb's `progress`.

    An empty label shows the stage instead.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda stage, done, whole: None
        return
    from rich import progress as bars
    from rich.console import Console

    name = bars.TextColumn("{task.description}")
    columns = (name, bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def update(stage: str, done: int, whole: int | None) -> None:
            bar.update(task, description=label or stage, completed=done, total=total if whole is None else whole)

        yield update
