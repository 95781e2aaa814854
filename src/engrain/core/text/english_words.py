"""Read German, Spanish and French word by word in English, for a model that knows English alone.

`data/english/*.txt` has the words, those of nouns apart. A line is English, a colon, and the words that it stands for:
"dog: hund-" is every word that begins with "hund" and ends with an ending of the language, "because: parce_que" is two
words. What is in no line stays as it is.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import chain
from typing import NamedTuple

from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import tokenize

LANGUAGES = ("de", "es", "fr")
ENGLISH = "en"  # how it is typed: "im" for "I am", "bday"
UNKNOWN = ""
NOUNS = ".nouns"
ENDINGS = "-"  # the line with the endings of a language
MAX_PHRASE = 4  # words
MAX_READ, MAX_JOINED = 1_000, 8_192  # characters that tell a text's language, and of a piece without foreign words
MAX_WORD = 40  # letters
MIN_PART, MAX_PARTS = 3, 3  # letters of a part of a compound
MAX_KNOWN = 50_000  # words
# Without a stop word, a text is of the language that has so many of its words; with those of a language that has no
# list, such as Italian, more of them.
MIN_COVERED, MIN_SURELY_COVERED = 0.6, 0.8
# Words that are not English, by which a text of few words is not, although it has stop words of English; in a short
# one a single word is enough: "wohne in Bonn".
MIN_FOREIGN, MAX_FEW, MAX_SHORT = 2, 8, 4
MIN_KNOWN = 0.5  # share of the words of a text with stop words
# Behind these a word is read as a noun first, and else as a verb: "la porte", "je porte".
BEFORE_NOUNS = frozenset((
    "the", "a", "an", "my", "your", "his", "her", "our", "their", "its", "this", "that", "these", "those", "some",
    "every", "which", "of", "of the", "to the", "in the", "at the", "on the", "from the", "in", "with", "without", "by",
    "no", "two", "three", "four", "five",
))  # fmt: skip
_LINKS = ("", "s", "es", "n", "en", "er", "e")
# A long one is cut behind a word.
_SENTENCE = re.compile(r"[^.!?;\n]{1,1000}[^.!?;\n\s]*[.!?;\n]*|[.!?;\n]+")
_WORD = re.compile(r"[^\W\d_]+")
_NAME = re.compile(r"\b\w\b(?!['’])")  # one letter, as in code
_CODE = re.compile(r"[{}=<>`_\[\]]|\w\(")  # there "n" is no "and"
_APOSTROPHES = frozenset("'’")
_TYPED = {"ä": "ae", "ö": "oe", "ü": "ue"}


class Piece(NamedTuple):
    """A part of what the model reads: the text from `start` on as it is, or the English of a word there."""

    start: int
    text: str
    is_translated: bool


@dataclass(slots=True)
class _Table:
    """Words and stems with their English, and both as they are typed without accents."""

    forms: dict[str, str] = field(default_factory=dict)
    stems: dict[str, str] = field(default_factory=dict)
    plain_forms: dict[str, str] = field(default_factory=dict)
    plain_stems: dict[str, str] = field(default_factory=dict)

    def add(self, word: str, english: str) -> None:
        forms, plain = (self.stems, self.plain_stems) if word.endswith("-") else (self.forms, self.plain_forms)
        word = word.rstrip("-")
        forms[word] = english
        for typed in _list_spellings(word):
            plain.setdefault(typed, english)

    def find_part(self, word: str) -> str | None:
        return self.forms.get(word) or self.stems.get(word)


@dataclass(slots=True)
class WordList:
    """The words of one language."""

    name: str
    words: _Table = field(default_factory=_Table)
    nouns: _Table = field(default_factory=_Table)
    phrases: dict[str, list[tuple[list[str], str]]] = field(default_factory=dict)
    endings: frozenset[str] = frozenset()
    _longest_ending: int = 0
    _known: dict[tuple[str, bool], str | None] = field(default_factory=dict)

    def add_lines(self, lines: list[str], table: _Table) -> None:
        for line in lines:
            english, _, words = line.partition(":")
            if english == ENDINGS:
                self.endings = frozenset(words.split())
                self._longest_ending = max(map(len, self.endings))
                continue
            for word in words.split():
                if "_" in word:
                    first, *rest = word.split("_")
                    self.phrases.setdefault(first, []).append((rest, english))
                else:
                    table.add(word, english)

    def read(self, word: str, *, is_noun: bool = False) -> str | None:
        """Return the English of a word in lower case, as a noun if it may be one."""
        if len(word) > MAX_WORD:
            return None
        if (word, is_noun) not in self._known:
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            self._known[word, is_noun] = self._look_up(word, is_noun=is_noun) or self._read_compound(word)
        return self._known[word, is_noun]

    def match_phrase(self, words: list[str]) -> tuple[int, str] | None:
        """Return how many of these words one line stands for, and its English."""
        phrases = self.phrases.get(words[0], ())
        found = ((len(rest) + 1, english) for rest, english in phrases if words[1 : len(rest) + 1] == rest)
        return max(found, default=None)

    def list_english(self) -> Iterator[str]:
        for table in (self.words, self.nouns):
            for english in (*table.forms.values(), *table.stems.values()):
                yield from english.split()

    def _look_up(self, word: str, *, is_noun: bool) -> str | None:
        """Return the English of a word, of one whose accents were left out, or of a participle."""
        tables = (self.nouns, self.words) if is_noun else (self.words, self.nouns)
        plain = _strip_accents(word)
        exact = (table.forms.get(word) or self._find_stem(word, table.stems) for table in tables)
        typed = (table.plain_forms.get(plain) or self._find_stem(plain, table.plain_stems) for table in tables)
        found = next(filter(None, chain(exact, typed)), None)
        if found is None and self.name == "de" and word.startswith("ge") and word.endswith(("t", "en")):
            found = self._find_stem(word[2:], self.words.stems)
        return found

    def _find_stem(self, word: str, stems: dict[str, str]) -> str | None:
        for end in range(len(word), max(1, len(word) - self._longest_ending - 1), -1):
            if (found := stems.get(word[:end])) and (end == len(word) or word[end:] in self.endings):
                return found
        return None

    def _read_compound(self, word: str, more: int = MAX_PARTS - 2) -> str | None:
        """Return the English of a German word's parts: "Zahnarzttermin" is dentist and appointment."""
        if self.name != "de":
            return None
        cuts = range(len(word) - MIN_PART, MIN_PART - 1, -1)
        pairs = [(first, word[cut:]) for cut in cuts if (first := self._read_first_part(word[:cut]))]
        for first, rest in pairs:
            if last := self._look_up(rest, is_noun=True):
                return f"{first} {last}"
        deeper = ((first, self._read_compound(rest, more - 1)) for first, rest in pairs) if more else ()
        return next((f"{first} {last}" for first, last in deeper if last), None)

    def _read_first_part(self, part: str) -> str | None:
        for link in _LINKS:
            whole = part.removesuffix(link)
            if len(whole) >= MIN_PART and part == whole + link:
                found = self.nouns.find_part(whole) or self.words.find_part(whole)
                if found:
                    return found
        return None


@cache
def load_words(language: str) -> WordList:
    found = WordList(language)
    found.add_lines(_read_file(language), found.words)
    if language != ENGLISH:
        found.add_lines(_read_file(language + NOUNS), found.nouns)
    return found


@cache
def hash_words() -> str:
    """Return the hash of all lists: another list is another model."""
    names = [ENGLISH, *LANGUAGES, *(language + NOUNS for language in LANGUAGES)]
    return hashlib.sha256("\n\n".join("\n".join(_read_file(name)) for name in names).encode()).hexdigest()


def _read_file(name: str) -> list[str]:
    return (resources.files("engrain.core") / "data" / "english" / f"{name}.txt").read_text("utf-8").splitlines()


def read_in_english(text: str) -> Iterator[Piece]:
    """Yield what the model should read for a text, in order."""
    start, fallback = 0, _Fallback(text)
    for match in _SENTENCE.finditer(text):
        begin, sentence = match.start(), match[0]
        language = _detect(sentence)
        language = fallback.name if language is None else language
        language = UNKNOWN if language == ENGLISH and _CODE.search(sentence) else language
        pieces = list(_read_sentence(sentence, load_words(language))) if language else []
        if begin > start and (pieces or begin - start > MAX_JOINED):
            yield Piece(start, text[start:begin], is_translated=False)
            start = begin
        if pieces:
            start = match.end()
            yield from (piece._replace(start=begin + piece.start) for piece in pieces)
    if start < len(text):
        yield Piece(start, text[start:], is_translated=False)


class _Fallback:
    """The language of a whole text, for sentences that do not tell theirs."""

    def __init__(self, text: str) -> None:
        self._text = text[:MAX_READ]
        self._name: str | None = None

    @property
    def name(self) -> str:
        if self._name is None:
            found = _detect(self._text)
            self._name = found if found is not None else _find_covering(self._text) or self._guess()
        return self._name

    def _guess(self) -> str:
        return ENGLISH if self._text.isascii() else UNKNOWN


def _detect(text: str) -> str | None:
    words = tokenize(_NAME.sub(" ", text))
    found = load_languages().detect(words)
    if found is None:
        return None
    if found not in LANGUAGES:
        few = found != ENGLISH or len(words) <= MAX_FEW
        foreign = MIN_FOREIGN if len(words) > MAX_SHORT else 1
        return (_find_covering(text, MIN_SURELY_COVERED, foreign) if few else None) or ENGLISH
    # Languages share stop words, and a few of them are the wrong evidence.
    known = {name: sum(load_words(name).read(word) is not None for word in words) for name in LANGUAGES}
    best = max(LANGUAGES, key=lambda name: (known[name], name == found))
    return best if known[best] >= MIN_KNOWN * len(words) else UNKNOWN


def _find_covering(text: str, least: float = MIN_COVERED, foreign: int = 1) -> str | None:
    """Return the language that knows this share of a text's words, if so many of them are no English words.

    Words that begin with a capital letter may be names.
    """
    found = [word for word in _WORD.findall(text) if len(word) > 1]
    known = {name: [word for word in found if load_words(name).read(word.lower())] for name in LANGUAGES}
    best = max(known, key=lambda name: len(known[name]))
    unknown = sum(word.islower() for word in found) - sum(word.islower() for word in known[best])
    own = sum(len(word) >= MIN_PART and word.lower() not in _list_english() for word in known[best])
    return best if own >= foreign and len(known[best]) >= least * (len(known[best]) + unknown) else None


@cache
def _list_english() -> frozenset[str]:
    return frozenset(word for name in LANGUAGES for word in load_words(name).list_english())


def _read_sentence(sentence: str, words: WordList) -> Iterator[Piece]:
    """Yield the pieces of a sentence; none if no word of it is in the list."""
    found = [(match.start(), match.end()) for match in _WORD.finditer(sentence)]
    read = list(_read_words([sentence[start:end] for start, end in found], words))
    if not any(english for _, english in read):
        return
    at = place = 0
    for count, english in read:
        start, end = found[place][0], found[place + count - 1][1]
        place += count
        gap = sentence[at:start]
        if gap.strip() and not _APOSTROPHES.issuperset(gap):
            yield Piece(at, gap, is_translated=False)
        yield Piece(start, english or sentence[start:end], english is not None)
        at = end
    if sentence[at:].strip():
        yield Piece(at, sentence[at:], is_translated=False)


def _read_words(words: list[str], known: WordList) -> Iterator[tuple[int, str | None]]:
    """Yield how many words are read together, and their English."""
    place, before = 0, ""
    lower = [word.lower() for word in words]
    while place < len(words):
        phrase = known.match_phrase(lower[place : place + MAX_PHRASE]) if lower[place] in known.phrases else None
        capital = words[place][0].isupper() and (place > 0 or lower[place] not in known.words.forms)
        is_noun = capital if known.name == "de" else before in BEFORE_NOUNS
        count, english = phrase or (1, known.read(lower[place], is_noun=is_noun))
        yield count, english
        place += count
        before = english or ""


def _list_spellings(word: str) -> Iterator[str]:
    yield word
    if not word.isascii():
        yield _strip_accents(word)
        yield "".join(_TYPED.get(letter, letter) for letter in word)


def _strip_accents(word: str) -> str:
    if word.isascii():
        return word
    letters = unicodedata.normalize("NFD", word.replace("ß", "ss"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
