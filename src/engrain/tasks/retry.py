"""When a step that failed is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass

from engrain.core.errors import InvalidInput

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
