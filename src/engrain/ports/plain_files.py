"""Read a file that a caller names: a plain one only, and no more of it than a stated limit."""

from __future__ import annotations

import os
import stat
from io import BufferedReader

from engrain.core.errors import BadText, InvalidInput, NotFound, TooLarge

AnyPath = str | os.PathLike[str]

# Settings, manifests, receipts and keys are far smaller. A sparse file of terabytes costs nothing to make.
MAX_SMALL_BYTES = 1 << 20
# Opening a pipe must not wait for its other end, nor a terminal take hold of the process. Windows has neither.
_SAFE_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def open_plain(path: AnyPath) -> BufferedReader:
    """Open a plain file, or a link to one, to read its bytes.

    NotFound if there is none. InvalidInput if it is a pipe, a device or a folder, or cannot be read.
    """
    name = os.fspath(path)
    try:
        # Looked at before as well: opening a device may already do something.
        _check_plain(os.stat(name), name)
        file = open(name, "rb", opener=lambda path, flags: os.open(path, flags | _SAFE_FLAGS))  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise NotFound(f"there is no file {name}.") from exc
    except OSError as exc:
        raise InvalidInput(f"{name} cannot be read: {exc.strerror}.") from exc
    except InvalidInput:
        raise
    except ValueError as exc:  # a NUL in the path
        raise InvalidInput(f"{name!r} is not the path of a file: {exc}.") from exc
    try:
        _check_plain(os.fstat(file.fileno()), name)
    except InvalidInput:
        file.close()
        raise
    return file


def _check_plain(seen: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(seen.st_mode):
        raise InvalidInput(f"{name} is a folder. Give the path of a file.")
    if not stat.S_ISREG(seen.st_mode):
        raise InvalidInput(f"{name} is not a plain file. Give the path of one.")


def read_plain(path: AnyPath, limit: int = MAX_SMALL_BYTES) -> bytes:
    """Return all bytes of a plain file. TooLarge beyond the limit; the rest as `open_plain`."""
    with open_plain(path) as file:
        try:
            fits = os.fstat(file.fileno()).st_size <= limit
            raw = file.read(limit + 1) if fits else b""
        except OSError as exc:
            raise InvalidInput(f"{os.fspath(path)} cannot be read: {exc.strerror}.") from exc
    if not fits or len(raw) > limit:
        raise TooLarge(f"{os.fspath(path)} has more than {limit:,} bytes, which is the limit.")
    return raw


def read_plain_text(path: AnyPath, limit: int = MAX_SMALL_BYTES) -> str:
    """Return the text of a plain file. BadText if it is not UTF-8; the rest as `read_plain`."""
    try:
        return read_plain(path, limit).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadText(f"{os.fspath(path)} is not UTF-8 text: {exc.reason} at byte {exc.start:,}.") from exc
