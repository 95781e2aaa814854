"""Round vectors to int8 codes, with a bound on the error."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from engrain.core.model.items import Vectors
from engrain.stores.relational.vectors import stack_windows

_LEVELS = 127


def code_type(dimension: int) -> np.dtype[np.void]:
    """One window as table `code` stores it."""
    return np.dtype([("scale", "<f4"), ("error", "<f4"), ("codes", "i1", (dimension,))])


def encode_items(items: Sequence[Vectors]) -> list[bytes]:
    """The codes of each item's windows, all of one model, after a check of the vectors."""
    coded = quantise(stack_windows(items, len(items[0].rows[0]) // 4))
    ends = list(accumulate(len(vectors.rows) for vectors in items))
    return [coded[start:end].tobytes() for start, end in zip([0, *ends], ends, strict=False)]


def encode_stored(windows: bytes, dimension: int) -> bytes | None:
    """The codes of stored windows; None if their size is wrong."""
    if not windows or len(windows) % (4 * dimension):
        return None
    return quantise(np.frombuffer(windows, dtype="<f4").reshape(-1, dimension)).tobytes()


def quantise(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.void]:
    """int8 codes, a scale per row, and an upper bound on the length of the difference."""
    coded = np.empty(len(rows), dtype=code_type(rows.shape[1]))
    top = np.abs(rows).max(axis=1)
    scale = np.where(top > 0, top / np.float32(_LEVELS), np.float32(1))
    codes = np.rint(rows / scale[:, None]).clip(-_LEVELS, _LEVELS)
    rest = rows.astype(np.float64) - codes * scale[:, None].astype(np.float64)
    length = np.sqrt(np.square(rest).sum(axis=1))
    coded["scale"] = scale
    coded["codes"] = codes
    # One step up: rounding to float32 must not make the bound too small.
    coded["error"] = np.nextafter(length.astype(np.float32), np.float32(np.inf))
    return coded
