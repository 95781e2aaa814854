"""Helpers of all embedders: check texts and vectors, cut long texts into windows."""

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
    from engrain.ports.search import Matrix


def check_texts(texts: Sequence[str], kind: EmbedKind) -> list[str]:
    if kind not in get_args(EmbedKind):
        raise InvalidInput(f'kind must be "query" or "document", not {kind!r}.')
    if isinstance(texts, str):
        raise InvalidInput("texts must be a list of texts, not one text: its characters would be embedded one by one.")
    for text in texts:
        if not isinstance(text, str):
            raise InvalidInput(f"texts must be str, not {type(text).__name__}.")
    return list(texts)


def normalize_rows(rows: Any, count: int, dimension: int, service: str) -> Matrix:
    """Scale the rows to length 1. EmbedderFailed unless they are `count` finite vectors of that dimension."""
    import numpy as np

    if not count:
        return np.empty((0, dimension), np.float32)
    try:
        matrix = np.asarray(rows, np.float32).reshape(count, -1)
    except (TypeError, ValueError) as exc:
        raise EmbedderFailed(f"{service} did not return {count} vectors of one size.") from exc
    if matrix.shape[1] != dimension:
        raise EmbedderFailed(
            f"{service} returned vectors of {matrix.shape[1]} dimensions where {dimension} were expected. "
            f"Pass dimension={matrix.shape[1]} if the model returns so many."
        )
    if not np.isfinite(matrix).all():
        raise EmbedderFailed(f"{service} returned a vector with a number that is not finite.")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    # A vector of zeros has no direction; the first axis is as good as any and keeps every row a unit vector.
    matrix = np.where(lengths > 0, matrix, np.eye(1, dimension, dtype=np.float32))
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1), np.float32)


Measure = Callable[[str], int]
Span = tuple[int, int]

_BREAK = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s+|\n\s*|(?<=[。！？])")


def split_windows(text: str, size: Measure, limit: int) -> list[str]:
    """Split the text into parts of at most `limit` by `size`; only white space between them is dropped."""
    total = size(text)
    if total <= limit:
        return [text]
    sentences = [part for span in _split_sentences(text) for part in _split_to_fit(text, span, size, limit)]
    share = total / math.ceil(total / limit)
    packed = _pack(text, sentences, size, min(limit, math.ceil(share)), limit)
    # Sizes add up only at spaces that the model knows as such; elsewhere the sum is approximate, so check again.
    fitting = (text[start:end].strip() for span in packed for start, end in _split_to_fit(text, span, size, limit))
    return [window for window in fitting if window]


def count_bytes(text: str) -> int:
    """An upper bound for tokens: no byte-level or word-piece tokenizer makes more tokens than bytes."""
    return len(text.encode("utf-8", "replace"))


def _split_sentences(text: str) -> Iterator[Span]:
    start = 0
    for match in _BREAK.finditer(text):
        if match.end() > start:
            yield start, match.end()
            start = match.end()
    if start < len(text):
        yield start, len(text)


def _split_to_fit(text: str, span: Span, size: Measure, limit: int) -> Iterator[Span]:
    """The span, or as many even parts as it needs, each checked again; cut at a space if there is one."""
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
        yield from _split_to_fit(text, (left, right), size, limit)


def _pack(text: str, spans: list[Span], size: Measure, share: int, limit: int) -> Iterator[Span]:
    """Join neighbours until the window has its even share, so that no short rest remains."""
    start, total = 0, 0
    for left, right in spans:
        piece = size(text[left:right])
        if total and (total >= share or total + piece > limit):
            yield start, left
            start, total = left, 0
        total += piece
    yield start, len(text)


def call_after_fork(method: Callable[[], None]) -> None:
    """Call the bound method in every forked child, as long as its object lives."""
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    os.register_at_fork(after_in_child=call)
