"""Time a piece of work by the wall and by the processor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each run; the processor's count every thread of the process."""

    wall: Sequence[float]
    cpu: Sequence[float]

    @property
    def milliseconds(self) -> dict[str, float]:
        figures = {"wall": self.wall, "cpu": self.cpu}
        return {
            f"{name}_p{share}": round(float(np.percentile(values, share)) * 1e3, 4)
            for name, values in figures.items()
            for share in (50, 95)
        }


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def times(runs: Iterable[Callable[[], Any]]) -> Times:
    pairs = [timed(run) for run in runs]
    return Times([wall for wall, _ in pairs], [cpu for _, cpu in pairs])


def seconds(work: Callable[[], Any]) -> float:
    return timed(work)[0]


def median(values: Sequence[float]) -> float:
    return float(np.median(values))
