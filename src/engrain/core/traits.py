"""Tell from a text, when it is written, what kind of statement it makes."""

import re

from engrain.core.languages import Languages, languages

INSTRUCTION = 1
PREFERENCE = 2
NUMBER_OR_TIME = 4
ASKS = 8

STANDING = INSTRUCTION | PREFERENCE
SHORT = 25
_LIMIT = 20_000
_DIGIT = re.compile(r"\d")
_LETTERS = re.compile(r"[^\W\d_]+")
_QUESTION_MARKS = ("?", "？", "؟")


def traits(text: str, role: str | None = None) -> int:
    """Bits of the names above. Only what people say orders or prefers: an assistant's "always …" is advice."""
    head = text[:_LIMIT].lower()
    if "\u2019" in head:
        head = head.replace("\u2019", "'")
    known = languages()
    bits = 0
    if role not in ("assistant", "tool"):
        bits |= INSTRUCTION * _states("instruction", head, known) | PREFERENCE * _states("preference", head, known)
    if _DIGIT.search(head) or not known.words["number_or_time"].isdisjoint(_LETTERS.findall(head)):
        bits |= NUMBER_OR_TIME
    return bits | ASKS * asks(head)


def _states(what: str, head: str, known: Languages) -> bool:
    return any(hint in head for hint in known.hints[what]) and known.statements[what].search(head) is not None


def asks(text: str) -> bool:
    """A short text that ends with a question: it wants to know something, and seldom tells anything."""
    end = text.rstrip()
    return end.endswith(_QUESTION_MARKS) and len(end.split(None, SHORT)) <= SHORT
