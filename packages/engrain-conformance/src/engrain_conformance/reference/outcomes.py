"""How procedures turned out, in memory: the oracle of the Outcomes port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.ports import Tally, Trial
from engrain_conformance.reference.state import Holder, State


class OutcomeBook:
    """A view of the store: its `count` is not that of the items."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def count(self, scope: Scope, trial: Trial) -> bool:
        with self._holder.writing() as state:
            if not state.known(scope, trial.procedure):
                raise NotFound(f"there is no procedure {trial.procedure!r} in this scope.")
            key = (scope, trial.procedure, trial.task)
            first = key not in state.trials
            state.trials.setdefault(key, trial)
            return first

    def tallies(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        with self._holder.reading() as state:
            tried = {id: _trials(state, scope, id) for id in ids}
            return {id: _tally(trials) for id, trials in tried.items() if trials}

    def trials(self, scope: Scope, id: str, limit: int) -> list[Trial]:
        with self._holder.reading() as state:
            return _trials(state, scope, id)[:limit]


def _trials(state: State, scope: Scope, id: str) -> list[Trial]:
    mine = [trial for key, trial in state.trials.items() if key[:2] == (scope, id)]
    return sorted(mine, key=lambda trial: (trial.at, trial.task), reverse=True)


def _tally(trials: Sequence[Trial]) -> Tally:
    successes = sum(trial.success for trial in trials)
    return Tally(successes, len(trials) - successes, max(trial.at for trial in trials))
