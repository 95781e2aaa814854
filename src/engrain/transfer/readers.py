"""Read notes from JSON Lines and from the exports of other systems, and detect the format of a file."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import BinaryIO, Literal, NamedTuple, get_args
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import orjson

from engrain.core.errors import BadLine, BadText, Conflict, EngrainError, InvalidInput, TooLarge
from engrain.core.formats.export_rows import is_row
from engrain.core.formats.foreign_exports import ExportOrigin, detect_origin, list_entries, list_owners, read_notes
from engrain.core.formats.manifests import is_manifest
from engrain.core.formats.text_notes import read_csv_notes, read_text_notes
from engrain.core.identity import Scope
from engrain.core.model.items import Note, Source, check_note, limit_kind, parse_note
from engrain.core.validation import MAX_METADATA, MAX_TEXT, build_object, parse_strict
from engrain.transfer.export import BOM, MAX_LINE_BYTES, parse_line, read_lines
from engrain.transfer.foreign_databases import SQLITE_MAGIC, read_langgraph_notes

MAX_DOCUMENT_BYTES = 1 << 29
MAX_DOCUMENT_VALUES = 30_000_000  # of some 60 bytes each in memory; a chat has one in 30 bytes of its file


def read_document(file: BinaryIO) -> object:
    value = parse_json(_read_limited(file))
    # Letta's client returns an export as a text, which programs write as a JSON string.
    return parse_json(value.encode()) if isinstance(value, str) and value.lstrip().startswith("{") else value


def _read_limited(file: BinaryIO) -> bytes:
    raw = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise TooLarge(f"the file has more than {MAX_DOCUMENT_BYTES:,} bytes. Split it into several files.")
    return raw


def parse_json(raw: bytes) -> object:
    raw = raw.removeprefix(BOM)
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_DOCUMENT_VALUES:
        raise TooLarge(f"the file has more than {MAX_DOCUMENT_VALUES:,} values. Split its list into several files.")
    try:
        return parse_strict(raw)
    except orjson.JSONDecodeError as exc:
        if "surrogate" in exc.msg:
            return _parse_lenient(raw)
        kind = BadText if "UTF-8" in exc.msg else InvalidInput
        cut = " It may have been cut off." if exc.pos >= len(exc.doc) else ""
        raise kind(f"the file is not JSON: {exc.msg}, line {exc.lineno}.{cut}") from exc


def _parse_lenient(raw: bytes) -> object:
    """Parse JSON with lone surrogates: chats cut texts within an emoji. The remaining half becomes a question mark."""
    try:
        found = json.loads(raw, object_pairs_hook=build_object)
        return orjson.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"the file is not JSON: {exc}.") from exc


ZIP_MAGIC = b"PK\x03\x04"
COMPRESSIONS = (ZIP_STORED, ZIP_DEFLATED)  # zipfile unpacks the others without a limit
MAX_ARCHIVE_BYTES = 4 * MAX_DOCUMENT_BYTES  # unpacked, only the wanted files
# A large export has its conversations in several files, conversations-000.json and so on; memories may be a folder.
WANTED_FILES = re.compile(r"(.*/)?(conversations(-\d+)?\.json|memories\.json|memories/[^/]+\.json)")


class Document(NamedTuple):
    name: str  # empty for a file that is not in an archive
    value: object


def read_archive(file: BinaryIO) -> Iterator[Document]:
    """Yield the wanted files one after the other, so that only one is in memory."""
    with _translate_zip_errors(), ZipFile(file) as archive:
        members = [member for member in archive.infolist() if WANTED_FILES.fullmatch(member.filename)]
        if not members:
            raise InvalidInput(
                "the archive has no conversations.json. Unpack it first if it is not an export of ChatGPT or Claude."
            )
        if sum(member.file_size for member in members) > MAX_ARCHIVE_BYTES or any(
            member.file_size > MAX_DOCUMENT_BYTES for member in members
        ):
            raise TooLarge(
                f"the archive is too large: the limit is {MAX_DOCUMENT_BYTES:,} bytes a file, "
                f"{MAX_ARCHIVE_BYTES:,} bytes in all."
            )
        if any(member.compress_type not in COMPRESSIONS for member in members):
            raise InvalidInput("the archive uses a compression that ChatGPT and Claude do not use. Unpack it first.")
        for member in sorted(members, key=lambda member: member.filename):
            with archive.open(member) as unpacked:
                # Without a size, all of it would be unpacked, whatever size the archive declares.
                raw = unpacked.read(member.file_size + 1)
            yield Document(member.filename, parse_json(raw))


@contextmanager
def _translate_zip_errors() -> Iterator[None]:
    try:
        yield
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as exc:
        if "password" in str(exc):
            raise InvalidInput("the ZIP archive has a password. Unpack it first.") from exc
        raise InvalidInput(f"the ZIP archive cannot be read: {exc}. Download it again.") from exc


# The largest text with every character escaped as six, plus room for the rest of a note.
MAX_NOTE_LINE_BYTES = 6 * (MAX_TEXT + MAX_METADATA) + 65_536
NOTES_HINT = 'Each line of notes is one JSON object, such as {"text": "…"}. For plain text give the format "text".'


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Notes and bad lines of a file. Numbers count from 1: lines, or the entries of a JSON list.

    A note's request id is made from its content, so that repeating an import adds nothing.
    """

    notes: list[Note] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # the line number of each note
    bad: list[BadLine] = field(default_factory=list)


def read_note_lines(file: BinaryIO, source: str | None, trusted: bool) -> ReadResult:
    """Read one note a line: {"text": …} or a whole Note. Unless `trusted`, its source has the trust of an import."""
    collected = _NoteCollector(source, trusted)
    for number, raw in read_lines(file, MAX_NOTE_LINE_BYTES):
        if raw is None or raw.strip():
            hint = f" {NOTES_HINT}" if number == 1 and not (raw or b"{").lstrip().startswith(b"{") else ""
            collected.add(number, partial(parse_line, raw, MAX_NOTE_LINE_BYTES), hint)
    return collected.found


def read_text_file(file: BinaryIO, form: LoadFormat, source: str | None, trusted: bool) -> ReadResult:
    """Read notes from plain text, Markdown or CSV. Their source is the file's name, if none is given."""
    raw = _read_limited(file).removeprefix(BOM)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadText(f"the file is not UTF-8 text: {exc.reason} at byte {exc.start:,}. Save it as UTF-8.") from exc
    collected = _NoteCollector(source or PurePath(get_file_name(file)).name or None, trusted)
    for number, value in read_csv_notes(text) if form == "csv" else read_text_notes(text):
        collected.add(number, partial(dict, value))
    return collected.found


def read_store_values(location: str) -> ReadResult:
    """Read the values of a store of LangGraph, numbered from 1."""
    found = ReadResult()
    for number, note in enumerate(read_langgraph_notes(location), 1):
        if isinstance(note, EngrainError):
            found.bad.append(BadLine(number, type(note).__name__, str(note)))
        else:
            found.notes.append(note)
            found.lines.append(number)
    return found


class _NoteCollector:
    """Collects checked notes and bad lines. Equal notes of one file have different request ids."""

    def __init__(self, source: str | None, trusted: bool) -> None:
        self._source, self._trusted = source, trusted
        self._seen: Counter[str] = Counter()
        self.found = ReadResult()

    def add(self, number: int, parse: Callable[[], object], hint: str = "") -> None:
        try:
            value = parse()
            note = _build_note(value, self._source, self._trusted)  # first: it refuses what is nested too deeply
            raw = orjson.dumps([value, self._source], option=orjson.OPT_SORT_KEYS)
            digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
            self._seen[digest] += 1
            self.found.notes.append(replace(note, request_id=f"import-{digest}-{self._seen[digest]}"))
            self.found.lines.append(number)
        except EngrainError as exc:
            self.found.bad.append(BadLine(number, type(exc).__name__, f"{exc}{hint}"))


def get_file_name(file: BinaryIO) -> str:
    """Return the path of an opened file; "" for one that has none, such as a pipe."""
    name = getattr(file, "name", "")
    return name if isinstance(name, str) else ""


def read_entries(
    documents: Iterable[Document], origin: ExportOrigin, scope: Scope, other_scope: bool = False
) -> ReadResult:
    """Read the entries. Conflict if they are another user's or several users', unless `other_scope`."""
    found = ReadResult()
    for name, value in documents:
        if not other_scope:
            _check_owner(list_owners(value, origin), scope)
        for number, entry in enumerate(list_entries(value, origin), 1):
            try:
                found.notes.extend(read_notes(entry, origin))
            except EngrainError as exc:
                found.bad.append(BadLine(number, type(exc).__name__, f"{name}: {exc}" if name else str(exc)))
    return found


def _check_owner(users: Sequence[str], scope: Scope) -> None:
    if len(users) > 1:
        raise Conflict(
            f"these are memories of {len(users)} users, {', '.join(users)[:200]}, and this memory is one user's. "
            "Load each user's separately, or load all of them here with other_scope=True or --other-scope."
        )
    if users and scope.user not in (None, users[0]):
        raise Conflict(
            f"these are memories of {users[0][:200]}, and this memory is that of {scope}. To load them "
            "nevertheless, give other_scope=True or --other-scope."
        )


def _build_note(value: object, source: str | None, trusted: bool) -> Note:
    note = parse_note(value)
    if note.source is None:
        note = replace(note, source=Source(source, "import"))
    note = check_note(note)
    if isinstance(note.source, Source) and not trusted:
        note = replace(note, source=replace(note.source, kind=limit_kind(note.source.kind)))
    return replace(note, derived=True)


LoadFormat = Literal["engrain", "notes", "text", "csv", "mem0", "letta", "zep", "langgraph", "chatgpt", "claude"]
FORMATS: tuple[LoadFormat, ...] = get_args(LoadFormat)
# Read line by line, or by a program of their own: no JSON documents.
UNSTRUCTURED: tuple[LoadFormat, ...] = ("engrain", "notes", "text", "csv", "langgraph")
# Formats that a file's content does not tell.
FORMATS_BY_SUFFIX: Mapping[str, LoadFormat] = {
    ".txt": "text", ".md": "text", ".markdown": "text", ".csv": "csv", ".tsv": "csv",
}  # fmt: skip
HEAD_BYTES = 4_096
_QUOTED_OBJECT = (b'"{\\n', b'"{\\"')  # how a JSON string begins that has a JSON document in it


def detect_format(file: BinaryIO, wanted: LoadFormat | None) -> tuple[LoadFormat, Iterable[Document]]:
    """Return the format and its JSON documents. A format of lines has none: the file is at its start then."""
    if wanted is not None and wanted not in FORMATS:
        raise InvalidInput(f"unknown format {wanted!r}. Use one of: {', '.join(FORMATS)}.")
    head = file.read(HEAD_BYTES)
    file.seek(0)
    packed = head.startswith(ZIP_MAGIC)
    form: LoadFormat | None = wanted if wanted or packed else _detect_by_head(file, head)
    if form in UNSTRUCTURED:
        return form, ()
    read = read_archive(file) if packed else iter([Document("", read_document(file))])
    found = (document for document in read if document.value != [])
    first = next(found, None)
    if first is None:
        raise InvalidInput("the file has an empty list: there is nothing to load.")
    origin: ExportOrigin | None = form or detect_origin(first.value)  # type: ignore[assignment]
    if origin is None:
        raise InvalidInput(
            f"the file has none of the known forms: {', '.join(FORMATS)}. docs/how-to/import-and-export.md shows them."
        )
    return origin, chain([first], found)


def detect_by_name(file: BinaryIO) -> LoadFormat | None:
    return FORMATS_BY_SUFFIX.get(PurePath(get_file_name(file)).suffix.lower())


def _detect_by_head(file: BinaryIO, head: bytes) -> LoadFormat | None:
    """Return None for a JSON document, which must be read whole."""
    if head.startswith(SQLITE_MAGIC):
        return "langgraph"
    _check_text(head)
    by_name = detect_by_name(file)
    if by_name is not None and head.strip():
        return by_name
    start = head.removeprefix(BOM).lstrip()[:1]
    if not start and len(head) < HEAD_BYTES:
        raise InvalidInput("the file is empty: there is nothing to load.")
    if start == b"[" or head.removeprefix(BOM).lstrip().startswith(_QUOTED_OBJECT):
        return None
    form = _detect_by_first_line(next(iter(read_lines(file, MAX_LINE_BYTES))).raw) if start == b"{" else "notes"
    file.seek(0)
    return form


def _detect_by_first_line(raw: bytes | None) -> LoadFormat | None:
    try:
        value = parse_line(raw, MAX_LINE_BYTES)
    except InvalidInput:
        return None if raw is not None and _continues(raw) else "notes"
    if is_manifest(value) or is_row(value):
        return "engrain"
    return None if detect_origin(value) else "notes"


def _continues(raw: bytes) -> bool:
    """Check for the first line of a document over several lines, in contrast to a bad line of notes."""
    line = raw.rstrip()
    if not line.endswith((b"{", b"[", b",")):
        return False
    try:
        parse_line(line[:-1], MAX_LINE_BYTES)
    except InvalidInput:
        return True
    return False  # complete except for a trailing comma


def _check_text(head: bytes) -> None:
    if head.startswith(b"\x1f\x8b"):
        raise InvalidInput("the file is packed with gzip. Unpack it first.")
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InvalidInput("the file is in UTF-16. Save it as UTF-8.")
    if b"\x00" in head:
        raise InvalidInput("this is not a text file. An export, notes and chats are JSON in UTF-8.")
