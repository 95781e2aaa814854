"""The patterns of statements that last and of words that void them, read from data/gate/*.toml when first needed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_WRAP = re.compile(r"\n\s*")
# In a chat "dont", "im", "ive", "thats" and "lets" do as well.
_APOSTROPHE = re.compile(r"(?<=n)'(?=t)|'(?=(?:m|d|ve)\b)|(?<=it)'(?=s\b)|(?<=hat)'(?=s\b)|(?<=let)'(?=s\b)")
_THINGS = "things"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
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
        return compiled(self.source)


@dataclass(frozen=True, slots=True)
class Statements:
    """All languages at once. `by_word` are the rules for clauses that begin with a word, `rules` those for any."""

    by_word: Mapping[str, tuple[Rule, ...]]
    rules: tuple[Rule, ...]
    inner_rules: tuple[Rule, ...]
    asks: Mapping[str, tuple[str, ...]]
    signs: Mapping[str, str]
    hints: Mapping[str, frozenset[str]]
    nouns: Mapping[str, str]
    classes: Mapping[str, str]
    heads: Mapping[str, str]
    words: Mapping[str, frozenset[str]]
    turned: Mapping[str, str]
    dropped: Mapping[str, tuple[str, ...]]

    def sign(self, name: str) -> re.Pattern[str]:
        return compiled(self.signs[name])


@cache
def statements() -> Statements:
    folder = resources.files("engrain.core") / "data" / "gate"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name)
    tables: dict[str, dict[str, Any]] = {}
    for entry in files:
        table = tables.setdefault(entry.name.split(".")[0], {"rules": []})
        given = tomllib.loads(entry.read_text("utf-8"))
        table["rules"] += given.pop("rules", [])
        table.update(given)
    things = tables.pop(_THINGS)
    by_word: dict[str, list[Rule]] = {}
    anyhow: list[Rule] = []
    lists: dict[str, dict[str, list[str]]] = {"asks": {}, "signs": {}, "hints": {}}
    nouns: dict[str, str] = {}
    turned: dict[str, str] = {}
    dropped: dict[str, list[str]] = {}
    for table in tables.values():
        own_nouns = _spread(table["nouns"])
        nouns |= own_nouns
        turned |= table.get("turned", {})
        for subject, words in table.get("dropped", {}).items():
            for word in words.split():
                dropped.setdefault(word, []).append(subject)
        parts = _parts({"noun": "|".join(sorted(own_nouns, key=len, reverse=True))} | table["parts"])
        for group in table["rules"]:
            rules = _rules(group, parts)
            for word in group.get("first", "").split():
                by_word.setdefault(word, []).extend(rules)
            anyhow += [] if "first" in group else rules
        for section, into in lists.items():
            for name, some in table.get(section, {}).items():
                into.setdefault(name, []).extend(
                    [some] if isinstance(some, str) else (_filled(one, parts) for one in some)
                )
    general = tuple(rule for rule in anyhow if not rule.anywhere)
    return Statements(
        by_word={word: (*rules, *general) for word, rules in by_word.items()},
        rules=general,
        inner_rules=tuple(rule for rule in anyhow if rule.anywhere),
        asks={name: tuple(patterns) for name, patterns in lists["asks"].items()},
        signs={name: "|".join(f"(?:{one})" for one in patterns) for name, patterns in lists["signs"].items()},
        hints={name: frozenset(" ".join(words).split()) for name, words in lists["hints"].items()},
        nouns=nouns,
        classes=_spread(things["classes"]),
        heads=_spread(things["heads"]),
        words={name: frozenset(words.split()) for name, words in things["words"].items()},
        turned=turned,
        dropped={word: tuple(subjects) for word, subjects in dropped.items()},
    )


def _rules(group: Mapping[str, Any], parts: Mapping[str, str]) -> list[Rule]:
    rules = []
    for kind, rows in group.items():
        for row in rows if kind != "first" else ():
            given = {"pattern": row} if isinstance(row, str) else dict(row)
            rules.append(Rule(kind, _filled(given.pop("pattern"), parts), **given))
    return rules


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
