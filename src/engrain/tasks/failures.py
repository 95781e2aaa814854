"""Count for its procedure that a task ended without being done."""

from __future__ import annotations

import logging

from engrain.core.errors import EngrainError, NotFound
from engrain.core.journal import TaskRecord
from engrain.core.outcomes import Trial
from engrain.ports import Kit
from engrain.tasks.envelope import opened

_log = logging.getLogger("engrain")


def expire(kit: Kit) -> list[TaskRecord]:
    """Tasks past their max_age become "expired" and stay to be seen; each has failed."""
    assert kit.journal is not None
    found = kit.journal.expire(kit.clock())
    for task in found:
        count_failure(kit, task, task.outcome or "it was not done within its max_age")
    return found


def count_failure(kit: Kit, task: TaskRecord, why: str) -> None:
    """Once for each task: the first word about it stands."""
    used = opened(task.snapshot).get("procedure")
    if not isinstance(used, str) or kit.outcomes is None:
        return
    try:
        kit.outcomes.count(task.scope, Trial(used, task.task, False, kit.clock(), why))
    except NotFound:
        pass  # it was forgotten meanwhile, with all that was counted for it
    except EngrainError as exc:
        _log.warning("the failure of task %r was not counted for its procedure: %s", task.task, exc)
