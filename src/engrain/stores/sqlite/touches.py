"""Uses of items, counted in memory until a commit takes them along."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from engrain.core.clock import from_micros
from engrain.core.model.items import Item
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.sql import load

_SQL = load("queries.sql")
Uses = dict[tuple[str, str], tuple[int, int]]  # (scope id, item id): how often, and when last


class Touches:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: Uses = {}
        self._writing: Uses = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, scope: str, ids: Iterable[str], at: int) -> None:
        with self._guard:
            _merge(self._waiting, {(scope, one): (1, at) for one in ids})

    def shown(self, scope: str, items: Sequence[Item]) -> list[Item]:
        """The items with what is not written yet."""
        if not self._waiting and not self._writing:
            return list(items)
        with self._guard:
            found = [self._pending((scope, item.id)) for item in items]
        return [_used(item, *pending) if pending[0] else item for item, pending in zip(items, found, strict=True)]

    def _pending(self, key: tuple[str, str]) -> tuple[int, int]:
        counts = (self._waiting.get(key, (0, 0)), self._writing.get(key, (0, 0)))
        return counts[0][0] + counts[1][0], max(counts[0][1], counts[1][1])

    def write(self, db: Connection) -> None:
        if not self._waiting:
            return
        with self._guard:
            self._writing, self._waiting = self._waiting, {}
        db.many(
            _SQL["touch"],
            [{"scope": key[0], "id": key[1], "count": count, "at": at} for key, (count, at) in self._writing.items()],
        )

    def written(self) -> None:
        self._writing = {}

    def take_back(self) -> None:
        """The commit failed: they wait again."""
        with self._guard:
            _merge(self._waiting, self._writing)
            self._writing = {}


def _merge(into: Uses, more: Uses) -> None:
    for key, (count, at) in more.items():
        known, last = into.get(key, (0, 0))
        into[key] = known + count, max(last, at)


def _used(item: Item, count: int, at: int) -> Item:
    last = from_micros(at)
    latest = last if item.last_accessed is None or item.last_accessed < last else item.last_accessed
    return replace(item, access_count=item.access_count + count, last_accessed=latest)
