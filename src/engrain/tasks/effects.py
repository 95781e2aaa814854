"""What to do about an effect that may or may not have happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from engrain.core.errors import InvalidInput

# Called like the effect itself. None or False: it did not happen, so it is done now. Anything else: it happened, and
# this is its result.
Probe = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Compensate:
    """Undo what may have happened, then do it afresh under a new key, or leave it out.

    `undo` is called like the effect itself and may be called twice if the process dies in it.
    """

    undo: Callable[..., Any]
    then: Literal["retry", "skip"] = "retry"

    def __post_init__(self) -> None:
        if not callable(self.undo) or self.then not in ("retry", "skip"):
            raise InvalidInput('Compensate takes a callable, and then="retry" or "skip".')


OnAmbiguous = Literal["halt", "retry"] | Probe | Compensate


def checked_policy(policy: object) -> OnAmbiguous:
    if policy in ("halt", "retry") or isinstance(policy, Compensate) or callable(policy):
        return policy
    raise InvalidInput(f'on_ambiguous must be "halt", "retry", a probe to call, or Compensate(…), not {policy!r}.')


def checked_key_as(name: object) -> str | None:
    if name is None or (isinstance(name, str) and name.isidentifier()):
        return name
    raise InvalidInput(f"key_as names the parameter that gets the effect's key, not {name!r}.")


def happened(answer: object) -> bool:
    """A probe's answer. 0 and "" are results of an effect that happened."""
    return answer is not None and answer is not False
