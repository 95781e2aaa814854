"""Cut a text into the word pieces of a BERT uncased vocabulary, exactly as the model was trained to read them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from engrain.providers.bert_characters import IDEOGRAPHS, MARKS, PUNCTUATION, REMOVED, SPACES

LONGEST_WORD = 100  # a longer one is unknown, as in the original
REMEMBERED_WORDS = 100_000
SLICE = 8_192


class WordPiece:
    """Safe to use from several threads. "[SEP]" and its like in a text are five characters, not a command."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = (self._ids["[UNK]"],)
        self._start, self._end = self._ids["[CLS]"], self._ids["[SEP]"]
        self._longest = max(map(len, self._ids))
        self._characters = _Characters()
        self._words: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, limit: int) -> list[int]:
        """What the model reads: start mark, word pieces, end mark; at most `limit` of them."""
        return [self._start, *self.pieces(text, limit - 2), self._end]

    def count(self, text: str) -> int:
        """The number of word pieces, without the two marks."""
        return len(self.pieces(text))

    def pieces(self, text: str, limit: int | None = None) -> list[int]:
        """The word pieces, the first `limit` of them; no more of a long text is looked at than that needs."""
        if limit is None or len(text) <= SLICE:
            return self._pieces(text)[:limit]
        found: list[int] = []
        for part in _slices(text):
            found += self._pieces(part)
            if len(found) >= limit:
                break
        return found[:limit]

    def _pieces(self, text: str) -> list[int]:
        found: list[int] = []
        known = self._words
        for word in text.translate(self._characters).split():
            found += known.get(word) or self._look_up(word)
        return found

    def _look_up(self, word: str) -> tuple[int, ...]:
        found = self._unknown if len(word) > LONGEST_WORD else self._longest_first(word)
        if len(word) <= LONGEST_WORD:
            if len(self._words) >= REMEMBERED_WORDS:
                self._words.clear()
            self._words[word] = found
        return found

    def _longest_first(self, word: str) -> tuple[int, ...]:
        found: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = self._ids.get(prefix + word[start:end])
                if piece is not None:
                    break
            else:
                return self._unknown
            found.append(piece)
            start, prefix = end, "##"
        return tuple(found)


class _Characters(dict[int, str]):
    """What becomes of each character, worked out when it is first met.

    One character at a time is exact: canonical reordering moves marks only, and those that are not stripped are in no
    vocabulary. str.lower() of a whole text would not do: it writes a final sigma differently.
    """

    def __missing__(self, code: int) -> str:
        self[code] = mapped = _mapped(code)
        return mapped


def _mapped(code: int) -> str:
    if code in REMOVED:
        return ""
    if code in SPACES:
        return " "
    letters = [c for c in unicodedata.normalize("NFD", chr(code)) if ord(c) not in MARKS]
    lowered = "".join(f" {c} " if ord(c) in PUNCTUATION else c.lower() for c in letters)
    return f" {lowered} " if code in IDEOGRAPHS else lowered


def _slices(text: str) -> Iterator[str]:
    """The text in parts that end at a space, where cutting changes nothing."""
    start = 0
    while start < len(text):
        space = text.find(" ", start + SLICE)
        end = len(text) if space < 0 else space
        yield text[start:end]
        start = end
