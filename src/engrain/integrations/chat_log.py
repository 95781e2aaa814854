"""Keep the words of a chat, and recall for them: a text that a memory refuses stops no agent."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from engrain.core.errors import BadText, TooLarge
from engrain.core.validation import MAX_QUERY
from engrain.memory.memory import Memory

LOGGED_ROLES = ("user", "assistant")
_MOST_BYTES = 4  # of a character


def keep_words(memory: Memory, role: str, text: str, **options: Any) -> None:
    """Add the words of user or assistant to the log. A text that the log refuses stays with the framework alone."""
    if role in LOGGED_ROLES and text.strip():
        with suppress(TooLarge, BadText):
            memory.add_message(role, text, **options)


def recall_block(memory: Memory, asked: str, n: int, budget: int | None) -> str:
    """Return what matters for the user's words as quoted data, or "" if nothing does."""
    query = clean_query(asked)
    return str(memory.recall(query, n=n, budget=budget)) if query else ""


def clean_query(asked: str) -> str:
    """Return the text as a query that is short enough and valid Unicode."""
    valid = asked.encode("utf-8", "replace").decode().replace("\0", " ")
    return valid[: MAX_QUERY // _MOST_BYTES].strip()
