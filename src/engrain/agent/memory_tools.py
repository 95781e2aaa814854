"""Tools by which a model itself keeps and looks up what matters; none by which it could delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engrain.agent.tools import Tool, tool
from engrain.core.recalled import RecallRequest

if TYPE_CHECKING:
    from engrain.memory import Memory

BUDGET = 1_500
HITS = 8
IMPORTANCE = 0.6


def memory_tools(memory: Callable[[], Memory]) -> list[Tool]:
    """`memory` gives the memory when a tool is called, for one that is opened late."""

    def remember(text: str) -> str:
        """Keep a fact for later conversations. What the user says is kept anyway: use it for what you found out.

        Args:
            text: One whole sentence that can be understood alone.
        """
        memory().learn(text, IMPORTANCE)
        return "Kept."

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
    return [tool(remember), replace(tool(recall), kept=False)]
