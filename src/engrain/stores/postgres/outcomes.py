"""How procedures turned out, beside the items in the same database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.ports import Tally, Trial
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

if TYPE_CHECKING:
    from engrain.stores.postgres.handle import Handle

_SQL = load("episodes.sql")


class PostgresOutcomes:
    """A view of the store: its `count` is not that of the items."""

    def __init__(self, store: Handle) -> None:
        self._store = store

    def count(self, scope: Scope, trial: Trial) -> bool:
        def do(db: Db) -> bool:
            # So that the item is not forgotten at this moment.
            self._store._lock_scope(db, scope)
            if not db.rows(_SQL["known"], (scope.id, trial.procedure)):
                raise NotFound(f"there is no procedure {trial.procedure!r} in this scope.")
            row = (scope.id, trial.procedure, trial.task, trial.success, to_micros(trial.at), trial.note)
            return bool(db.rows(_SQL["count"], row))

        return self._store._writing(scope, do)

    def tallies(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        rows = self._store._asked(scope, _SQL["tallies"], (scope.id, list(ids)))
        return {id_: Tally(good, bad, from_micros(last)) for id_, good, bad, last in rows}

    def trials(self, scope: Scope, id: str, limit: int) -> list[Trial]:
        rows = self._store._asked(scope, _SQL["trials"], (scope.id, id, limit))
        return [Trial(id_, task, success, from_micros(at), note) for id_, task, success, at, note in rows]
