"""A memory whose kinds of rows lie in several stores, moved as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from engrain.core.errors import BeingErased, EngrainError, OnHold
from engrain.core.identity import Scope
from engrain.core.model.erasure import SETTLE_SECONDS, find_owner, make_hold_error
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind
from engrain.ports import AuditLog, Erasing, Movable

Answer = TypeVar("Answer")


class Part(Protocol):
    """Moves some kinds of rows, as a Movable does all."""

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]: ...

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None: ...


class Composed:
    """Each store keeps its rows of a call in its own way: what one has kept stays if another fails, and the call is
    made again. That the items of episodes are there is not asked. `close` closes them all."""

    def __init__(self, items: Movable, parts: Mapping[RowKind, Part], close: Callable[[], None]) -> None:
        self._items = items
        self._parts = parts
        self._close = close

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        return self._parts.get(kind, self._items).dump(kind, after, limit, scope)

    def still(self, do: Callable[[], Answer]) -> Answer:
        """The store of the items is: the others may change meanwhile."""
        return self._items.still(do)

    def standing(self, scopes: Sequence[Scope]) -> ChangeToken:
        return self._items.standing(scopes)

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        elsewhere = [row for row in rows if row.kind in self._parts]
        self._items.restore([row for row in rows if row.kind not in self._parts], since, done)
        for kind, group in groupby(elsewhere, key=lambda row: row.kind):
            self._parts[kind].restore(list(group), done=done)

    def together(self, do: Callable[[], Answer]) -> Answer:
        """One transaction of the items' store; what the others keep is kept again if it is done again."""
        joined: Callable[[Callable[[], Answer]], Answer] = getattr(self._items, "together", lambda do: do())
        return joined(do)

    @property
    def erasing(self) -> Erasing | None:
        return getattr(self._items, "erasing", None)

    @property
    def audit(self) -> AuditLog | None:
        return getattr(self._items, "audit", None)

    def close(self) -> None:
        self._close()


# Seconds for which an open scope is not asked about again: less than an erasure waits before it looks the last time.
_KNOWN = SETTLE_SECONDS / 2
_MOST = 10_000


class Door:
    """As the store of the items has it, which alone is told; without one that can erase, it is open to all."""

    def __init__(self, erasing: Erasing | None = None) -> None:
        self._erasing = erasing
        self._open: dict[Scope, float] = {}

    def held(self, scope: Scope) -> bool:
        return self._erasing is not None and self._erasing.held(scope)

    def check_held(self, scope: Scope) -> None:
        user = find_owner(scope)
        if user and self.held(scope):
            raise make_hold_error(user)

    def holds(self) -> bool:
        """Whether there is a hold on anybody."""
        return self._erasing is not None and bool(self._erasing.holds())

    def lately_shut(self, scope: Scope) -> EngrainError | None:
        """As `shut` was a moment ago: for what is asked often."""
        if self._open.get(scope, 0.0) > time.monotonic():
            return None
        found = self.shut(scope)
        if found is None:
            if len(self._open) >= _MOST:
                self._open.clear()
            self._open[scope] = time.monotonic() + _KNOWN
        return found

    def shut(self, scope: Scope) -> EngrainError | None:
        """Why nothing of a scope is shown or written."""
        user = find_owner(scope)
        if self._erasing is None or user is None:
            return None
        mark = self._erasing.mark(user)
        if any(one.mark == mark and one.stage != "named" for one in self._erasing.running()):
            return BeingErased(
                "this user's memory is being erased. Write again when that is done: engrain erase --resume."
            )
        if any(one.mark == mark and one.hidden for one in self._erasing.holds()):
            return OnHold("this user's memory is under a legal hold and is to be erased: nothing is shown or written.")
        return None
