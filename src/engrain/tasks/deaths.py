"""Tell a task that kills its workers from one whose workers ended for reasons of their own."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.journal import StepRecord, TaskRecord
from engrain.tasks.ledger import WAITS

# So many workers in a row that ended with no step to show for it, and a task is parked.
MAX_DEATHS = 5


def deaths(left: TaskRecord, steps: Sequence[StepRecord], before: int) -> int:
    """How many in a row, with the one that left the task like this, given how many there were before it."""
    # A run that is left, parked or resumed by whomever gives the task back: it is running only if its worker is gone.
    if left.status != "running" or _showed(steps, left.epoch):
        return 0
    return before + 1


def _showed(steps: Sequence[StepRecord], epoch: int) -> bool:
    """An effect that was begun is not to show for it: it may be what kills. To wait for hours is no offence."""
    opened = [one for one in steps if one.status == "intent"]
    if any(one.kind in WAITS for one in opened) and not any(one.kind == "effect" for one in opened):
        return True
    return any(one.epoch == epoch and one.status != "intent" for one in steps)
