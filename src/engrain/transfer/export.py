"""Write an export, and read one with every line verified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, BinaryIO, NamedTuple

import orjson

from engrain import __version__
from engrain.core.clock import to_micros
from engrain.core.errors import BadFile, BadLine, BadText, ConfigError, Conflict, EngrainError, InvalidInput, TooLarge
from engrain.core.formats.export_rows import EXPORTED_KINDS, Line, check_rows, line_to_row, row_to_line
from engrain.core.formats.manifests import LineSums, Manifest, is_manifest, read_manifest
from engrain.core.identity import Scope
from engrain.core.model.results import describe_counts
from engrain.core.model.rows import Key, Row, RowKind
from engrain.core.validation import parse_strict
from engrain.ports import Services
from engrain.ports.storage import Movable, iterate_pages, iterate_rows

BOM = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 64_000_000  # a recorded result has at most 16 MB, and a few times that if escaped
MAX_FILE_BYTES = 1 << 30
MAX_BAD_LINES = 1_000  # that are reported
MAX_CLOCK_SKEW = timedelta(days=1)

Done = Callable[[int], None]


class RawLine(NamedTuple):
    number: int
    raw: bytes | None  # None if the line is too long


def read_lines(file: BinaryIO, limit: int) -> Iterator[RawLine]:
    """Yield the lines with engrain's own line end, whatever an editor or a transfer made of it.

    TooLarge beyond MAX_FILE_BYTES: a load keeps all of it in memory."""
    _check_size(_measure_file(file))
    number = size = 0
    while raw := file.readline(limit + 1):
        number += 1
        size = _check_size(size + len(raw))
        if number == 1:
            raw = raw.removeprefix(BOM)
        if len(raw) <= limit or raw.endswith(b"\n"):
            yield RawLine(number, raw.rstrip(b"\r\n") + b"\n")
            continue
        while rest := file.readline(limit):
            size = _check_size(size + len(rest))
            if rest.endswith(b"\n"):
                break
        yield RawLine(number, None)


def _measure_file(file: BinaryIO) -> int:
    """The size of a file on disk, so that a file of terabytes is not read up to the limit first."""
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, AttributeError):  # in memory
        return 0


def _check_size(size: int) -> int:
    if size > MAX_FILE_BYTES:
        raise TooLarge(
            f"the file has more than {MAX_FILE_BYTES:,} bytes, and a load keeps all of it in memory. "
            "Move a store with `engrain copy` or `engrain backup` instead; split other files."
        )
    return size


def parse_line(raw: bytes | None, limit: int) -> object:
    if raw is None:
        raise TooLarge(f"the line has more than {limit:,} bytes. Split its text and store the parts.")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadText(f"not UTF-8: byte {exc.start + 1} of the line is 0x{raw[exc.start]:02x}.") from exc
    try:
        return parse_strict(raw)
    except orjson.JSONDecodeError as exc:
        kind = BadText if "surrogate" in exc.msg else InvalidInput
        raise kind(f"not JSON: {exc.msg}, at character {exc.pos + 1}.") from exc


@dataclass(frozen=True, slots=True)
class VerifiedExport:
    """An export without a bad line."""

    manifest: Manifest
    rows: Sequence[Row] = ()


def verify_export(file: BinaryIO, scope: Scope, services: Services, done: Done) -> VerifiedExport:
    """Verify an export. BadFile names every bad line and its fault."""
    reading = _ExportReader(scope)
    for line in read_lines(file, MAX_LINE_BYTES):
        reading.add_line(line)
        done(1)
    return reading.finish(to_micros(services.clock() + MAX_CLOCK_SKEW))


class _ExportReader:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._manifest: Manifest | None = None
        self._sums = LineSums()
        self._rows: list[Row] = []
        self._bad: list[BadLine] = []

    def add_line(self, line: RawLine) -> None:
        try:
            self._read_line(line)
        except EngrainError as exc:
            self._add_fault(line.number, exc)

    def _read_line(self, line: RawLine) -> None:
        value = parse_line(line.raw, MAX_LINE_BYTES)
        if line.number == 1:
            if not isinstance(value, dict) or not is_manifest(value):
                raise InvalidInput("the manifest, which is the first line of an export, is missing.")
            self._manifest = read_manifest(value)
            return
        row = line_to_row(value, self._scope)
        before = self._rows[-1] if self._rows else None
        if before and (EXPORTED_KINDS.index(row.kind), row.key) <= (EXPORTED_KINDS.index(before.kind), before.key):
            raise InvalidInput("this line is repeated or out of order.")
        self._sums.add(row.kind, line.raw or b"")
        self._rows.append(row)

    def finish(self, latest: int) -> VerifiedExport:
        if self._manifest is None:
            raise BadFile(self._bad or [BadLine(1, "InvalidInput", "the manifest is missing.")])
        if not self._bad:
            numbers = number_lines(self._rows)
            check_rows(
                self._rows, latest, lambda row, why: self._add_fault(numbers[row.kind, row.key], InvalidInput(why))
            )
            for difference in _find_differences(self._manifest, self._sums):
                self._add_fault(1, InvalidInput(difference))
        if self._bad:
            raise BadFile(sorted(self._bad)[:MAX_BAD_LINES])
        return VerifiedExport(self._manifest, self._rows)

    def _add_fault(self, line: int, error: EngrainError) -> None:
        if len(self._bad) < MAX_BAD_LINES:
            self._bad.append(BadLine(line, type(error).__name__, str(error)))


def number_lines(rows: Sequence[Row]) -> dict[tuple[str, Key], int]:
    """Return each row's line number. The manifest is line 1."""
    return {(row.kind, row.key): number for number, row in enumerate(rows, 2)}


def _find_differences(manifest: Manifest, sums: LineSums) -> Iterator[str]:
    for kind in EXPORTED_KINDS:
        expected, found = manifest.rows.get(kind, 0), sums.rows.get(kind, 0)
        if expected != found:
            there = "is 1" if found == 1 else f"are {found:,}"
            yield f"the manifest counts {expected:,} lines of kind {kind!r}, and there {there}: the file is not whole."
        elif manifest.hashes.get(kind) != sums.hashes.get(kind):
            yield f"the lines of kind {kind!r} were changed since the export: their hash differs."
    if manifest.hash != sums.hash and manifest.hashes == sums.hashes:
        yield "the manifest was changed since the export: its hash is not that of the lines."


FOLDER_PROGRESS = "files"  # name of the progress mark that counts the rounds of a synced folder
USE_FIELDS = ("access_count", "last_accessed")
Uses = dict[str, dict[str, Any]]
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ExportResult:
    rows: Mapping[str, int] = field(default_factory=dict)  # lines by kind
    hash: str = ""  # of all lines

    def __str__(self) -> str:
        return describe_counts(self.rows) or "an empty memory"


def export(
    services: Services, scope: Scope, out: BinaryIO, *, vectors: bool, done: Callable[[int], None]
) -> ExportResult:
    """Export a snapshot. Conflict if forgetting, erasing, or writing to a separate store keeps changing it."""
    store = require_movable(services)
    for _ in range(MAX_ATTEMPTS):
        since = store.change_token((scope,))
        exported = store.on_snapshot(lambda: _write_export(services, scope, out, vectors, done))
        if exported is not None and store.change_token((scope,)) == since:
            return exported
    raise Conflict("the memory changed while it was read, three times. Export it when nothing is forgotten or erased.")


def _write_export(
    services: Services, scope: Scope, out: BinaryIO, vectors: bool, done: Callable[[int], None]
) -> ExportResult | None:
    """Read twice: once to count and hash, once to write. None if both differ."""
    uses: Uses = {}
    counted = LineSums()
    for kind, raw in _iterate_lines(services, scope, vectors, uses):
        counted.add(kind, raw)
    manifest = Manifest(__version__, scope, counted.rows, counted.hashes, counted.hash)
    out.seek(0)
    out.truncate()
    out.write(_encode_line(manifest.line))
    written = LineSums()
    for kind, raw in _iterate_lines(services, scope, vectors, uses):
        out.write(raw)
        written.add(kind, raw)
        if written.rows[kind] > counted.rows.get(kind, 0):
            return None  # at once: if `done` itself writes to the memory, the end would never come
        done(1)
    return ExportResult(written.rows, written.hash) if written.hash == counted.hash else None


def iterate_exported(services: Services, scope: Scope) -> Iterator[Row]:
    """Yield every row that an export contains, kind by kind, each in the order of its key."""
    store = require_movable(services)
    for kind in EXPORTED_KINDS:
        if kind in ("session", "record"):
            yield from _iterate_ranked(store, kind, scope)
        elif kind == "episode" and not services.same_store:
            yield from _iterate_episodes(services, store, scope)
        elif kind == "progress":
            # The state of a synced folder is of no use in another store.
            yield from (row for row in iterate_rows(store, kind, scope) if row.key[2] != FOLDER_PROGRESS)
        else:
            yield from iterate_rows(store, kind, scope)


def require_movable(services: Services) -> Movable:
    """Return the store that reads and restores all rows; ConfigError if there is none."""
    store = services.rows or services.items
    if not isinstance(store, Movable):
        raise ConfigError("this store can neither export nor load. Use a SQLite file or Postgres.")
    return store


def _iterate_lines(services: Services, scope: Scope, vectors: bool, uses: Uses) -> Iterator[tuple[str, bytes]]:
    """Yield the lines. An item keeps the use counts of the first read: a recall does not change the memory."""
    for row in iterate_exported(services, scope):
        if row.kind == "item":
            used = uses.setdefault(row.key[0], {name: row.values[name] for name in USE_FIELDS})
            row = replace(row, values={**row.values, **used, **({} if vectors else {"vectors": {}})})
        yield row.kind, _encode_line(row_to_line(row))


def _encode_line(line: Line) -> bytes:
    return orjson.dumps(line, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _iterate_ranked(store: Movable, kind: RowKind, scope: Scope) -> Iterator[Row]:
    """Rank the rows within this memory, oldest first: the store's own rank counts the changes of all memories.

    They are read twice, because bodies of records may not fit into memory together.
    """
    order = sorted((row.values["rank"], row.key) for row in iterate_rows(store, kind, scope))
    ranks = {key: rank for rank, (_, key) in enumerate(order, 1)}
    for row in iterate_rows(store, kind, scope):
        # A row that was written since the first reading makes the export differ from its count, and so be repeated.
        yield replace(row, values={**row.values, "rank": ranks.get(row.key, len(ranks) + 1)})


def _iterate_episodes(services: Services, store: Movable, scope: Scope) -> Iterator[Row]:
    """Yield the entries of a separate store, without those whose item is gone: it does not see items go."""
    for rows in iterate_pages(store, "episode", scope):
        named = [row.values["item"] for row in rows if row.values["item"] is not None]
        known = {item.id for item in services.items.get_many(scope, named)} if named else set()
        yield from (row for row in rows if row.values["item"] is None or row.values["item"] in known)
