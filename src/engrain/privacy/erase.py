"""Erase a subject from every store and file, verify that nothing is left, and write a receipt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from engrain.core.errors import ConfigError, EngrainError, NotFound, OnHold
from engrain.core.identity import Scope, SortableIds
from engrain.core.model.erasure import SETTLED, Erasure, Subject, owner
from engrain.core.model.items import Item
from engrain.core.model.results import describe_counts, looked_again
from engrain.ports import Erasable, Erasing, Kit
from engrain.ports.storage import Folder
from engrain.privacy.receipts import Receipt, build_receipt

Report = Callable[[str], None]

_MAX_ENTRIES = 1_000_000
_BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
_BATCH = 500
_MAX_SCANS = 3
_log = logging.getLogger("engrain")
_new_id = SortableIds()


@dataclass(frozen=True, slots=True)
class Erased:
    """The result of `erase`.

    Without a receipt it is `pending`. It resumes when the store is opened or maintained next, or with
    `engrain erase --resume`.
    """

    id: str
    counts: Mapping[str, int] = field(default_factory=dict)
    receipt: Receipt | None = None
    why: str = ""  # the reason why it is pending or over
    dry_run: bool = False
    memories: tuple[Scope, ...] = ()  # that a dry run reaches
    over: bool = False  # ended without a receipt: a legal hold came before anything was deleted

    @property
    def pending(self) -> bool:
        return self.receipt is None and not self.dry_run and not self.over

    def __str__(self) -> str:
        if self.receipt:
            values = self.receipt.values
            return f"Erased: {describe_counts(values['counts']) or 'nothing'}.\n{looked_again(values['verified'])}"
        if self.dry_run:
            return f"Would erase: {describe_counts(self.counts) or 'nothing that is in the store'}."
        return f"{'Not erased' if self.over else 'Pending'}: {self.why}"


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of undoing a source. It is true if anything was found or an erasure is running."""

    items: tuple[Item, ...]  # from the source, and derived from it
    kept: tuple[Item, ...] = ()  # because they have another source too
    done: Erased | None = None  # None after a dry run

    def __bool__(self) -> bool:
        return bool(self.items or self.kept or self.done)


class _ErasurePending(Exception):
    """The erasure cannot continue now."""


def require_erasing(kit: Kit) -> Erasing:
    if kit.erasing is None:
        raise ConfigError("this store cannot erase. Use a path such as agent.db, or postgresql://….")
    return kit.erasing


def open_folder(kit: Kit, path: str) -> Folder:
    if kit.open_folder is None:
        raise ConfigError("this memory was opened without access to folders.")
    return kit.open_folder(path)


def erase(kit: Kit, subject: Subject, notes: Mapping[str, Any], report: Report, id: str | None = None) -> Erased:
    """Erase a subject, or continue the running erasure with this `id`.

    `notes` has the `folders` to clean, how many of them the caller `named`, and the audit details of an `undo`.
    """
    report("blocking new writes")
    return _run_stages(kit, id or require_erasing(kit).begin(_new_id(kit.clock()), subject, notes).id, report)


def resume_erasures(kit: Kit, report: Report) -> list[Erased]:
    """Continue all running erasures, whoever started them."""
    return [_resume_one(kit, erasure.id, report) for erasure in require_erasing(kit).running()]


def _resume_one(kit: Kit, id: str, report: Report) -> Erased:
    try:
        return _run_stages(kit, id, report)
    except OnHold as exc:  # a hold came before anything was deleted; the other erasures continue
        return Erased(id, why=str(exc), over=True)


def _run_stages(kit: Kit, id: str, report: Report) -> Erased:
    """Run the stages that are left. Each may run twice, so two processes may run the same erasure."""
    erasure = next((erasure for erasure in require_erasing(kit).running() if erasure.id == id), None)
    try:
        if erasure is not None and erasure.stage == "shut":
            erasure = _delete_rows(kit, erasure, report)
        if erasure is not None and erasure.stage == "rows":
            erasure = _clean_side_stores(kit, erasure, report)
        if erasure is not None:
            return _verify_and_finish(kit, erasure, report)
    except NotFound:
        pass  # another process was faster
    except OnHold:
        raise
    except (_ErasurePending, EngrainError) as exc:
        _log.warning("the erasure %s is not complete yet: %s", id, exc)
        return Erased(id, erasure.counts if erasure else {}, why=str(exc))
    done = next((entry for entry in _list_audit_entries(kit) if entry.details.get("receipt") == id), None)
    if done is None:
        return Erased(id, why="this erasure is no longer in the store.", over=True)
    return Erased(id, done.details["counts"], Receipt.of(done))


def _list_audit_entries(kit: Kit) -> list[Any]:
    return kit.audit.entries(0, _MAX_ENTRIES) if kit.audit else []


def _delete_rows(kit: Kit, erasure: Erasure, report: Report) -> Erasure:
    from engrain.privacy.fingerprints import compute_fingerprints

    report("taking fingerprints of the data")
    # Before anything is deleted: a run that continues after a crash can still search for the data.
    require_erasing(kit).keep(
        erasure.id, erasure.notes, bytes(compute_fingerprints(require_erasing(kit).pieces(erasure.subject)))
    )
    report("removing its rows")
    return require_erasing(kit).take(erasure.id)


def _clean_side_stores(kit: Kit, erasure: Erasure, report: Report) -> Erasure:
    """Erase from the servers and the files, and check each afterwards."""
    report("removing it from the other stores")
    beside = _erase_servers(kit, erasure) if erasure.by == "user" else _erase_episodes(kit, erasure)
    if erasure.by != "user":
        _clean_vector_server(kit, erasure)
    report("removing it from files")
    files, stuck = _clean_folders(kit, erasure)
    counts = {"beside": beside + erasure.notes.get("beside", 0), "files": files + erasure.notes.get("files", 0)}
    # Stored at once: a run that continues here finds nothing more to count.
    require_erasing(kit).keep(erasure.id, {**erasure.notes, **counts}, erasure.prints)
    if stuck:
        raise _ErasurePending(" ".join(stuck))
    if erasure.by == "user" and kit.servers:
        # A write that was running when the user was blocked may have reached a server since.
        time.sleep(SETTLED)
        counts["beside"] += _erase_servers(kit, erasure)
    asked = {name: erasure.notes[name] for name in ("named", "undo") if name in erasure.notes}
    return require_erasing(kit).unname(erasure.id, {**counts, **asked, "owner": _hash_owner(kit, erasure)})


def _clean_folders(kit: Kit, erasure: Erasure) -> tuple[int, list[str]]:
    """Clean all folders. Return how many files were cleaned, and the errors: one folder does not stop another."""
    from engrain.privacy.files import clean_folder

    files, stuck = 0, list[str]()
    for folder in erasure.notes.get("folders", ()):
        try:
            files += clean_folder(kit, open_folder(kit, folder), erasure)
        except EngrainError as exc:
            stuck.append(str(exc) if folder in str(exc) else f"{folder}: {exc}")
    return files, stuck


def _hash_owner(kit: Kit, erasure: Erasure) -> str | None:
    """Return the owner's keyed hash, which their exports carry; None if the memory has no user."""
    user = owner(erasure.subject.scope) if erasure.subject else None
    return require_erasing(kit).mark(user) if user else None


def _erase_servers(kit: Kit, erasure: Erasure) -> int:
    gone, fed = 0, cast("object", kit.feed)
    for server in kit.servers:
        if not isinstance(server, Erasable):
            continue
        try:
            named = server.scopes(erasure.subject) if erasure.subject is not None else []
            scopes = list(dict.fromkeys([*erasure.scopes, *named]))
            if server is fed:
                # It deletes and verifies the points of all removed items in any scope: one call is enough.
                gone += server.erase(scopes[0]) if scopes else 0
                continue
            for scope in scopes:
                gone += server.erase(scope)
                if left := server.left(scope):
                    raise _ErasurePending(f"{left} keys are still on a server.")
        except EngrainError as exc:
            raise _ErasurePending(str(exc)) from exc
    return gone


def _clean_vector_server(kit: Kit, erasure: Erasure) -> None:
    """Delete the points of erased items at once, then wait until the cut items are updated."""
    if kit.feed is None or erasure.subject is None:
        return
    cut = {item.id for item in kit.items.get_many(erasure.subject.scope, erasure.ids)}
    try:
        kit.feed.drop([id for id in erasure.ids if id not in cut])
        while kit.feed.lacks(erasure.subject.scope, cut):
            if not kit.feed.feed(_BATCH):
                raise _ErasurePending("the vector server still has the data, and this role may not write to it.")
    except EngrainError as exc:
        raise _ErasurePending(f"the vector server does not answer: {exc}") from exc


def _erase_episodes(kit: Kit, erasure: Erasure) -> int:
    """Erase a part's episodes from a separate store, which does not see that items are deleted."""
    if kit.state is not None and erasure.subject is not None:
        # Any session's cached state may hold its words. It is only a cache, so all of it goes.
        kit.state.clear(erasure.subject.scope)
    if kit.episodes is None or kit.together or erasure.subject is None:
        return 0
    session = erasure.subject.name if erasure.subject.by == "session" else None
    erased = set(erasure.ids)
    entries = kit.episodes.recent(erasure.subject.scope, None, _MAX_ENTRIES, _BEGINNING_OF_TIME)
    ids = [one.id for one in entries if one.session == session or one.id in erased or one.item in erased]
    return kit.episodes.remove(erasure.subject.scope, ids) if ids else 0


def _verify_and_finish(kit: Kit, erasure: Erasure, report: Report) -> Erased:
    erasing = require_erasing(kit)
    report("overwriting its bytes")
    _purge_or_postpone(kit)
    report("verifying that nothing is left")
    if _count_left(erasing, erasure):
        # A write that was running when the erasure started may have finished since.
        erasure = erasing.take(erasure.id)
        _purge_or_postpone(kit)
        if left := _count_left(erasing, erasure):
            raise _ErasurePending(f"rows are still there: {left}.")
    for _ in range(_MAX_SCANS):
        scanned = _scan_store(erasing, erasure.prints)
        if not scanned["found"]:
            break
        kit.items.purge()
    else:
        raise _ErasurePending(f"{scanned['found']} traces of it are still in the file.")
    receipt = Receipt.of(erasing.finish(erasure.id, build_receipt(kit, erasure, scanned)))
    if kit.audit and "undo" in erasure.notes:
        kit.audit.append("undo", erasure.notes["undo"], erasure.mark)
    return Erased(erasure.id, erasure.counts, receipt)


def _count_left(erasing: Erasing, erasure: Erasure) -> dict[str, int]:
    return {kind: count for kind, count in erasing.left(erasure).items() if count}


def _purge_or_postpone(kit: Kit) -> None:
    if not _try_purge(kit):
        raise _ErasurePending(
            "deleted data is still in the file or the tables: a reader still sees it, or the role may not vacuum. "
            "engrain doctor says which."
        )


def _try_purge(kit: Kit) -> bool:
    """Purge, waiting shortly for other readers."""
    for pause in (0.1, 0.3, 0.6, 0.0):
        if kit.items.purge():
            return True
        time.sleep(pause)
    return False


def _scan_store(erasing: Erasing, raw: bytes) -> dict[str, int]:
    """Search the store's bytes for the erased data. Words that stored data of others has too do not count."""
    import numpy as np

    from engrain.privacy.fingerprints import join_pieces, load_fingerprints, scan_chunks

    if not raw:
        return {"prints": 0, "shared": 0, "bytes": 0, "found": 0}
    prints = load_fingerprints(raw)
    shared = 0
    found, size = scan_chunks(prints, erasing.raw())
    if len(found):
        # After the bytes, so that data written during the search is included.
        kept, _ = scan_chunks(prints, join_pieces(erasing.pieces(None)))
        shared = len(kept)
        found = found[~np.isin(found, kept)]
    return {"prints": len(prints), "shared": shared, "bytes": size, "found": len(found)}
