"""How many tokens a text takes in a prompt, estimated without a vocabulary."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import SupportsIndex

from engrain.core.errors import InvalidInput

CountTokens = Callable[[str], int]


def estimated_tokens(text: str) -> int:
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


def proved_counter(count: CountTokens) -> CountTokens:
    """The same counter with typed errors. One that cannot count is refused at once."""
    if count is estimated_tokens or isinstance(count, _Proved):
        return count
    if not callable(count):
        raise InvalidInput(f"count_tokens must be a function of a text, not {type(count).__name__}.")
    proved = _Proved(count)
    proved("A few words.")
    return proved
