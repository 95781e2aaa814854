"""Count tokens without a vocabulary, and shorten texts to so many tokens or characters."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import SupportsIndex

from engrain.core.errors import InvalidInput

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Count a quarter of a token per ASCII character and one per other character: rather too high than too low."""
    plain = len(text) if text.isascii() else sum(map(str.isascii, text))
    return (plain + 3) // 4 + len(text) - plain


class _CheckedCounter:
    """A user's counter with typed errors."""

    def __init__(self, count: Callable[[str], SupportsIndex]) -> None:
        self._count = count

    def __call__(self, text: str) -> int:
        try:
            found = operator.index(self._count(text))
        except Exception as exc:
            cause = f"{type(exc).__name__}: {exc}"
            raise InvalidInput(f"count_tokens must take a text and return its number of tokens; {cause}.") from exc
        if found < 0:
            raise InvalidInput(f"count_tokens returned {found} for a text; it must be 0 or more.")
        return found


def check_counter(count: CountTokens) -> CountTokens:
    """Wrap a user's counter so that its errors are typed. A counter that cannot count is refused at once."""
    if count is estimate_tokens or isinstance(count, _CheckedCounter):
        return count
    if not callable(count):
        raise InvalidInput(f"count_tokens must be a function of a text, not {type(count).__name__}.")
    checked = _CheckedCounter(count)
    checked("A few words.")
    return checked


ELLIPSIS = "…"


def clip_text(text: str, limit: int, count: CountTokens) -> str:
    """Return the text, or as much of its head as fits before "…"; "" if not even one character fits."""
    if count(text) <= limit:
        return text
    size = _find_largest_size(lambda size: text[:size].rstrip() + ELLIPSIS, len(text) - 1, limit, count)
    return text[:size].rstrip() + ELLIPSIS if size else ""


def cut_middle(text: str, limit: int, count: CountTokens) -> tuple[str, int]:
    """Return the text, or its head and tail around a mark, and about how many tokens were left out.

    The text is "" if not even the mark fits.
    """
    whole = count(text)
    if whole <= limit:
        return text, 0

    def ends(size: int) -> tuple[str, str]:
        return text[: size - size // 2], text[len(text) - size // 2 :]

    def omitted(size: int) -> int:
        return max(1, whole - sum(map(count, ends(size))))

    def shorten(size: int) -> str:
        return f"\n[… about {omitted(size):,} tokens left out …]\n".join(ends(size))

    size = _find_largest_size(shorten, len(text) - 1, limit, count)
    return (shorten(size), omitted(size)) if size else ("", whole)


def _find_largest_size(shorten: Callable[[int], str], most: int, limit: int, count: CountTokens) -> int:
    """Return the largest size, by bisection, at which the shortened text fits; 0 for none."""
    best, low, high = 0, 1, most
    while low <= high:
        size = (low + high) // 2
        if count(shorten(size)) <= limit:
            best, low = size, size + 1
        else:
            high = size - 1
    return best


def shorten_line(text: str, limit: int = 100) -> str:
    """Return the text on one line, cut after so many characters. Of a long text only the beginning is read."""
    line = " ".join(text[: 2 * limit].split())
    return line if len(line) <= limit and len(text) <= 2 * limit else line[: limit - 1] + ELLIPSIS
