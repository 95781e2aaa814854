"""BM25, once for every store and for ranking, from counts and the scope's own frequencies."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

SATURATION = 1.2
LENGTH_SHARE = 0.75


def rarity(frequency: ArrayLike, passages: int) -> Floats:
    """The weight of each term (idf): never negative, highest for a term that no passage has."""
    found = np.minimum(np.asarray(frequency, dtype=np.float64), passages)
    weight: Floats = np.log1p((passages - found + 0.5) / (found + 0.5))
    return weight


def bm25(counts: ArrayLike, lengths: ArrayLike, weights: ArrayLike, average: float) -> Floats:
    """One score per passage: `counts` has a row per passage and a column per term, `weights` comes from `rarity`."""
    matrix = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    size = np.asarray(lengths, dtype=np.float64) / max(average, 1.0)
    damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * size)
    saturated = matrix * (SATURATION + 1) / (matrix + damping[:, None])
    scores: Floats = saturated @ np.asarray(weights, dtype=np.float64)
    return scores
