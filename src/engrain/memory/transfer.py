"""Export a memory to a file, load one from a file, and copy a store."""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, BinaryIO

from engrain.core.errors import (
    Conflict,
    DiskFull,
    EmbedderFailed,
    EngrainError,
    InvalidInput,
    OnHold,
    ReadOnlyStore,
    StoreError,
    TooLarge,
    raise_interrupt,
    tolerate,
)
from engrain.core.model.results import Progress, count_progress
from engrain.ingest import write
from engrain.ports.plain_files import open_plain
from engrain.privacy.audit import record
from engrain.privacy.holds import find_hold
from engrain.transfer.langgraph_store import is_postgres_url

if TYPE_CHECKING:
    from engrain.core.identity import Scope
    from engrain.ports import Services
    from engrain.transfer.copy import CopyResult
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadResult

MAX_PIPED_BYTES = 1 << 30
FORMATS = ("jsonl", "markdown")
OWN_FORMATS = ("engrain", "notes", "text", "csv")
COUNTED_OUTCOMES = ("added", "repeated", "replaced", "behind", "kept_out")

_log = logging.getLogger("engrain")


def export_scope(
    services: Services,
    scope: Scope,
    file: AbstractContextManager[BinaryIO],
    format: str,
    vectors: bool,
    progress: Progress | None,
) -> ExportResult:
    """Export a scope. `file` makes the file when entered, and removes it after an error."""
    if format not in FORMATS:
        raise InvalidInput(f"unknown format {format!r}. Known: {', '.join(FORMATS)}.")
    _refuse_hidden(services, scope)
    begun: dict[str, int] = {}
    try:
        with file as out:
            # Recorded first: a killed export leaves a part of it, and a receipt must know.
            entry = record(services, "export_begun", {"format": format}, scope)
            begun = {"begun": entry.n} if entry else {}
            done = count_progress(progress, "rows")
            exported = _write_export(services, scope, out, format, vectors, done)
            record(services, "export", {"format": format, "counts": dict(exported.rows), **begun}, scope)
    except BaseException:
        with tolerate(EngrainError):
            if begun:
                record(services, "export_failed", begun, scope)
        raise
    return exported


def _write_export(
    services: Services, scope: Scope, out: BinaryIO, format: str, vectors: bool, done: Callable[[int], None]
) -> ExportResult:
    from engrain.transfer import export, markdown

    if format == "markdown":
        return markdown.export_markdown(services, scope, out, done)
    return export.export(services, scope, out, vectors=vectors, done=done)


def _refuse_hidden(services: Services, scope: Scope) -> None:
    """Raise OnHold for data that a hold hides: it reads as empty, and an empty file would be false."""
    hold = find_hold(services, scope)
    if hold is not None and hold.hidden:
        raise OnHold(
            "this user's memory is hidden under a legal hold: nothing of it can be exported until the release."
        )


def finish_load(services: Services, scope: Scope, loaded: LoadResult, progress: Progress | None) -> None:
    """Record what was loaded, and embed the new items."""
    if not loaded.written:
        return
    counts = {name: getattr(loaded, name) for name in COUNTED_OUTCOMES}
    what = "load" if loaded.format in OWN_FORMATS else "import"
    record(services, what, {"format": loaded.format, "counts": counts}, scope)
    if loaded.rows.get("item"):
        _embed_loaded(services, count_progress(progress, "vectors"))


def _embed_loaded(services: Services, done: Callable[[int], None]) -> None:
    """Embed in the background if there is one; else now."""
    if services.background is not None:
        services.background.embed()
        return
    try:
        while made := write.embed_missing(services, write.BATCH_SIZE):
            done(made)
    except KeyboardInterrupt as stop:
        stop.add_note("All of it is written. What has no vector yet is found by its words, and gets one later.")
        raise
    except (EmbedderFailed, StoreError) as exc:
        raise_interrupt(exc)
        # Everything is written: an error would say that nothing was.
        _log.warning("the loaded items are without vectors for now: %s", exc)


def copy_store(services: Services, to: str | os.PathLike[str], progress: Progress | None) -> CopyResult:
    """Copy an opened store to another one, and compare both."""
    from engrain.factory import open_whole_store
    from engrain.transfer.copy import copy_recorded
    from engrain.transfer.export import require_movable

    with closing(open_whole_store(to)) as target:
        log = partial(record, services)
        return copy_recorded(require_movable(services), target, os.fspath(to), log, progress)


def open_output(path: object, overwrite: bool) -> AbstractContextManager[BinaryIO]:
    """Open a file that gets its name when it is complete and on disk."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(f"an export goes to the path of a file, not to {type(path).__name__}.")
    return _write_atomically(Path(path), overwrite)


@contextmanager
def open_input(path: str | os.PathLike[str] | BinaryIO) -> Iterator[BinaryIO | str]:
    """Open a plain file to load, or take an open one. It can be read twice. The URL of a database stays as it is."""
    if isinstance(path, str) and is_postgres_url(path):
        yield path
        return
    if not isinstance(path, (str, os.PathLike)):
        _check_bytes(path)
        yield path if path.seekable() else _read_pipe(path)
        return
    with open_plain(path) as file:
        try:
            yield file
        except OSError as exc:
            raise InvalidInput(f"{os.fspath(path)} cannot be read: {exc.strerror}.") from exc


def _check_bytes(file: object) -> None:
    if not hasattr(file, "read") or isinstance(file, io.TextIOBase) or getattr(file, "closed", False):
        raise InvalidInput(
            f"a path or a file that is open for reading bytes is loaded, such as open(path, 'rb'), not {file!r:.80}."
        )


def _read_pipe(file: BinaryIO) -> BinaryIO:
    """Read a pipe into memory: a file is read twice."""
    raw = file.read(MAX_PIPED_BYTES + 1)
    if len(raw) > MAX_PIPED_BYTES:
        raise TooLarge(f"more than {MAX_PIPED_BYTES:,} bytes come through the pipe. Write them to a file first.")
    return io.BytesIO(raw)


@contextmanager
def _write_atomically(path: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """Write a temporary file in the same folder, and rename it when it is complete and on disk."""
    if "\x00" in str(path) or path.name in ("", ".", ".."):
        raise InvalidInput(f"{str(path)!r} is not the name of a file.")
    # Not the name with a suffix: that could be too long for a name.
    temporary = path.with_name(f".engrain-{os.getpid()}-{token_hex(8)}.part")
    try:
        _check_free(path, overwrite)
        with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except OSError as exc:
        kind = DiskFull if exc.errno in (errno.ENOSPC, errno.EDQUOT) else ReadOnlyStore
        raise kind(f"{path} cannot be written: {exc.strerror}.") from exc
    finally:
        temporary.unlink(missing_ok=True)


def _check_free(path: Path, overwrite: bool) -> None:
    """Raise if the path exists and must stay. A link itself may be replaced, never a device or a pipe."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISLNK(mode):
        raise InvalidInput(f"{path} is not a file. Choose another name.")
    if not overwrite:
        raise Conflict(f"{path} exists. Choose another name, or pass overwrite=True (--overwrite).")
