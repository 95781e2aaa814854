"""How many tokens a text takes in a prompt, estimated without a vocabulary."""

from __future__ import annotations

from collections.abc import Callable

CountTokens = Callable[[str], int]


def estimated_tokens(text: str) -> int:
    """A quarter of a token per ASCII character and a whole one per other: high for most texts rather than low."""
    plain = len(text) if text.isascii() else sum(map(str.isascii, text))
    return (plain + 3) // 4 + len(text) - plain
