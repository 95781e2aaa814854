"""Read an export whole, prove every line of it, and restore what is missing here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import BinaryIO, NamedTuple

import orjson

from engrain.core.clock import to_micros
from engrain.core.errors import BadFile, BadLine, BadText, EngrainError, InvalidInput, TooLarge
from engrain.core.formats.consistency import check_rows
from engrain.core.formats.jsonl import EXPORTED_KINDS, line_to_row
from engrain.core.formats.manifests import LineSums, Manifest, is_manifest, read_manifest
from engrain.core.identity import Scope
from engrain.core.model.rows import Key, Row
from engrain.ports import Services

BOM = b"\xef\xbb\xbf"


class RawLine(NamedTuple):
    """A line; `raw` is None if it was too long, and its rest was dropped."""

    number: int
    raw: bytes | None


def read_lines(file: BinaryIO, limit: int) -> Iterator[RawLine]:
    """Each with the line end that engrain writes, whatever an editor or a transfer has made of it."""
    number = 0
    while raw := file.readline(limit + 1):
        number += 1
        if number == 1:
            raw = raw.removeprefix(BOM)
        if len(raw) <= limit or raw.endswith(b"\n"):
            yield RawLine(number, raw.rstrip(b"\r\n") + b"\n")
            continue
        while rest := file.readline(limit):
            if rest.endswith(b"\n"):
                break
        yield RawLine(number, None)


def parse_line(raw: bytes | None, limit: int) -> object:
    """The JSON of a line."""
    if raw is None:
        raise TooLarge(f"the line has more than {limit:,} bytes. Split its text and store the parts.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadText(f"not UTF-8: byte {exc.start + 1} of the line is 0x{raw[exc.start]:02x}.") from exc
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        kind = BadText if "surrogate" in exc.msg else InvalidInput
        raise kind(f"not JSON: {exc.msg}, at character {exc.pos + 1}.") from exc


MAX_LINE_BYTES = 64_000_000  # a recorded result is at most 16 MB, and escaped a few times that
MAX_FILE_BYTES = 1 << 30
MAX_BAD_LINES = 1_000  # more say no more
# A clock may be ahead by that much.
MAX_CLOCK_SKEW = timedelta(days=1)

Done = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class VerifiedExport:
    """An export whose every line is good."""

    manifest: Manifest
    rows: Sequence[Row] = ()


def verify_export(file: BinaryIO, scope: Scope, services: Services, done: Done) -> VerifiedExport:
    """BadFile says of every line what is wrong with it; then nothing is written."""
    reading = _ExportReader(scope)
    for given in read_lines(file, MAX_LINE_BYTES):
        reading.take(given)
        done(1)
    return reading.finish(to_micros(services.clock() + MAX_CLOCK_SKEW))


class _ExportReader:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._manifest: Manifest | None = None
        self._sums = LineSums()
        self._rows: list[Row] = []
        self._bad: list[BadLine] = []
        self._size = 0

    def take(self, given: RawLine) -> None:
        self._size += len(given.raw or b"")
        if self._size > MAX_FILE_BYTES:
            raise TooLarge(
                f"the file has more than {MAX_FILE_BYTES:,} bytes, and a load holds all of it in memory. Move the store with "
                "`engrain copy` or `engrain backup`, which do not."
            )
        try:
            self._take(given)
        except EngrainError as exc:
            self._fault(given.number, exc)

    def _take(self, given: RawLine) -> None:
        value = parse_line(given.raw, MAX_LINE_BYTES)
        if given.number == 1:
            if not isinstance(value, dict) or not is_manifest(value):
                raise InvalidInput("the first line of the export, its manifest, is missing.")
            self._manifest = read_manifest(value)
            return
        row = line_to_row(value, self._scope)
        before = self._rows[-1] if self._rows else None
        if before and (EXPORTED_KINDS.index(row.kind), row.key) <= (EXPORTED_KINDS.index(before.kind), before.key):
            raise InvalidInput("this line is there twice, or not in its place.")
        self._sums.add(row.kind, given.raw or b"")
        self._rows.append(row)

    def finish(self, latest: int) -> VerifiedExport:
        if self._manifest is None:
            raise BadFile(self._bad or [BadLine(1, "InvalidInput", "the manifest is missing.")])
        if not self._bad:
            numbers = number_lines(self._rows)
            check_rows(self._rows, latest, lambda row, why: self._fault(numbers[row.kind, row.key], InvalidInput(why)))
            for told in _find_differences(self._manifest, self._sums):
                self._fault(1, InvalidInput(told))
        if self._bad:
            raise BadFile(sorted(self._bad)[:MAX_BAD_LINES])
        return VerifiedExport(self._manifest, self._rows)

    def _fault(self, line: int, error: EngrainError) -> None:
        if len(self._bad) < MAX_BAD_LINES:
            self._bad.append(BadLine(line, type(error).__name__, str(error)))


def number_lines(rows: Sequence[Row]) -> dict[tuple[str, Key], int]:
    """The number of each row's line: the manifest has the first."""
    return {(row.kind, row.key): number for number, row in enumerate(rows, 2)}


def _find_differences(manifest: Manifest, sums: LineSums) -> Iterator[str]:
    for kind in EXPORTED_KINDS:
        told, found = manifest.rows.get(kind, 0), sums.rows.get(kind, 0)
        if told != found:
            there = "is 1" if found == 1 else f"are {found:,}"
            yield f"the manifest counts {told:,} lines of kind {kind!r}, and there {there}: the file is not whole."
        elif manifest.hashes.get(kind) != sums.hashes.get(kind):
            yield f"the lines of kind {kind!r} were changed since the export: their hash differs."
    if manifest.hash != sums.hash and manifest.hashes == sums.hashes:
        yield "the manifest was changed since the export: its hash is not that of the lines."
