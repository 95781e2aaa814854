"""Detect the traits of a text, and load the patterns of lasting statements from data/statements/*.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from engrain.core.text.languages import Languages, load_languages, merge_section
from engrain.core.text.tokenizer import split_letters

INSTRUCTION = 1
PREFERENCE = 2
NUMBER_OR_TIME = 4
IS_QUESTION = 8
CONDITION = 32  # of an instruction; 16 is in rules/own_words.py

INSTRUCTION_OR_PREFERENCE = INSTRUCTION | PREFERENCE
MAX_QUESTION_WORDS = 25
MAX_CONDITIONS = 4
_MAX_READ_CHARACTERS = 20_000
_DIGIT = re.compile(r"\d")
_QUESTION_MARKS = ("?", "？", "؟")


def detect_traits(text: str, role: str | None = None) -> int:
    """Return the traits as bits. Only people instruct or prefer: an assistant's "always …" is advice."""
    head = text[:_MAX_READ_CHARACTERS].lower()
    if "\u2019" in head:
        head = head.replace("\u2019", "'")
    words, known = split_letters(head), load_languages()
    bits = 0
    if role not in ("assistant", "tool"):
        bits |= INSTRUCTION * _matches("instruction", head, words, known)
        bits |= PREFERENCE * _matches("preference", head, words, known)
        bits |= CONDITION * (bits & INSTRUCTION > 0 and _matches("condition", head, words, known))
    if not known.words["number_or_time"].isdisjoint(words) or _DIGIT.search(head):
        bits |= NUMBER_OR_TIME
    return bits | IS_QUESTION * is_short_question(head)


def find_conditions(text: str) -> list[str]:
    """Return what standing orders apply to: "invoices" for "when I ask about invoices, always add the date"."""
    head, known = text[:_MAX_READ_CHARACTERS].lower().replace("\u2019", "'"), load_languages()
    words = split_letters(head)
    if not _matches("condition", head, words, known) or not _matches("instruction", head, words, known):
        return []
    # Each language has a group of its own, and one match has one of them.
    found = (match[match.lastindex or 0].strip() for match in known.statements["condition"].finditer(head))
    return list(dict.fromkeys(filter(None, found)))[:MAX_CONDITIONS]


def _matches(what: str, head: str, words: Iterable[str], known: Languages) -> bool:
    hints = known.hints[what]
    for word in hints.keys() & words:
        for phrase in hints[word]:
            if phrase in head:
                return known.statements[what].search(head) is not None
    return False


def is_short_question(text: str) -> bool:
    """Tell a short text that ends with a question: it seldom states anything."""
    end = text.rstrip()
    return end.endswith(_QUESTION_MARKS) and len(end.split(None, MAX_QUESTION_WORDS)) <= MAX_QUESTION_WORDS


_WRAP = re.compile(r"\n\s*")
# In a chat people also write "dont", "im", "ive", "thats" and "lets".
_APOSTROPHE = re.compile(r"(?<=n)'(?=t)|'(?=(?:m|d|ve)\b)|(?<=it)'(?=s\b)|(?<=hat)'(?=s\b)|(?<=let)'(?=s\b)")
_THINGS = "things"  # the file of all languages
ANY_WORD = "*"


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    # Compiled when first needed: a speaker of one language never pays for the others.
    return re.compile(pattern, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to say something. `slot` may name a group of the pattern in braces, which rules/slots.py fills in.

    `holds`: the statement lasts, whatever time it names. `anywhere`: the rule also matches inside a clause.
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
    """The rules of all languages together.

    `by_word` has the rules for clauses by their first word, and under ANY_WORD those for every other word.
    `asks` are patterns of requests. `signs` are patterns that void or join clauses.
    `turned` maps "you" to "I" and the like. `dropped` maps a first word to the subject that it leaves out,
    `run_on` one behind an introduction.
    """

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
    run_on: Mapping[str, str]

    def sign(self, name: str) -> re.Pattern[str]:
        return compile_pattern(self.signs[name])


@dataclass(frozen=True, slots=True)
class _LanguageRules:
    """The files of one language, with every part filled in. A group has its first words and its rules."""

    groups: list[tuple[frozenset[str], list[Rule]]]
    nouns: dict[str, str]
    lists: dict[str, Mapping[str, Any]]
    table: dict[str, Any]


@cache
def load_statement_rules() -> StatementRules:
    tables = _read_files()
    things = tables.pop(_THINGS)
    languages = [_compile_language(table) for table in tables.values()]
    lists = [language.lists for language in languages]
    words = {word for language in languages for first, _ in language.groups for word in first}
    dropped, run_on = merge_section(lists, "dropped"), merge_section(lists, "run_on")
    return StatementRules(
        by_word={
            word: tuple(rule for language in languages for rule in _rules_for_word(word, language)) for word in words
        },
        inner_rules=tuple(
            rule for language in languages for _, rules in language.groups for rule in rules if rule.anywhere
        ),
        asks={name: tuple(patterns) for name, patterns in merge_section(lists, "asks").items()},
        signs={
            name: "|".join(f"(?:{pattern})" for pattern in patterns)
            for name, patterns in merge_section(lists, "signs").items()
        },
        hints={name: _split_words(some) for name, some in merge_section(lists, "hints").items()},
        nouns={form: name for language in languages for form, name in language.nouns.items()},
        classes=_invert_forms(things["classes"]),
        heads=_invert_forms(things["heads"]),
        shapes=_invert_forms(things["shapes"]),
        words={name: _split_words([some]) for name, some in things["words"].items()},
        turned={word: turned for language in languages for word, turned in language.table.get("turned", {}).items()},
        dropped={word: subject for subject, some in dropped.items() for word in _split_words(some)},
        run_on={word: subject for subject, some in run_on.items() for word in _split_words(some)},
    )


def _read_files() -> dict[str, dict[str, Any]]:
    """Read the files by language: en.words.toml and en.rules.toml are one table."""
    folder = resources.files("engrain.core") / "data" / "statements"
    tables: dict[str, dict[str, Any]] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            content = tomllib.loads(entry.read_text("utf-8"))
            table = tables.setdefault(entry.name.split(".")[0], {"rules": []})
            table["rules"] += content.pop("rules", [])
            table.update(content)
    return tables


def _compile_language(table: dict[str, Any]) -> _LanguageRules:
    nouns = _invert_forms(table["nouns"])
    parts = {"noun": f"(?:{'|'.join(sorted(nouns, key=len, reverse=True))})"}
    for name, part in table["parts"].items():  # each may use the earlier ones
        parts[name] = f"(?:{fill_pattern(part, parts)})"
    lists: dict[str, Mapping[str, Any]] = {}
    for section in ("asks", "signs"):
        lists[section] = {name: [fill_pattern(one, parts) for one in some] for name, some in table[section].items()}
    lists |= {section: table.get(section, {}) for section in ("hints", "dropped", "run_on")}
    groups = [(_split_words([group.pop("first", "")]), _compile_rules(group, parts)) for group in table["rules"]]
    return _LanguageRules(groups, nouns, lists, table)


def _rules_for_word(word: str, language: _LanguageRules) -> Iterator[Rule]:
    """Yield the rules of one language for a first word, then those for any first word."""
    own = any(word in first for first, _ in language.groups)
    for first, rules in language.groups:
        if (word if own else ANY_WORD) in first:
            yield from rules
    for first, rules in language.groups:
        if not first:
            yield from (rule for rule in rules if not rule.anywhere)


def _compile_rules(group: Mapping[str, Any], parts: Mapping[str, str]) -> list[Rule]:
    rules = []
    for kind, rows in group.items():
        for row in rows:
            options = {"pattern": row} if isinstance(row, str) else dict(row)
            rules.append(Rule(kind, fill_pattern(options.pop("pattern"), parts), **options))
    return rules


def _split_words(lists: Sequence[str]) -> frozenset[str]:
    return frozenset(" ".join(lists).split())


def fill_pattern(pattern: str, parts: Mapping[str, str]) -> str:
    # Long patterns are wrapped in their file: a line break and the space after it mean nothing.
    pattern = _APOSTROPHE.sub("'?", _WRAP.sub("", pattern))
    for name, part in parts.items():
        pattern = pattern.replace(f"{{{name}}}", part)
    return pattern


def _invert_forms(names: Mapping[str, str]) -> dict[str, str]:
    """Turn {"city": "city|town"} into {"city": "city", "town": "city"}."""
    return {form: name for name, forms in names.items() for form in _WRAP.sub("", forms).split("|")}
