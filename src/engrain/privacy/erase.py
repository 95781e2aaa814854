"""Erase a subject from every store and file, look that nothing is left, and give a receipt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from engrain.core.errors import ConfigError, EngrainError, NotFound, OnHold
from engrain.core.identity import Scope, SortableIds
from engrain.core.model.erasure import SETTLE_SECONDS, Erasure, Subject, find_owner
from engrain.core.model.items import Item
from engrain.core.model.results import describe_counts, describe_verification
from engrain.ports import Erasable, Erasing, Services
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
class ErasureResult:
    """What `erase` did. Without a receipt it is `pending`: `why` says what it waits for, and it goes on by itself when
    the store is next opened or cared for, or with `engrain erase --resume`. `over`: it ended without one, because a
    legal hold came before anything went. `memories` are those that a dry run reaches."""

    id: str
    counts: Mapping[str, int] = field(default_factory=dict)
    receipt: Receipt | None = None
    why: str = ""
    dry_run: bool = False
    memories: tuple[Scope, ...] = ()
    over: bool = False

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
    """What came from a source with all it led to, and what stays because it has another source too; `done` is what
    became of it, None after a dry run. Also true of one that was under way, of which nothing is left to show."""

    items: tuple[Item, ...]
    kept: tuple[Item, ...] = ()
    done: ErasureResult | None = None

    def __bool__(self) -> bool:
        return bool(self.items or self.kept or self.done)


class _ErasurePending(Exception):
    """It cannot go on now."""


def require_erasing(services: Services) -> Erasing:
    if services.erasing is None:
        raise ConfigError("this store cannot erase. Use a path such as agent.db, or postgresql://….")
    return services.erasing


def open_folder(services: Services, path: str) -> Folder:
    if services.open_folder is None:
        raise ConfigError("this memory was opened without files beside it.")
    return services.open_folder(path)


def erase(
    services: Services, subject: Subject, notes: Mapping[str, Any], report: Report, id: str | None = None
) -> ErasureResult:
    """`notes`: the `folders` to clean, and how many of them were `named` by the caller; what is recorded of an `undo`
    when it is done. With the `id` of one that is under way, that goes on."""
    report("shutting it out")
    return _run_stages(
        services, id or require_erasing(services).begin(_new_id(services.clock()), subject, notes).id, report
    )


def resume_erasures(services: Services, report: Report) -> list[ErasureResult]:
    """Everything that is under way, whoever began it."""
    return [_resume_one(services, one.id, report) for one in require_erasing(services).running()]


def _resume_one(services: Services, id: str, report: Report) -> ErasureResult:
    try:
        return _run_stages(services, id, report)
    except OnHold as exc:  # a hold came before anything went; the others go on
        return ErasureResult(id, why=str(exc), over=True)


def _run_stages(services: Services, id: str, report: Report) -> ErasureResult:
    """From wherever it stands. Each stage may be done twice, so that nobody need know whether another is at it."""
    one = next((one for one in require_erasing(services).running() if one.id == id), None)
    try:
        if one is not None and one.stage == "shut":
            one = _delete_rows(services, one, report)
        if one is not None and one.stage == "rows":
            one = _clean_side_stores(services, one, report)
        if one is not None:
            return _verify_and_finish(services, one, report)
    except NotFound:
        pass  # another process was faster
    except OnHold:
        raise
    except (_ErasurePending, EngrainError) as exc:
        _log.warning("the erasure %s is still to be completed: %s", id, exc)
        return ErasureResult(id, one.counts if one else {}, why=str(exc))
    done = next((entry for entry in _list_audit_entries(services) if entry.details.get("receipt") == id), None)
    if done is None:
        return ErasureResult(id, why="it is not known any more.", over=True)
    return ErasureResult(id, done.details["counts"], Receipt.of(done))


def _list_audit_entries(services: Services) -> list[Any]:
    return services.audit.entries(0, _MAX_ENTRIES) if services.audit else []


def _delete_rows(services: Services, one: Erasure, report: Report) -> Erasure:
    from engrain.privacy.fingerprints import compute_fingerprints

    report("taking prints of what is to go")
    # Before anything goes: a run that dies later can still look for it.
    require_erasing(services).keep(
        one.id, one.notes, bytes(compute_fingerprints(require_erasing(services).pieces(one.subject)))
    )
    report("removing its rows")
    return require_erasing(services).take(one.id)


def _clean_side_stores(services: Services, one: Erasure, report: Report) -> Erasure:
    """The other stores and the files, each looked at again afterwards."""
    report("removing it from the other stores")
    beside = _erase_servers(services, one) if one.by == "user" else _erase_episodes(services, one)
    if one.by != "user":
        _clean_vector_server(services, one)
    report("removing it from files")
    files, stuck = _clean_folders(services, one)
    counts = {"beside": beside + one.notes.get("beside", 0), "files": files + one.notes.get("files", 0)}
    # At once: whoever goes on finds nothing more to count.
    require_erasing(services).keep(one.id, {**one.notes, **counts}, one.prints)
    if stuck:
        raise _ErasurePending(" ".join(stuck))
    if one.by == "user" and services.servers:
        # A write that was under way when the user was shut out may have come to a server since.
        time.sleep(SETTLE_SECONDS)
        counts["beside"] += _erase_servers(services, one)
    asked = {name: one.notes[name] for name in ("named", "undo") if name in one.notes}
    return require_erasing(services).unname(one.id, {**counts, **asked, "owner": _hash_owner(services, one)})


def _clean_folders(services: Services, one: Erasure) -> tuple[int, list[str]]:
    """How many files of all folders, and why some could not be cleaned: they keep no other from it."""
    from engrain.privacy.files import clean_folder

    files, stuck = 0, list[str]()
    for folder in one.notes.get("folders", ()):
        try:
            files += clean_folder(services, open_folder(services, folder), one)
        except EngrainError as exc:
            stuck.append(str(exc) if folder in str(exc) else f"{folder}: {exc}")
    return files, stuck


def _hash_owner(services: Services, one: Erasure) -> str | None:
    """The mark of the user whose it is, which their exports carry; None of a memory of nobody."""
    user = find_owner(one.subject.scope) if one.subject else None
    return require_erasing(services).mark(user) if user else None


def _erase_servers(services: Services, one: Erasure) -> int:
    gone, fed = 0, cast("object", services.feed)
    for server in services.servers:
        if not isinstance(server, Erasable):
            continue
        try:
            named = server.scopes(one.subject) if one.subject is not None else []
            scopes = list(dict.fromkeys([*one.scopes, *named]))
            if server is fed:
                # Whatever went from the items goes, of any scope, and is looked for again: once is enough.
                gone += server.erase(scopes[0]) if scopes else 0
                continue
            for scope in scopes:
                gone += server.erase(scope)
                if left := server.left(scope):
                    raise _ErasurePending(f"{left} keys are still on a server beside.")
        except EngrainError as exc:
            raise _ErasurePending(str(exc)) from exc
    return gone


def _clean_vector_server(services: Services, one: Erasure) -> None:
    """What is gone at once, and what was cut as soon as it has come: others may write all the while."""
    if services.feed is None or one.subject is None:
        return
    cut = {item.id for item in services.items.get_many(one.subject.scope, one.ids)}
    try:
        services.feed.drop([id for id in one.ids if id not in cut])
        while services.feed.lacks(one.subject.scope, cut):
            if not services.feed.feed(_BATCH):
                raise _ErasurePending("the vector server still has it, and this role may not feed it.")
    except EngrainError as exc:
        raise _ErasurePending(f"the vector server does not answer: {exc}") from exc


def _erase_episodes(services: Services, one: Erasure) -> int:
    """Of a part of a scope, where episodes are in a store that does not see the items go."""
    if services.state is not None and one.subject is not None:
        # What any session has at hand may have its words in it; none of it is the truth.
        services.state.clear(one.subject.scope)
    if services.episodes is None or services.same_store or one.subject is None:
        return 0
    session = one.subject.name if one.subject.by == "session" else None
    gone = set(one.ids)
    there = services.episodes.recent(one.subject.scope, None, _MAX_ENTRIES, _BEGINNING_OF_TIME)
    ids = [entry.id for entry in there if entry.session == session or entry.id in gone or entry.item in gone]
    return services.episodes.remove(one.subject.scope, ids) if ids else 0


def _verify_and_finish(services: Services, one: Erasure, report: Report) -> ErasureResult:
    erasing = require_erasing(services)
    report("overwriting its bytes")
    _purge_or_postpone(services)
    report("looking that nothing is left")
    if _count_left(erasing, one):
        # A write that was under way when it began may have come in since.
        one = erasing.take(one.id)
        _purge_or_postpone(services)
        if left := _count_left(erasing, one):
            raise _ErasurePending(f"rows are still there: {left}.")
    for _ in range(_MAX_SCANS):
        scanned = _scan_store(erasing, one.prints)
        if not scanned["found"]:
            break
        services.items.purge()
    else:
        raise _ErasurePending(f"{scanned['found']} traces of it are still in the file.")
    receipt = Receipt.of(erasing.finish(one.id, build_receipt(services, one, scanned)))
    if services.audit and "undo" in one.notes:
        services.audit.append("undo", one.notes["undo"], one.mark)
    return ErasureResult(one.id, one.counts, receipt)


def _count_left(erasing: Erasing, one: Erasure) -> dict[str, int]:
    return {kind: count for kind, count in erasing.left(one).items() if count}


def _purge_or_postpone(services: Services) -> None:
    if not _try_purge(services):
        raise _ErasurePending(
            "what was removed is still in the file or the tables, because a reader still sees it or the role may not "
            "sweep it out: engrain doctor says which."
        )


def _try_purge(services: Services) -> bool:
    """A short look of somebody else is waited for."""
    for pause in (0.1, 0.3, 0.6, 0.0):
        if services.items.purge():
            return True
        time.sleep(pause)
    return False


def _scan_store(erasing: Erasing, raw: bytes) -> dict[str, int]:
    """What is in the files and not in what stays: the same words may have been said by somebody else."""
    import numpy as np

    from engrain.privacy.fingerprints import join_pieces, load_fingerprints, scan_chunks

    if not raw:
        return {"prints": 0, "shared": 0, "bytes": 0, "found": 0}
    prints = load_fingerprints(raw)
    shared = 0
    found, size = scan_chunks(prints, erasing.raw())
    if len(found):
        # After the bytes: what others say while we look is among it.
        kept, _ = scan_chunks(prints, join_pieces(erasing.pieces(None)))
        shared = len(kept)
        found = found[~np.isin(found, kept)]
    return {"prints": len(prints), "shared": shared, "bytes": size, "found": len(found)}
