"""Cut a message into sentences, and these into clauses, each as a span of the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_END = re.compile(r"(?P<mark>[.!?…]+)[\"')\]”’»*]*(?=\s|$)|\n+|(?P<wide>[。！？])")
_SHORTENED = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|prof|st|jr|vs|approx|ca|bzw|mme|sra?|e\.g|i\.e|z\.b|d\.h)|\b(?-i:[A-Z]))$", re.IGNORECASE
)
_GERMAN_DAY = re.compile(r"\. (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")
_FRONT = re.compile(r"[\s>*•#–—,;:.!?…)\]¿¡|+-]*(?:\d{1,2}[.)]\s+)?")
_BACK = " \t\r\n,;:.!?…–—-*"


@dataclass(frozen=True, slots=True)
class Sentence:
    start: int
    end: int
    asks: bool


@dataclass(frozen=True, slots=True)
class Clause:
    """`after` are the words that part it from the clause before: "because", "and"."""

    start: int
    end: int
    after: str = ""


def sentences(text: str) -> list[Sentence]:
    """Without bullets, and without the marks around them; `asks`: it ends with a question mark."""
    found = []
    start = 0
    for match in _END.finditer(text):
        if match["mark"] == "." and _goes_on(text, match.start()):
            continue
        marks = match["mark"] or match["wide"] or ""
        found.append(_trimmed(text, start, match.start(), "?" in marks or "？" in marks))
        start = match.end()
    found.append(_trimmed(text, start, len(text), False))
    return [one for one in found if one.start < one.end]


def clauses(text: str, sentence: Sentence, breaks: re.Pattern[str], opens: re.Pattern[str]) -> list[Clause]:
    """Cut at every break, but not behind words that only say when or how: these go with the clause after them."""
    found = []
    start, after = sentence.start, ""
    for match in breaks.finditer(text, sentence.start, sentence.end):
        if match.start() <= start or opens.fullmatch(text, start, match.end()):
            continue
        found.append(Clause(start, match.start(), after))
        start, after = match.end(), match[0].strip(" ,;:").lower()
    return [*found, Clause(start, sentence.end, after)]


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The same span without marks and space around it."""
    front = _FRONT.match(text, start, end)
    start = front.end() if front else start
    return start, start + len(text[start:end].rstrip(_BACK))


def _trimmed(text: str, start: int, end: int, asks: bool) -> Sentence:
    return Sentence(*trimmed(text, start, end), asks)


def _goes_on(text: str, dot: int) -> bool:
    """The dot belongs to a short form, an initial or a German date."""
    return _SHORTENED.search(text, max(0, dot - 8), dot) is not None or (
        text[dot - 1 : dot].isdigit() and _GERMAN_DAY.match(text, dot) is not None
    )
