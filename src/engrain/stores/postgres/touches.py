"""Uses of items, counted in memory until a commit in their scope takes them along."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

_SQL = load("queries.sql")
Uses = dict[str, tuple[int, int]]  # item: how often, and when last


class Touches:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[Scope, Uses] = {}
        self._leaving: list[tuple[Scope, Uses]] = []

    def add(self, scope: Scope, ids: Iterable[str], at: int) -> int:
        """How many items of the scope wait now."""
        with self._guard:
            waiting = self._waiting.setdefault(scope, {})
            _merge(waiting, dict.fromkeys(ids, (1, at)))
            return len(waiting)

    def scopes(self) -> list[Scope]:
        with self._guard:
            return list(self._waiting)

    def shown(self, scope: Scope, items: Sequence[Item]) -> list[Item]:
        """The items with what is not written yet."""
        uses: Uses = {}
        with self._guard:
            for owner, leaving in [*self._leaving, (scope, self._waiting.get(scope, {}))]:
                if owner == scope:
                    _merge(uses, leaving)
        return [_used(item, *uses[item.id]) if item.id in uses else item for item in items]

    @contextmanager
    def leaving(self, scope: Scope) -> Iterator[Uses]:
        """What a transaction takes along; if it fails, they wait again."""
        with self._guard:
            uses = self._waiting.pop(scope, {})
            self._leaving.append((scope, uses))
        try:
            yield uses
        except BaseException:
            with self._guard:
                _merge(self._waiting.setdefault(scope, {}), uses)
            raise
        finally:
            with self._guard:
                self._leaving = [one for one in self._leaving if one[1] is not uses]


def write_uses(db: Db, scope: Scope, uses: Uses) -> None:
    if uses:
        counts, times = zip(*uses.values(), strict=True)
        db.run(_SQL["touch"], (list(uses), list(counts), list(times), scope.id))


def _merge(into: Uses, more: Uses) -> None:
    for one, (count, at) in more.items():
        known, last = into.get(one, (0, 0))
        into[one] = known + count, max(last, at)


def _used(item: Item, count: int, at: int) -> Item:
    last = from_micros(at)
    latest = last if item.last_accessed is None or item.last_accessed < last else item.last_accessed
    return replace(item, access_count=item.access_count + count, last_accessed=latest)
