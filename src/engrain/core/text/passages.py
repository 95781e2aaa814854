"""Split a text into sentences, clauses and passages, and count the words of each passage."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from engrain.core.model.items import ROLES, Words
from engrain.core.text.tokenizer import count_unspaced_characters, extract_terms

WORDS_PER_PASSAGE = 90
CHARACTERS_PER_PASSAGE = 900
MIN_STATEMENT_WORDS = 3
MAX_PASSAGES = 65_535
MAX_TERM_COUNT = 65_535
_MANY, _TEXTS_AT_ONCE = 8, 1_024
_SENTENCE_BREAK = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s+|\n\s*|(?<=[。！？])")
_WORD = re.compile(r"\S+")
_SENTENCE_END = re.compile(r"(?P<mark>[.!?…]+)[\"')\]”’»*]*(?=\s|$)|\n+|(?P<wide>[。！？])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|prof|st|jr|vs|approx|ca|bzw|mme|sra?|e\.g|i\.e|z\.b|d\.h|[ap]\.m)|\b(?-i:[A-Z]))$",
    re.IGNORECASE,
)
_GERMAN_MONTH = re.compile(r"\. (?:(?:und|bis) \d|jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)", re.IGNORECASE)
_GERMAN_ORDINAL = re.compile(r"\b(?:der|die|das|dem|den|des|am|im|zum|zur|vom|beim) \d{1,3}$", re.IGNORECASE)
_LEADING_MARKS = re.compile(r"[\s>*•#–—,;:.!?…)\]¿¡|+-]*(?:\d{1,2}[.)]\s+)?")
_TRAILING_MARKS = " \t\r\n,;:.!?…–—-*"

Span = tuple[int, int]
NamedText = tuple[str, str | None, str | None]  # with its speaker and its slot
_SizedSpan = tuple[int, int, int]  # start, end, words


def split_passages(text: str) -> list[Span]:
    """Return the spans of the passages in order, trimmed: one for a short text, none for an empty one."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start >= end:
        return []
    if end - start <= CHARACTERS_PER_PASSAGE and _count_words(text[start:end]) <= WORDS_PER_PASSAGE:
        return [(start, end)]
    return _trim_spans(text, _pack_sentences(_split_sized_sentences(text, start, end)))


def index_words(text: str, speaker: str | None = None, slot: str | None = None) -> Words:
    """Count the terms of each passage, in the form that stores keep.

    The names of the speaker and the slot count as words of every passage. A role such as "user" does not.
    """
    passages = _extract_passages(text, speaker, slot)
    numbers: list[int] = []
    for number, terms in enumerate(passages):
        counts = Counter(sorted(terms))
        for term, count in counts.items() if number or len(terms) > MAX_TERM_COUNT else ():
            counts[term] = number << 16 | min(count, MAX_TERM_COUNT)
        numbers.extend(chain.from_iterable(counts.items()))
    return Words(struct.pack(f"<{len(numbers)}I", *numbers), len(passages))


def index_many(texts: Sequence[NamedText]) -> list[Words]:
    """Do the same for many texts, in two thirds of the time."""
    if len(texts) < _MANY:
        return [index_words(*arguments) for arguments in texts]
    import numpy as np

    found: list[Words] = []
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        passages = [_extract_passages(*arguments) for arguments in texts[first : first + _TEXTS_AT_ONCE]]
        numbers = [text << 16 | number for text, some in enumerate(passages) for number in range(len(some))]
        terms = list(chain.from_iterable(passages))
        keys = np.repeat(np.array(numbers, np.uint64), list(map(len, terms))) << np.uint64(32)
        keys |= np.fromiter(chain.from_iterable(terms), np.uint64, len(keys))
        keys, counts = np.unique(keys, return_counts=True)
        pairs = np.empty((len(keys), 2), "<u4")
        pairs[:, 0] = keys
        pairs[:, 1] = keys >> np.uint64(32) << np.uint64(16) | np.minimum(counts, MAX_TERM_COUNT).astype(np.uint64)
        ends = np.searchsorted(keys, np.arange(len(passages) + 1, dtype=np.uint64) << np.uint64(48)).tolist()
        raw = pairs.tobytes()
        parts = zip(pairwise(ends), passages, strict=True)
        found += [Words(raw[8 * start : 8 * end], len(some)) for (start, end), some in parts]
    return found


def _extract_passages(text: str, speaker: str | None, slot: str | None) -> list[list[int]]:
    """Return the terms of each passage."""
    prefix = _extract_name(speaker if speaker and speaker.casefold() not in ROLES else None) + _extract_name(slot)
    return [[*prefix, *extract_terms(text[start:end])] for start, end in split_passages(text)]


@lru_cache(maxsize=1_000)
def _extract_name(name: str | None) -> tuple[int, ...]:
    """Return the terms of a speaker or a slot, which many texts share."""
    return tuple(extract_terms(name)) if name else ()


def find_sentence_spans(text: str, start: int, end: int) -> list[Span]:
    """Return the spans of the sentences in a part of the text, trimmed."""
    ends = [match.end() for match in _SENTENCE_BREAK.finditer(text, start, end) if not _is_within_sentence(text, match)]
    return _trim_spans(text, list(pairwise([start, *ends, end])))


def _is_within_sentence(text: str, gap: re.Match[str]) -> bool:
    dot = gap.start() - 1
    return "\n" not in gap[0] and text[dot : dot + 1] == "." and _dot_is_inside(text, dot)


def _split_at_breaks(text: str, start: int, end: int) -> list[Span]:
    return list(pairwise([start, *(match.end() for match in _SENTENCE_BREAK.finditer(text, start, end)), end]))


def _split_sized_sentences(text: str, start: int, end: int) -> list[_SizedSpan]:
    """Split into sentences. A sentence that is too long is cut between words, and a word that is too long anywhere."""
    found: list[_SizedSpan] = []
    for left, right in _split_at_breaks(text, start, end):
        size = _count_words(text[left:right])
        if size <= WORDS_PER_PASSAGE and right - left <= CHARACTERS_PER_PASSAGE:
            found.append((left, right, size))
        else:
            found.extend(_split_words(text, left, right))
    return found


def _split_words(text: str, left: int, right: int) -> list[_SizedSpan]:
    pieces: list[_SizedSpan] = []
    step = CHARACTERS_PER_PASSAGE // 5
    for match in _WORD.finditer(text, left, right):
        for start in range(match.start(), match.end(), step):
            end = min(start + step, match.end())
            pieces.append((start, end, _count_words(text[start:end])))
    return pieces


def _pack_sentences(sentences: list[_SizedSpan]) -> list[Span]:
    spans: list[Span] = []
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


def _count_words(text: str) -> int:
    """Count words. In a script without spaces, two characters are a word."""
    return len(text.split()) if text.isascii() else len(text.split()) + count_unspaced_characters(text) // 2


def _trim_spans(text: str, spans: list[Span]) -> list[Span]:
    trimmed = []
    for start, end in spans:
        piece = text[start:end]
        left = start + len(piece) - len(piece.lstrip())
        right = start + len(piece.rstrip())
        if left < right:
            trimmed.append((left, right))
    return trimmed


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


def find_statement_spans(text: str) -> list[Span]:
    """Return the sentences that state something: no question, no word or two. A text of one sentence has none."""
    sentences = split_sentences(text)
    return [
        (one.start, one.end)
        for one in sentences
        if len(sentences) > 1 and not one.is_question and _count_words(text[one.start : one.end]) >= MIN_STATEMENT_WORDS
    ]


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
    """Tell if a dot belongs to an abbreviation, an initial, or a German date or ordinal."""
    if not text[dot - 1 : dot].isdigit():
        return _ABBREVIATION.search(text, max(0, dot - 8), dot) is not None
    date = _GERMAN_MONTH.match(text, dot) is not None
    return date or _GERMAN_ORDINAL.search(text, max(0, dot - 10), dot) is not None


def merge_spans(spans: Sequence[Span]) -> list[Span]:
    """Sort the spans and join those that overlap or touch."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
