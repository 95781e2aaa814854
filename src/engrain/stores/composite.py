"""Combine several stores into one memory: move their rows together, and block scopes that are being erased."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.erasure import SETTLE_SECONDS, find_owner, make_blocked_error, make_hold_error
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind
from engrain.ports.erasure import AuditLog, Erasing
from engrain.ports.storage import Movable

Answer = TypeVar("Answer")


class PartialStore(Protocol):
    """A store that moves some kinds of rows, as a Movable does all."""

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]: ...

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None: ...


class CompositeStore:
    """A Movable over several stores.

    Each store writes its rows in a transaction of its own. If one fails, the others' rows stay, and the caller
    repeats the call. An episode's item is not checked. `on_snapshot` runs on a snapshot of the items' store; the other
    stores may change meanwhile. `close` closes all stores.
    """

    def __init__(self, items: Movable, parts: Mapping[RowKind, PartialStore], close: Callable[[], None]) -> None:
        self._items = items
        self._parts = parts
        self._local = threading.local()
        self.on_snapshot, self.change_token, self.close = items.on_snapshot, items.change_token, close
        self.erasing: Erasing | None = getattr(items, "erasing", None)
        self.audit: AuditLog | None = getattr(items, "audit", None)

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        return self._parts.get(kind, self._items).dump(kind, after, limit, scope)

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        elsewhere = [row for row in rows if row.kind in self._parts]
        self._items.restore([row for row in rows if row.kind not in self._parts], since, done)
        if getattr(self._local, "previewing", False):
            return
        for kind, group in groupby(elsewhere, key=lambda row: row.kind):
            self._parts[kind].restore(list(group), done=done)

    def preview(self, do: Callable[[], Answer]) -> Answer:
        """The store of the items rolls back. The others cannot, so `restore` leaves their rows out meanwhile."""

        def run() -> Answer:
            self._local.previewing = True
            try:
                return do()
            finally:
                self._local.previewing = False

        return self._items.preview(run)


# An open scope is not checked again for this long: less than an erasure waits before its last check.
_OPEN_SECONDS = SETTLE_SECONDS / 2
_MAX_CACHED_SCOPES = 10_000


class ErasureGuard:
    """Tells a side store which scopes the items' store has blocked or on hold. Without one, all scopes are open."""

    def __init__(self, erasing: Erasing | None = None) -> None:
        self._erasing = erasing
        self._open: dict[Scope, float] = {}

    def has_hold(self, scope: Scope) -> bool:
        return self._erasing is not None and self._erasing.is_on_hold(scope)

    def check_no_hold(self, scope: Scope) -> None:
        user = find_owner(scope)
        if user and self.has_hold(scope):
            raise make_hold_error(user)

    def has_any_hold(self) -> bool:
        return self._erasing is not None and bool(self._erasing.holds())

    def find_block_cached(self, scope: Scope) -> EngrainError | None:
        """Return the block of a scope like `find_block`, up to a second late: for frequent calls."""
        if self._open.get(scope, 0.0) > time.monotonic():
            return None
        found = self.find_block(scope)
        if found is None:
            if len(self._open) >= _MAX_CACHED_SCOPES:
                self._open.clear()
            self._open[scope] = time.monotonic() + _OPEN_SECONDS
        return found

    def find_block(self, scope: Scope) -> EngrainError | None:
        """Return the error for reads and writes of a blocked scope; None if it is open."""
        user = find_owner(scope)
        if self._erasing is None or user is None:
            return None
        subject_hash = self._erasing.hash_subject(user)
        if any(
            erasure.subject_hash == subject_hash and erasure.stage != "anonymized"
            for erasure in self._erasing.running()
        ):
            return make_blocked_error(hidden=False)
        if any(hold.subject_hash == subject_hash and hold.hidden for hold in self._erasing.holds()):
            return make_blocked_error(hidden=True)
        return None
