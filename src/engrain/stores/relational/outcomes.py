"""Count how procedures turned out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.procedures import Tally, Trial
from engrain.stores.relational.dialect import Dialect, Transaction


class Outcomes:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def count(self, scope: Scope, trial: Trial) -> bool:
        def do(tx: Transaction) -> bool:
            tx.lock_scope()  # so that the item is not forgotten meanwhile
            if not tx.rows("find_item", id=trial.procedure):
                raise NotFound(f"there is no procedure {trial.procedure!r} in this scope.")
            added = tx.rows(
                "add_trial",
                id=trial.procedure,
                task=trial.task,
                at=to_micros(trial.at),
                success=trial.success,
                note=trial.note,
            )
            return bool(added)

        return self._dialect.write(scope, do)

    def tallies(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        rows = self._dialect.ask(scope, "count_trials", ids=ids)
        return {id_: Tally(good, bad, from_micros(last)) for id_, good, bad, last in rows}

    def trials(self, scope: Scope, id: str, limit: int) -> list[Trial]:
        rows = self._dialect.ask(scope, "load_trials", id=id, limit=limit)
        return [Trial(id, task, bool(success), from_micros(at), note) for task, success, at, note in rows]
