"""Read notes from plain text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from engrain.core.errors import InvalidInput

TEXT_COLUMNS = ("text", "memory", "note", "fact", "content")
TIME_COLUMNS = ("occurred_at", "created_at", "date", "timestamp")
NUMBER_COLUMNS = ("importance",)
PLAIN_COLUMNS = ("slot", "source", "expires_at")
_DELIMITERS = ",;\t|"
_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*#*\s*$")
_ENTRY = re.compile(r"\s*(?:[-*+•]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?(.*)$")
_RULE = re.compile(r"\s*+(?>(?:[-*_|:]\s*+){3,})$")  # also the line below the head of a table
_FENCE = re.compile(r"\s*(```|~~~)")

NumberedNote = tuple[int, dict[str, Any]]  # the line, and the note as plain JSON


def read_text_notes(text: str) -> Iterator[NumberedNote]:
    """Yield a note for each line or list entry, with the heading above it as metadata `section`.

    Indented lines after a list entry belong to it. A fenced block is one note.
    """
    section, start = "", 0
    parts: list[str] = []
    fence = ""

    def finish() -> Iterator[NumberedNote]:
        note = "\n".join(parts) if fence else " ".join(part.strip() for part in parts)
        parts.clear()
        if note.strip():
            yield start, {"text": note, **({"metadata": {"section": section}} if section else {})}

    for number, line in enumerate(text.splitlines(), 1):
        if fence:
            parts.append(line)
            if line.strip().startswith(fence):
                yield from finish()
                fence = ""
            continue
        opened, heading, entry = _FENCE.match(line), _HEADING.match(line), _ENTRY.match(line)
        continues = parts and not entry and line[:1] in (" ", "\t") and line.strip()
        if continues and not opened:
            parts.append(line)
            continue
        yield from finish()
        start = number
        if opened:
            fence = opened[1]
            parts.append(line)
        elif heading:
            section = heading[1][:500]
        elif line.strip() and not _RULE.match(line):
            parts.append(entry[1] if entry else line)
    yield from finish()


def find_text_column(columns: list[str]) -> str | None:
    """Return the column that holds the text; None if there is only one column, or none of a known name."""
    known = {column.strip().lower(): column for column in columns}
    return next((known[name] for name in TEXT_COLUMNS if name in known and len(columns) > 1), None)


def read_csv_notes(text: str) -> Iterator[NumberedNote]:
    """Yield a note for each row. Columns without a meaning for engrain become metadata."""
    delimiter = _find_delimiter(text.partition("\n")[0])
    if not delimiter:
        raise InvalidInput(f"the first line of a CSV file names its columns, one of them {' or '.join(TEXT_COLUMNS)}.")
    # Lines end as CSV knows it: str.splitlines would also cut a row at marks inside a text, such as U+2028.
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restkey="")
    try:
        column = find_text_column(list(reader.fieldnames or []))
        for row in reader:
            yield reader.line_num, _build_row({name: value for name, value in row.items() if name}, str(column))
    except csv.Error as exc:
        hint = " Load such a text as JSON Lines." if "field limit" in str(exc) else ""
        raise InvalidInput(f"the CSV file cannot be read after line {reader.line_num:,}: {exc}.{hint}") from exc


def _find_delimiter(head: str) -> str:
    for mark in _DELIMITERS:
        try:
            columns = next(csv.reader([head], delimiter=mark), [])
        except csv.Error:
            continue  # a name is longer than any CSV file has
        if find_text_column(columns):
            return mark
    return ""


def _build_row(row: dict[str, str | None], column: str) -> dict[str, Any]:
    note: dict[str, Any] = {"text": row.pop(column) or ""}
    metadata: dict[str, str] = {}
    for name, value in row.items():
        key = name.strip().lower()
        if not value or not value.strip():
            continue
        if key in TIME_COLUMNS and "occurred_at" not in note:
            note["occurred_at"] = value.strip()
        elif key in NUMBER_COLUMNS:
            note[key] = _read_number(value, key)
        elif key in PLAIN_COLUMNS:
            note[key] = value.strip()
        else:
            metadata[name.strip()] = value
    return {**note, **({"metadata": metadata} if metadata else {})}


def _read_number(value: str, key: str) -> float:
    try:
        return float(value)
    except ValueError as exc:
        raise InvalidInput(f"{key} must be a number, not {value!r:.80}.") from exc
