"""The patterns of statements that last and of words that void them, read from data/gate/*.toml when first needed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from engrain.core.text.languages import Languages, load_languages

_WRAP = re.compile(r"\n\s*")
# In a chat "dont", "im", "ive", "thats" and "lets" do as well.
_APOSTROPHE = re.compile(r"(?<=n)'(?=t)|'(?=(?:m|d|ve)\b)|(?<=it)'(?=s\b)|(?<=hat)'(?=s\b)|(?<=let)'(?=s\b)")
_THINGS = "things"
ANY_WORD = "*"


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """When first needed: a speaker of one language never pays for the others."""
    return re.compile(pattern, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to say something. `slot` may name a group of the pattern in braces, which core/slotting.py fills in.

    `holds`: it lasts whatever time is named beside it. `anywhere`: also inside a clause, even one that asks.
    """

    kind: str
    source: str
    slot: str | None = None
    holds: bool = False
    anywhere: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        return compile_pattern(self.source)


@dataclass(frozen=True, slots=True)
class StatementRules:
    """All languages at once. `by_word` are the rules for clauses that begin with a word, "*" those for any other."""

    by_word: Mapping[str, tuple[Rule, ...]]
    inner_rules: tuple[Rule, ...]
    asks: Mapping[str, tuple[str, ...]]
    signs: Mapping[str, str]
    hints: Mapping[str, frozenset[str]]
    nouns: Mapping[str, str]
    classes: Mapping[str, str]
    heads: Mapping[str, str]
    shapes: Mapping[str, str]
    words: Mapping[str, frozenset[str]]
    turned: Mapping[str, str]
    dropped: Mapping[str, str]

    def sign(self, name: str) -> re.Pattern[str]:
        return compile_pattern(self.signs[name])


@dataclass(frozen=True, slots=True)
class _Language:
    """What the files of one language hold, with every part filled in. Of a group: its first words, and its rules."""

    groups: list[tuple[frozenset[str], list[Rule]]]
    nouns: dict[str, str]
    lists: dict[str, dict[str, list[str]]]
    table: dict[str, Any]


@cache
def load_statement_rules() -> StatementRules:
    tables = _tables()
    things = tables.pop(_THINGS)
    languages = [_language(table) for table in tables.values()]
    signs = _merged(languages, "signs")
    dropped = _merged(languages, "dropped")
    return StatementRules(
        by_word=_by_word(languages),
        inner_rules=tuple(
            rule for language in languages for _, rules in language.groups for rule in rules if rule.anywhere
        ),
        asks={name: tuple(patterns) for name, patterns in _merged(languages, "asks").items()},
        signs={name: "|".join(f"(?:{one})" for one in patterns) for name, patterns in signs.items()},
        hints={name: _words(some) for name, some in _merged(languages, "hints").items()},
        nouns={form: name for language in languages for form, name in language.nouns.items()},
        classes=_spread(things["classes"]),
        heads=_spread(things["heads"]),
        shapes=_spread(things["shapes"]),
        words={name: _words([some]) for name, some in things["words"].items()},
        turned={word: turned for language in languages for word, turned in language.table.get("turned", {}).items()},
        dropped={word: subject for subject, some in dropped.items() for word in _words(some)},
    )


def _tables() -> dict[str, dict[str, Any]]:
    """The files by language: en.words.toml and en.rules.toml are one."""
    folder = resources.files("engrain.core") / "data" / "gate"
    tables: dict[str, dict[str, Any]] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            given = tomllib.loads(entry.read_text("utf-8"))
            table = tables.setdefault(entry.name.split(".")[0], {"rules": []})
            table["rules"] += given.pop("rules", [])
            table.update(given)
    return tables


def _language(table: dict[str, Any]) -> _Language:
    nouns = _spread(table["nouns"])
    parts = _parts({"noun": "|".join(sorted(nouns, key=len, reverse=True))} | table["parts"])
    lists: dict[str, dict[str, list[str]]] = {}
    for section in ("asks", "signs"):
        lists[section] = {name: [_filled(one, parts) for one in some] for name, some in table[section].items()}
    for section in ("hints", "dropped"):
        lists[section] = {name: [words] for name, words in table.get(section, {}).items()}
    groups = [(_words([group.pop("first", "")]), _rules(group, parts)) for group in table["rules"]]
    return _Language(groups, nouns, lists, table)


def _by_word(languages: Sequence[_Language]) -> dict[str, tuple[Rule, ...]]:
    words = {word for language in languages for first, _ in language.groups for word in first}
    return {word: tuple(rule for language in languages for rule in _rules_at(word, language)) for word in words}


def _rules_at(word: str, language: _Language) -> Iterator[Rule]:
    """The rules of one language for a first word, and behind them those for whatever word."""
    own = any(word in first for first, _ in language.groups)
    for first, rules in language.groups:
        if (word if own else ANY_WORD) in first:
            yield from rules
    for first, rules in language.groups:
        if not first:
            yield from (rule for rule in rules if not rule.anywhere)


def _rules(group: Mapping[str, Any], parts: Mapping[str, str]) -> list[Rule]:
    rules = []
    for kind, rows in group.items():
        for row in rows:
            given = {"pattern": row} if isinstance(row, str) else dict(row)
            rules.append(Rule(kind, _filled(given.pop("pattern"), parts), **given))
    return rules


def _merged(languages: Sequence[_Language], section: str) -> dict[str, list[str]]:
    merged: dict[str, list[str]] = {}
    for language in languages:
        for name, some in language.lists[section].items():
            merged.setdefault(name, []).extend(some)
    return merged


def _words(some: Sequence[str]) -> frozenset[str]:
    return frozenset(" ".join(some).split())


def _parts(given: Mapping[str, str]) -> dict[str, str]:
    """Each part, with those before it filled in."""
    parts: dict[str, str] = {}
    for name, value in given.items():
        parts[name] = f"(?:{_filled(value, parts)})"
    return parts


def _filled(pattern: str, parts: Mapping[str, str]) -> str:
    """Long patterns are wrapped in their file: a line break and the space after it say nothing."""
    pattern = _APOSTROPHE.sub("'?", _WRAP.sub("", pattern))
    for name, part in parts.items():
        pattern = pattern.replace(f"{{{name}}}", part)
    return pattern


def _spread(names: Mapping[str, str]) -> dict[str, str]:
    """{"city": "city|town"} as {"city": "city", "town": "city"}."""
    return {form: name for name, forms in names.items() for form in _WRAP.sub("", forms).split("|")}


INSTRUCTION = 1
PREFERENCE = 2
NUMBER_OR_TIME = 4
IS_QUESTION = 8

INSTRUCTION_OR_PREFERENCE = INSTRUCTION | PREFERENCE
MAX_QUESTION_WORDS = 25
_LIMIT = 20_000
_DIGIT = re.compile(r"\d")
_LETTERS = re.compile(r"[^\W\d_]+")
_QUESTION_MARKS = ("?", "？", "؟")


def detect_traits(text: str, role: str | None = None) -> int:
    """Bits of the names above. Only what people say orders or prefers: an assistant's "always …" is advice."""
    head = text[:_LIMIT].lower()
    if "\u2019" in head:
        head = head.replace("\u2019", "'")
    known = load_languages()
    bits = 0
    if role not in ("assistant", "tool"):
        bits |= INSTRUCTION * _states("instruction", head, known) | PREFERENCE * _states("preference", head, known)
    if _DIGIT.search(head) or not known.words["number_or_time"].isdisjoint(_LETTERS.findall(head)):
        bits |= NUMBER_OR_TIME
    return bits | IS_QUESTION * is_short_question(head)


def _states(what: str, head: str, known: Languages) -> bool:
    return any(hint in head for hint in known.hints[what]) and known.statements[what].search(head) is not None


def is_short_question(text: str) -> bool:
    """A short text that ends with a question: it wants to know something, and seldom tells anything."""
    end = text.rstrip()
    return end.endswith(_QUESTION_MARKS) and len(end.split(None, MAX_QUESTION_WORDS)) <= MAX_QUESTION_WORDS
