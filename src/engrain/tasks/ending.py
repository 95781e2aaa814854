"""How a task stands when a run of it is left with an error."""

from __future__ import annotations

from engrain.core.errors import StepAmbiguous, TaskWaiting
from engrain.core.journal import TaskEnd

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
