"""Count how often items were used, and how procedures turned out."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.model.procedures import Tally, Trial
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.rows import Row, read_item

Uses = dict[str, tuple[int, int]]  # by item: how often, and when last
_MOST_WAITING = 1_000


class UsageCounts:
    """Counts uses in memory, until a write to their scope takes them along.

    Counts are no promise: those that wait are lost with the process."""

    def __init__(self, dialect: Dialect, read_only: bool) -> None:
        self._dialect, self._read_only = dialect, read_only
        self._guard = threading.Lock()
        self._waiting: dict[Scope, Uses] = {}

    def count(self, scope: Scope, ids: Iterable[str]) -> None:
        at = self._dialect.read_clock(scope)
        if self._read_only:
            return
        with self._guard:
            waiting = self._waiting.setdefault(scope, {})
            _merge(waiting, dict.fromkeys(ids, (1, at)))
        if len(waiting) > _MOST_WAITING:
            self._write_scope(scope)

    def read_items(self, scope: Scope, rows: Sequence[Row]) -> list[Item]:
        """The items of rows, with the uses that are not written yet."""
        with self._guard:
            waiting = self._waiting.get(scope)
            rows = [_add_use(row, waiting[row[1]]) if row[1] in waiting else row for row in rows] if waiting else rows
        return [read_item(row) for row in rows]

    @contextmanager
    def taking(self, scope: Scope) -> Iterator[Uses]:
        """The uses that a transaction of the scope takes along. If it fails, they wait again."""
        uses = self.take(scope)
        try:
            yield uses
        except BaseException:
            self.give_back(scope, uses)
            raise

    def take(self, scope: Scope) -> Uses:
        with self._guard:
            return self._waiting.pop(scope, {})

    def give_back(self, scope: Scope, uses: Uses) -> None:
        with self._guard:
            _merge(self._waiting.setdefault(scope, {}), uses)

    def write_all(self) -> None:
        for scope in list(self._waiting):
            self._write_scope(scope)

    def _write_scope(self, scope: Scope) -> None:
        def do(tx: Transaction) -> None:
            tx.rows("lock_known_scope")  # a use brings no erased scope back
            tx.many("add_uses", group_uses(uses))

        with self.taking(scope) as uses:
            self._dialect.write(scope, do)


def group_uses(uses: Uses) -> list[dict[str, Any]]:
    """The values of each statement. The items of one search were used equally often, and last at one moment."""
    alike: dict[tuple[int, int], list[str]] = {}
    for id_, use in uses.items():
        alike.setdefault(use, []).append(id_)
    return [{"count": count, "at": at, "ids": ids} for (count, at), ids in alike.items()]


def _merge(into: Uses, more: Uses) -> None:
    for item, (count, at) in more.items():
        known, last = into.get(item, (0, 0))
        into[item] = known + count, max(last, at)


def _add_use(row: Row, use: tuple[int, int]) -> Row:
    *before, count, last, sources = row
    return (*before, count + use[0], max(last or 0, use[1]), sources)


class Outcomes:
    """The trials of procedures."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def count(self, scope: Scope, trial: Trial) -> bool:
        def do(tx: Transaction) -> bool:
            tx.lock_scope()  # so that the item is not forgotten meanwhile
            if not tx.rows("find_item", id=trial.procedure):
                raise NotFound(f"there is no procedure {trial.procedure!r} in this scope.")
            values = {"task": trial.task, "at": to_micros(trial.at), "success": trial.success, "note": trial.note}
            return bool(tx.rows("add_trial", id=trial.procedure, **values))

        return self._dialect.write(scope, do)

    def tallies(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        rows = self._dialect.ask(scope, "count_trials", ids=ids)
        return {id_: Tally(good, bad, from_micros(last)) for id_, good, bad, last in rows}

    def trials(self, scope: Scope, id: str, limit: int) -> list[Trial]:
        rows = self._dialect.ask(scope, "load_trials", id=id, limit=limit)
        return [Trial(id, task, bool(success), from_micros(at), note) for task, success, at, note in rows]
