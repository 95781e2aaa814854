"""Move whole memories and stores: export, load, copy, restore a backup, repeat erasures in a restored store."""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from engrain.config import Settings, load_settings
from engrain.core import errors
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
from engrain.core.formats import manifests
from engrain.core.formats.manifests import RestoreResult
from engrain.core.model.results import Progress, count_progress
from engrain.ingest import write
from engrain.ports.plain_files import open_plain, read_plain
from engrain.privacy.audit import record
from engrain.privacy.erasure_requests import find_hold
from engrain.transfer.foreign_databases import is_postgres_url

if TYPE_CHECKING:
    from engrain.core.identity import Scope
    from engrain.core.model.audit import AuditHead
    from engrain.ports import Services
    from engrain.privacy.receipts import Receipt
    from engrain.privacy.tombstones import Forgetting
    from engrain.stores.sqlite import SqliteStore
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


PathOrUrl = str | os.PathLike[str]
_PAGE_SIZE = 1_000
_UNREADABLE = (errors.StoreCorrupt, errors.NotADatabase, errors.WrongKey)


def restore_backup(
    backup: str | os.PathLike[str],
    to: PathOrUrl,
    *,
    key: str | None = None,
    force: bool = False,
    receipts: Sequence[Receipt | PathOrUrl] = (),
) -> RestoreResult:
    """Restore a backup to a new path or, with `force`, in place of the store that is there.

    The replaced store knows what was forgotten or erased since the backup: that stays out. If it is damaged, or `to` is
    new, forgotten items may be back: the result says so. `receipts` keep erased people out in every case: `Receipt`
    values, or paths of receipt files and folders. `key` is the key of the backup, if the store gets another one. A
    legal hold in the replaced store refuses. The copy is made in the same folder, checked, cleaned and then renamed:
    after an error the old store is unchanged, unless the message says that the restored one stands.
    """
    from engrain.privacy.receipts import read_receipts
    from engrain.stores.sqlite.backup import check_backup, prepare_copy, replace_store
    from engrain.stores.sqlite.opening import write_copy
    from engrain.stores.sqlite.schema import open_outside

    chosen, target = load_settings(to), _find_file(to)
    source = Path(backup).expanduser().absolute()
    _check_target(target, source, force)
    named = read_receipts(receipts)
    file, manifest = check_backup(source, key or chosen.key)
    with prepare_copy(target) as copy:
        with open_outside(file, copy_to=copy) as (whole, _), _report_disk_errors(target):
            write_copy(whole, copy, chosen.key or "")
        head = _read_head(target, chosen, key)
        cleaned = _clean(copy, target, chosen, key, named)

        def check_unchanged() -> None:
            if _read_head(target, chosen, key) != head:
                raise _build_conflict(str(target))

        replace_store(copy, target, check_unchanged)
    return RestoreResult(str(target), manifest, *cleaned)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The removed rows by kind. Unless `swept`, `engrain maintain` still has to remove their bytes."""

    rows: Mapping[str, int]
    swept: bool

    def __str__(self) -> str:
        count = sum(self.rows.values())
        if not count:
            return "Nothing of it was there."
        removed = "1 row was" if count == 1 else f"{count:,} rows were"
        return f"{removed} removed.{'' if self.swept else ' Remove their bytes: engrain maintain.'}"


def replay_erasures(
    restored: PathOrUrl, against: PathOrUrl | None = None, *, receipts: Sequence[Receipt | PathOrUrl] = ()
) -> ReplayResult:
    """Remove what was forgotten or erased since from a database that its own tools restored (pg_restore).

    Call it before any program opens the database. `against` is the current store of the same memory; its tombstones,
    holds and audit log are copied. `receipts` are `Receipt` values, or paths of receipt files and folders. It is one
    transaction: if it is interrupted, nothing has changed.
    """
    from engrain.factory import open_whole_store
    from engrain.privacy.receipts import list_digests, read_receipts
    from engrain.privacy.tombstones import replay, replay_receipts

    target, named = load_settings(restored).store, read_receipts(receipts)
    if against is None and not named:
        raise InvalidInput("name the current store, or receipts of erasures: one of them must say what was erased.")
    if against is not None and load_settings(against).store == target:
        raise InvalidInput("RESTORED and the current store are the same.")
    with ExitStack() as opened:
        present = None if against is None else opened.enter_context(_open_present(against))
        store = cast("Forgetting", opened.enter_context(closing(open_whole_store(target))))

        def remove() -> Mapping[str, int]:
            end = _find_last_entry(present.store) if present else 0
            removed = Counter(replay(present.store, store, damaged=present.damaged) if present else {})
            removed.update(replay_receipts(named, store))
            if named or removed.total():
                store.audit.append("restore", {"kept_out": removed.total(), **list_digests(named)})
            if present and (present.store.audit.entries(end, 1) or present.store.erasing.running()):
                raise _build_conflict(present.where)
            return removed

        return ReplayResult(store.in_transaction(remove), store.purge())


class _CleanedCopy(NamedTuple):
    items: int
    kept_out: Mapping[str, int]
    receipts: Mapping[str, int]
    may_hold_forgotten: bool


def _clean(copy: Path, target: Path, chosen: Settings, key: str | None, named: Sequence[Receipt]) -> _CleanedCopy:
    """Remove from the copy what was forgotten or erased since, down to the bytes."""
    from engrain.privacy.receipts import list_digests
    from engrain.privacy.tombstones import count_named, replay_receipts
    from engrain.stores.sqlite import SqliteStore

    with closing(SqliteStore(copy, key=chosen.key)) as restored:
        items, counts = restored.status().items, count_named(named, restored.erasing.count_remaining_of)
        # The replaced store first: it restores rows, and receipts may name those, too.
        kept_out, may_hold_forgotten = _remove_forgotten(restored, target, key)
        kept_out.update(replay_receipts(named, cast("Forgetting", restored)))
        details = {"items": items, "kept_out": kept_out.total(), "may_hold_forgotten": may_hold_forgotten}
        restored.audit.append("restore", {**details, **list_digests(named)})
        if not restored.purge():
            raise errors.StoreBusy(f"{copy} is in use: close the programs that read it, then try again.")
        return _CleanedCopy(restored.status().items, dict(kept_out), counts, may_hold_forgotten)


def _remove_forgotten(restored: SqliteStore, target: Path, key: str | None) -> tuple[Counter[str], bool]:
    """Remove what the replaced store has forgotten. Return the rows by kind, and True if there may be more."""
    from engrain.privacy.tombstones import replay

    if not target.exists():
        return Counter(), True
    with _unless_damaged(target), _open_present(target, key) as present:
        if holds := present.store.erasing.holds():
            raise errors.OnHold(
                f"a legal hold ({holds[0].reason}) is on somebody in the store that would be replaced. Restore to a "
                "new path and keep the old store, or end the hold: engrain hold --user … --release."
            )
        copy = cast("Forgetting", restored)
        rows = copy.in_transaction(lambda: replay(present.store, copy, damaged=present.damaged))
        return Counter(rows), present.damaged
    return Counter(), True


def _read_head(target: Path, chosen: Settings, key: str | None) -> AuditHead | None:
    """Read the end of the audit log. None if there is no store, or it cannot be read."""
    from engrain.stores.sqlite.backup import read_audit_head
    from engrain.stores.sqlite.opening import find_key

    if target.exists():
        with _unless_damaged(target):
            return read_audit_head(target, find_key(target, (chosen.key, key, None)))
    return None


@contextmanager
def _unless_damaged(target: Path) -> Iterator[None]:
    """Leave the block if the store cannot be read; a wrong key is still an error."""
    from engrain.stores.sqlite.backup import check_damaged

    try:
        yield
    except _UNREADABLE as exc:
        check_damaged(target, exc)


def _check_target(target: Path, backup: Path, force: bool) -> None:
    if not target.exists():
        return
    if backup.exists() and target.samefile(backup):
        raise InvalidInput(f"{target} is the backup itself. Give the path of the store that is to be made of it.")
    if not target.is_file():
        raise InvalidInput(f"{target} is not a file. Give the path of a store, or of a new file.")
    if _is_backup(target):
        raise InvalidInput(f"{target} is a backup itself, and would be lost. Give the path of a store.")
    if not force:
        raise InvalidInput(f"{target} exists. Pass force=True (--force) to replace it, or give a new path.")


def _is_backup(path: Path) -> bool:
    manifest = path.with_name(path.name + manifests.MANIFEST_SUFFIX)
    try:
        return bool(manifests.read_backup_manifest(read_plain(manifest), str(manifest)))
    except (errors.EngrainError, OSError):
        return False


@contextmanager
def _report_disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except errors.DiskFull as exc:
        raise errors.DiskFull(f"there is no room for {target}: its disk is full. Nothing was changed.") from exc
    except OSError as exc:
        raise errors.StoreError(f"{target} could not be written: {exc.strerror}. Nothing was changed.") from exc


def _find_file(to: PathOrUrl) -> Path:
    """Return the file of the store that a path, a URL or a TOML file names."""
    chosen = load_settings(to)
    named = chosen.file
    if named is None:
        raise errors.ConfigError(f"a {chosen.store.partition('://')[0]} store is {manifests.SERVER_BACKUP_ADVICE}")
    try:
        # A link is not replaced: programs may have the file behind it open.
        path = named.resolve()
    except (OSError, RuntimeError) as exc:
        raise InvalidInput(f"{named} is a link that leads nowhere.") from exc
    if path.is_symlink():  # Python 3.13 resolves a circle of links to itself
        raise InvalidInput(f"{named} is a link that leads nowhere.")
    if not path.parent.is_dir():
        raise InvalidInput(f"the folder {path.parent} does not exist. Make it first.")
    return path


class _PresentStore(NamedTuple):
    """The current store, which knows what was forgotten and erased. If `damaged`, only these records are used."""

    store: Forgetting
    where: str
    damaged: bool = False


@contextmanager
def _open_present(where: PathOrUrl, key: str | None = None) -> Iterator[_PresentStore]:
    """Open the store of the items. It may have `key` instead of its own key."""
    from engrain.core.secrets.urls import hide_secrets
    from engrain.factory import open_whole_store
    from engrain.stores.sqlite import SqliteStore
    from engrain.stores.sqlite.opening import find_key

    chosen = load_settings(where)
    path = chosen.file
    if path is None:
        with closing(open_whole_store(chosen.store)) as store:
            yield _PresentStore(cast("Forgetting", store), hide_secrets(chosen.store))
        return
    # Opening a missing or empty file would make a new store, which has forgotten nothing.
    if not path.exists():
        raise errors.StoreError(f"there is no store {path}.")
    if path.is_file() and path.stat().st_size == 0:
        raise errors.StoreCorrupt(f"{path} is empty.")
    with closing(SqliteStore(path, key=find_key(path, (chosen.key, key, None)))) as file:
        yield _PresentStore(cast("Forgetting", file), str(path), damaged=not file.whole())


def _build_conflict(where: str) -> errors.Conflict:
    return errors.Conflict(f"something was forgotten or erased in {where} meanwhile. Nothing is restored: try again.")


def _find_last_entry(store: Forgetting) -> int:
    last = 0
    while found := store.audit.entries(last, _PAGE_SIZE):
        last = found[-1].n
    return last
