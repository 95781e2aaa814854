"""How a task stands when a run of it is left with an error."""

from __future__ import annotations

import logging
import sys
from functools import reduce
from typing import Any

from engrain.core.errors import (
    EngrainError,
    InvalidInput,
    NotFound,
    StepAmbiguous,
    StepFailed,
    StoreCorrupt,
    TaskWaiting,
)
from engrain.core.model.procedures import Trial
from engrain.core.model.tasks import StepRecord, TaskEnd, TaskRecord
from engrain.ports import Services
from engrain.tasks.serialization import encode, opened

_MAX_ERROR = 2_000


def end_of(error: BaseException) -> TaskEnd:
    found = _parts(error)
    for one in found:
        if isinstance(one, StepAmbiguous):
            return TaskEnd("parked", f"the effect {one.step!r} may or may not have happened")
    errors = [one for one in found if isinstance(one, Exception) and not isinstance(one, TaskWaiting)]
    if errors:
        # Not "failed", which is the end: what stopped it can be mended, and then it goes on.
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return TaskEnd("parked", shown(errors[0]) + more)
    waits = [one for one in found if isinstance(one, TaskWaiting)]
    return TaskEnd("waiting", str(waits[0]) if waits else f"broken off: {shown(found[0])}")


def shown(error: BaseException | str) -> str:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}".rstrip(": ")
    # A message may hold anything; what cannot be stored is replaced, for the error must not hide behind another.
    return text[:_MAX_ERROR].encode(errors="replace").decode()


def _parts(error: BaseException) -> list[BaseException]:
    """The errors of a group, such as a TaskGroup raises, or the one error."""
    if isinstance(error, BaseExceptionGroup):
        return [part for one in error.exceptions for part in _parts(one)]
    return [error]


def noted(error: Exception, number: int) -> str:
    """By its class and what it was made with; `number` counts the failures of a task."""
    kind = type(error)
    more = {name: value for name, value in vars(error).items() if name != "__notes__" and _is_plain(value)}
    args = [one if _is_plain(one) else shown(str(one)) for one in error.args]
    return encode({"number": number, "class": [kind.__module__, kind.__qualname__], "args": args, "more": more}, "")


def number_of(record: StepRecord) -> int:
    """0 for one that may have failed beside others."""
    return int(_kept(record).get("number", 0))


def again(record: StepRecord) -> Exception:
    """Of the class it had at first, if that is still there, so that what caught it then catches it now."""
    kept = _kept(record)
    module, name = kept["class"]
    kind = reduce(lambda there, part: getattr(there, part, None), name.split("."), sys.modules.get(module))
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error: Exception = kind.__new__(kind, *kept["args"])  # not called: what it then does with these is unknown
            vars(error).update(kept["more"])
            str(error)
        except Exception:  # noqa: BLE001  # of a class that is not made like that
            pass
        else:
            return error
    return StepFailed(f"{record.kind} {record.name!r} failed in an earlier run: {record.error}")


def _kept(record: StepRecord) -> dict[str, Any]:
    if record.status != "failed" or record.result is None:
        return {}
    try:
        return dict(opened(record.result)["value"])
    except (StoreCorrupt, TypeError, ValueError):
        return {}


def _is_plain(value: object) -> bool:
    try:
        encode(value, "")
    except InvalidInput:
        return False
    return True


_log = logging.getLogger("engrain")


def expire(services: Services) -> list[TaskRecord]:
    """Tasks past their max_age become "expired" and stay to be seen; each has failed."""
    assert services.journal is not None
    found = services.journal.expire(services.clock())
    for task in found:
        count_failure(services, task, task.outcome or "it was not done within its max_age")
    return found


def count_failure(services: Services, task: TaskRecord, why: str) -> None:
    """Once for each task: the first word about it stands."""
    used = opened(task.snapshot).get("procedure")
    if not isinstance(used, str) or services.outcomes is None:
        return
    try:
        services.outcomes.count(task.scope, Trial(used, task.task, False, services.clock(), why))
    except NotFound:
        pass  # it was forgotten meanwhile, with all that was counted for it
    except EngrainError as exc:
        _log.warning("the failure of task %r was not counted for its procedure: %s", task.task, exc)
