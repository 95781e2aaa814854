"""Remove erased data from a folder that mirrors a memory."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from engrain.core.errors import Conflict, StoreError
from engrain.core.markdown.layout import has_placeholder
from engrain.core.markdown.sync_state import CONFLICTS, MEMORY, OVERFLOW, SOUL, SYNC_BASE
from engrain.core.model.erasure import Erasure, Subject
from engrain.core.model.results import list_first
from engrain.mirror.mirror import LOCK_TIMEOUT_SECONDS, Mirror
from engrain.ports import Services
from engrain.ports.storage import Folder
from engrain.privacy.fingerprints import Fingerprints, compute_fingerprints, join_pieces, load_fingerprints, scan_chunks

MAX_NAMED_FILES = 5

_log = logging.getLogger("engrain")


def clean_folder(services: Services, folder: Folder, erasure: Erasure) -> int:
    """Remove all files of a user, or sync the folder for a part. Return how many files had data of it.

    StoreError if a person's own lines still have the words: only the person may edit those. A missing folder is clean.
    """
    with suppress(PermissionError):  # reading it raises the error
        if not Path(folder.path).exists():
            _log.warning("%s does not exist: there is nothing to clean in it.", folder.path)
            return 0
    if erasure.by == "user":
        gone = _remove_all(folder)
        own = {services.folder(scope).path for scope in erasure.scopes} if services.folder else set()
        if folder.path in own and has_placeholder(services.policies.mirror):
            folder.leave()  # the folder's name is the user's
            _warn_about_leftovers(Path(folder.path))
        return gone
    if erasure.subject is None or services.erasing is None:
        return 0
    prints = load_fingerprints(erasure.prints)
    before, as_it_was = _list_matching_files(folder, prints), folder.signature()
    Mirror(services, erasure.subject.scope, folder).sync()
    # Data that stays may have words in common with it.
    shared, _ = scan_chunks(prints, join_pieces(services.erasing.search_terms(None)))
    if after := _list_matching_files(folder, prints.without(shared)):
        raise StoreError(
            f"{folder.path}/{after[0]} still has the erased words. Remove them from the file, then run: "
            "engrain erase --resume"
        )
    # Without fingerprints (a server's data has none), a changed folder counts as one file.
    return len(before) if len(prints) else int(folder.signature() != as_it_was)


def count_files(services: Services, folder: Folder, subject: Subject) -> int:
    """Count the files that `clean_folder` would clean."""
    if subject.by == "user":
        return sum(folder.read(name) is not None for name in _list_file_names(folder))
    if services.erasing is None:
        return 0
    return len(_list_matching_files(folder, compute_fingerprints(services.erasing.search_terms(subject))))


def _list_matching_files(folder: Folder, prints: Fingerprints) -> list[str]:
    return [name for name in _list_file_names(folder) if len(scan_chunks(prints, [folder.read(name) or b""])[0])]


def _remove_all(folder: Folder) -> int:
    gone = 0
    with folder.lock(LOCK_TIMEOUT_SECONDS):
        for name in _list_file_names(folder):
            content = folder.read(name)
            if content is not None:
                try:
                    folder.remove(name, content)
                except Conflict as exc:
                    raise StoreError(f"{folder.path}/{name} is being written: {exc}") from exc
                gone += 1
    return gone


def _warn_about_leftovers(path: Path) -> None:
    """Warn about files that engrain did not write: they are not ours to remove."""
    if left := sorted(file.name for file in path.iterdir()) if path.is_dir() else []:
        named = list_first(left, MAX_NAMED_FILES)
        _log.warning("%s stays, because engrain did not write: %s. Remove it by hand.", path, named)


def _list_file_names(folder: Folder) -> list[str]:
    return [SOUL, MEMORY, OVERFLOW, CONFLICTS, *folder.days(), SYNC_BASE]
