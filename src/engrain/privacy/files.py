"""Take what was erased out of a folder of files beside a memory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from engrain.core.errors import Conflict, StoreError
from engrain.core.markdown.sync_state import BASE, CONFLICTS, MEMORY, OVERFLOW, SOUL, for_each
from engrain.core.model.erasure import Erasure, Subject
from engrain.mirror.mirror import LOCK_TIMEOUT_SECONDS, Mirror
from engrain.ports import Kit
from engrain.ports.storage import Folder
from engrain.privacy.fingerprints import Prints, joined, looked_for, prints_from, prints_of

SHOWN = 5

_log = logging.getLogger("engrain")


def clean_folder(kit: Kit, folder: Folder, one: Erasure) -> int:
    """How many files went, or had words of it. Of a user all go; of a part, what a sync takes out.

    StoreError if a person's own lines still say it: nobody else may edit those. A folder that is gone is clean."""
    if _is_gone(folder):
        _log.warning("%s is not there any more: nothing was to be cleaned in it.", folder.path)
        return 0
    if one.by == "user":
        gone = _remove_all(folder)
        if kit.folder and for_each(kit.policies.mirror) and folder.path in {kit.folder(own).path for own in one.scopes}:
            folder.leave()  # its name is that of the user
            _tell_left(Path(folder.path))
        return gone
    if one.subject is None or kit.erasing is None:
        return 0
    prints = prints_from(one.prints)
    before, as_it_was = _saying(folder, prints), folder.signature()
    Mirror(kit, one.subject.scope, folder).sync()
    # What stays may have words in common with it.
    kept, _ = looked_for(prints, joined(kit.erasing.pieces(None)))
    if after := _saying(folder, prints.without(kept)):
        raise StoreError(
            f"{folder.path}/{after[0]} still says it. Take it out of the file, then: engrain erase --resume."
        )
    # Of what a server holds no prints are taken.
    return len(before) if len(prints) else int(folder.signature() != as_it_was)


def _is_gone(folder: Folder) -> bool:
    try:
        os.stat(folder.path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # to read it says why it cannot be
    return False


def count_files(kit: Kit, folder: Folder, subject: Subject) -> int:
    """How many `clean_folder` would clean."""
    if subject.by == "user":
        return sum(folder.read(name) is not None for name in _names(folder))
    return len(_saying(folder, prints_of(kit.erasing.pieces(subject)))) if kit.erasing else 0


def _saying(folder: Folder, prints: Prints) -> list[str]:
    return [name for name in _names(folder) if len(looked_for(prints, [folder.read(name) or b""])[0])]


def _remove_all(folder: Folder) -> int:
    gone = 0
    with folder.lock(LOCK_TIMEOUT_SECONDS):
        for name in _names(folder):
            was = folder.read(name)
            if was is not None:
                try:
                    folder.remove(name, was)
                except Conflict as exc:
                    raise StoreError(f"{folder.path}/{name} is being written: {exc}") from exc
                gone += 1
    return gone


def _tell_left(path: Path) -> None:
    """What is somebody's own is not ours to remove, and whoever erases must know of it."""
    if left := sorted(one.name for one in path.iterdir()) if path.is_dir() else []:
        more = f" and {len(left) - SHOWN:,} more" if len(left) > SHOWN else ""
        named = ", ".join(left[:SHOWN])
        _log.warning("%s stays, for what is not engrain's in it: %s%s. Remove it by hand.", path, named, more)


def _names(folder: Folder) -> list[str]:
    return [SOUL, MEMORY, OVERFLOW, CONFLICTS, *folder.days(), BASE]
