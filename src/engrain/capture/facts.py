"""Find the rule that a clause follows, and the slot of what it says."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache

from engrain.core.slotting import slot_of
from engrain.core.statements import ANY, Rule, statements

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
    subject = statements().dropped.get(first)
    if subject is None:
        return None
    return _by_rules(subject.split()[0], subject + shown[start:end], subject + text[start:end])


def _by_rules(first: str, shown: str, text: str, start: int = 0, end: int = sys.maxsize) -> Fact | None:
    for pattern, rule in _rules_at(_known_word(first)):
        match = pattern.match(shown, start, end)
        if match:
            alone = statements().sign("beside").match(shown, start, end) is None
            return Fact(rule.kind, slot_of(rule, match, text) if alone else None, rule.holds)
    return None


def _known_word(first: str) -> str:
    """The word under which the rules for a first word are: "j'habite" is found by "j'"."""
    known = statements().by_word
    elided = first.partition("'")[0] + "'"
    return first if first in known else elided if elided in known else ANY


@cache
def _rules_at(word: str) -> list[tuple[re.Pattern[str], Rule]]:
    return [(rule.pattern, rule) for rule in statements().by_word[word]]


def _first_word(shown: str, start: int, end: int) -> str:
    match = _FIRST_WORD.match(shown, start, end)
    return match[0].lower() if match else ""
