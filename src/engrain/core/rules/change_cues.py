"""Read what a statement is about, and the words that tell how it relates to an earlier one."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise

from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import extract_terms, normalize_unicode

SIGNS = ("ended", "changed", "added", "beside", "scoped", "passing", "tentative")
MAX_CHARACTERS = 600
_WRAP = re.compile(r"\n\s*")
_CLAUSE = re.compile(r"[,;:.!?()–—]|\b(?:and|but|so|und|aber|y|pero|et|mais)\b")
_LETTERS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_NAME = re.compile(r"[^\W\d_a-zà-öø-ÿ][\w-]*\w")
_REFERS = re.compile(
    r"\W*(?:so |and |but |well |ok |actually )?(?:she|he|they|it|that|this|the|these|those|sie|er|es|das|die|der|"
    r"ese|esa|eso|lo|la|el|elle|il|ils|ce|cela|ça)\b"
)
_CALLED = re.compile(r"([^\W\d_]+(?:-[^\W\d_]+)*),? ([^\W\d_a-zà-öø-ÿ][^\W\d_]+)")
_SUBJECT_WORDS = 3
_PARENTS = {"mother", "father", "parents"}
_ONLY_ONE = frozenset(("partner", "mother", "father", "parents", "boss", "grandmother", "grandfather"))
# Words for people that mean something else in another language, unless somebody owns them: "ya son dos", "what kind".
_UNSURE = frozenset(("son", "ma", "kind", "ado", "mate", "ex", "mari", "prima", "nan", "pal", "mann", "chef", "tante"))
_OWNER = re.compile(r"(?:my|our|his|her|their|your|mein|unser|sein|ihr|dein|mi|mis|tu|su|mon|notre|son|leur)\w{0,2}")


@dataclass(frozen=True, slots=True)
class Cues:
    """The matter of one statement. `people` are the subjects of its clauses other than the speaker, by what they are.

    `called` are their names: "my sister Ada". `values` are the kinds of values that it has, such as a weekday or a
    price. `core` are its terms without those.
    """

    people: frozenset[str]
    called: frozenset[str]
    terms: frozenset[int]
    core: frozenset[int]
    names: frozenset[str]
    values: frozenset[str]
    negated: bool
    own: bool  # the speaker is mentioned


@lru_cache(maxsize=2_048)
def read_cues(text: str) -> Cues:
    """Read the matter of a statement. A longer text is read at its beginning only."""
    part = text[:MAX_CHARACTERS]
    lower = part.lower().replace("’", "'")
    patterns, people = _load_patterns()
    subjects = {
        group
        for clause in _CLAUSE.split(lower)
        for before, word in pairwise(("", *_LETTERS.findall(clause)[:_SUBJECT_WORDS]))
        if (group := people.get(word)) and (word not in _UNSURE or _OWNER.fullmatch(before))
    }
    if _PARENTS & subjects:
        subjects |= _PARENTS
    values = list(patterns["value"].finditer(lower))
    stop_terms = load_languages().all_stop_terms
    terms = frozenset(extract_terms(part)) - stop_terms
    return Cues(
        frozenset(subjects),
        frozenset(fold_name(one[2]) for one in _CALLED.finditer(part) if one[1].lower() in people),
        terms,
        terms.difference(*(extract_terms(one[0]) for one in values)),
        frozenset(fold_name(name) for name in _NAME.findall(part) if not stop_terms.issuperset(extract_terms(name))),
        frozenset(one.lastgroup or "" for one in values),
        patterns["negated"].search(lower) is not None,
        patterns["me"].search(lower) is not None,
    )


@lru_cache(maxsize=256)
def find_signs(text: str) -> frozenset[str]:
    """Return how a statement relates to earlier ones by its words, and "refers" if it begins with a pronoun."""
    lower = text[:MAX_CHARACTERS].lower().replace("’", "'")
    patterns, _ = _load_patterns()
    found = {name for name in SIGNS if patterns[name].search(lower)}
    return frozenset(found | {"refers"} if _REFERS.match(lower) else found)


def find_people(text: str) -> frozenset[str]:
    """Return the people whom a text names anywhere, by what they are to the speaker."""
    people = _load_patterns()[1]
    words = _LETTERS.findall(text[:MAX_CHARACTERS].lower().replace("’", "'"))
    return frozenset(group for word in words if (group := people.get(word)))


def find_values(text: str) -> dict[str, set[str]]:
    """Return the values of a text by their kind, such as a weekday or a price."""
    found: dict[str, set[str]] = {}
    for one in _load_patterns()[0]["value"].finditer(text[:MAX_CHARACTERS].lower()):
        found.setdefault(one.lastgroup or "", set()).add(one[0])
    return found


def is_person(word: str) -> bool:
    """Tell if a word names somebody by what they are to the speaker: "sister"."""
    return word in _load_patterns()[1]


def are_of_others(new: Cues, old: Cues) -> bool:
    """Tell if two statements are about different people: a sister and a cousin, two sisters, or me and my sister."""
    if new.people and not old.people:
        return old.own and not new.own and new.names.isdisjoint(old.names)
    if not new.people or not old.people:
        return False
    if new.people.isdisjoint(old.people):
        return True
    alone = new.people & old.people & _ONLY_ONE
    return not alone and bool(new.called and old.called) and new.called.isdisjoint(old.called)


def fold_name(name: str) -> str:
    """Return a name without case and accents: "Ana", "ána" and "ANA" are one."""
    return "".join(mark for mark in normalize_unicode("NFKD", name.casefold()) if mark.isalnum() or mark in " -'")


def load_joined_patterns(file: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a data file, each for all languages, as whole words of text from `fold_text`."""
    joined: dict[str, list[str]] = {}
    for table in tomllib.loads((resources.files("engrain.core") / "data" / file).read_text("utf-8")).values():
        for name, pattern in table.items():
            joined.setdefault(name, []).append(_WRAP.sub("", pattern))
    return {name: re.compile(rf"(?<![\w'])(?:{'|'.join(some)})(?![\w'])") for name, some in joined.items()}


@cache
def _load_patterns() -> tuple[dict[str, re.Pattern[str]], dict[str, str]]:
    file = resources.files("engrain.core") / "data" / "changes.toml"
    tables = tomllib.loads(file.read_text("utf-8"))
    groups, values = tables.pop("people"), tables.pop("values")
    people = {word: group for group, words in groups.items() for word in words.split("|")}
    joined = {
        name: "|".join(_WRAP.sub("", table[name]) for table in tables.values()) for name in (*SIGNS, "negated", "me")
    }
    joined["value"] = "|".join(f"(?P<{name}>{pattern})" for name, pattern in values.items())
    return {name: re.compile(rf"(?<!\w)(?:{pattern})") for name, pattern in joined.items()}, people
