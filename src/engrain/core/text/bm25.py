"""Score passages with BM25, for every store and for ranking."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

BM25_K1 = 1.2
BM25_B = 0.75


def compute_idf(frequency: ArrayLike, passages: int) -> FloatArray:
    """Weigh each term by its inverse document frequency: never negative, highest for a term that no passage has."""
    found = np.minimum(np.asarray(frequency, dtype=np.float64), passages)
    weight: FloatArray = np.log1p((passages - found + 0.5) / (found + 0.5))
    return weight


def score_bm25(counts: ArrayLike, lengths: ArrayLike, weights: ArrayLike, average: float) -> FloatArray:
    """Return one score per passage.

    `counts` has a row per passage and a column per term. `weights` comes from `compute_idf`.
    """
    matrix = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    size = np.asarray(lengths, dtype=np.float64) / max(average, 1.0)
    damping = BM25_K1 * (1 - BM25_B + BM25_B * size)
    saturated = matrix * (BM25_K1 + 1) / (matrix + damping[:, None])
    scores: FloatArray = saturated @ np.asarray(weights, dtype=np.float64)
    return scores
