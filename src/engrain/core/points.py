"""What a vector server holds of a memory: one point for each window of an item's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engrain.core.clock import from_micros
from engrain.core.items import Item

if TYPE_CHECKING:
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]

FOREVER = 2**50  # the end of what has none; past every time there is
_EPOCH = from_micros(0)


class Point(NamedTuple):
    """`row` is float32, unit length. It held from the second `begins` on and before the second `ends`."""

    item: str
    window: int
    scope: str
    begins: int
    ends: int
    row: bytes


@dataclass(frozen=True, slots=True, eq=False)
class PointQuery:
    """What held in the second `at`, of one scope. With `at_least` only the end counts: what is over is left out."""

    vector: Matrix
    model: str
    scope: str
    at: int
    limit: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The items of the nearest points, best first, one for each point; fewer than the limit if there are no more."""

    items: list[str]
    cosines: list[float]
    exact: bool


def points_of(item: Item, scope: str, rows: tuple[bytes, ...]) -> list[Point]:
    """None of an item that was corrected: it answers no moment at all."""
    if item.retracted_at is not None:
        return []
    ends = min((second(one) + 1 for one in (item.valid_to, item.expires_at) if one), default=FOREVER)
    begins = second(item.valid_from)
    return [Point(item.id, number, scope, begins, ends, row) for number, row in enumerate(rows)]


def second(moment: datetime) -> int:
    """Whole seconds since 1970: servers compare numbers as float64, which holds no microseconds of far years."""
    return (moment - _EPOCH) // (from_micros(1_000_000) - _EPOCH)
