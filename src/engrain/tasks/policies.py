"""Policies of a step: how often to retry, and how to settle an effect that may or may not have happened."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from engrain.core.errors import InvalidInput

MAX_RETRIES = 1_000
_MAX_SECONDS = 86_400
# Called like the effect. None or False: it did not happen, so it is done now. Anything else is its result.
Probe = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Compensate:
    """Undo an effect that may have happened, then do it again under a new key, or skip it.

    `undo` is called like the effect itself. It may be called twice if the process dies in it.
    """

    undo: Callable[..., Any]
    then: Literal["retry", "skip"] = "retry"

    def __post_init__(self) -> None:
        if not callable(self.undo) or self.then not in ("retry", "skip"):
            raise InvalidInput('Compensate takes a callable, and then="retry" or "skip".')


OnAmbiguous = Literal["halt", "retry"] | Probe | Compensate


def check_policy(policy: object) -> OnAmbiguous:
    if policy in ("halt", "retry") or isinstance(policy, Compensate) or callable(policy):
        return policy
    raise InvalidInput(f'on_ambiguous must be "halt", "retry", a probe to call, or Compensate(…), not {policy!r}.')


def check_key_parameter(name: object) -> str | None:
    if name is None or (isinstance(name, str) and name.isidentifier()):
        return name
    raise InvalidInput(f"key_as names the parameter that gets the effect's key, not {name!r}.")


def probe_found_effect(answer: object) -> bool:
    """True unless the probe answered None or False. 0 and "" are results of an effect that happened."""
    return answer is not None and answer is not False


@dataclass(frozen=True, slots=True)
class Retry:
    """Make `times` more attempts after the first.

    The pause grows by `factor` from `first` to `most` seconds. A random part of it, up to half, is left out, so that
    many workers do not return at the same moment.
    """

    times: int = 0
    first: float = 0.5
    factor: float = 2.0
    most: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or not 0 <= self.times <= MAX_RETRIES:
            raise InvalidInput(f"retries must be a whole number from 0 to {MAX_RETRIES:,}, not {self.times!r}.")
        numbers = (self.first, self.factor, self.most)
        if not all(isinstance(one, (int, float)) and 0 <= one <= _MAX_SECONDS for one in numbers) or self.factor < 1:
            raise InvalidInput(f"a Retry needs first >= 0, factor >= 1 and most >= 0, and none over {_MAX_SECONDS:,}.")

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this many failures."""
        # The exponent is bounded, or many failures overflow.
        whole = min(self.most, self.first * self.factor ** min(failures - 1, 60))
        return whole * (0.5 + random.random() / 2)


NO_RETRY = Retry()


def parse_retry(retries: int | Retry) -> Retry:
    if retries == 0:
        return NO_RETRY
    return retries if isinstance(retries, Retry) else Retry(retries)
