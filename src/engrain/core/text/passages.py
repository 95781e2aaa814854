"""Cut a text into passages of a few sentences: the unit by which words are indexed and long items returned."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engrain.core.model.items import FORGOTTEN, ROLES, Words
from engrain.core.text.tokenizer import count_unspaced_characters, extract_terms

WORDS_PER_PASSAGE = 90
CHARACTERS_PER_PASSAGE = 900
MAX_PASSAGES = 65_535
MAX_TERM_COUNT = 65_535
_BREAK = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s+|\n\s*|(?<=[。！？])")
_WORD = re.compile(r"\S+")


def split_passages(text: str) -> list[tuple[int, int]]:
    """Spans of the text, in order, without the space around them; one for a short text, none for an empty one."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start >= end:
        return []
    if end - start <= CHARACTERS_PER_PASSAGE and _size(text[start:end]) <= WORDS_PER_PASSAGE:
        return [(start, end)]
    return _trimmed(text, _packed(_sentences(text, start, end)))


def index_words(text: str, speaker: str | None = None, slot: str | None = None) -> Words:
    """The stored words of a text; a named speaker and the name of a slot are counted as words in front of each passage,
    a role is not."""
    front = extract_terms(speaker) if speaker and speaker.casefold() not in ROLES else []
    front += extract_terms(slot) if slot else []
    spans = split_passages(text)
    numbers: list[int] = []
    for number, (start, end) in enumerate(spans):
        counts = Counter(front + extract_terms(text[start:end]))
        for term in sorted(counts):
            numbers += (term, number << 16 | min(counts[term], MAX_TERM_COUNT))
    return Words(struct.pack(f"<{len(numbers)}I", *numbers), len(spans))


def _size(text: str) -> int:
    """Words, where two characters of a script without spaces are a word."""
    return len(text.split()) if text.isascii() else len(text.split()) + count_unspaced_characters(text) // 2


def find_sentence_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans of the sentences in a part of the text, without the space around them."""
    return _trimmed(text, list(pairwise([start, *(match.end() for match in _BREAK.finditer(text, start, end)), end])))


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int, int]]:
    """(start, end, size) of each sentence; one that is too long is cut between words, or anywhere if it has none."""
    found: list[tuple[int, int, int]] = []
    edges = [start, *(match.end() for match in _BREAK.finditer(text, start, end)), end]
    for left, right in pairwise(edges):
        size = _size(text[left:right])
        if size <= WORDS_PER_PASSAGE and right - left <= CHARACTERS_PER_PASSAGE:
            found.append((left, right, size))
        else:
            found.extend(_cut(text, left, right))
    return found


def _cut(text: str, left: int, right: int) -> list[tuple[int, int, int]]:
    pieces: list[tuple[int, int, int]] = []
    step = CHARACTERS_PER_PASSAGE // 5
    for match in _WORD.finditer(text, left, right):
        for begin in range(match.start(), match.end(), step):
            stop = min(begin + step, match.end())
            pieces.append((begin, stop, _size(text[begin:stop])))
    return pieces


def _packed(sentences: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    first, total = sentences[0][0], 0
    last = first
    for start, end, size in sentences:
        full = total + size > WORDS_PER_PASSAGE or end - first > CHARACTERS_PER_PASSAGE
        if full and start > first and len(spans) < MAX_PASSAGES - 1:
            spans.append((first, last))
            first, total = start, 0
        total += size
        last = end
    return [*spans, (first, last)]


def _trimmed(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept = []
    for start, end in spans:
        piece = text[start:end]
        left = start + len(piece) - len(piece.lstrip())
        right = start + len(piece.rstrip())
        if left < right:
            kept.append((left, right))
    return kept


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


def split_sentences(text: str) -> list[Sentence]:
    """Without bullets, and without the marks around them; `asks`: it ends with a question mark."""
    found = []
    start = 0
    for match in _END.finditer(text):
        if match["mark"] == "." and _goes_on(text, match.start()):
            continue
        marks = match["mark"] or match["wide"] or ""
        found.append(_trim_sentence(text, start, match.start(), "?" in marks or "？" in marks))
        start = match.end()
    found.append(_trim_sentence(text, start, len(text), False))
    return [one for one in found if one.start < one.end]


def split_clauses(text: str, sentence: Sentence, breaks: re.Pattern[str], opens: re.Pattern[str]) -> list[Clause]:
    """Cut at every break, but not behind words that only say when or how: these go with the clause after them."""
    found = []
    start, after = sentence.start, ""
    for match in breaks.finditer(text, sentence.start, sentence.end):
        if match.start() <= start or opens.fullmatch(text, start, match.end()):
            continue
        found.append(Clause(start, match.start(), after))
        start, after = match.end(), match[0].strip(" ,;:").lower()
    return [*found, Clause(start, sentence.end, after)]


def trim_span(text: str, start: int, end: int) -> tuple[int, int]:
    """The same span without marks and space around it."""
    front = _FRONT.match(text, start, end)
    start = front.end() if front else start
    return start, start + len(text[start:end].rstrip(_BACK))


def _trim_sentence(text: str, start: int, end: int, asks: bool) -> Sentence:
    return Sentence(*trim_span(text, start, end), asks)


def _goes_on(text: str, dot: int) -> bool:
    """The dot belongs to a short form, an initial or a German date."""
    return _SHORTENED.search(text, max(0, dot - 8), dot) is not None or (
        text[dot - 1 : dot].isdigit() and _GERMAN_DAY.match(text, dot) is not None
    )


Span = tuple[int, int]


def merge_spans(spans: Sequence[Span]) -> list[Span]:
    """The same characters as spans that neither overlap nor touch, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def cut_spans(text: str, spans: Sequence[Span]) -> str:
    for start, end in reversed(merge_spans(spans)):
        text = text[:start] + FORGOTTEN + text[end:]
    return text


def cites_any_span(start: int | None, end: int | None, spans: Sequence[Span]) -> bool:
    """Whether a cite with these edges has a character inside a span; one with none, or 0:0, is of the whole text."""
    if (start, end) == (0, 0):
        return bool(spans)
    return any((start or 0) < right and (end is None or left < end) for left, right in spans)


def shift_offset(at: int | None, spans: Sequence[Span]) -> int | None:
    """Where an edge of a cite is after the cut; none is inside a hole, since what overlaps one is gone."""
    if at is None:
        return None
    return at + sum(len(FORGOTTEN) - (end - start) for start, end in merge_spans(spans) if end <= at)
