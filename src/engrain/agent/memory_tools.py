"""Tools by which a model itself keeps and looks up what matters; none by which it could delete."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engrain.agent.tools import Tool, tool
from engrain.core.chat import ToolCall
from engrain.core.items import Cite, Item, Source
from engrain.core.notes import Note
from engrain.core.recalled import RecallRequest
from engrain.core.text import checked_text

if TYPE_CHECKING:
    from engrain.memory import Memory

REMEMBER = "remember"
BUDGET = 1_500
HITS = 8
IMPORTANCE = 0.6


def learnt(call: ToolCall, cite: Cite, said: Item) -> Note:
    """What a call of `remember` that did not fail asks to have kept. It is written when the call stands in the log, so
    that it can cite its words there, and what the user `said`, and go with either; what was forgotten no model brings
    back."""
    text = str(call.arguments["text"])
    source = Source("conversation", "agent", (cite, _rests_on(text, said)))
    return Note(text, IMPORTANCE, source=source, derived=True)


def _rests_on(text: str, said: Item) -> Cite:
    """The same words there; where it has others the whole message, which stays when only the fact is forgotten."""
    found = re.search(re.escape(text.strip().rstrip(".!")), said.text, re.IGNORECASE)
    return Cite(said.id, *(found.span() if found else (0, 0)))


def memory_tools(memory: Callable[[], Memory]) -> list[Tool]:
    """`memory` gives the memory when a tool is called, for one that is opened late."""

    def remember(text: str) -> str:
        """Keep a fact for later conversations. What the user says is kept anyway: use it for what you found out.

        Args:
            text: One whole sentence that can be understood alone.
        """
        checked_text(text)
        return "Noted."

    def recall(question: str) -> str:
        """Look up what is remembered from earlier conversations. What seems to bear on the user's words is shown to you
        anyway: use it to look for more.

        Args:
            question: What you want to know.
        """
        # What goes on is before the model anyway.
        found = memory()._open.recall(RecallRequest(question, n=HITS, budget=BUDGET, shown=frozenset()))
        return str(found) or "Nothing relevant is remembered."

    # What was recalled is stored where it came from: a copy in the log would outlive its being forgotten.
    return [tool(remember, name=REMEMBER), replace(tool(recall), kept=False)]
