"""The frame of a task: what is to be done, what is known so far, what is thought; with a limit for everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal

from engrain.core.errors import TooLarge
from engrain.core.plain import json_text
from engrain.core.text import checked_key, checked_text

MAX_GOAL = 100_000  # bytes of a task, a goal or a thought
MAX_SUBGOAL = 10_000
MAX_SUBGOALS = 100
MAX_VALUE = 1_000_000  # bytes of JSON of one result or variable
MAX_VALUES = 4_000_000  # characters of JSON of all results, and as many of all variables
MAX_THOUGHTS = 1_000  # the newest; and no more than MAX_SCRATCH characters of them
MAX_SCRATCH = 1_000_000


@dataclass(frozen=True, slots=True)
class Frame:
    """`results` and `variables` are kept as JSON texts, so that nobody changes them from outside."""

    task: str = ""
    task_id: str = ""
    goal: str = ""
    subgoals: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    scratchpad: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def with_values(self, where: Literal["results", "variables"], given: Mapping[Any, object]) -> Frame:
        """A value that is set again becomes the newest."""
        what = f"the name of a {where.removesuffix('s')}"
        new = {
            checked_key(name, what): json_text(value, f"{where}[{name!r}]", MAX_VALUE) for name, value in given.items()
        }
        old = self.results if where == "results" else self.variables
        values = {name: text for name, text in old.items() if name not in new} | new
        size = sum(len(name) + len(text) for name, text in values.items())
        if size > MAX_VALUES:
            raise TooLarge(f"{where} would have {size:,} characters; the limit is {MAX_VALUES:,}. Remember large ones.")
        return replace(self, results=values) if where == "results" else replace(self, variables=values)

    def with_subgoals(self, *goals: object) -> Frame:
        if len(self.subgoals) + len(goals) > MAX_SUBGOALS:
            raise TooLarge(f"{MAX_SUBGOALS} subgoals are the most there may be: finish one first.")
        new = tuple(checked_text(goal, "subgoal", MAX_SUBGOAL) for goal in goals)
        return replace(self, subgoals=self.subgoals + new)

    def with_thoughts(self, *thoughts: object) -> Frame:
        """The newest thoughts are kept; a scratchpad that is full lets go of the oldest."""
        new = tuple(checked_text(thought, "thought", MAX_GOAL) for thought in thoughts)
        every = (self.scratchpad + new)[-MAX_THOUGHTS:]
        sizes = accumulate(map(len, reversed(every)))
        kept = sum(size <= MAX_SCRATCH for size in sizes)
        return replace(self, scratchpad=every[len(every) - kept :])


def decoded(values: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in values.items()}
