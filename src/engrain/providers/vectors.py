"""What every embedder checks: the texts it is given, and the vectors it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from engrain.core.embedding import EmbedKind
from engrain.core.errors import EmbedderFailed, InvalidInput

if TYPE_CHECKING:
    from engrain.ports import Matrix


def checked_texts(texts: Sequence[str], kind: EmbedKind) -> list[str]:
    if kind not in get_args(EmbedKind):
        raise InvalidInput(f'kind must be "query" or "document", not {kind!r}.')
    if isinstance(texts, str):
        raise InvalidInput("texts must be a list of texts, not one text: its characters would be embedded one by one.")
    for text in texts:
        if not isinstance(text, str):
            raise InvalidInput(f"texts must be str, not {type(text).__name__}.")
    return list(texts)


def unit_rows(rows: Any, count: int, dimension: int, who: str) -> Matrix:
    """The rows at length 1, or EmbedderFailed if they are not `count` finite vectors of that dimension."""
    import numpy as np

    if not count:
        return np.empty((0, dimension), np.float32)
    try:
        matrix = np.asarray(rows, np.float32).reshape(count, -1)
    except (TypeError, ValueError) as exc:
        raise EmbedderFailed(f"{who} did not return {count} vectors of one size.") from exc
    if matrix.shape[1] != dimension:
        raise EmbedderFailed(
            f"{who} returned vectors of {matrix.shape[1]} dimensions where {dimension} were expected. "
            f"Pass dimension={matrix.shape[1]} if that is what the model gives."
        )
    if not np.isfinite(matrix).all():
        raise EmbedderFailed(f"{who} returned a vector with a number that is not finite.")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    # A vector of zeros has no direction; the first axis is as good as any and keeps every row a unit vector.
    matrix = np.where(lengths > 0, matrix, np.eye(1, dimension, dtype=np.float32))
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1), np.float32)
