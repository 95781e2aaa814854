"""What to do about an effect that may or may not have happened."""

from __future__ import annotations

import random
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


MAX_RETRIES = 1_000
_LARGEST = 86_400


@dataclass(frozen=True, slots=True)
class Retry:
    """`times` more attempts after the first; the pause grows by `factor` from `first` to `most` seconds, and a random
    half of it is left out, so that many workers do not come back at the same moment."""

    times: int = 0
    first: float = 0.5
    factor: float = 2.0
    most: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or not 0 <= self.times <= MAX_RETRIES:
            raise InvalidInput(f"retries must be a whole number from 0 to {MAX_RETRIES:,}, not {self.times!r}.")
        numbers = (self.first, self.factor, self.most)
        if not all(isinstance(one, (int, float)) and 0 <= one <= _LARGEST for one in numbers) or self.factor < 1:
            raise InvalidInput(f"a Retry needs first >= 0, factor >= 1 and most >= 0, and none over {_LARGEST:,}.")

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        # The exponent is bounded, or a long row of failures overflows.
        whole = min(self.most, self.first * self.factor ** min(failures - 1, 60))
        return whole * (0.5 + random.random() / 2)


ONCE = Retry()


def as_retry(retries: int | Retry) -> Retry:
    if retries == 0:
        return ONCE
    return retries if isinstance(retries, Retry) else Retry(retries)
