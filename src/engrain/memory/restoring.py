"""Bring a backup back as a store, without what was forgotten or erased since it was taken."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, cast

from engrain.config import Settings, settings
from engrain.core.audit import Head
from engrain.core.backups import TOOLS, Restored
from engrain.core.errors import ConfigError, Conflict, InvalidInput, OnHold, StoreBusy

if TYPE_CHECKING:
    from engrain.lifecycle.erasure.replay import Forgetting
    from engrain.stores.sqlite import SqliteStore
    from engrain.stores.sqlite.engine import Engine, Sealed

PathOrUrl = str | os.PathLike[str]


def restore_backup(
    backup: str | os.PathLike[str],
    to: PathOrUrl,
    *,
    against: PathOrUrl | None = None,
    key: str | None = None,
    over: bool = False,
    alone: bool = False,
) -> Restored:
    """To a new path, or with `over` in place of the store that is there. If anything is wrong, that stays as it is.

    `against` is the present store, which knows what was forgotten since; without it the one that is replaced does, and
    with neither, or `alone`, nobody does. `key` is the backup's, if it is not that of the store.
    """
    from engrain.stores.sqlite.backup import checked, write_copy
    from engrain.stores.sqlite.opening import open_connection
    from engrain.stores.sqlite.placing import clear, last_word, put_in_place

    chosen, goal = settings(to), goal_of(to)
    if goal.exists() and not over:
        raise InvalidInput(f"{goal} is there already. Say --replace if it is to be replaced, or give a new path.")
    present = None if alone else against if against is not None else to if goal.exists() else None
    site, manifest = checked(Path(backup).expanduser().absolute(), chosen.engine, key or chosen.key)
    # Made ready beside its place, so that nobody opens it before the last word is out.
    ready = goal.with_name(f"{goal.name}.restoring")
    clear(ready)
    try:
        with closing(open_connection(site)) as whole:
            write_copy(whole, ready, chosen.key or "")
        if goal.exists() and not alone:
            _check_holds(to)
        before = None if alone else last_word(goal, _engine(chosen))
        with closing(_opened(ready, chosen)) as restored:
            kept_out = None if present is None else _kept_out(present, cast("Forgetting", restored))
            told = {"items": manifest.items, "kept_out": sum((kept_out or {}).values()), "alone": present is None}
            restored.audit.append("restore", told)
            if not restored.purge():
                raise StoreBusy(f"{ready} is in use: close the programs that read it, then try again.")
            items = restored.status().items
        put_in_place(ready, goal, lambda: None if alone else _check_unchanged(goal, chosen, before))
    finally:
        clear(ready)
    return Restored(str(goal), manifest, items, kept_out)


def goal_of(to: PathOrUrl) -> Path:
    """The file that a path, a URL or a TOML file names as the store."""
    chosen = settings(to)
    scheme, found, rest = chosen.store.partition("://")
    if found and scheme not in ("sqlite", "file"):
        raise ConfigError(f"a {scheme} store is {TOOLS}")
    path = Path(rest if found else chosen.store).expanduser().absolute()
    if not path.parent.is_dir():
        raise InvalidInput(f"the folder {path.parent} does not exist. Make it first.")
    return path


def _opened(path: Path, chosen: Settings) -> SqliteStore:
    from engrain.stores.sqlite import SqliteStore

    return SqliteStore(path, engine=_engine(chosen))


def _engine(chosen: Settings) -> Engine | Sealed:
    from engrain.stores.sqlite.engine import Sealed

    return chosen.engine if chosen.key is None else Sealed(chosen.key, chosen.engine)


def _check_unchanged(goal: Path, chosen: Settings, before: Head | None) -> None:
    from engrain.stores.sqlite.placing import last_word

    if last_word(goal, _engine(chosen)) != before:
        raise Conflict(f"something was forgotten or erased in {goal} meanwhile. Nothing is restored: try again.")


def _check_holds(replaced: PathOrUrl) -> None:
    """What a held user has said since the backup would be lost."""
    from engrain.wiring import open_movable

    with closing(open_movable(settings(replaced).store)) as known:
        holds = cast("Forgetting", known).erasing.holds()
    if holds:
        raise OnHold(
            f"a legal hold ({holds[0].reason}) is on somebody in the store that would be replaced. Restore to a new "
            "path with --against and keep the old store, or end the hold: engrain hold --user … --release."
        )


def _kept_out(present: PathOrUrl, restored: Forgetting) -> Mapping[str, int]:
    from engrain.lifecycle.erasure.replay import replay
    from engrain.wiring import open_movable

    # The store of items alone: what was forgotten is known there.
    with closing(open_movable(settings(present).store)) as known:
        return replay(cast("Forgetting", known), restored)
