"""Take what was erased out of a folder of files beside a memory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from engrain.core.errors import Conflict, StoreError
from engrain.core.markdown.folder_names import has_placeholder
from engrain.core.markdown.sync_state import CONFLICTS, MEMORY, OVERFLOW, SOUL, SYNC_BASE
from engrain.core.model.erasure import Erasure, Subject
from engrain.mirror.mirror import LOCK_TIMEOUT_SECONDS, Mirror
from engrain.ports import Services
from engrain.ports.storage import Folder
from engrain.privacy.fingerprints import Fingerprints, compute_fingerprints, join_pieces, load_fingerprints, scan_chunks

MAX_NAMED_FILES = 5

_log = logging.getLogger("engrain")


def clean_folder(services: Services, folder: Folder, one: Erasure) -> int:
    """How many files went, or had words of it. Of a user all go; of a part, what a sync takes out.

    StoreError if a person's own lines still say it: nobody else may edit those. A folder that is gone is clean."""
    if _is_missing(folder):
        _log.warning("%s is not there any more: nothing was to be cleaned in it.", folder.path)
        return 0
    if one.by == "user":
        gone = _remove_all(folder)
        if (
            services.folder
            and has_placeholder(services.policies.mirror)
            and folder.path in {services.folder(own).path for own in one.scopes}
        ):
            folder.leave()  # its name is that of the user
            _warn_about_leftovers(Path(folder.path))
        return gone
    if one.subject is None or services.erasing is None:
        return 0
    prints = load_fingerprints(one.prints)
    before, as_it_was = _list_matching_files(folder, prints), folder.signature()
    Mirror(services, one.subject.scope, folder).sync()
    # What stays may have words in common with it.
    kept, _ = scan_chunks(prints, join_pieces(services.erasing.pieces(None)))
    if after := _list_matching_files(folder, prints.without(kept)):
        raise StoreError(
            f"{folder.path}/{after[0]} still says it. Take it out of the file, then: engrain erase --resume."
        )
    # Of what a server holds no prints are taken.
    return len(before) if len(prints) else int(folder.signature() != as_it_was)


def _is_missing(folder: Folder) -> bool:
    try:
        os.stat(folder.path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # to read it says why it cannot be
    return False


def count_files(services: Services, folder: Folder, subject: Subject) -> int:
    """How many `clean_folder` would clean."""
    if subject.by == "user":
        return sum(folder.read(name) is not None for name in _list_file_names(folder))
    return (
        len(_list_matching_files(folder, compute_fingerprints(services.erasing.pieces(subject))))
        if services.erasing
        else 0
    )


def _list_matching_files(folder: Folder, prints: Fingerprints) -> list[str]:
    return [name for name in _list_file_names(folder) if len(scan_chunks(prints, [folder.read(name) or b""])[0])]


def _remove_all(folder: Folder) -> int:
    gone = 0
    with folder.lock(LOCK_TIMEOUT_SECONDS):
        for name in _list_file_names(folder):
            was = folder.read(name)
            if was is not None:
                try:
                    folder.remove(name, was)
                except Conflict as exc:
                    raise StoreError(f"{folder.path}/{name} is being written: {exc}") from exc
                gone += 1
    return gone


def _warn_about_leftovers(path: Path) -> None:
    """What is somebody's own is not ours to remove, and whoever erases must know of it."""
    if left := sorted(one.name for one in path.iterdir()) if path.is_dir() else []:
        more = f" and {len(left) - MAX_NAMED_FILES:,} more" if len(left) > MAX_NAMED_FILES else ""
        named = ", ".join(left[:MAX_NAMED_FILES])
        _log.warning("%s stays, for what is not engrain's in it: %s%s. Remove it by hand.", path, named, more)


def _list_file_names(folder: Folder) -> list[str]:
    return [SOUL, MEMORY, OVERFLOW, CONFLICTS, *folder.days(), SYNC_BASE]
