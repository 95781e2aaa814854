"""Tell what a change leaves standing: facts of another thing, and the other claims of a fact that makes several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from engrain.core.rules.change_cues import find_signs, is_person, load_joined_patterns, read_cues
from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import extract_terms

_JOIN = r"(?<!\w)(?:and|but|und|aber|y|pero|et|mais)(?!\w)"
_JOINED = re.compile(_JOIN)
_PART = re.compile(rf"[,;:.!?()–—]+|{_JOIN}|(?<!\w)(?:who|que|qui)(?!\w)")
_BACK = re.compile(r"(?<!\w)(?:it|them)(?!\w)")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_MAX_SUBJECT_WORDS, _MAX_TOPIC_WORDS = 6, 5
_PERIODS = "day week month year tag woche monat jahr día semana mes año jour semaine mois an"
_MIN_SHARED = 4  # letters
_MAX_CHARACTERS = 600


def spares_other_claims(statement: str, other: str) -> bool:
    """Tell if an older statement makes a claim that the newer one does not touch: "Ann is a vet and has two boys"."""
    said = read_cues(statement)
    about_same = bool(said.core & read_cues(" ".join(other.split()[:_MAX_TOPIC_WORDS])).core)
    # What is added behind a comma mostly explains, unless the news are of somebody else: "Jess lives with Tom, a cook".
    claims = _list_claims(_JOINED.split(fold_text(other)) if about_same or read_cues(other).own else _list_parts(other))
    names = {term for name in said.names for term in extract_terms(name)}  # of the one subject of all claims
    return len(claims) > 1 and not all((said.core - names) & read_cues(claim).core for claim in claims)


def are_of_two_of_a_kind(statement: str, other: str) -> bool:
    """Tell if two statements name two things of one kind: "bin day is …", "running day is …", or "… is 35 a month"."""
    said, known = read_cues(statement), read_cues(other)
    alike = read_subject(statement) & read_subject(other) or said.terms & known.terms & _list_periods()
    return bool(alike and said.values & known.values) and are_of_other_things(statement, other)


def are_of_other_things(statement: str, other: str) -> bool:
    """Tell if two statements have different subjects, and share no other words."""
    first, second = read_subject(statement), read_subject(other)
    said, known = read_cues(statement), read_cues(other)
    common = (said.core & known.core) - (first & second) - _list_periods()
    if not first - known.terms or not second - said.terms or common:
        return False
    if not first & second and share_a_word(statement, other):
        return False
    parts = _list_parts(statement)
    return len(parts) == 1 or bool(read_cues(parts[0]).values & known.values)


def only_tells_extent(statement: str, other: str) -> bool:
    """Tell if a statement says how much somebody works, and the other one only says what: both hold."""
    patterns, known = _load_patterns(), fold_text(other)
    alone = len(_list_parts(statement)) == 1 and patterns["extent"].search(fold_text(statement)) is not None
    told = any(patterns[name].search(known) for name in ("extent", "full_time"))
    return alone and not told and not read_cues(other).values


def names_work_in_passing(text: str) -> bool:
    """Tell if a statement only says that something happens before, after or on the way to work."""
    return _load_patterns()["beside_time"].search(fold_text(text)) is not None


def share_a_word(statement: str, other: str) -> bool:
    """Tell if a longer word of one statement begins with, or is part of, one of the other: "Chor", "Kirchenchor"."""
    first, second = _list_words(statement), _list_words(other)
    return any(one[:_MIN_SHARED] == two[:_MIN_SHARED] or one in two or two in one for one in first for two in second)


def tells_a_switch(text: str) -> bool:
    return _load_patterns()["switch"].search(fold_text(text)) is not None


def _list_claims(parts: Sequence[str]) -> list[str]:
    """Return the parts with a verb of their own that do more than explain: "never have"."""
    patterns = _load_patterns()
    claims = (part for part in parts if patterns["claims"].search(part) and not _BACK.search(part))
    return [part for part in claims if not patterns["explains"].match(part.strip())]


@lru_cache(maxsize=2_048)
def _list_parts(text: str) -> list[str]:
    parts = (part.strip() for part in _PART.split(fold_text(text)))
    return [part for part in parts if part]


def _list_words(text: str) -> list[str]:
    words = (word for word in _WORD.findall(fold_text(text)) if len(word) >= _MIN_SHARED)
    plain = load_languages().all_stop_terms | _list_periods()
    return [word for word in words if not plain.issuperset(extract_terms(word))]


@lru_cache(maxsize=2_048)
def read_subject(text: str) -> frozenset[int]:
    """Return the terms of the words before the first verb, unless they are a pronoun or a person."""
    patterns, head = _load_patterns(), []
    words = _WORD.findall(fold_text(text))[: _MAX_SUBJECT_WORDS + 1]
    if not words or patterns["unnamed"].fullmatch(words[0]):
        return frozenset()
    for word in words:
        if patterns["claims"].fullmatch(word) or find_signs(word) - {"refers"} or read_cues(word).values:
            break
        head.append(word.removesuffix("'s"))
    else:
        return frozenset()
    terms = (term for word in head if not is_person(word) for term in extract_terms(word))
    return frozenset(terms) - load_languages().all_stop_terms


def fold_text(text: str) -> str:
    """Return the beginning of a text in lower case with plain apostrophes."""
    return text[:_MAX_CHARACTERS].lower().replace("’", "'")


@cache
def _list_periods() -> frozenset[int]:
    """Return the terms of "a month" and the like, which two prices of different things share."""
    return frozenset(extract_terms(_PERIODS))


@cache
def _load_patterns() -> dict[str, re.Pattern[str]]:
    return load_joined_patterns("change_limits.toml")
