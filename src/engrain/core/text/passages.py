"""Cut a text into passages of a few sentences: the unit in which words are indexed and long items are returned."""

from __future__ import annotations

import re
import struct
from collections import Counter
from itertools import pairwise

from engrain.core.model.items import ROLES, Words
from engrain.core.text.spans import Span
from engrain.core.text.tokenizer import count_unspaced_characters, extract_terms

WORDS_PER_PASSAGE = 90
CHARACTERS_PER_PASSAGE = 900
MAX_PASSAGES = 65_535
MAX_TERM_COUNT = 65_535
_SENTENCE_BREAK = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s+|\n\s*|(?<=[。！？])")
_WORD = re.compile(r"\S+")

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
    prefix = extract_terms(speaker) if speaker and speaker.casefold() not in ROLES else []
    prefix += extract_terms(slot) if slot else []
    spans = split_passages(text)
    numbers: list[int] = []
    for number, (start, end) in enumerate(spans):
        counts = Counter(prefix + extract_terms(text[start:end]))
        for term in sorted(counts):
            numbers += (term, number << 16 | min(counts[term], MAX_TERM_COUNT))
    return Words(struct.pack(f"<{len(numbers)}I", *numbers), len(spans))


def find_sentence_spans(text: str, start: int, end: int) -> list[Span]:
    """Return the spans of the sentences in a part of the text, trimmed."""
    return _trim_spans(text, _split_at_breaks(text, start, end))


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
