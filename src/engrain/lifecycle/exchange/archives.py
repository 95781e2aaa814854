"""Read the ZIP archive that ChatGPT and Claude give to download, without unpacking it to disk."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from engrain.core.errors import InvalidInput, TooLarge
from engrain.lifecycle.exchange.documents import MAX_DOCUMENT, parsed

MAGIC = b"PK\x03\x04"
PACKINGS = (ZIP_STORED, ZIP_DEFLATED)  # the others unpack without a limit
MAX_ARCHIVE = 4 * MAX_DOCUMENT  # unpacked, of the files that are read
# A large export has its conversations in several files, conversations-000.json and so on; memories may be a folder.
WANTED = re.compile(r"(.*/)?(conversations(-\d+)?\.json|memories\.json|memories/[^/]+\.json)")


class Document(NamedTuple):
    """`name` is empty for a file by itself."""

    name: str
    value: object


def documents(file: BinaryIO) -> Iterator[Document]:
    """One after the other, so that only one of them is in memory."""
    with _readable(), ZipFile(file) as archive:
        members = [one for one in archive.infolist() if WANTED.fullmatch(one.filename)]
        if not members:
            raise InvalidInput(
                "the archive holds no conversations.json. Of other files than ChatGPT's and Claude's, unpack it first."
            )
        if sum(one.file_size for one in members) > MAX_ARCHIVE or any(one.file_size > MAX_DOCUMENT for one in members):
            raise TooLarge(
                f"the archive is too large: a file in it may have {MAX_DOCUMENT:,} bytes, all {MAX_ARCHIVE:,}."
            )
        if any(one.compress_type not in PACKINGS for one in members):
            raise InvalidInput("the archive is packed in a way that ChatGPT and Claude do not use: unpack it first.")
        for one in sorted(members, key=lambda one: one.filename):
            with archive.open(one) as member:
                # Without a number all of it would be unpacked, whatever size it says it has.
                raw = member.read(one.file_size + 1)
            yield Document(one.filename, parsed(raw))


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as exc:
        raise InvalidInput(f"the ZIP archive cannot be read: {exc}. Download it once more.") from exc
