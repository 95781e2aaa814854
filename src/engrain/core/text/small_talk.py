"""Tell greetings, thanks and agreement from sentences that say something."""

from __future__ import annotations

import re
from functools import cache

from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import count_unspaced_characters, extract_terms, hash_term, tokenize

MAX_SMALL_TALK_WORDS = 14

_DIGIT = re.compile(r"\d")


def is_small_talk(text: str) -> bool:
    """Tell if a sentence has only common words and words of greeting, thanking and agreeing."""
    if len(text) > 12 * MAX_SMALL_TALK_WORDS or _DIGIT.search(text):
        return False
    if count_unspaced_characters(text):
        for phrase in _unspaced_phrases():
            text = text.replace(phrase, "")
    said = extract_terms(text)
    return (
        len(said) <= MAX_SMALL_TALK_WORDS
        and not drop_small_talk(frozenset(said))
        and not count_unspaced_characters(text)
    )


def drop_small_talk(terms: frozenset[int]) -> frozenset[int]:
    """Return the terms that are neither common words nor small talk."""
    return terms - _small_talk_terms()


def drop_common_terms(terms: frozenset[int]) -> frozenset[int]:
    """Return the terms that are stop words of no language."""
    return terms - common_terms()


@cache
def common_terms() -> frozenset[int]:
    roles = frozenset(map(hash_term, ("user", "assistant", "tool", "system")))
    return roles.union(*(language.stop_terms for language in load_languages().by_name.values())) - negation_terms()


@cache
def negation_terms() -> frozenset[int]:
    return _terms_of_list("negation")


@cache
def _small_talk_terms() -> frozenset[int]:
    return common_terms() | _terms_of_list("small_talk") | negation_terms()


@cache
def _unspaced_phrases() -> tuple[str, ...]:
    words = (word for word in load_languages().words["small_talk"] if count_unspaced_characters(word))
    return tuple(sorted(words, key=len, reverse=True))


def _terms_of_list(name: str) -> frozenset[int]:
    words = (word for word in load_languages().words[name] if not count_unspaced_characters(word))
    return frozenset(hash_term(token) for word in words for token in tokenize(word))
