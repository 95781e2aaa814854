"""How procedures turned out, in the store's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engrain.core.clock import from_micros, to_micros
from engrain.core.identity import Scope
from engrain.ports import Tally, Trial
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import known_item

if TYPE_CHECKING:
    from engrain.stores.sqlite.handle import Handle

_SQL = load("outcomes.sql")


class SqliteOutcomes:
    """A view of the store: its `count` is not that of the items."""

    def __init__(self, store: Handle) -> None:
        self._store = store

    def count(self, scope: Scope, trial: Trial) -> bool:
        def add(db: Connection) -> bool:
            item = known_item(db, self._store._scope(db, scope), trial.procedure)
            return bool(db.run(_SQL["add"], (item, trial.task, to_micros(trial.at), trial.success, trial.note)))

        return self._store.transaction(add)

    def tallies(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        rows = self._store.snapshot(lambda db: db.rows(_SQL["tallies"], (self._store._scope(db, scope), as_json(ids))))
        return {id_: Tally(successes, tried - successes, from_micros(last)) for id_, successes, tried, last in rows}

    def trials(self, scope: Scope, id: str, limit: int) -> list[Trial]:
        rows = self._store.snapshot(lambda db: db.rows(_SQL["trials"], (self._store._scope(db, scope), id, limit)))
        return [Trial(id, task, bool(success), from_micros(at), note) for task, success, at, note in rows]
