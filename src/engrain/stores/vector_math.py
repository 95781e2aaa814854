"""Check vectors, and multiply them so that equal ones tie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Vectors

Floats = npt.NDArray[np.float64]
_MAX_SQUARED_LENGTH = 1.001**2


def stack_windows(vectors: Sequence[Vectors], dimension: int) -> npt.NDArray[np.float32]:
    """All windows of vectors of one model, one a row. InvalidInput unless they are unit vectors of this dimension."""
    model, width = vectors[0].model, len(vectors[0].rows[0])
    windows = [row for vector in vectors for row in vector.rows]
    if width == 0 or width % 4 or any(len(row) != width for row in windows):
        raise InvalidInput(f"vectors of {model} must all be float32 of {width // 4} dimensions.")
    if width // 4 != dimension:
        raise InvalidInput(f"vectors of {model} have {dimension} dimensions here, not {width // 4}.")
    matrix = np.frombuffer(b"".join(windows), dtype="<f4").reshape(len(windows), -1)
    # Codes and cosines are exact for unit length. A shorter vector does no harm. A value that is not a number is above.
    if not np.einsum("ij,ij->i", matrix, matrix).max() <= _MAX_SQUARED_LENGTH:
        if not np.isfinite(matrix).all():
            raise InvalidInput("a vector holds a value that is not a finite number.")
        raise InvalidInput("a vector is longer than 1: vectors must have unit length.")
    return matrix


def normalize_query(vector: Any, dimension: int | None = None) -> Floats:
    """The vector with unit length; one of no length stays. InvalidInput unless it has this dimension."""
    query = np.asarray(vector, dtype=np.float64).ravel()
    if dimension is not None and len(query) != dimension:
        raise InvalidInput(f"the vector has {len(query)} dimensions; those of its model have {dimension} here.")
    length = math.sqrt(query @ query)
    if not math.isfinite(length):
        raise InvalidInput("the vector holds a value that is not a finite number.")
    return query / length if length else query


def multiply_rows(vectors: npt.NDArray[Any], query: Floats) -> Floats:
    """The dot product of each row by itself, so that equal vectors tie wherever they stand.

    A product with the whole matrix does not promise that."""
    products: Floats = np.vecdot(vectors.astype(np.float64), query)
    return np.minimum(np.maximum(products, -1.0), 1.0)  # for few rows faster than clip
