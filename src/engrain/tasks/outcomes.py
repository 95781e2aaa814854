"""Decide how a task stands after an error, and keep errors so that a replay raises them again."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from functools import partial, reduce
from typing import Any

from engrain.core import errors
from engrain.core.model.procedures import Trial
from engrain.core.model.tasks import StepRecord, TaskEnd, TaskRecord
from engrain.ports import Services
from engrain.tasks.serialization import decode_envelope, encode

_MAX_ERROR_CHARACTERS = 2_000
_log = logging.getLogger("engrain")


def choose_task_end(error: BaseException) -> TaskEnd:
    """Choose the status of a task whose run was left with this error."""
    parts = _flatten_group(error)
    for part in parts:
        if isinstance(part, errors.StepAmbiguous):
            return TaskEnd("parked", f"the effect {part.step!r} may or may not have happened")
    failures = [part for part in parts if isinstance(part, Exception) and not isinstance(part, errors.TaskWaiting)]
    if failures:
        # Not "failed", which is final: somebody can fix the cause, and then the task continues.
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        return TaskEnd("parked", describe_error(failures[0]) + more)
    waits = [part for part in parts if isinstance(part, errors.TaskWaiting)]
    return TaskEnd("waiting", str(waits[0]) if waits else f"broken off: {describe_error(parts[0])}")


def describe_error(error: BaseException | str) -> str:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}".rstrip(": ")
    # A message may hold characters that cannot be stored: replaced, or an encoding error would hide this one.
    return text[:_MAX_ERROR_CHARACTERS].encode(errors="replace").decode()


def _flatten_group(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [part for inner in error.exceptions for part in _flatten_group(inner)]
    return [error]


def encode_error(error: Exception, number: int) -> str:
    """Encode the error's class, arguments and attributes. `number` counts the failures of a task."""
    kind = type(error)
    more = {name: value for name, value in vars(error).items() if name != "__notes__" and _is_plain(value)}
    args = [value if _is_plain(value) else describe_error(str(value)) for value in error.args]
    return encode({"number": number, "class": [kind.__module__, kind.__qualname__], "args": args, "more": more}, "")


def failure_number(record: StepRecord) -> int:
    """Return the number of a recorded failure; 0 for one that ran in parallel with other steps."""
    return int(_decode_error(record).get("number", 0))


def rebuild_error(record: StepRecord) -> Exception:
    """Rebuild a recorded error in its own class, if that is loaded, so that the same `except` catches it."""
    stored = _decode_error(record)
    module, name = stored["class"]
    kind = reduce(lambda parent, part: getattr(parent, part, None), name.split("."), sys.modules.get(module))
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error: Exception = kind.__new__(kind, *stored["args"])  # __init__ is not called: its effects are unknown
            vars(error).update(stored["more"])
            str(error)
        except Exception:  # noqa: BLE001  # this class cannot be made like that
            pass
        else:
            return error
    return errors.StepFailed(f"{record.kind} {record.name!r} failed in an earlier run: {record.error}")


def _decode_error(record: StepRecord) -> dict[str, Any]:
    if record.status != "failed" or record.result is None:
        return {}
    try:
        return dict(decode_envelope(record.result)["value"])
    except (errors.StoreCorrupt, TypeError, ValueError):
        return {}


def _is_plain(value: object) -> bool:
    try:
        encode(value, "")
    except errors.InvalidInput:
        return False
    return True


def expire_tasks(services: Services) -> list[TaskRecord]:
    """Set tasks past their max_age to "expired", and count a failure for the procedure of each."""
    assert services.journal is not None
    expired = services.journal.expire(services.clock())
    for task in expired:
        record_procedure_failure(services, task, task.outcome or "it was not done within its max_age")
    return expired


def record_procedure_failure(services: Services, task: TaskRecord, why: str) -> None:
    """Count a failure for the task's procedure. Only the first outcome of a task counts."""
    procedure = decode_envelope(task.snapshot).get("procedure")
    if not isinstance(procedure, str) or services.outcomes is None:
        return
    report = partial(_log.warning, "the failure of task %r was not counted for its procedure: %s", task.task)
    # NotFound: the procedure was forgotten meanwhile, with its counts.
    with errors.tolerate(errors.EngrainError, report=report), suppress(errors.NotFound):
        services.outcomes.count(task.scope, Trial(procedure, task.task, False, services.clock(), why))
