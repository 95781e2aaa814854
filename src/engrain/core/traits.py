"""Tell from a text, when it is written, what kind of statement it makes."""

from engrain.core.languages import languages

INSTRUCTION = 1
PREFERENCE = 2
NUMBER_OR_TIME = 4
ASKS = 8

STANDING = INSTRUCTION | PREFERENCE
SHORT = 25
_LIMIT = 20_000
_QUESTION_MARKS = ("?", "？", "؟")


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
    if asks(head):
        bits |= ASKS
    return bits


def asks(text: str) -> bool:
    """A short text that ends with a question: it wants to know something, and seldom tells anything."""
    end = text.rstrip()
    return end.endswith(_QUESTION_MARKS) and len(end.split(None, SHORT)) <= SHORT
