"""Decide, by rules and with no model, whether a message says something worth keeping."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.worth import Unsaid, Worth


def worth(text: str, before: Sequence[tuple[str, str]] = ()) -> list[Worth | Unsaid]:
    """What a user's message says that lasts, in order. `before` are the last (role, text) of the session."""
    return []
