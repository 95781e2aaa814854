"""Read notes from JSON Lines, and from what other memories and chats export."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import orjson

from engrain.core.errors import BadLine, BadText, EngrainError, InvalidInput, TooLarge
from engrain.core.foreign import Origin, entries, notes_of
from engrain.core.items import Source
from engrain.core.notes import Note, as_note, checked
from engrain.core.text import MAX_METADATA, MAX_TEXT
from engrain.lifecycle.exchange.lines import BOM, lines, value_of

# The largest text, with every character written as an escape of six, and room for the rest of a note.
MAX_LINE = 6 * (MAX_TEXT + MAX_METADATA) + 65_536
MAX_DOCUMENT = 1 << 29
HINT = 'Notes are one JSON object a line, such as {"text": "…"}.'


@dataclass(frozen=True, slots=True)
class Read:
    """`notes` have request ids made from their content, so that repeating an import adds nothing. `bad` lines are
    numbered from 1; of a document that is a list, its entries are."""

    notes: list[Note] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)


def notes_in(file: BinaryIO, source: str | None) -> Read:
    """One note a line: {"text": …} or a whole Note."""
    found = Read()
    seen: Counter[str] = Counter()
    for number, raw in lines(file, MAX_LINE):
        try:
            if raw is None or raw.strip():
                value = value_of(raw, MAX_LINE)
                digest = _digest([value, source])
                seen[digest] += 1
                found.notes.append(replace(_note(value, source), request_id=f"import-{digest}-{seen[digest]}"))
        except EngrainError as exc:
            hint = f" {HINT}" if number == 1 and not (raw or b"{").lstrip().startswith(b"{") else ""
            found.bad.append(BadLine(number, type(exc).__name__, f"{exc}{hint}"))
    return found


def entries_in(value: object, origin: Origin) -> Read:
    found = Read()
    for number, entry in enumerate(entries(value, origin), 1):
        try:
            found.notes.extend(notes_of(entry, origin))
        except EngrainError as exc:
            found.bad.append(BadLine(number, type(exc).__name__, str(exc)))
    return found


def document(file: BinaryIO) -> object:
    """The whole file as one JSON value."""
    raw = file.read(MAX_DOCUMENT + 1)
    if len(raw) > MAX_DOCUMENT:
        raise TooLarge(f"the file has more than {MAX_DOCUMENT:,} bytes.")
    try:
        return orjson.loads(raw.removeprefix(BOM))
    except orjson.JSONDecodeError as exc:
        kind = BadText if "surrogate" in exc.msg or "UTF-8" in exc.msg else InvalidInput
        cut = " It may have been cut off." if exc.pos >= len(exc.doc) else ""
        raise kind(f"the file is not JSON: {exc.msg}, line {exc.lineno}.{cut}") from exc


def _note(value: object, source: str | None) -> Note:
    note = as_note(value)
    if note.source is None:
        note = replace(note, source=Source(source, "import"))
    return replace(checked(note), derived=True)


def _digest(value: object) -> str:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
