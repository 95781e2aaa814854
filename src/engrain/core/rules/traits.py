"""Detect the traits of a text: an instruction, a preference, a number or time, a question."""

import re

from engrain.core.text.languages import Languages, load_languages

INSTRUCTION = 1
PREFERENCE = 2
NUMBER_OR_TIME = 4
IS_QUESTION = 8

INSTRUCTION_OR_PREFERENCE = INSTRUCTION | PREFERENCE
MAX_QUESTION_WORDS = 25
_MAX_READ_CHARACTERS = 20_000
_DIGIT = re.compile(r"\d")
_LETTERS = re.compile(r"[^\W\d_]+")
_QUESTION_MARKS = ("?", "？", "؟")


def detect_traits(text: str, role: str | None = None) -> int:
    """Return the traits as bits. Only people instruct or prefer: an assistant's "always …" is advice."""
    head = text[:_MAX_READ_CHARACTERS].lower()
    if "\u2019" in head:
        head = head.replace("\u2019", "'")
    known = load_languages()
    bits = 0
    if role not in ("assistant", "tool"):
        bits |= INSTRUCTION * _matches("instruction", head, known) | PREFERENCE * _matches("preference", head, known)
    if _DIGIT.search(head) or not known.words["number_or_time"].isdisjoint(_LETTERS.findall(head)):
        bits |= NUMBER_OR_TIME
    return bits | IS_QUESTION * is_short_question(head)


def _matches(what: str, head: str, known: Languages) -> bool:
    return any(hint in head for hint in known.hints[what]) and known.statements[what].search(head) is not None


def is_short_question(text: str) -> bool:
    """Tell a short text that ends with a question: it seldom states anything."""
    end = text.rstrip()
    return end.endswith(_QUESTION_MARKS) and len(end.split(None, MAX_QUESTION_WORDS)) <= MAX_QUESTION_WORDS
