"""Restore a backup as a store, without what was forgotten or erased since."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from engrain.config import Settings, load_settings
from engrain.core import errors
from engrain.core.errors import InvalidInput
from engrain.core.formats import manifests
from engrain.core.formats.manifests import RestoreResult
from engrain.memory.replay import PathOrUrl, changed_meanwhile, open_present

if TYPE_CHECKING:
    from engrain.core.model.audit import AuditHead
    from engrain.privacy.receipts import Receipt
    from engrain.privacy.tombstones import Forgetting
    from engrain.stores.sqlite import SqliteStore

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

    The replaced store says what was forgotten or erased since the backup, and that stays out. If it is damaged, or `to`
    is new, forgotten items may be back: the result says so. `receipts` keep erased people out in every case: `Receipt`
    values, or paths of receipt files and folders. `key` is the key of the backup, if the store gets another one. A
    legal hold in the replaced store refuses. The copy is made beside `to`, checked, cleaned and then renamed: after an
    error the old store is as it was."""
    from engrain.privacy.receipts import read_receipts
    from engrain.stores.sqlite.backup import check_backup, prepare_copy, replace_store, write_copy
    from engrain.stores.sqlite.opening import open_connection

    chosen, target = load_settings(to), _find_file(to)
    source = Path(backup).expanduser().absolute()
    _check_target(target, source, force)
    named = read_receipts(receipts)
    file, manifest = check_backup(source, chosen.engine, key or chosen.key)
    with prepare_copy(target) as copy:
        with closing(open_connection(file)) as whole, _room_for(target):
            write_copy(whole, copy, chosen.key or "")
        head = _read_head(target, chosen, key)
        cleaned = _clean(copy, target, chosen, key, named)

        def check_unchanged() -> None:
            if _read_head(target, chosen, key) != head:
                raise changed_meanwhile(str(target))

        replace_store(copy, target, check_unchanged)
    return RestoreResult(str(target), manifest, *cleaned)


class _Cleaned(NamedTuple):
    items: int
    kept_out: Mapping[str, int]
    receipts: Mapping[str, int]
    may_hold_forgotten: bool


def _clean(copy: Path, target: Path, chosen: Settings, key: str | None, named: Sequence[Receipt]) -> _Cleaned:
    """Remove from the copy what was forgotten or erased since, down to the bytes."""
    from engrain.privacy.receipts import list_digests
    from engrain.privacy.tombstones import count_named, replay_receipts
    from engrain.stores.sqlite import SqliteStore
    from engrain.stores.sqlite.connection import EncryptedEngine

    engine = chosen.engine if chosen.key is None else EncryptedEngine(chosen.key, chosen.engine)
    with closing(SqliteStore(copy, engine=engine)) as restored:
        items, counts = restored.status().items, count_named(named, restored.erasing.left_of)
        # The replaced store first: it puts back what stands in it, and receipts may name that too.
        kept_out, may_hold_forgotten = _remove_forgotten(restored, target, key)
        kept_out.update(replay_receipts(named, cast("Forgetting", restored)))
        details = {"items": items, "kept_out": kept_out.total(), "may_hold_forgotten": may_hold_forgotten}
        restored.audit.append("restore", {**details, **list_digests(named)})
        if not restored.purge():
            raise errors.StoreBusy(f"{copy} is in use: close the programs that read it, then try again.")
        return _Cleaned(restored.status().items, dict(kept_out), counts, may_hold_forgotten)


def _remove_forgotten(restored: SqliteStore, target: Path, key: str | None) -> tuple[Counter[str], bool]:
    """Ask the replaced store: the removed rows by kind, and whether there may be more."""
    from engrain.privacy.tombstones import replay

    if not target.exists():
        return Counter(), True
    with _unless_damaged(target), open_present(target, key) as present:
        if holds := present.store.erasing.holds():
            raise errors.OnHold(
                f"a legal hold ({holds[0].reason}) is on somebody in the store that would be replaced. Restore to a "
                "new path and keep the old store, or end the hold: engrain hold --user … --release."
            )
        copy = cast("Forgetting", restored)
        rows = copy.together(lambda: replay(present.store, copy, damaged=present.damaged))
        return Counter(rows), present.damaged
    return Counter(), True


def _read_head(target: Path, chosen: Settings, key: str | None) -> AuditHead | None:
    """The end of the audit log. None if there is no store, or it is damaged beyond reading."""
    from engrain.stores.sqlite.backup import read_audit_head
    from engrain.stores.sqlite.opening import find_engine

    if target.exists():
        with _unless_damaged(target):
            return read_audit_head(target, find_engine(target, chosen.engine, (chosen.key, key, None)))
    return None


@contextmanager
def _unless_damaged(target: Path) -> Iterator[None]:
    """Leave the block if the store is damaged beyond reading; a wrong key is still an error."""
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
    beside = path.with_name(path.name + manifests.MANIFEST_SUFFIX)
    try:
        return bool(manifests.read_backup_manifest(beside.read_bytes(), str(beside)))
    except (errors.EngrainError, OSError):
        return False


@contextmanager
def _room_for(target: Path) -> Iterator[None]:
    try:
        yield
    except errors.DiskFull as exc:
        raise errors.DiskFull(f"there is no room for {target}: its disk is full. Nothing was changed.") from exc
    except OSError as exc:
        raise errors.StoreError(f"{target} could not be written: {exc.strerror}. Nothing was changed.") from exc


def _find_file(to: PathOrUrl) -> Path:
    """The file that a path, a URL or a TOML file names as the store."""
    chosen = load_settings(to)
    scheme, found, rest = chosen.store.partition("://")
    if found and scheme not in ("sqlite", "file"):
        raise errors.ConfigError(f"a {scheme} store is {manifests.SERVER_BACKUP_ADVICE}")
    named = Path(rest if found else chosen.store).expanduser()
    try:
        # A link is not replaced: programs may have the file behind it open.
        path = named.resolve()
    except (OSError, RuntimeError) as exc:
        raise InvalidInput(f"{named} is a link that leads nowhere.") from exc
    if not path.parent.is_dir():
        raise InvalidInput(f"the folder {path.parent} does not exist. Make it first.")
    return path
