"""The patterns and word lists of every language that engrain knows, read from data/*.toml when first needed."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from engrain.core.text.tokenizer import count_unspaced_characters, hash_term, tokenize

ENGLISH = "en"
WORDS_PER_ENGLISH_STOP_WORD = (
    4  # one word of so many must speak for English: other languages have a "do" or an "in" as well
)


@dataclass(frozen=True, slots=True)
class RelativeDate:
    """A phrase such as "last week", as the days before now that it may mean; `unit` multiplies the number in it."""

    pattern: re.Pattern[str]
    start: int
    end: int
    unit: int


@dataclass(frozen=True, slots=True)
class Language:
    """Stop words, as terms and as they are written; `shared` are those that are English words too, and tell nothing.
    `phrases` are those of scripts without spaces, `letters` the language's own. `unrelated` are texts that have nothing
    to do with each other."""

    stop_terms: frozenset[int]
    stop_words: frozenset[str]
    shared: frozenset[str]
    phrases: re.Pattern[str]
    letters: re.Pattern[str]
    unrelated: tuple[str, ...]

    def signs(self, words: list[str]) -> int:
        """How many of these words speak for this language; one alone that is English too says nothing."""
        own = [word for word in words if word in self.stop_words]
        strange = any(map(self.letters.match, words))
        return len(own) + strange if strange or len(own) > 1 or not self.shared.issuperset(own) else 0


@dataclass(frozen=True, slots=True)
class Languages:
    """All languages at once: a text need not say which one it is in. Only stop words go by language (`by_name`), since
    the article of one is a verb of another."""

    by_name: dict[str, Language]
    months: re.Pattern[str]
    month_numbers: dict[str, int]
    relative: tuple[RelativeDate, ...]
    numbers: dict[str, int]
    statements: dict[str, re.Pattern[str]]
    hints: dict[str, tuple[str, ...]]
    words: dict[str, frozenset[str]]
    questions: dict[str, re.Pattern[str]]

    @property
    def stop_terms(self) -> frozenset[int]:
        return self.by_name[ENGLISH].stop_terms

    def like(self, words: list[str]) -> str | None:
        """The name of the language that these words look like, English of equals; None where that is not sure."""
        signs = {name: language.signs(words) for name, language in self.by_name.items()}
        best = max(signs, key=lambda name: (signs[name], name == ENGLISH))
        sure = best != ENGLISH or signs[best] * WORDS_PER_ENGLISH_STOP_WORD >= max(len(words), 1)
        return best if sure else None


@cache
def load_languages() -> Languages:
    folder = resources.files("engrain.core") / "data"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name)
    return _combined({entry.name.split(".")[0]: tomllib.loads(entry.read_text("utf-8")) for entry in files})


def _combined(named: dict[str, dict[str, Any]]) -> Languages:
    tables = list(named.values())
    month_numbers: dict[str, int] = {}
    for table in tables:
        for number, names in enumerate(table.get("months", []), start=1):
            month_numbers |= dict.fromkeys(names.split("|"), number)
    numbers: dict[str, int] = {}
    for table in tables:
        numbers |= table.get("relative", {}).get("numbers", {})
    relative = tuple(_relative(row) for table in tables for row in table.get("relative", {}).get("days", []))
    return Languages(
        by_name={name: _language(table) for name, table in named.items()},
        months=_months(tables),
        month_numbers=month_numbers,
        relative=relative,
        numbers=numbers,
        statements=_patterns(tables, "statements"),
        hints={name: tuple(some) for name, some in _lists(tables, "hints").items()},
        words={name: frozenset(" ".join(some).split()) for name, some in _lists(tables, "words").items()},
        questions=_patterns(tables, "questions"),
    )


def _language(table: dict[str, Any]) -> Language:
    words = tokenize(table.get("stop_words", ""))
    shared = frozenset(tokenize(table.get("shared_with_english", "")))
    letters = re.compile(table.get("letters", r"(?!)"))
    runs = [word for word in table.get("stop_words", "").split() if count_unspaced_characters(word) > 1]
    phrases = re.compile("|".join(sorted(runs, key=len, reverse=True)) or r"(?!)")
    unrelated = tuple(table.get("unrelated", ()))
    return Language(frozenset(map(hash_term, words)), frozenset(words), shared, phrases, letters, unrelated)


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


def _relative(row: dict[str, Any]) -> RelativeDate:
    return RelativeDate(re.compile(row["pattern"]), row.get("from", 0), row.get("to", 0), row.get("unit", 0))


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
