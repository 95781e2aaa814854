"""Tell what form a file has by how it begins."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable
from itertools import chain
from typing import BinaryIO, Literal, get_args

from engrain.core.errors import InvalidInput
from engrain.core.exporting import is_row
from engrain.core.foreign import Origin, origin_of
from engrain.core.manifests import is_manifest
from engrain.lifecycle.exchange.archives import MAGIC, Document, documents
from engrain.lifecycle.exchange.documents import document
from engrain.lifecycle.exchange.lines import BOM, lines, value_of
from engrain.lifecycle.exchange.loading import MAX_LINE

Form = Literal["engrain", "notes", "mem0", "chatgpt", "claude"]
FORMS: tuple[Form, ...] = get_args(Form)
HEAD = 4_096


def told(file: BinaryIO, given: Form | None) -> tuple[Form, Iterable[Document]]:
    """The form, and the JSON documents where it is made of such; else the file is back at its start."""
    if given is not None and given not in FORMS:
        raise InvalidInput(f"unknown form {given!r}. Known: {', '.join(FORMS)}.")
    head = file.read(HEAD)
    file.seek(0)
    packed = head.startswith(MAGIC)
    form: Form | None = given if given or packed else _by_beginning(file, head)
    if form in ("engrain", "notes"):
        return form, ()
    read = documents(file) if packed else iter([Document("", document(file))])
    found = (one for one in read if one.value != [])
    first = next(found, None)
    if first is None:
        raise InvalidInput("the list in the file is empty: there is nothing to load.")
    origin: Origin | None = form or origin_of(first.value)  # type: ignore[assignment]
    if origin is None:
        raise InvalidInput(f"this is none of the known forms: {', '.join(FORMS)}. docs/export.md shows them.")
    return origin, chain([first], found)


def _by_beginning(file: BinaryIO, head: bytes) -> Form | None:
    """None for a JSON document, which must be read whole to tell."""
    _check_text(head)
    start = head.removeprefix(BOM).lstrip()[:1]
    if not start and len(head) < HEAD:
        raise InvalidInput("the file is empty: there is nothing to load.")
    if start == b"[":
        return None
    form = _by_first_line(next(iter(lines(file, MAX_LINE))).raw) if start == b"{" else "notes"
    file.seek(0)
    return form


def _by_first_line(raw: bytes | None) -> Form | None:
    try:
        value = value_of(raw, MAX_LINE)
    except InvalidInput:
        return None if raw is not None and _goes_on(raw) else "notes"
    if is_manifest(value) or is_row(value):
        return "engrain"
    return None if origin_of(value) else "notes"


def _goes_on(raw: bytes) -> bool:
    """Whether it is the beginning of a document over several lines, and no bad line of notes."""
    line = raw.rstrip()
    if not line.endswith((b"{", b"[", b",")):
        return False
    try:
        value_of(line[:-1], MAX_LINE)
    except InvalidInput:
        return True
    return False  # whole but for a comma


def _check_text(head: bytes) -> None:
    if head.startswith(b"\x1f\x8b"):
        raise InvalidInput("the file is packed with gzip. Unpack it first.")
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InvalidInput("the file is in UTF-16. Save it as UTF-8.")
    if b"\x00" in head:
        raise InvalidInput("this is not a text file. An export, notes and chats are JSON in UTF-8.")
