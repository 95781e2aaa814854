"""Cut a text down to a number of tokens, so that the cut can be seen."""

from __future__ import annotations

from collections.abc import Callable

from engrain.core.tokens import CountTokens

CUT = "…"


def clipped(text: str, limit: int, count: CountTokens) -> str:
    """The text, or as much of its head as fits with "…" after it; "" where not even one character does."""
    if count(text) <= limit:
        return text
    return _longest(lambda size: text[:size].rstrip() + CUT, len(text) - 1, limit, count)


def middle_cut(text: str, limit: int, count: CountTokens) -> str:
    """The text, or its head and its tail around a mark that says how much was left out; "" where that does not fit."""
    whole = count(text)
    if whole <= limit:
        return text

    def kept(size: int) -> str:
        head, tail = text[: size - size // 2], text[len(text) - size // 2 :]
        return f"{head}\n[… about {max(1, whole - count(head) - count(tail)):,} tokens left out …]\n{tail}"

    return _longest(kept, len(text) - 1, limit, count)


def _longest(made: Callable[[int], str], most: int, limit: int, count: CountTokens) -> str:
    """`made(size)` of the largest size found that fits, by halving."""
    best, low, high = "", 1, most
    while low <= high:
        size = (low + high) // 2
        text = made(size)
        if count(text) <= limit:
            best, low = text, size + 1
        else:
            high = size - 1
    return best
