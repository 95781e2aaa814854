"""Read a correction such as "no, it is …", and find out what it corrects."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engrain.capture.facts import behind_lead, fact
from engrain.core.clauses import clauses, sentences
from engrain.core.pasted import own_words
from engrain.core.slotting import mentioned
from engrain.core.statements import compiled, statements

_LAST_MESSAGES = 4
_LIMIT = 2_000
_FEW_WORDS = 8
_WORD = re.compile(r"[\w']+")


def right_value(shown: str, start: int, end: int, *, sure: bool) -> bool:
    """These words give a value in place of another. Where that is not sure, it must look like one."""
    known = statements()
    for pattern in known.asks["right"]:
        match = compiled(pattern).match(shown, start, end)
        if match is None:
            continue
        at = match.start("value")
        if known.sign("likely").match(shown, at, end):
            return True
        short = len(_WORD.findall(shown, at, end)) <= _FEW_WORDS
        if sure and short and not known.sign("no_value").match(shown, at, end):
            return True
    return False


def topic(before: Sequence[tuple[str, str]]) -> str | None:
    """The slot that was last spoken of: what the user said, or what the assistant said of the user or asked for."""
    for role, text in reversed(before[-_LAST_MESSAGES:]):
        shown = own_words(text[-_LIMIT:])
        slot = _slot(shown if role == "user" else _turned(shown))
        if slot:
            return slot
    return None


def _slot(shown: str) -> str | None:
    known = statements()
    for sentence in reversed(sentences(shown)):
        for clause in reversed(clauses(shown, sentence, known.sign("breaks"), known.sign("opens"))):
            found = fact(shown, shown, behind_lead(shown, clause.start, clause.end), clause.end)
            if found and found.slot:
                return found.slot
        slot = mentioned(shown[sentence.start : sentence.end])
        if slot:
            return slot
    return None


def _turned(shown: str) -> str:
    """What is said to the user as the user would say it: "you live in Lima" as "I live in Lima"."""
    turned = statements().turned
    return _WORD.sub(lambda match: turned.get(match[0].lower(), match[0]), shown)
