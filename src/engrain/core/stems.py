"""Reduce an English word to its stem, after Porter (1980); words of other scripts pass unchanged."""

import re

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


def stem(word: str) -> str:
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
