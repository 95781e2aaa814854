"""How many tokens a text takes in a prompt, estimated without a vocabulary."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import SupportsIndex

from engrain.core.errors import InvalidInput

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """A quarter of a token per ASCII character and a whole one per other: high for most texts rather than low."""
    plain = len(text) if text.isascii() else sum(map(str.isascii, text))
    return (plain + 3) // 4 + len(text) - plain


class _Proved:
    """A counter of somebody else, whose answers are looked at."""

    def __init__(self, count: Callable[[str], SupportsIndex]) -> None:
        self._count = count

    def __call__(self, text: str) -> int:
        try:
            found = operator.index(self._count(text))
        except Exception as exc:
            told = f"{type(exc).__name__}: {exc}"
            raise InvalidInput(f"count_tokens must take a text and return how many tokens it has; {told}.") from exc
        if found < 0:
            raise InvalidInput(f"count_tokens says that a text has {found} tokens; it must be 0 or more.")
        return found


def check_counter(count: CountTokens) -> CountTokens:
    """The same counter with typed errors. One that cannot count is refused at once."""
    if count is estimate_tokens or isinstance(count, _Proved):
        return count
    if not callable(count):
        raise InvalidInput(f"count_tokens must be a function of a text, not {type(count).__name__}.")
    proved = _Proved(count)
    proved("A few words.")
    return proved


ELLIPSIS = "…"


def clip_text(text: str, limit: int, count: CountTokens) -> str:
    """The text, or as much of its head as fits with "…" after it; "" where not even one character does."""
    if count(text) <= limit:
        return text
    size = _largest(lambda size: text[:size].rstrip() + ELLIPSIS, len(text) - 1, limit, count)
    return text[:size].rstrip() + ELLIPSIS if size else ""


def cut_middle(text: str, limit: int, count: CountTokens) -> tuple[str, int]:
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
