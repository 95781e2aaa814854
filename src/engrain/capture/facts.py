"""Find the rule that a clause follows, and the slot of what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engrain.core.slotting import slot_of
from engrain.core.statements import Rule, statements

_MOST_LEADS = 8
_FIRST_WORD = re.compile(r"[\w']+")


@dataclass(frozen=True, slots=True)
class Fact:
    """What kind of statement it is, and the slot it fills. `holds`: whatever time is named beside it."""

    kind: str
    slot: str | None
    holds: bool


def behind_lead(shown: str, start: int, end: int) -> int:
    """Where a clause begins to say something, behind "oh, by the way," and the like."""
    lead = statements().sign("lead")
    for _ in range(_MOST_LEADS):
        match = lead.match(shown, start, end)
        if match is None or match.end() == start:
            break
        start = match.end()
    return start


def fact(shown: str, text: str, start: int, end: int) -> Fact | None:
    """What the words from `start` to `end` state; `text` is the same as `shown` with nothing hidden."""
    first = _first_word(shown, start, end)
    found = _by_rules(first, shown, text, start, end)
    if found:
        return found
    for subject in statements().dropped.get(first, ()):
        found = _by_rules(subject.split()[0], subject + shown[start:end], subject + text[start:end])
        if found:
            return found
    return None


def _by_rules(first: str, shown: str, text: str, start: int = 0, end: int | None = None) -> Fact | None:
    for rule in _rules_for(first):
        match = rule.pattern.match(shown, start, len(shown) if end is None else end)
        if match:
            return Fact(rule.kind, slot_of(rule, match, text), rule.holds)
    return None


def _rules_for(first: str) -> tuple[Rule, ...]:
    """Those for a clause with this first word; "j'habite" is found by "j'"."""
    known = statements()
    elided = first.partition("'")[0] + "'"
    return known.by_word.get(first) or known.by_word.get(elided) or known.rules


def _first_word(shown: str, start: int, end: int) -> str:
    match = _FIRST_WORD.match(shown, start, end)
    return match[0].lower() if match else ""
