"""Split a message into sentences and clauses."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SENTENCE_END = re.compile(r"(?P<mark>[.!?…]+)[\"')\]”’»*]*(?=\s|$)|\n+|(?P<wide>[。！？])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|prof|st|jr|vs|approx|ca|bzw|mme|sra?|e\.g|i\.e|z\.b|d\.h)|\b(?-i:[A-Z]))$", re.IGNORECASE
)
_GERMAN_MONTH = re.compile(r"\. (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")
_LEADING_MARKS = re.compile(r"[\s>*•#–—,;:.!?…)\]¿¡|+-]*(?:\d{1,2}[.)]\s+)?")
_TRAILING_MARKS = " \t\r\n,;:.!?…–—-*"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A span of a text. `is_question`: the sentence ends with a question mark."""

    start: int
    end: int
    is_question: bool


@dataclass(frozen=True, slots=True)
class Clause:
    """A span of a sentence. `connector` holds the words between it and the clause before: "because", "and"."""

    start: int
    end: int
    connector: str = ""


def split_sentences(text: str) -> list[Sentence]:
    """Return the sentences in order, without bullets and the marks around them."""
    found = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match["mark"] == "." and _dot_is_inside(text, match.start()):
            continue
        marks = match["mark"] or match["wide"] or ""
        found.append(Sentence(*trim_span(text, start, match.start()), "?" in marks or "？" in marks))
        start = match.end()
    found.append(Sentence(*trim_span(text, start, len(text)), False))
    return [sentence for sentence in found if sentence.start < sentence.end]


def split_clauses(
    text: str, sentence: Sentence, breaks: re.Pattern[str], introductions: re.Pattern[str]
) -> list[Clause]:
    """Cut a sentence at every break.

    An introduction, which only says when or how, stays with the clause after it.
    """
    found = []
    start, connector = sentence.start, ""
    for match in breaks.finditer(text, sentence.start, sentence.end):
        if match.start() <= start or introductions.fullmatch(text, start, match.end()):
            continue
        found.append(Clause(start, match.start(), connector))
        start, connector = match.end(), match[0].strip(" ,;:").lower()
    return [*found, Clause(start, sentence.end, connector)]


def trim_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without the marks and the white space at its ends."""
    leading = _LEADING_MARKS.match(text, start, end)
    start = leading.end() if leading else start
    return start, start + len(text[start:end].rstrip(_TRAILING_MARKS))


def _dot_is_inside(text: str, dot: int) -> bool:
    """The dot belongs to an abbreviation, an initial or a German date."""
    return _ABBREVIATION.search(text, max(0, dot - 8), dot) is not None or (
        text[dot - 1 : dot].isdigit() and _GERMAN_MONTH.match(text, dot) is not None
    )
