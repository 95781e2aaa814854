"""Erase a subject from every store and file, verify that nothing is left, and write a receipt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from engrain.core.errors import ConfigError, Conflict, EngrainError, NotFound, OnHold, StoreError, raise_interrupt
from engrain.core.identity import Scope, SortableIds
from engrain.core.markdown.layout import has_placeholder
from engrain.core.markdown.three_way_merge import CONFLICTS, MEMORY, OVERFLOW, SOUL, SYNC_BASE
from engrain.core.model.audit import AuditEntry
from engrain.core.model.erasure import SETTLE_SECONDS, Erasure, Subject, find_owner
from engrain.core.model.items import Item
from engrain.core.model.results import Progress, describe_counts, describe_verification, list_first, stage_progress
from engrain.mirror.mirror import LOCK_TIMEOUT_SECONDS, Mirror
from engrain.ports import Services
from engrain.ports.erasure import Erasable, Erasing
from engrain.ports.storage import Folder
from engrain.privacy.audit import MAX_ENTRIES
from engrain.privacy.fingerprints import Fingerprints, compute_fingerprints, join_pieces, load_fingerprints, scan_chunks
from engrain.privacy.receipts import Receipt, build_receipt

Report = Callable[[str], None]

_BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
_BATCH = 500
_MAX_SCANS = 3
_log = logging.getLogger("engrain")
_new_id = SortableIds()


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A checked request.

    `notes` has the `folders` to clean, how many of them the caller `named`, and the audit details of an `undo`.
    """

    subject: Subject
    notes: Mapping[str, Any]
    running: str | None = (
        None  # the id of an erasure that covers it: a running one, or the complete one of this request
    )
    id: str | None = None  # made from the caller's request id


@dataclass(frozen=True, slots=True)
class ErasureResult:
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
            erased = describe_counts(values["counts"]) or "nothing"
            return f"Erased: {erased}.\n{describe_verification(values['verified'])}"
        if self.dry_run:
            return f"Would erase: {describe_counts(self.counts) or 'nothing that is in the store'}."
        return f"{'Not erased' if self.over else 'Pending'}: {self.why}"


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result of undoing a source. It is true if anything was found or an erasure is running."""

    items: tuple[Item, ...]  # from the source, and derived from it
    kept: tuple[Item, ...] = ()  # because they have another source too
    done: ErasureResult | None = None  # None after a dry run

    def __bool__(self) -> bool:
        return bool(self.items or self.kept or self.done)


class _ErasurePending(Exception):
    """The erasure cannot continue now."""


def require_erasing(services: Services) -> Erasing:
    if services.erasing is None:
        raise ConfigError("this store cannot erase. Use a path such as agent.db, or postgresql://….")
    return services.erasing


def open_folder(services: Services, path: str) -> Folder:
    if services.open_folder is None:
        raise ConfigError("this memory was opened without access to folders.")
    return services.open_folder(path)


def erase(services: Services, request: ErasureRequest, progress: Progress | None) -> ErasureResult:
    """Start the requested erasure, or continue the running one that covers it."""
    report = stage_progress(progress)
    report("blocking new writes")
    id = request.running
    if id is None:
        id = request.id or _new_id(services.clock())
        id = require_erasing(services).begin(id, request.subject, request.notes).id
    return _run_stages(services, id, report)


def resume_erasures(services: Services, report: Report) -> list[ErasureResult]:
    """Continue all running erasures, whoever started them."""
    results = []
    for erasure in require_erasing(services).running():
        try:
            results.append(_run_stages(services, erasure.id, report))
        except OnHold as exc:  # a hold came before anything was deleted; the other erasures continue
            results.append(ErasureResult(erasure.id, why=str(exc), over=True))
    return results


def _run_stages(services: Services, id: str, report: Report) -> ErasureResult:
    """Run the stages that are left. Each may run twice, so two processes may run the same erasure."""
    erasure = next((erasure for erasure in require_erasing(services).running() if erasure.id == id), None)
    try:
        if erasure is not None and erasure.stage == "blocked":
            erasure = _delete_rows(services, erasure, report)
        if erasure is not None and erasure.stage == "deleted":
            erasure = _clean_side_stores(services, erasure, report)
        if erasure is not None:
            return _verify_and_finish(services, erasure, report)
    except NotFound:
        pass  # another process was faster
    except OnHold:
        raise
    except (_ErasurePending, EngrainError) as exc:
        raise_interrupt(exc)
        _log.warning("the erasure %s is not complete yet: %s", id, exc)
        return ErasureResult(id, erasure.counts if erasure else {}, why=str(exc))
    done = find_receipt(services, id)
    if done is None:
        return ErasureResult(id, why="this erasure is no longer in the store.", over=True)
    return ErasureResult(id, done.details["counts"], Receipt.of(done))


def find_receipt(services: Services, id: str) -> AuditEntry | None:
    """Return the entry of a complete erasure in the audit log."""
    log = services.audit.entries(0, MAX_ENTRIES) if services.audit else []
    return next((entry for entry in log if entry.details.get("receipt") == id), None)


def _delete_rows(services: Services, erasure: Erasure, report: Report) -> Erasure:
    from engrain.privacy.fingerprints import compute_fingerprints

    erasing = require_erasing(services)
    report("taking fingerprints of the data")
    # Before anything is deleted: a run that continues after a crash can still search for the data.
    fingerprints = compute_fingerprints(erasing.search_terms(erasure.subject))
    erasing.save_progress(erasure.id, erasure.notes, bytes(fingerprints))
    report("removing its rows")
    return erasing.delete_rows(erasure.id)


def _clean_side_stores(services: Services, erasure: Erasure, report: Report) -> Erasure:
    """Erase from the servers and the files, and check each afterwards."""
    erasing = require_erasing(services)
    report("removing it from the other stores")
    beside = _erase_servers(services, erasure) if erasure.by == "user" else _erase_episodes(services, erasure)
    if erasure.by != "user":
        _clean_vector_server(services, erasure)
    report("removing it from files")
    files, stuck = _clean_folders(services, erasure)
    counts = {
        "other_servers": beside + erasure.notes.get("other_servers", 0),
        "files": files + erasure.notes.get("files", 0),
    }
    # Stored at once: a run that continues here finds nothing more to count.
    erasing.save_progress(erasure.id, {**erasure.notes, **counts}, erasure.prints)
    if stuck:
        raise _ErasurePending(" ".join(stuck))
    if erasure.by == "user" and services.servers:
        # A write that was running when the user was blocked may have reached a server since.
        time.sleep(SETTLE_SECONDS)
        counts["other_servers"] += _erase_servers(services, erasure)
    asked = {name: erasure.notes[name] for name in ("named", "undo") if name in erasure.notes}
    # The owner's keyed hash, which their exports carry; None if the memory has no user.
    user = find_owner(erasure.subject.scope) if erasure.subject else None
    owner = erasing.hash_subject(user) if user else None
    return erasing.anonymize(erasure.id, {**counts, **asked, "owner": owner})


def _clean_folders(services: Services, erasure: Erasure) -> tuple[int, list[str]]:
    """Clean all folders. Return how many files were cleaned, and the errors: one folder does not stop another."""
    files, stuck = 0, list[str]()
    for folder in erasure.notes.get("folders", ()):
        try:
            files += clean_folder(services, open_folder(services, folder), erasure)
        except EngrainError as exc:
            raise_interrupt(exc)
            stuck.append(str(exc) if folder in str(exc) else f"{folder}: {exc}")
    return files, stuck


def _erase_servers(services: Services, erasure: Erasure) -> int:
    gone, fed = 0, cast("object", services.feed)
    for server in services.servers:
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
                if left := server.count_remaining(scope):
                    raise _ErasurePending(f"{left} keys are still on a server.")
        except EngrainError as exc:
            raise_interrupt(exc)
            raise _ErasurePending(str(exc)) from exc
    return gone


def _clean_vector_server(services: Services, erasure: Erasure) -> None:
    """Delete the points of erased items at once, then wait until the cut items are updated."""
    if services.feed is None or erasure.subject is None:
        return
    cut = {item.id for item in services.items.get_many(erasure.subject.scope, erasure.ids)}
    try:
        services.feed.drop([id for id in erasure.ids if id not in cut])
        while services.feed.lacks(erasure.subject.scope, cut):
            if not services.feed.feed(_BATCH):
                raise _ErasurePending("the vector server still has the data, and this role may not write to it.")
    except EngrainError as exc:
        raise_interrupt(exc)
        raise _ErasurePending(f"the vector server does not answer: {exc}") from exc


def _erase_episodes(services: Services, erasure: Erasure) -> int:
    """Erase a part's episodes from a separate store, which does not see that items are deleted."""
    if services.state is not None and erasure.subject is not None:
        # Any session's cached state may hold its words. It is only a cache, so all of it goes.
        services.state.clear(erasure.subject.scope)
    if services.episodes is None or services.same_store or erasure.subject is None:
        return 0
    session = erasure.subject.name if erasure.subject.by == "session" else None
    erased = set(erasure.ids)
    entries = services.episodes.recent(erasure.subject.scope, None, MAX_ENTRIES, _BEGINNING_OF_TIME)
    ids = [entry.id for entry in entries if entry.session == session or entry.id in erased or entry.item in erased]
    return services.episodes.remove(erasure.subject.scope, ids) if ids else 0


def _verify_and_finish(services: Services, erasure: Erasure, report: Report) -> ErasureResult:
    erasing = require_erasing(services)
    report("overwriting its bytes")
    _purge_or_postpone(services)
    report("verifying that nothing is left")
    if _count_left(erasing, erasure):
        # A write that was running when the erasure started may have finished since.
        erasure = erasing.delete_rows(erasure.id)
        _purge_or_postpone(services)
        if left := _count_left(erasing, erasure):
            raise _ErasurePending(f"rows are still there: {left}.")
    for _ in range(_MAX_SCANS):
        scanned = _scan_store(erasing, erasure.prints, report)
        if not scanned["found"]:
            break
        services.items.purge()
    else:
        raise _ErasurePending(f"{scanned['found']} traces of it are still in the file.")
    if services.audit and "undo" in erasure.notes:
        log = services.audit.entries(0, MAX_ENTRIES)
        # Before the end, or a kill in between would lose it.
        if not any(
            (entry.what, entry.subject) == ("undo", erasure.subject_hash) and entry.at >= erasure.at for entry in log
        ):
            services.audit.append("undo", erasure.notes["undo"], erasure.subject_hash)
    receipt = Receipt.of(erasing.complete(erasure.id, build_receipt(services, erasure, scanned)))
    return ErasureResult(erasure.id, receipt.values["counts"], receipt)


def _count_left(erasing: Erasing, erasure: Erasure) -> dict[str, int]:
    return {kind: count for kind, count in erasing.count_remaining(erasure).items() if count}


def _purge_or_postpone(services: Services) -> None:
    for pause in (0.1, 0.3, 0.6, 0.0):  # another reader may end soon
        if services.items.purge():
            return
        time.sleep(pause)
    raise _ErasurePending(
        "deleted data is still in the file or the tables: a reader still sees it, or the role may not vacuum. "
        "engrain doctor says which."
    )


def _scan_store(erasing: Erasing, raw: bytes, report: Report) -> dict[str, int]:
    """Search the store's bytes for the erased data. Words that stored data of others has too do not count.

    `report` is called for each chunk, so that it can interrupt a long search.
    """
    import numpy as np

    from engrain.privacy.fingerprints import find_traces, load_fingerprints

    if not raw:
        return {"samples": 0, "shared": 0, "bytes": 0, "found": 0}
    prints = load_fingerprints(raw)

    def read_chunks() -> Iterator[bytes]:
        for chunk in erasing.raw():
            report("searching the bytes of the store")
            yield chunk

    found, shared, size = find_traces(prints, read_chunks(), erasing.search_terms(None))
    return {"samples": len(prints), "shared": len(shared), "bytes": size, "found": len(np.setdiff1d(found, shared))}


MAX_NAMED_FILES = 5


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
