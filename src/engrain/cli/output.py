"""Lines for people: items and their like, safe for a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from engrain.core.progress import Progress
from engrain.core.validation import to_plain

if TYPE_CHECKING:
    from engrain.core.model.items import Item

LONGEST = 600
INDENT = "  "

# Stored text is data: it must not move the cursor, colour the screen or turn the reading direction.
_HARMLESS = {
    **{code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"},
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


# Metadata of ours: which part of engrain found a fact. Summaries have no other.
_FOUND_BY = (("by", "gate"), ("by", "model"))


def safe(text: str) -> str:
    return text.translate(_HARMLESS)


def width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 100))


def wrapped(text: str, indent: str = "", longest: int | None = LONGEST, whole: str = "--json") -> Iterator[str]:
    """The text at the terminal's width, its own line breaks kept; a long one is cut with a note of how much is left and
    of what shows it `whole`."""
    cut = text if longest is None or len(text) <= longest else text[:longest].rstrip() + " …"
    for paragraph in safe(cut).split("\n"):
        lines = textwrap.wrap(paragraph, width() - len(indent), break_on_hyphens=False, replace_whitespace=False)
        yield from (indent + line for line in lines or [""])
    if cut is not text:
        yield faint(f"{indent}({len(text) - len(cut) + 2:,} more characters: {whole} shows them)")


def faint(text: str) -> str:
    return click.style(text, dim=True)


def strong(text: str) -> str:
    return click.style(text, bold=True)


def item_lines(item: Item, *, full: bool = False, whole: str = "--json") -> Iterator[str]:
    """The text, and below it, fainter, its id and what there is to know; what engrain keeps for itself is in the JSON,
    and who found a fact where it is shown in full."""
    yield from wrapped(item.text, longest=None if full else LONGEST, whole=whole)
    yield from map(faint, wrapped(particulars(item, full=full), INDENT))


def particulars(item: Item, *, full: bool = False) -> str:
    return " · ".join([item.id, *_traits(item), *_metadata(item, full)])


def day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _traits(item: Item) -> Iterator[str]:
    yield day(item.occurred_at or item.recorded_at)
    if item.slot:
        yield f"slot {item.slot}"
    if item.session:
        who = item.speaker or item.role
        yield f"{who + ' in ' if who else ''}{item.session} #{item.place}"
    if item.source:
        yield f"from {item.source}"
    if item.importance != 0.5:
        yield f"importance {item.importance:.2f}"
    if item.pinned:
        yield "pinned"
    if item.retracted_at:
        yield f"corrected {day(item.retracted_at)}"
    elif item.valid_to:
        yield f"until {day(item.valid_to)}"


def _metadata(item: Item, full: bool) -> Iterator[str]:
    from engrain.core.model.items import RESERVED_KEY

    for key, value in item.metadata.items():
        ours = key == RESERVED_KEY or item.kind == "summary" or (not full and (key, value) in _FOUND_BY)
        if not ours:
            yield f"{key}={value}"


def table(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Names on the left, values on the right."""
    left = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        yield f"{faint(name.ljust(left))}  {safe(value)}"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{count:,} bytes" if unit == "bytes" else f"{amount:,.1f} {unit}"


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted name, text)."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ("no", "yes")[value] if isinstance(value, bool) else str(value)


def many(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def document(value: Any) -> bytes:
    import orjson

    return orjson.dumps(to_plain(value), option=orjson.OPT_INDENT_2)


def line(value: Any) -> bytes:
    import orjson

    return orjson.dumps(to_plain(value))


@contextmanager
def progress(label: str, total: int | None, quiet: bool = False) -> Iterator[Progress]:
    """A bar on the terminal; gives the function that the verbs tell how far they are."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, done, whole: None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.TextColumn(label), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total)

        def tell(stage: str, done: int, whole: int | None) -> None:
            shown.update(task, completed=done, total=total if whole is None else whole)

        yield tell
