"""Read notes from JSON Lines, line by line, and cut them into writes that are safe to repeat."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

import orjson

from engrain.core.errors import BadText, EngrainError, InvalidInput, TooLarge
from engrain.core.items import Source
from engrain.core.notes import Note, as_note, checked
from engrain.core.text import MAX_METADATA, MAX_TEXT

# The largest text, with every character written as an escape of six, and room for the rest of a note.
MAX_LINE = 6 * (MAX_TEXT + MAX_METADATA) + 65_536


class BadLine(NamedTuple):
    line: int
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """`notes` have request ids made from their content, so that repeating an import adds nothing."""

    notes: list[Note]
    bad: list[BadLine]


def read(file: BinaryIO, source: str | None, done: Callable[[int], None]) -> Loaded:
    loaded = Loaded([], [])
    seen: Counter[str] = Counter()
    for number, raw in _lines(file):
        try:
            if raw is None:
                raise TooLarge(f"the line has more than {MAX_LINE:,} bytes. Split its text and store the parts.")
            if raw.strip():
                value = _value(raw)
                digest = _digest([value, source])
                seen[digest] += 1
                loaded.notes.append(replace(_note(value, source), request_id=f"import-{digest}-{seen[digest]}"))
                done(1)
        except EngrainError as exc:
            loaded.bad.append(BadLine(number, type(exc).__name__, str(exc)))
    return loaded


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Each line with its number; None for one that is too long, whose rest is read and dropped."""
    number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if len(raw) <= MAX_LINE or raw.endswith(b"\n"):
            yield number, raw
            continue
        while rest := file.readline(MAX_LINE):
            if rest.endswith(b"\n"):
                break
        yield number, None


def _value(raw: bytes) -> object:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadText(f"not UTF-8: byte {exc.start + 1} of the line is 0x{raw[exc.start]:02x}.") from exc
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        kind = BadText if "surrogate" in exc.msg else InvalidInput
        raise kind(f"not JSON: {exc.msg}, at character {exc.pos + 1}.") from exc


def _note(value: object, source: str | None) -> Note:
    note = as_note(value)
    if note.source is None:
        note = replace(note, source=Source(source, "import"))
    return replace(checked(note), derived=True)


def _digest(value: object) -> str:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
