"""What every embedder checks: the texts it is given, and the vectors it gives back."""

from __future__ import annotations

import math
import os
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from engrain.core.errors import EmbedderFailed, InvalidInput
from engrain.core.model.queries import EmbedKind

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


Size = Callable[[str], int]
Span = tuple[int, int]

_BREAK = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s+|\n\s*|(?<=[。！？])")


def windows(text: str, size: Size, limit: int) -> list[str]:
    """Substrings of the text, in order, each of at most `limit` by `size`; only space between them is left out."""
    total = size(text)
    if total <= limit:
        return [text]
    sentences = [part for span in _sentences(text) for part in _fitted(text, span, size, limit)]
    share = total / math.ceil(total / limit)
    packed = _packed(text, sentences, size, min(limit, math.ceil(share)), limit)
    # Sizes add up at a space that the model knows as one; at any other the sum is only close, so look again.
    fitting = (text[start:end].strip() for span in packed for start, end in _fitted(text, span, size, limit))
    return [window for window in fitting if window]


def utf8_size(text: str) -> int:
    """No byte-level or word-piece tokenizer makes more tokens of a text than it has bytes."""
    return len(text.encode("utf-8", "replace"))


def cut(text: str, size: Size, limit: int) -> str:
    """The beginning of a text, as much of it as fits."""
    if size(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= limit else (low, middle - 1)
    return text[:low]


def _sentences(text: str) -> Iterator[Span]:
    start = 0
    for match in _BREAK.finditer(text):
        if match.end() > start:
            yield start, match.end()
            start = match.end()
    if start < len(text):
        yield start, len(text)


def _fitted(text: str, span: Span, size: Size, limit: int) -> Iterator[Span]:
    """The span, or as many even parts as it needs, each looked at again; cut at a space if a part has one."""
    start, end = span
    parts = math.ceil(size(text[start:end]) / limit)
    if end - start <= 1 or parts <= 1:
        yield span
        return
    parts = min(parts, end - start)
    edges = [start]
    for part in range(1, parts):
        even = start + (end - start) * part // parts
        space = text.rfind(" ", edges[-1] + 1, even)
        edges.append(even if space < 0 else space)
    for left, right in zip(edges, [*edges[1:], end], strict=True):
        yield from _fitted(text, (left, right), size, limit)


def _packed(text: str, spans: list[Span], size: Size, share: int, limit: int) -> Iterator[Span]:
    """Neighbours together until the window has its even share, so that no short tail is left over."""
    start, total = 0, 0
    for left, right in spans:
        piece = size(text[left:right])
        if total and (total >= share or total + piece > limit):
            yield start, left
            start, total = left, 0
        total += piece
    yield start, len(text)


def after_fork(method: Callable[[], None]) -> None:
    """Call this bound method in every child that is forked while its object lives."""
    if not hasattr(os, "register_at_fork"):
        return
    here = weakref.WeakMethod(method)

    def call() -> None:
        living = here()
        if living is not None:
            living()

    os.register_at_fork(after_in_child=call)
