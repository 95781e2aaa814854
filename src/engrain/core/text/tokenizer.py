"""Cut text into words that match across case, accents, endings and scripts."""

from __future__ import annotations

import re
import unicodedata
import zlib

_STEMMABLE = re.compile(r"[a-z]{3,}\Z")
_DOUBLE = re.compile(r"([^aeiouylsz])\1\Z")
_SHORT = re.compile(r"(?:^|.*[^aeiouy])[aeiouy][^aeiouywx]\Z")

_ENDINGS_2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "logi": "log",
}
_ENDINGS_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
# Longest first: the first that fits is the one.
_ENDINGS_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion",
    "al", "er", "ic", "ou",
)  # fmt: skip


def stem_word(word: str) -> str:
    """`running`, `runs` and `run` give `run`."""
    if not _STEMMABLE.match(word):
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _swap(word, _ENDINGS_2)
    word = _swap(word, _ENDINGS_3)
    word = _cut(word)
    return _tail(word)


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        root = word.removesuffix(ending)
        if root != word and _has_vowel(root):
            return _restore(root)
    return word


def _restore(root: str) -> str:
    """Put back the `e` of `hop(e)` and undo the doubling of `hopp`."""
    if root.endswith(("at", "bl", "iz")):
        return root + "e"
    if _DOUBLE.search(root):
        return root[:-1]
    if _measure(root) == 1 and _SHORT.match(root):
        return root + "e"
    return root


def _swap(word: str, endings: dict[str, str]) -> str:
    for size in range(min(7, len(word) - 1), 2, -1):
        new = endings.get(word[-size:])
        if new is not None:
            root = word[:-size]
            return root + new if _measure(root) > 0 else word
    return word


def _cut(word: str) -> str:
    for ending in _ENDINGS_4:
        if word.endswith(ending):
            root = word[: -len(ending)]
            if _measure(root) > 1 and (ending != "ion" or root.endswith(("s", "t"))):
                return root
            return word
    return word


def _tail(word: str) -> str:
    if word.endswith("e"):
        root = word[:-1]
        size = _measure(root)
        if size > 1 or (size == 1 and not _SHORT.match(root)):
            word = root
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        return word[:-1]
    return word


def _shape(word: str) -> str:
    """One letter per sound: c for a consonant, v for a vowel; y is a vowel after a consonant."""
    shape: list[str] = []
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and bool(shape) and shape[-1] == "c")
        shape.append("v" if vowel else "c")
    return "".join(shape)


def _measure(root: str) -> int:
    """How many times a vowel is followed by a consonant: Porter's m."""
    return _shape(root).count("vc")


def _has_vowel(root: str) -> bool:
    return "v" in _shape(root)


# Marks that belong to the letter before them: Python's \w leaves them out, and without them Hindi falls into fragments.
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff\u0f18-\u0fbc\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0640]")
# Scripts without spaces, and Hangul, whose particles stick to the word: every character and every pair is a word.
_RUN = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u3096\u3099-\u309a\u30a1-\u30fa\u30fc-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f"
)
# Bounded: without a limit a megabyte of "1.1.1…" would be tried again from every digit.
_NUMBER = r"\d{1,3}(?:,\d{3}){1,6}(?![\d,])|\d{1,15}(?:\.\d{1,15}){1,5}(?![\w.])"
_ASCII_WORD = re.compile(rf"{_NUMBER}|[a-z0-9]+(?:'[a-z]{{1,2}}\b)?")
_WORD = re.compile(rf"{_NUMBER}|[{_RUN}]+|(?:(?![_{_RUN}])[\w{_MARKS}])+(?:'[a-z]{{1,2}}\b)?")
_RUN_ONLY = re.compile(f"[{_RUN}]")
_HUMP = re.compile(r"\b[A-Za-z]*[a-z][A-Z][A-Za-z]*\b")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W_A-Za-z]+")
_CACHE_LIMIT = 200_000
_UMLAUT = re.compile(r"[^\W\d_]*[äöü][^\W\d_]*")
_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


def tokenize(text: str) -> list[str]:
    """The words of a text in order, casefolded and without accents, not yet stemmed.

    `userName` gives `username`, `user` and `name`; a run of Han, Kana, Hangul or Thai gives
    its characters and their pairs; `Käthe` gives `kathe` and `kaethe`.
    """
    plain = text if text.isascii() else _fold(text)
    found = _ASCII_WORD.findall(plain.lower()) if plain.isascii() else _spread(_WORD.findall(plain.casefold()))
    for odd in [place for place, word in enumerate(found) if not word.isalnum()]:
        found[odd] = _tidy(found[odd])
    for whole in _HUMP.findall(plain):
        found.extend(part.lower() for part in _PART.findall(whole) if len(part) > 1)
    if plain is not text:
        found.extend(word for word, _ in spell_out_umlauts(text))
    return found


def spell_out_umlauts(text: str) -> list[tuple[str, str]]:
    """Each word with an umlaut as it is written without one (`kaethe`), and as it is folded (`kathe`).

    Both are indexed. To fold every `ae` to `a` instead would make one word of `poet` and `pot`.
    """
    words = _UMLAUT.findall(unicodedata.normalize("NFC", text).casefold())
    return [(_fold(word.translate(_SPELLED_OUT)), _fold(word)) for word in words]


def is_lone_character(word: str) -> bool:
    """A single character of a script without spaces: it stands in many words, and says little by itself."""
    return len(word) == 1 and _RUN_ONLY.match(word) is not None


def split_identifier(name: str) -> str:
    """A name made for programs as one would say it: `user.homeCity` is `user home city`."""
    return " ".join(part.lower() for part in _NAME_PART.findall(name))


def hash_term(word: str) -> int:
    """The 32-bit number under which a word is indexed: the same for every ending of it."""
    return _terms[word]


def extract_terms(text: str) -> list[int]:
    """`term` of every one of `tokens`, with repeats."""
    return [_terms[word] for word in tokenize(text)]


def count_unspaced_characters(text: str) -> int:
    """How many characters belong to scripts that put no space between words."""
    return len(_RUN_ONLY.findall(text))


def _fold(text: str) -> str:
    plain = text.replace("\u2019", "'")
    if plain.isascii():
        return plain
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", plain)))


def _tidy(word: str) -> str:
    """Cut `'s` and the like, join `don't` and `3,000`; a mark inside a word and `3.5` stay."""
    if "'" in word:
        front, _, tail = word.partition("'")
        return front + tail if tail == "t" else front
    return word.replace(",", "")


def _spread(found: list[str]) -> list[str]:
    words: list[str] = []
    for word in found:
        if _RUN_ONLY.match(word):
            words.extend(word)
            words.extend(word[place : place + 2] for place in range(len(word) - 1))
        else:
            words.append(word)
    return words


class _Terms(dict[str, int]):
    """Terms worked out before: a dictionary that fills itself, since a call per word would cost more than the word."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        number = zlib.crc32(stem_word(word).encode("utf-8", "surrogatepass"))
        self[word] = number
        return number


_terms = _Terms()
