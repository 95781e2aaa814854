"""Tell which messages say nothing by themselves, and which questions are about their speaker."""

from __future__ import annotations

import re

from engrain.core.rules.statements import load_statement_rules

_MAX_CHARACTERS = 80
_SPEAKER = re.compile(
    r"\b(?:i|i'm|me|my|mine|we|us|our|ich|mir|mich|mein\w*|wir|uns|unser\w*|yo|mis?|me|nosotr[oa]s|nuestr[oa]s?|\w+o(?=\?)"
    r"|je|j'\w+|moi|mon|ma|mes|nous|notre|nos)\b",
    re.IGNORECASE,
)


def says_nothing(text: str) -> bool:
    """Tell if a text is nothing but words such as "ok, will do", "Mach ich." or "vale, gracias"."""
    text = text.strip()
    return len(text) <= _MAX_CHARACTERS and load_statement_rules().sign("acknowledges").fullmatch(text) is not None


def is_about_speaker(question: str) -> bool:
    """Tell if a question asks for something about the person who asks."""
    return _SPEAKER.search(question.replace("\u2019", "'")) is not None
