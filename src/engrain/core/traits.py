"""Tell from a text, when it is written, what kind of statement it makes."""

import re

from engrain.core.languages import languages

INSTRUCTION = 1
PREFERENCE = 2
NUMBER_OR_TIME = 4
ONLY_QUESTION = 8

STANDING = INSTRUCTION | PREFERENCE
_LIMIT = 20_000


def traits(text: str, role: str | None = None) -> int:
    """Bits of the names above. Only what people say orders or prefers: an assistant's "always …" is advice."""
    head = text[:_LIMIT].lower()
    if "\u2019" in head:
        head = head.replace("\u2019", "'")
    known = languages().statements
    bits = 0
    if role not in ("assistant", "tool"):
        if known["instruction"].search(head):
            bits |= INSTRUCTION
        if known["preference"].search(head):
            bits |= PREFERENCE
    if known["number_or_time"].search(head):
        bits |= NUMBER_OR_TIME
    if only_question(head):
        bits |= ONLY_QUESTION
    return bits


def only_question(text: str) -> bool:
    """Nothing is stated: every sentence ends with a question mark."""
    end = text.rstrip()
    return end.endswith(("?", "？")) and all(
        piece.rstrip().endswith(("?", "？")) for piece in re.split(r"(?<=[.!?…。！？])\s+|\n+", end) if piece.strip()
    )
