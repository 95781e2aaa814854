"""Cut text into words that match across case, accents, endings and scripts."""

import re
import unicodedata
import zlib
from typing import Literal

# Marks that belong to the letter before them: Python's \w leaves them out, and without them Hindi falls into fragments.
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff\u0f18-\u0fbc\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0640]")
# Scripts without spaces, and Hangul, whose particles stick to the word: every character and every pair is a word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u3096\u3099-\u309a\u30a1-\u30fa\u30fc-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f"
)
# Bounded: without a limit a megabyte of "1.1.1…" would be tried again from every digit.
_NUMBER = r"\d{1,3}(?:,\d{3}){1,6}(?![\d,])|\d{1,15}(?:\.\d{1,15}){1,5}(?![\w.])"
_ASCII_WORD = re.compile(rf"{_NUMBER}|[a-z0-9]+(?:'[a-z]{{1,2}}\b)?")
_WORD = re.compile(rf"{_NUMBER}|[{_UNSPACED}]+|(?:(?![_{_UNSPACED}])[\w{_MARKS}])+(?:'[a-z]{{1,2}}\b)?")
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_CAMEL_CASE = re.compile(r"\b(?=[A-Za-z]*?[a-z][A-Z])[A-Za-z]++\b")
_CAMEL_CASE_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W_A-Za-z]+")
_STEMMABLE = re.compile(r"[a-z]{3,}\Z")
# Marks, and vowels and end consonants of Hangul, form one character with the letter before them.
_JOINS_BEFORE = re.compile("[\u1160-\u11ff]|[^\\w\\s!-~]")
_MAX_NORMALIZED = 1_000  # characters at once
_MAX_CACHED_TERMS = 200_000
_LETTERS = re.compile(r"[^\W\d_]+")
_WORDS_ALONE = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalnum()})
_LETTERS_ALONE = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalpha()})
# A pattern that ignores case takes these letters for "i" and "s"; `lower` leaves them, or makes two characters of one.
_SAME_IGNORING_CASE = str.maketrans("İıſ", "iis")
_UMLAUTS = frozenset("äöü")
_UMLAUT_SPELLINGS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


def tokenize(text: str) -> list[str]:
    """Return the words of a text in order, casefolded and without accents, not yet stemmed.

    `userName` gives `username`, `user` and `name`. A run of Han, Kana, Hangul or Thai gives
    its characters and their pairs. `Käthe` gives `kathe` and `kaethe`.
    """
    plain = text if text.isascii() else _fold(text)
    lower = plain.lower()
    found = _split_plain(lower)
    if not found:
        words = _ASCII_WORD.findall(lower) if plain.isascii() else _split_unspaced(_WORD.findall(plain.casefold()))
        found = [word if word.isalnum() else _strip_suffix(word) for word in words]
    if lower[1:] != plain[1:]:  # a capital letter after the first
        for whole in _CAMEL_CASE.findall(plain):
            found.extend(part.lower() for part in _CAMEL_CASE_PART.findall(whole) if len(part) > 1)
    if plain is not text:
        found.extend(word for word, _ in spell_out_umlauts(text))
    return found


def _split_plain(lower: str) -> list[str]:
    """Split a text of ASCII letters, in a quarter of the time; nothing if it has a digit or an apostrophe."""
    words = lower.translate(_WORDS_ALONE).split() if lower.isascii() and "'" not in lower else []
    return words if "".join(words).isalpha() else []


def split_letters(text: str) -> list[str]:
    """Return the runs of letters."""
    return text.translate(_LETTERS_ALONE).split() if text.isascii() else _LETTERS.findall(text)


def lower_each(text: str) -> str:
    """Return the text in lower case, each character in its place, as a pattern that ignores case reads it."""
    return text.translate(_SAME_IGNORING_CASE).lower()


def spell_out_umlauts(text: str) -> list[tuple[str, str]]:
    """Return each word with an umlaut in two forms: spelled out (`kaethe`) and folded (`kathe`).

    Both are indexed. Folding every `ae` to `a` instead would make one word of `poet` and `pot`.
    """
    if text.isascii():
        return []
    words = _LETTERS.findall(normalize_unicode("NFC", text).casefold())
    spelled = [word for word in words if not _UMLAUTS.isdisjoint(word)]
    return [(_fold(word.translate(_UMLAUT_SPELLINGS)), _fold(word)) for word in spelled]


def normalize_unicode(form: Literal["NFC", "NFKD"], text: str) -> str:
    """Normalize a text in linear time: Python sorts a run of combining marks in quadratic time.

    A long text is normalized in pieces. Each begins with a letter, unless that many marks follow each other.
    """
    if len(text) <= _MAX_NORMALIZED:
        return unicodedata.normalize(form, text)
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = limit = start + _MAX_NORMALIZED
        while limit < len(text) and end > start and _JOINS_BEFORE.match(text[end]):
            end -= 1
        end = end if end > start else limit
        pieces.append(unicodedata.normalize(form, text[start:end]))
        start = end
    return "".join(pieces)


def fold_entity(name: str) -> str:
    """Return a name as entities are compared: without case and accents, so that "José" and "JOSE" are one."""
    return _ACCENTS.sub("", normalize_unicode("NFKD", name.casefold()))


def is_lone_character(word: str) -> bool:
    """Tell a single character of a script without spaces: it stands in many words and says little by itself."""
    return len(word) == 1 and _UNSPACED_CHARACTER.match(word) is not None


def split_identifier(name: str) -> str:
    """Split a program's name into its words: `user.homeCity` becomes `user home city`."""
    return " ".join(part.lower() for part in _NAME_PART.findall(name))


def stem_word(word: str) -> str:
    """`running`, `runs` and `run` give `run`. Short words and words of other scripts stay as they are."""
    if not _STEMMABLE.match(word):
        return word
    import Stemmer

    # A new one for each word, in half a microsecond: two threads must not use the same one at once.
    stemmed: str = Stemmer.Stemmer("english", 0).stemWord(word)
    return stemmed


def hash_term(word: str) -> int:
    """Return the 32-bit number under which a word is indexed, equal for all its endings."""
    return _term_cache[word]


def extract_terms(text: str) -> list[int]:
    """Return the term of every token, repeats included."""
    return list(map(_term_cache.__getitem__, tokenize(text)))


def count_unspaced_characters(text: str) -> int:
    """Count the characters of scripts that put no space between words."""
    return len(_UNSPACED_CHARACTER.findall(text))


def _fold(text: str) -> str:
    plain = text.replace("\u2019", "'")
    if plain.isascii():
        return plain
    return normalize_unicode("NFC", _ACCENTS.sub("", normalize_unicode("NFKD", plain)))


def _strip_suffix(word: str) -> str:
    """Cut `'s` and the like, and join `don't` and `3,000`. A mark inside a word and `3.5` stay."""
    if "'" in word:
        front, _, tail = word.partition("'")
        return front + tail if tail == "t" else front
    return word.replace(",", "")


def _split_unspaced(found: list[str]) -> list[str]:
    words: list[str] = []
    for word in found:
        if _UNSPACED_CHARACTER.match(word):
            words.extend(word)
            words.extend(word[index : index + 2] for index in range(len(word) - 1))
        else:
            words.append(word)
    return words


class _TermCache(dict[str, int]):
    """The terms of words seen before. A dictionary that fills itself is quicker than a call per word."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _MAX_CACHED_TERMS:
            self.clear()
        number = zlib.crc32(stem_word(word).encode("utf-8", "surrogatepass"))
        self[word] = number
        return number


_term_cache = _TermCache()
