"""Bring a backup back as a store, without what was forgotten or erased since it was taken."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from engrain.config import Settings, settings
from engrain.core.errors import ConfigError, DiskFull, EngrainError, InvalidInput, StoreBusy, StoreError, WrongKey
from engrain.core.formats.manifests import SERVER_BACKUP_ADVICE, RestoreResult
from engrain.core.model.audit import AuditHead
from engrain.memory.present import UNREADABLE, Present, asked, changed, check_holds, lost, readable, unlocked
from engrain.memory.receipts import Receipts

if TYPE_CHECKING:
    from engrain.privacy.receipts import Receipt
    from engrain.privacy.tombstones import Forgetting
    from engrain.stores.sqlite import SqliteStore
    from engrain.stores.sqlite.engine import Engine, Sealed

PathOrUrl = str | os.PathLike[str]


def restore_backup(
    backup: str | os.PathLike[str],
    to: PathOrUrl,
    *,
    against: PathOrUrl | Sequence[PathOrUrl | Receipt] | None = None,
    key: str | None = None,
    over: bool = False,
    alone: bool = False,
) -> RestoreResult:
    """To a new path, or with `over` in place of the store that is there. If anything is wrong, that stays as it is.

    `against` is the present store, which knows what was forgotten since; without it the one that is replaced does, and
    with neither nobody does. If it is damaged, it is asked as far as it can be read: what was told anew or cut since
    the backup is then not put back. If it is lost, receipts that were kept outside of it (`read_receipts`) say who was
    erased, and what was only forgotten comes back; a list may have both. `alone` asks no store. To pass over one that
    is replaced and is whole is refused. `key` is the backup's, if it is not that of the store that is made; the
    present store may have either, or none.
    """
    from engrain.stores.sqlite.backup import checked, write_copy
    from engrain.stores.sqlite.opening import open_connection
    from engrain.stores.sqlite.placing import making_ready, put_in_place

    chosen, goal = settings(to), goal_of(to)
    if goal.exists() and not over:
        raise InvalidInput(
            f"{goal} is there already. If it is to be replaced, say over=True (--replace); or give a new path."
        )
    place = Path(backup).expanduser().absolute()
    _check_goal(goal, place)
    source, receipts = _who_knows(against, to if goal.exists() else None, key, alone)
    own = source is not None and _same(source, goal)
    site, manifest = checked(place, chosen.engine, key or chosen.key)
    with making_ready(goal) as ready:
        with closing(open_connection(site)) as whole, _room_for(goal):
            write_copy(whole, ready, chosen.key or "")
        if goal.exists():
            check_holds(to, key, needed=own)
        before = _last_word(goal, key, own)
        with ExitStack() as opened:
            present = opened.enter_context(asked(source, key)) if source is not None else None
            items, kept_out = _purged(ready, chosen, manifest.items, present, receipts)
            if own:
                opened.close()

            def unchanged() -> None:
                if _last_word(goal, key, own) != before:
                    raise changed(str(goal))
                if present is not None and not own:
                    present.check()

            put_in_place(ready, goal, unchanged)
    told = RestoreResult(str(goal), manifest, items, kept_out, asked=present is not None)
    told = replace(told, damaged=present is not None and present.damaged)
    return replace(told, receipts=receipts.found) if receipts else told


def _check_goal(goal: Path, backup: Path) -> None:
    """A backup that was written to is none any more."""
    from engrain.core.formats.manifests import MANIFEST_SUFFIX, read_backup_manifest

    beside = goal.with_name(goal.name + MANIFEST_SUFFIX)
    if goal.exists() and backup.exists() and goal.samefile(backup):
        raise InvalidInput(f"{goal} is the backup itself. Give the path of the store that is to be made of it.")
    try:
        found = read_backup_manifest(beside.read_bytes(), str(beside)) if goal.exists() and beside.is_file() else None
    except (EngrainError, OSError):
        return
    if found is not None:
        raise InvalidInput(f"{goal} is a backup itself, and would be lost. Give the path of a store.")


@contextmanager
def _room_for(goal: Path) -> Iterator[None]:
    try:
        yield
    except DiskFull as exc:
        raise DiskFull(f"there is no room for {goal}: its disk is full. Nothing was changed; free some space.") from exc
    except OSError as exc:
        raise StoreError(f"{goal} could not be written: {exc.strerror}. Nothing was changed.") from exc


def goal_of(to: PathOrUrl) -> Path:
    """The file that a path, a URL or a TOML file names as the store."""
    chosen = settings(to)
    scheme, found, rest = chosen.store.partition("://")
    if found and scheme not in ("sqlite", "file"):
        raise ConfigError(f"a {scheme} store is {SERVER_BACKUP_ADVICE}")
    named = Path(rest if found else chosen.store).expanduser()
    try:
        # A link is not replaced: programs may have the file behind it open.
        path = named.resolve()
    except (OSError, RuntimeError) as exc:
        raise InvalidInput(f"{named} is a link that leads nowhere.") from exc
    if not path.parent.is_dir():
        raise InvalidInput(f"the folder {path.parent} does not exist. Make it first.")
    return path


def _who_knows(
    against: PathOrUrl | Sequence[PathOrUrl | Receipt] | None, replaced: PathOrUrl | None, key: str | None, alone: bool
) -> tuple[PathOrUrl | None, Receipts | None]:
    """The store that is asked what was forgotten, and the receipts."""
    given = [against] if isinstance(against, (str, os.PathLike)) else list(against or ())
    stores = [one for one in given if isinstance(one, (str, os.PathLike))]
    kept = [one for one in given if not isinstance(one, (str, os.PathLike))]
    receipts = Receipts(kept) if kept else None
    if len(stores) > 1:
        raise InvalidInput("one store says what was forgotten since the backup, and receipts beside it: name one.")
    other = alone or (stores and replaced is not None and not _same(stores[0], goal_of(replaced)))
    if other and replaced is not None and readable(replaced, key, whole=True):
        wrong = "alone=True (--alone)" if alone else "against (--against)"
        raise InvalidInput(
            f"{replaced} is there and can be read: leave out {wrong}, and what was forgotten in it stays out. If it is "
            "not to be asked, restore to a new path."
        )
    if alone:
        return None, receipts
    if not stores and receipts and replaced is not None and not readable(replaced, key):
        return None, receipts
    return stores[0] if stores else replaced, receipts


def _opened(path: Path, chosen: Settings) -> SqliteStore:
    from engrain.stores.sqlite import SqliteStore

    return SqliteStore(path, engine=_engine(chosen))


def _engine(chosen: Settings) -> Engine | Sealed:
    from engrain.stores.sqlite.engine import Sealed

    return chosen.engine if chosen.key is None else Sealed(chosen.key, chosen.engine)


def _last_word(goal: Path, key: str | None, own: bool) -> AuditHead | None:
    """None also of a store that cannot be read, if another is asked in its place, or none."""
    from engrain.stores.sqlite.placing import last_word

    try:
        return last_word(goal, unlocked(goal, key)) if goal.exists() else None
    except UNREADABLE as exc:
        if own:
            raise exc if isinstance(exc, WrongKey) else lost(goal, exc) from exc
        return None


def _same(source: PathOrUrl, goal: Path) -> bool:
    try:
        return goal.exists() and goal.samefile(goal_of(source))
    except (ConfigError, OSError):
        return False


def _purged(
    ready: Path, chosen: Settings, items: int, present: Present | None, receipts: Receipts | None
) -> tuple[int, Mapping[str, int] | None]:
    """How many items are left in it, and what was taken out."""
    with closing(_opened(ready, chosen)) as opened:
        restored = cast("Forgetting", opened)
        if receipts:
            receipts.look(opened)
        # The store first: it puts back what stands in it, and what receipts name beyond that goes for good.
        known = [one for one in (present, receipts) if one is not None]
        kept_out: Counter[str] = Counter()
        for one in known:
            kept_out.update(one.replay(restored))
        told = {"items": items, "kept_out": kept_out.total(), "alone": not known}
        opened.audit.append("restore", {**told, "receipts": receipts.told} if receipts else told)
        if not opened.purge():
            raise StoreBusy(f"{ready} is in use: close the programs that read it, then try again.")
        return opened.status().items, dict(kept_out) if known else None
