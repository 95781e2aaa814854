"""The verbs that take a memory along and bring one in."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, BinaryIO, Literal

from engrain.core.errors import Conflict, DiskFull, InvalidInput, NotFound, ReadOnlyStore, TooLarge
from engrain.memory.opened import Opened
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadResult
    from engrain.transfer.readers import Form

MAX_PIPED = 1 << 30


class Portable(Opened):
    @traced
    def export(
        self,
        path: str | os.PathLike[str],
        *,
        form: Literal["jsonl", "markdown"] = "jsonl",
        vectors: bool = False,
        overwrite: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> ExportResult:
        """Write all that this memory holds to a file: JSON Lines that `load` restores item for item, or Markdown for
        people. The file is there whole or not at all, and only you can read it. docs/export.md has the form."""
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidInput(f"an export goes to the path of a file, not to {type(path).__name__}.")
        return self._open.export(_written(Path(path), overwrite), form, vectors, progress or (lambda _: None))

    @traced
    def load(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        *,
        form: Form | None = None,
        source: str | None = None,
        skip_bad: bool = False,
        other_scope: bool = False,
        dry_run: bool = False,
        facts: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> LoadResult:
        """Bring in an export of engrain, notes as JSON Lines, or an export of mem0, ChatGPT or Claude; which of them it
        is shows by itself. All of it is proved first: BadFile says line by line what is wrong, and then nothing is
        written. What is here already is skipped, what was forgotten here stays forgotten. `facts` draws from others'
        conversations what the user said that lasts, as is done with what is said now."""
        from engrain.transfer.load import LoadOptions

        terms = LoadOptions(form, source, skip_bad, other_scope, dry_run, facts)
        with _opened(path) as file:
            return self._open.load(file, terms, progress or (lambda _: None))


@contextmanager
def _opened(path: str | os.PathLike[str] | BinaryIO) -> Iterator[BinaryIO]:
    if not isinstance(path, (str, os.PathLike)):
        _check_bytes(path)
        yield path if path.seekable() else _spooled(path)
        return
    if "\x00" in os.fspath(path):
        raise InvalidInput("a path holds no NUL.")
    try:
        with Path(path).open("rb") as file:
            yield file if file.seekable() else _spooled(file)
    except FileNotFoundError as exc:
        raise NotFound(f"there is no file {os.fspath(path)}.") from exc
    except OSError as exc:
        raise InvalidInput(f"{os.fspath(path)!r} cannot be read: {exc.strerror}.") from exc


def _check_bytes(file: object) -> None:
    if not hasattr(file, "read") or isinstance(file, io.TextIOBase) or getattr(file, "closed", False):
        raise InvalidInput(
            f"a path or a file that is open for reading bytes is loaded, such as open(path, 'rb'), not {file!r:.80}."
        )


def _spooled(file: BinaryIO) -> BinaryIO:
    """What comes through a pipe is read twice as well."""
    raw = file.read(MAX_PIPED + 1)
    if len(raw) > MAX_PIPED:
        raise TooLarge(f"more than {MAX_PIPED:,} bytes come through the pipe. Write them to a file first.")
    return io.BytesIO(raw)


@contextmanager
def _written(path: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """A file beside it, which takes its name when it is whole and on disk."""
    if "\x00" in str(path) or path.name in ("", ".", ".."):
        raise InvalidInput(f"{str(path)!r} is not the name of a file.")
    # With a name of its own: what it is to be called may be as long as a name can be.
    beside = path.with_name(f".engrain-{os.getpid()}-{token_hex(8)}.part")
    try:
        _check_free(path, overwrite)
        with os.fdopen(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, path)
    except OSError as exc:
        kind = DiskFull if exc.errno in (errno.ENOSPC, errno.EDQUOT) else ReadOnlyStore
        raise kind(f"{path} cannot be written: {exc.strerror}.") from exc
    finally:
        beside.unlink(missing_ok=True)


def _check_free(path: Path, overwrite: bool) -> None:
    """A link is taken for what it is, and not for what it leads to; a device or a pipe keeps its place."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISLNK(mode):
        raise InvalidInput(f"{path} is not a file. Choose another name.")
    if not overwrite:
        raise Conflict(f"{path} is there already. Choose another name, or say overwrite=True, --overwrite.")
