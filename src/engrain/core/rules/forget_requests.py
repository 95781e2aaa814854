"""Read the words of a sentence that may ask to forget something: their classes, and the matter that they name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise

from engrain.core.model.items import FORGOTTEN
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import Span
from engrain.core.text.tokenizer import hash_term, lower_each, normalize_unicode

MAX_MESSAGE_CHARACTERS = 2_400
MAX_WORDS_LEFT = 6  # of a request whose matter was cut
_CACHED_WORDS = 20_000
_STEM = 6  # letters of a word that the features hold
_MAX_GRAM, _SKIP = 4, 4
_WORD = re.compile(
    r"(?:[cdjlmnst]|qu)'(?=\w)|\bun-(?:remember|know|learn|save)\b|"
    r"(?=[\w-]{0,40}\d)\w[\w.,:/-]{0,60}\w|\d|[^\W\d_]+(?:'[^\W\d_]+)?|[?!:\"“”„«»…—–_(`]"
)
_BREAK = re.compile(
    r"[,;:.!?…–—]+(?:\s|$)|\s-+\s|[–—]|\s(?=(?:so|and) (?:just |please )?(?:delete|forget|remove|erase)\b)"
)
_WRAP, _UNMEANT = re.compile(r"\n\s*"), "unmeant"
_ORDERS = frozenset(("forget", "delete", "done"))
_MAYBE = frozenset(("weak", "keep"))
# What makes an order of a word that means many things: "drop that", "take my address out".
_SUPPORT = frozenset(("point", "mine", "thing", "can", "said", "every", "memory", "please"))
_NOUNS = frozenset(("object", "person"))  # classes whose words may name a matter
_VAGUE = frozenset(("number", "line"))  # words that name a matter if no other does
_MIN_NAME = 3


@dataclass(frozen=True, slots=True)
class Word:
    """A word in lower case with plain apostrophes, its place, and what it does in a request."""

    text: str
    span: Span
    classes: frozenset[str]
    shape: str  # its first class, or "#" with a digit, "N" as a name, "x" as any other word


@dataclass(frozen=True, slots=True)
class Matter:
    """The clause that names what is to be forgotten, without a word of its own for the message before."""

    text: str
    words: tuple[str, ...]


def mentions_forgetting(text: str) -> bool:
    """Tell if a message may ask to forget something. A very long one is no request."""
    return len(text) <= MAX_MESSAGE_CHARACTERS and is_candidate(read_words(text))


def is_candidate(words: Sequence[Word]) -> bool:
    """Tell if a sentence has a word for forgetting, or one for keeping that is denied."""
    found = frozenset().union(*(one.classes for one in words))
    return not found.isdisjoint(_ORDERS | {"weak"}) or {"keep", "never"} <= found


def is_rest_of_request(text: str) -> bool:
    """Tell if a text is nothing but a request of which the matter was cut: "forget everything about [forgotten]"."""
    if FORGOTTEN not in text:
        return False
    words = read_words(text.replace(FORGOTTEN, " "))
    return len(words) <= MAX_WORDS_LEFT and is_candidate(words)


def read_words(text: str) -> list[Word]:
    """Read the words of a text. Of a long one only the beginning is read."""
    text = text[:MAX_MESSAGE_CHARACTERS]
    lower = fold_text(text)
    return [_read_word(match, text, first=k == 0) for k, match in enumerate(_WORD.finditer(lower))]


def _read_word(match: re.Match[str], text: str, *, first: bool) -> Word:
    word = match[0]
    ranked = find_classes(word)
    if ranked:
        shape = ranked[0]
    elif any(mark.isdigit() for mark in word):
        shape = "#"
    elif not word[0].isalpha():
        shape = word
    else:
        shape = "N" if text[match.start()].isupper() and not first else "x"
    return Word(word, match.span(), frozenset(ranked), shape)


@lru_cache(_CACHED_WORDS)
def find_classes(word: str) -> tuple[str, ...]:
    """Return what a word does in a request, the likeliest first. Nothing for the words that name matters."""
    exact, prefixes = _load_classes()
    bare = fold_accents(word)
    if bare.endswith("'s") and bare not in exact:
        bare = bare[:-2]
    return exact.get(bare) or tuple(name for start, name in prefixes if bare.startswith(start))[:1]


def list_features(words: Sequence[Word], before: Sequence[Word], after: Sequence[Word]) -> set[str]:
    """Return the signs of a sentence, and of those around it, by which a model tells a request."""
    shapes, texts = [one.shape for one in words], [one.text[:_STEM] for one in words]
    found = {f"w {one}" for one in texts} | {f"has {one}" for one in shapes}
    found |= {f"b {one} {other}" for one, other in pairwise(texts)}
    edged, marks = ["^", *texts, "$"], ["^", *shapes, "$"]
    found |= {f"m {marks[k]} {edged[k + 1]}" for k in range(len(edged) - 1)}
    found |= {f"m2 {edged[k]} {marks[k + 1]}" for k in range(len(edged) - 1)}
    plain = [one for one in marks if one != "small"]
    joined = [one for k, one in enumerate(plain) if one != "x" or not k or plain[k - 1] != "x"]
    found |= {
        "c " + " ".join(joined[k : k + size]) for size in range(1, _MAX_GRAM + 1) for k in range(len(joined) - size + 1)
    }
    found |= {f"s {one} {other}" for k, one in enumerate(plain) for other in plain[k + 2 : k + 1 + _SKIP]}
    return found | _list_orders(words, shapes) | _list_around(before, after)


def _list_orders(words: Sequence[Word], shapes: Sequence[str]) -> set[str]:
    """Return where the words for forgetting and keeping are, and whether they are denied."""
    found: set[str] = set()
    for k, one in enumerate(words):
        denied = any("never" in other.classes for other in words[max(0, k - _SKIP) : k + _SKIP])
        if one.classes & {"forget", "delete", "weak"}:
            found.add("forget denied" if denied else "forget said")
        if "keep" in one.classes:
            found.add("keep denied" if denied else "keep said")
    first = next((k for k, one in enumerate(shapes) if one in _ORDERS | _MAYBE), None)
    if first is not None:
        found |= {f"first {shapes[first]}", f"at {min(first, 3)} {shapes[first]}"}
        found |= {f"before {one}" for one in shapes[:first]} | {f"after {one}" for one in shapes[first + 1 :]}
    return found


def _list_around(before: Sequence[Word], after: Sequence[Word]) -> set[str]:
    found = {f"n {one.shape}" for one in after[:3]} | {f"nw {one.text}" for one in after[:3]}
    found |= {f"p {one.shape}" for one in before[-3:]}
    return found | {"n some" if after else "n none", "p some" if before else "p none"}


def find_matter(text: str) -> Matter | None:
    """Return the matter of a request; None if nothing is named and the request does not point at what was said."""
    clauses = [text[slice(*span)] for span in _split_clauses(text[:MAX_MESSAGE_CHARACTERS])]
    read = [read_words(one) for one in clauses]
    if not read:
        return None
    place = next((k for k, one in enumerate(read) if _is_order(one)), None)
    if place is None:
        place = next((k for k, one in enumerate(read) if _MAYBE & _join_classes(one)), 0)
    for k in (place, *range(place - 1, -1, -1), *range(place + 1, len(clauses))):
        named = list_matter_words(clauses[k])
        if not named:
            continue
        clause, earlier = clauses[k], list_matter_words(clauses[k - 1]) if 0 < k < place else []
        if any(mark.isdigit() for one in earlier for mark in one):  # "17, the locker: delete that"
            named, clause = [*earlier, *named], f"{clauses[k - 1]} {clause}"
        return Matter(clause.strip(), tuple(named))
    return Matter("", ()) if _points_back(read[place]) else None


def list_matter_words(text: str) -> list[str]:
    """Return the words of a clause that may name a matter, as they are written."""
    words = read_words(text)
    named = [one for one in words if _names_matter(one)]
    # "scrap the car thing": a small word of another language may name a matter in this one.
    named = named or [one for one in words if one.shape in ("x", "N") and len(one.text) >= _MIN_NAME]
    named = named or [one for one in words if one.text in _VAGUE]
    return [text[slice(*one.span)] for one in named]


def _names_matter(word: Word) -> bool:
    if word.shape == "#":
        return True
    known = not word.classes <= _NOUNS or len(word.text) < 2 or not word.text[0].isalpha()
    stop_terms = load_languages().all_stop_terms
    return not known and (bool(word.classes) or hash_term(fold_accents(word.text)) not in stop_terms)


def _is_order(words: Sequence[Word]) -> bool:
    found = _join_classes(words)
    supported = not found.isdisjoint(_SUPPORT) or any(one.shape == "#" for one in words)
    opens = next((one.classes for one in words if one.shape != "small" and "please" not in one.classes), frozenset())
    return not found.isdisjoint(_ORDERS) or ("weak" in found and (supported or "weak" in opens))


def _points_back(words: Sequence[Word]) -> bool:
    """Tell if an order means what was just said: "forget that", not "forget that I left"."""
    found = _join_classes(words)
    if found.isdisjoint(("point", "last")) or "mine" in found:
        return False
    order = next((k for k, one in enumerate(words) if one.classes & (_ORDERS | _MAYBE)), 0)
    return not any("me" in one.classes for one in words[order:]) or not found.isdisjoint(("said", "last"))


def _join_classes(words: Sequence[Word]) -> frozenset[str]:
    return frozenset().union(*(one.classes for one in words))


def _split_clauses(text: str) -> list[Span]:
    edges = [0, *(edge for match in _BREAK.finditer(text) for edge in match.span()), len(text)]
    return [(edges[k], edges[k + 1]) for k in range(0, len(edges), 2) if edges[k] < edges[k + 1]]


def only_mentions(text: str) -> bool:
    """Tell a sentence that speaks of forgetting without asking for it: "I forgot", "don't forget", "one day"."""
    return _load_unmeant().search(fold_text(text[:MAX_MESSAGE_CHARACTERS])) is not None


def fold_text(text: str) -> str:
    """Return the text in lower case with plain apostrophes, each character in its place."""
    return lower_each(text).replace("’", "'")


def fold_accents(text: str) -> str:
    """Return the text in lower case without accents: "Größe" is "grosse"."""
    plain = normalize_unicode("NFKD", text.casefold())
    return plain if plain.isascii() else "".join(mark for mark in plain if not "\u0300" <= mark <= "\u036f")


@cache
def _load_unmeant() -> re.Pattern[str]:
    file = resources.files("engrain.core") / "data" / "forget.toml"
    tables = tomllib.loads(file.read_text("utf-8")).values()
    return re.compile("|".join(_WRAP.sub("", table[_UNMEANT]) for table in tables))


@cache
def _load_classes() -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, str], ...]]:
    file = resources.files("engrain.core") / "data" / "forget.toml"
    tables = tomllib.loads(file.read_text("utf-8")).values()
    listed = [
        (word, name)
        for table in tables
        for name, words in table.items()
        for word in (fold_accents(words).split() if name != _UNMEANT else ())
    ]
    exact: dict[str, tuple[str, ...]] = {}
    for word, name in listed:
        if not word.endswith("*") and name not in exact.get(word, ()):
            exact[word] = (*exact.get(word, ()), name)
    return exact, tuple((word[:-1], name) for word, name in listed if word.endswith("*"))
