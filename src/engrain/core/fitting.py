"""Cut a text down to a number of tokens, so that the cut can be seen."""

from __future__ import annotations

from collections.abc import Callable

from engrain.core.tokens import CountTokens

CUT = "…"


def clipped(text: str, limit: int, count: CountTokens) -> str:
    """The text, or as much of its head as fits with "…" after it; "" where not even one character does."""
    if count(text) <= limit:
        return text
    size = _largest(lambda size: text[:size].rstrip() + CUT, len(text) - 1, limit, count)
    return text[:size].rstrip() + CUT if size else ""


def middle_cut(text: str, limit: int, count: CountTokens) -> tuple[str, int]:
    """The text, or its head and tail around a mark ("" where that does not fit), and about how much was left out."""
    whole = count(text)
    if whole <= limit:
        return text, 0

    def ends(size: int) -> tuple[str, str]:
        return text[: size - size // 2], text[len(text) - size // 2 :]

    def gap(size: int) -> int:
        return max(1, whole - sum(map(count, ends(size))))

    def kept(size: int) -> str:
        return f"\n[… about {gap(size):,} tokens left out …]\n".join(ends(size))

    size = _largest(kept, len(text) - 1, limit, count)
    return (kept(size), gap(size)) if size else ("", whole)


def _largest(made: Callable[[int], str], most: int, limit: int, count: CountTokens) -> int:
    """The largest size found, by halving, of which `made` fits; 0 for none."""
    best, low, high = 0, 1, most
    while low <= high:
        size = (low + high) // 2
        if count(made(size)) <= limit:
            best, low = size, size + 1
        else:
            high = size - 1
    return best
