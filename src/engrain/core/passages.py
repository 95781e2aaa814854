"""Cut a text into passages of a few sentences: the unit by which words are indexed and long items returned."""

import re
import struct
from collections import Counter
from itertools import pairwise

from engrain.core.items import ROLES, Words
from engrain.core.words import spaceless, terms

WORDS_PER_PASSAGE = 90
CHARACTERS_PER_PASSAGE = 900
MAX_PASSAGES = 65_535
MAX_COUNT = 65_535
_BREAK = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s+|\n\s*|(?<=[。！？])")
_WORD = re.compile(r"\S+")


def passages(text: str) -> list[tuple[int, int]]:
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
    front = terms(speaker) if speaker and speaker.casefold() not in ROLES else []
    front += terms(slot) if slot else []
    spans = passages(text)
    numbers: list[int] = []
    for number, (start, end) in enumerate(spans):
        counts = Counter(front + terms(text[start:end]))
        for term in sorted(counts):
            numbers += (term, number << 16 | min(counts[term], MAX_COUNT))
    return Words(struct.pack(f"<{len(numbers)}I", *numbers), len(spans))


def _size(text: str) -> int:
    """Words, where two characters of a script without spaces are a word."""
    return len(text.split()) if text.isascii() else len(text.split()) + spaceless(text) // 2


def sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
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
