"""The patterns and word lists of every language that engrain knows, read from data/*.toml when first needed."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from engrain.core.words import term, tokens


@dataclass(frozen=True, slots=True)
class Relative:
    """A phrase such as "last week", as the days before now that it may mean; `unit` multiplies the number in it."""

    pattern: re.Pattern[str]
    start: int
    end: int
    unit: int


@dataclass(frozen=True, slots=True)
class Languages:
    """All languages at once: a text need not say which one it is in."""

    stop_terms: frozenset[int]
    months: re.Pattern[str]
    month_numbers: dict[str, int]
    relative: tuple[Relative, ...]
    numbers: dict[str, int]
    statements: dict[str, re.Pattern[str]]
    hints: dict[str, tuple[str, ...]]
    words: dict[str, frozenset[str]]
    questions: dict[str, re.Pattern[str]]


@cache
def languages() -> Languages:
    folder = resources.files("engrain.core") / "data"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name)
    return _combined([tomllib.loads(entry.read_text("utf-8")) for entry in files])


def _combined(tables: list[dict[str, Any]]) -> Languages:
    stop = frozenset(term(word) for table in tables for word in tokens(table.get("stop_words", "")))
    month_numbers: dict[str, int] = {}
    for table in tables:
        for number, names in enumerate(table.get("months", []), start=1):
            month_numbers |= dict.fromkeys(names.split("|"), number)
    numbers: dict[str, int] = {}
    for table in tables:
        numbers |= table.get("relative", {}).get("numbers", {})
    relative = tuple(_relative(row) for table in tables for row in table.get("relative", {}).get("days", []))
    return Languages(
        stop_terms=stop,
        months=_months(tables),
        month_numbers=month_numbers,
        relative=relative,
        numbers=numbers,
        statements=_patterns(tables, "statements"),
        hints={name: tuple(some) for name, some in _lists(tables, "hints").items()},
        words={name: frozenset(" ".join(some).split()) for name, some in _lists(tables, "words").items()},
        questions=_patterns(tables, "questions"),
    )


def _months(tables: list[dict[str, Any]]) -> re.Pattern[str]:
    """A month with the day or year beside it; a name that is a word too counts only with one, or after a cue."""
    plain: list[str] = []
    unsure: list[str] = []
    cues: list[str] = []
    for table in tables:
        doubtful = set(table.get("ambiguous_months", []))
        names = [name for group in table.get("months", []) for name in group.split("|")]
        plain += [name for name in names if name not in doubtful]
        unsure += [name for name in names if name in doubtful]
        cues += table.get("month_cues", [])
    day, year = r"\d{1,2}(?:st|nd|rd|th)?(?!\d)", r"(?:19|20)\d\d"
    known = "|".join(sorted(plain, key=len, reverse=True)) or r"(?!)"
    doubt = "|".join(sorted(unsure, key=len, reverse=True)) or r"(?!)"
    cue = "|".join(cues) or r"(?!)"
    return re.compile(
        rf"(?:\b(?P<before>{day})\s+(?:of\s+)?)?\b(?P<month>{known})\b\.?(?:\s+(?P<after>{day}))?(?:,?\s+(?P<year>{year}))?"
        rf"|\b(?P<before2>{day})\s+(?:of\s+)?(?P<month2>{doubt})\b\.?(?:,?\s+(?P<year2>{year}))?"
        rf"|\b(?P<month3>{doubt})\b\.?\s+(?:(?P<after3>{day})(?:,?\s+(?P<year3>{year}))?|(?P<year4>{year}))"
        rf"|\b(?:{cue})\s+(?P<month4>{doubt})\b"
    )


def _relative(row: dict[str, Any]) -> Relative:
    return Relative(re.compile(row["pattern"]), row.get("from", 0), row.get("to", 0), row.get("unit", 0))


def _patterns(tables: list[dict[str, Any]], section: str) -> dict[str, re.Pattern[str]]:
    """Matched against lower-case text: ignoring case in the pattern costs twice the time."""
    lists = _lists(tables, section)
    return {name: re.compile("|".join(f"(?:{part})" for part in parts)) for name, parts in lists.items()}


def _lists(tables: list[dict[str, Any]], section: str) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for table in tables:
        for name, value in table.get(section, {}).items():
            lists.setdefault(name, []).extend([value] if isinstance(value, str) else value)
    return lists
