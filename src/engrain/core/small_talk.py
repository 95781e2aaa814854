"""Tell talk that says nothing, such as a greeting or a thank-you, from what may be worth telling."""

from __future__ import annotations

import re
from functools import cache

from engrain.core.languages import languages
from engrain.core.words import spaceless, term, terms, tokens

LONGEST = 14  # words: what is longer says something

_DIGIT = re.compile(r"\d")


def small_talk(text: str) -> bool:
    """Whether a sentence has no word but common ones and those of greeting, thanking and agreeing."""
    if len(text) > 12 * LONGEST or _DIGIT.search(text):
        return False
    if spaceless(text):
        for phrase in _phrases():
            text = text.replace(phrase, "")
    said = terms(text)
    return len(said) <= LONGEST and not meaning(frozenset(said)) and not spaceless(text)


def meaning(found: frozenset[int]) -> frozenset[int]:
    """The words that are not small talk either."""
    return found - _empty_words()


def content(found: frozenset[int]) -> frozenset[int]:
    """The words that say something, of whichever language."""
    return found - common_words()


@cache
def common_words() -> frozenset[int]:
    known = languages()
    spoken = frozenset(map(term, ("user", "assistant", "tool", "system")))
    return spoken.union(*(language.stop_terms for language in known.by_name.values())) - negations()


@cache
def negations() -> frozenset[int]:
    return _terms_of("negation")


@cache
def _empty_words() -> frozenset[int]:
    return common_words() | _terms_of("small_talk") | negations()


@cache
def _phrases() -> tuple[str, ...]:
    words = (word for word in languages().words["small_talk"] if spaceless(word))
    return tuple(sorted(words, key=len, reverse=True))


def _terms_of(name: str) -> frozenset[int]:
    words = (word for word in languages().words[name] if not spaceless(word))
    return frozenset(term(one) for word in words for one in tokens(word))
