"""Find the words that tell how a statement relates to an earlier one: an end, a change, an addition, a person."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from engrain.core.rules.statements import NUMBER_OR_TIME, detect_traits
from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import extract_terms, normalize_unicode

CUES = ("ended", "changed", "added", "passing", "tentative", "negated", "me")
MAX_CHARACTERS = 600
_WRAP = re.compile(r"\n\s*")
_CLAUSE = re.compile(r"[,;:.!?()–—]|\b(?:and|but|so|und|aber|y|pero|et|mais)\b")
_LETTERS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_NAME = re.compile(r"[^\W\d_a-zà-öø-ÿ][\w-]*\w")
_REFERS = re.compile(
    r"\W*(?:so |and |but |well |ok |actually )?(?:she|he|they|it|that|this|the|these|those|sie|er|es|das|die|der|"
    r"ese|esa|eso|lo|la|el|elle|il|ils|ce|cela|ça)\b"
)
_SUBJECT_WORDS = 3
_PARENTS = {"mother", "father", "parents"}
_ONLY_ONE = frozenset(("partner", "mother", "father", "parents", "boss", "grandmother", "grandfather"))


@dataclass(frozen=True, slots=True)
class Cues:
    """Signs in one statement. `people` are the subjects of its clauses other than the speaker, by what they are."""

    found: frozenset[str]
    people: frozenset[str]
    terms: frozenset[int]
    names: frozenset[str]
    has_time: bool  # a number or a time
    refers: bool


@lru_cache(maxsize=2_048)
def read_cues(text: str) -> Cues:
    """Read the signs of a statement. A longer text is read at its beginning only."""
    part = text[:MAX_CHARACTERS]
    lower = part.lower().replace("’", "'")
    patterns, people = _load_patterns()
    subjects = {
        group
        for clause in _CLAUSE.split(lower)
        for word in _LETTERS.findall(clause)[:_SUBJECT_WORDS]
        if (group := people.get(word))
    }
    if _PARENTS & subjects:
        subjects |= _PARENTS
    return Cues(
        frozenset(name for name in CUES if patterns[name].search(lower)),
        frozenset(subjects),
        frozenset(extract_terms(part)) - _stop_terms(),
        frozenset(fold_name(name) for name in _NAME.findall(part)),
        bool(detect_traits(part) & NUMBER_OR_TIME),
        _REFERS.match(lower) is not None,
    )


def find_people(text: str) -> frozenset[str]:
    """Return the people whom a text names anywhere, by what they are to the speaker."""
    people = _load_patterns()[1]
    words = _LETTERS.findall(text[:MAX_CHARACTERS].lower().replace("’", "'"))
    return frozenset(group for word in words if (group := people.get(word)))


def only_adds(cues: Cues) -> bool:
    """Tell if a statement puts something beside what is known, or speaks of a while: "also", "this week", "maybe"."""
    return not {"added", "passing", "tentative"}.isdisjoint(cues.found) and {"ended", "changed"}.isdisjoint(cues.found)


def are_of_others(one: Cues, other: Cues) -> bool:
    """Tell if two statements are about different people: a sister and a cousin, or two sisters by their names."""
    if not one.people or not other.people:
        return False
    if one.people.isdisjoint(other.people):
        return True
    return not one.people & other.people & _ONLY_ONE and bool(one.names and other.names) and not one.names & other.names


def fold_name(name: str) -> str:
    """Return a name without case and accents: "Ana", "ána" and "ANA" are one."""
    return "".join(mark for mark in normalize_unicode("NFKD", name.casefold()) if mark.isalnum() or mark in " -'")


@cache
def _stop_terms() -> frozenset[int]:
    known: Iterable[frozenset[int]] = (language.stop_terms for language in load_languages().by_name.values())
    return frozenset().union(*known)


@cache
def _load_patterns() -> tuple[dict[str, re.Pattern[str]], dict[str, str]]:
    file = resources.files("engrain.core") / "data" / "changes.toml"
    tables = tomllib.loads(file.read_text("utf-8"))
    groups = tables.pop("people")
    people = {word: group for group, words in groups.items() for word in words.split("|")}
    joined = {name: "|".join(_WRAP.sub("", table[name]) for table in tables.values()) for name in CUES}
    return {name: re.compile(rf"(?<!\w)(?:{pattern})") for name, pattern in joined.items()}, people
