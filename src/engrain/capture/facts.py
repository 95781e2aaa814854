"""Find the rule that a clause follows, and the slot of what it says."""

from __future__ import annotations

import re

from engrain.core.statements import Rule, statements

_MOST_LEADS = 8
_FIRST_WORD = re.compile(r"[\w']+")


def behind_lead(shown: str, start: int, end: int) -> int:
    """Where a clause begins to say something, behind "oh, by the way," and the like."""
    lead = statements().sign("lead")
    for _ in range(_MOST_LEADS):
        match = lead.match(shown, start, end)
        if match is None or match.end() == start:
            break
        start = match.end()
    return start


def fact(shown: str, start: int, end: int) -> tuple[Rule, re.Match[str]] | None:
    """The first rule that the words from `start` to `end` follow."""
    known = statements()
    first = _FIRST_WORD.match(shown, start, end)
    rules = known.by_word.get(first[0].lower(), known.rules) if first else known.rules
    for rule in rules:
        match = rule.pattern.match(shown, start, end)
        if match:
            return rule, match
    return None
