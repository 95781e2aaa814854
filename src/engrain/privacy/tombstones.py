"""Keep forgotten and erased data out: reject it in a load, and remove it again from a restored backup."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Protocol, TypeVar

from engrain.core.clock import to_micros
from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model.erasure import ErasedSubject, Erasure, Hold, Subject, SubjectKind, find_owner
from engrain.core.model.rows import Row, RowKind, hold_to_row, row_to_hold
from engrain.core.rules.tombstone_hashes import hash_tombstone
from engrain.ports import Services
from engrain.ports.erasure import AuditLog, Erasing
from engrain.ports.storage import PAGE_SIZE, Movable, iterate_rows
from engrain.privacy.receipts import Receipt

_RECORDED_AT = {"item": "recorded_at", "episode": "happened_at", "task": "started_at", "record": "written_at"}


class TombstoneFilter:
    """Rejects rows and texts that were forgotten or erased.

    `scopes` are the rows' new and old scopes: erased data does not come back under another name. `texts` are further
    texts to check, in addition to those of the rows.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        scopes: Collection[Scope],
        services: Services,
        store: Movable,
        texts: Sequence[str] = (),
    ) -> None:
        self._scopes, self._erasing = scopes, services.erasing
        self._texts = self._find_tombstoned(list({*texts, *(text for row in rows if (text := _text_of(row)))}), store)
        self._running = services.erasing.running() if services.erasing else []
        self._all_before = max((self._find_erased_at(user) for user in map(find_owner, scopes) if user), default=-1)
        self._before = cache(lambda by, name: max(self._find_erased_at(Subject(scope, by, name)) for scope in scopes))

    @property
    def user_was_erased(self) -> bool:
        """True if all of this user was erased once."""
        return self._all_before >= 0

    def rejects_text(self, text: str) -> bool:
        return text in self._texts

    def rejects(self, row: Row) -> bool:
        """Check for a tombstone of its text, or a later erasure of its user, session or source."""
        if _text_of(row) in self._texts:
            return True
        began = row.values.get(_RECORDED_AT.get(row.kind, ""))
        if began is None or self._erasing is None:
            return False
        return began <= self._all_before or any(began <= self._before(by, name) for by, name in _list_subjects(row))

    def _find_tombstoned(self, texts: list[str], store: Movable) -> set[str]:
        if self._erasing is not None:
            found = (zip(texts, self._erasing.find_tombstoned(scope, texts), strict=True) for scope in self._scopes)
            return {text for pairs in found for text, out in pairs if out}
        key = bytes.fromhex(store.dump("store", None, 1)[0].values["key"])
        forgotten = {row.key[1] for scope in self._scopes for row in iterate_rows(store, "tombstone", scope)}
        return {text for text in texts if hash_tombstone(key, text) in forgotten}

    def _find_erased_at(self, subject: Subject) -> int:
        """Return the time of the last erasure, complete or running; -1 for never."""
        if self._erasing is None:
            return -1
        done = self._erasing.erased(subject)
        subject_hash = self._erasing.hash_subject(subject)
        times = [erasure.at for erasure in self._running if erasure.subject_hash == subject_hash] + (
            [done.at] if done else []
        )
        return max(map(to_micros, times), default=-1)


def _text_of(row: Row) -> str:
    return str(row.values["text"]) if row.kind in ("item", "summary", "episode") else ""


def _list_subjects(row: Row) -> Iterator[tuple[SubjectKind, str]]:
    if row.values.get("session") is not None:
        yield "session", row.values["session"]
    names = [name for _, name in row.values.get("sources", ())]
    # An item with several sources survived the erasure of one, so it may come back.
    if names and names[0] is not None and len(set(names)) == 1:
        yield "source", names[0]


Answer = TypeVar("Answer")


class Forgetting(Movable, Protocol):
    """A store that lists its removed items."""

    @property
    def erasing(self) -> Erasing: ...

    @property
    def audit(self) -> AuditLog: ...

    def removed(self) -> list[str]: ...

    def in_transaction(self, do: Callable[[], Answer]) -> Answer: ...

    def purge(self) -> bool: ...


def replay(present: Forgetting, restored: Forgetting, *, damaged: bool = False) -> Mapping[str, int]:
    """Remove from a restored store what was erased or forgotten in the present one. Return the removed rows by kind.

    An item of the present store may have the words of a tombstone, because they were told again or cut. It is restored
    as it is there. Nothing is restored from a `damaged` store.
    """
    if present.dump("store", None, 1) != restored.dump("store", None, 1):
        raise Conflict("the present store and the backup are different memories: their tombstones do not match.")
    if present.erasing.running():
        raise Conflict("an erasure is running in the present store. Complete it first: engrain erase --resume")
    log = list(iterate_rows(present, "audit"))
    if len(log) > 1 and log == list(iterate_rows(restored, "audit")):
        # Nothing was removed since, or both are one store by two names, which would lose what was said again.
        return {"item": 0}
    before = set(restored.removed())
    taken = restored.erasing.replay(present.erasing.all_erased(), list(present.erasing.tombstones()))
    gone = set(restored.removed()) - before
    back = _restore_current_items(present, restored, gone) if gone and not damaged else 0
    _copy_records(present, restored)
    return {**taken, "item": max(0, taken.get("item", len(gone)) - back)}


def replay_receipts(receipts: Sequence[Receipt], restored: Forgetting) -> Mapping[str, int]:
    """Remove what receipts name, unless the store knows of that erasure already. Return the removed rows by kind."""
    known = restored.erasing.all_erased()
    ids, times = {subject.receipt for subject in known}, {subject.subject_hash: subject.at for subject in known}
    erased = [
        ErasedSubject(receipt.values["subject"], receipt.values["by"], erased_at(receipt), receipt.values["receipt"])
        for receipt in sorted(receipts, key=lambda receipt: str(receipt.values["asked_at"]))
        if receipt.values["receipt"] not in ids
    ]
    newer = [new for new in erased if new.subject_hash not in times or times[new.subject_hash] < new.at]
    return restored.erasing.replay(newer, []) if newer else {}


def count_named(
    receipts: Sequence[Receipt], left_of: Callable[[Sequence[Erasure]], Sequence[Mapping[str, int]]]
) -> Mapping[str, int]:
    """Count the rows that each receipt names, by its id. `left_of` counts them in a store."""
    asked = [
        Erasure(
            receipt.values["receipt"], receipt.values["subject"], receipt.values["by"], "anonymized", erased_at(receipt)
        )
        for receipt in receipts
    ]
    return {erasure.id: sum(rows.values()) for erasure, rows in zip(asked, left_of(asked), strict=True)}


def erased_at(receipt: Receipt) -> datetime:
    """Return the time before which data was erased: the request for a user, the deletion for a part of a memory."""
    return datetime.fromisoformat(receipt.values["asked_at" if receipt.values["by"] == "user" else "erased_at"])


def _restore_current_items(present: Forgetting, restored: Movable, gone: Collection[str]) -> int:
    # Reading all rows takes long, and nearly always the removed items are not there either.
    perhaps = set(gone).difference(present.removed())
    standing = [row for row in iterate_rows(present, "item") if row.key[0] in perhaps] if perhaps else []
    ids = {row.key[0] for row in standing}
    for start in range(0, len(standing), PAGE_SIZE):
        restored.restore(standing[start : start + PAGE_SIZE])
    if ids:
        kinds: Mapping[RowKind, str] = {"episode": "item", "trial": "procedure"}
        cites = [row for row in iterate_rows(present, "cites") if row.key[0] in ids]
        there = {row.key[0] for row in iterate_rows(restored, "item")} if cites else set()
        cites = [row for row in cites if {cite[1] for cite in row.values["cites"]} <= there]
        dependent = (
            row for kind, name in kinds.items() for row in iterate_rows(present, kind) if row.values[name] in ids
        )
        restored.restore([*cites, *dependent])
    return len(ids)


def _copy_records(present: Movable, restored: Movable) -> None:
    """Copy the tombstones of erased users and the holds, and the audit log if it extends the backup's.

    A hold or a reason that was released since stays.
    """
    known = {row.key: row_to_hold(row) for row in iterate_rows(restored, "hold")}
    holds = (row_to_hold(row) for row in iterate_rows(present, "hold"))
    rows = [
        *iterate_rows(present, "erased_tombstone"),
        *(hold_to_row(_merge_holds(hold, known.get((hold.subject_hash,)))) for hold in holds),
    ]
    log = list(iterate_rows(present, "audit"))
    older = [row for row in iterate_rows(restored, "audit") if row.key != ("head",)]
    if older == log[: len(older)]:
        rows += log
    for start in range(0, len(rows), PAGE_SIZE):
        restored.restore(rows[start : start + PAGE_SIZE])


def _merge_holds(hold: Hold, known: Hold | None) -> Hold:
    if known is None:
        return hold
    reasons = tuple(dict.fromkeys([*known.reasons, *hold.reasons]))
    return replace(hold, at=min(hold.at, known.at), reasons=reasons, hidden=hold.hidden or known.hidden)
