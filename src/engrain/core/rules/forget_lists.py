"""Split a request to forget that names several matters: "forget the choir and my birthday"."""

from __future__ import annotations

import re

from engrain.core.rules.forget_matters import read_topic
from engrain.core.rules.forget_requests import is_candidate, list_matter_words, read_words
from engrain.core.text.passages import Span, trim_span

MAX_CHARACTERS = 300
MAX_WORDS = 8  # of one matter
# Before something that somebody owns, or that is known.
_KNOWN = (
    r"my|our|the|mein\w{0,2}|unser\w{0,2}|die|das|den|dem|mis?|nuestr[oa]s?|el|la|los|las|lo de|lo del|mon|ma|"
    r"mes|notre|nos|le|les"
)
_DETERMINED = rf"(?:(?:{_KNOWN})\b|l')"
_SAID = r"(?:that (?:i|i'm|im|i've|we|my)|dass (?:ich|mein\w*|wir)|que (?:soy|tengo|vivo|mi|je|j'|mon|ma))\b"
_AND = r"(?:and|und|y|e|et|plus|sowie|as well as|&)"
_ALSO = r"(?:also |auch |también |aussi )?"
_JOIN = re.compile(
    rf"(?:,\s*(?P<and>{_AND}\s+)?|\s+(?P<plain>{_AND})\s+){_ALSO}(?={_DETERMINED}|{_SAID})", re.IGNORECASE
)
_BARE = re.compile(rf"\s+{_AND}\s+(?=(?:[^\W\d_]+ ){{0,1}}[^\W\d_]+\s*(?:[.!?,…]|$))", re.IGNORECASE)
_OWNED = re.compile(rf"(?<!\w){_DETERMINED}", re.IGNORECASE)
_BEGINS_SAID = re.compile(_SAID, re.IGNORECASE)
_ENDS = re.compile(r"[,;:.!?…(–—]|\s-\s|\s(?:because|since|so|weil|denn|porque|car|parce)\s", re.IGNORECASE)
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|ist|sind|war|hat|es|son|era|está|est|sont|était|a|one|ones)\b", re.IGNORECASE
)
_ABOUT_ONE = frozenset(("thing", "said", "every"))


def split_matters(text: str) -> list[Span]:
    """Return the spans of the matters that a request lists; none if it names one, or if it is not sure."""
    text = text[:MAX_CHARACTERS]
    joins = list(_JOIN.finditer(text))
    if not joins:
        return _split_bare(text)
    if not any(one["and"] or one["plain"] for one in joins):
        return []
    edges = [0, *(edge for one in joins for edge in one.span()), len(text)]
    return _check_parts(text, [_cut(text, edges[k], edges[k + 1]) for k in range(0, len(edges), 2)])


def _split_bare(text: str) -> list[Span]:
    """Split "my name and number": two kinds of things."""
    found = _BARE.search(text)
    if found is None:
        return []
    parts = [trim_span(text, 0, found.start()), _cut(text, found.end(), len(text))]
    first, second = (set(read_topic(text[slice(*one)], everything=False).kinds) for one in parts)
    return _check_parts(text, parts) if first and second and first.isdisjoint(second) else []


def _check_parts(text: str, parts: list[Span]) -> list[Span]:
    first = text[slice(*parts[0])]
    listed = all(_is_matter(text[slice(*one)]) for one in parts[1:]) and list_matter_words(first)
    asked = is_candidate(read_words(text))
    return parts if listed and asked and _OWNED.search(first) and not _is_about_one(first) else []


def _is_about_one(first: str) -> bool:
    """Tell if what follows is part of one matter: "the thing about my sister and the bottle"."""
    words = read_words(first)
    at = next((k for k, one in enumerate(words) if one.classes & _ABOUT_ONE), len(words))
    return any("about" in one.classes for one in words[at + 1 :])


def _is_matter(part: str) -> bool:
    """Tell if a part names something, and states nothing."""
    short = len(part.split()) <= MAX_WORDS and bool(list_matter_words(part))
    return short and (_BEGINS_SAID.match(part) is not None or not _VERB.search(part))


def _cut(text: str, start: int, end: int) -> Span:
    found = _ENDS.search(text, start + 1, end)
    return trim_span(text, start, found.start() if found else end)
