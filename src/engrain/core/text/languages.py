"""Load the patterns and word lists of every known language from data/*.toml."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

from engrain.core.text.tokenizer import count_unspaced_characters, hash_term, split_letters, tokenize

ENGLISH = "en"
# A text is English if one word in so many is an English stop word: other languages have a "do" or an "in" as well.
WORDS_PER_ENGLISH_STOP_WORD = 4
_NEVER = r"(?!)"


@dataclass(frozen=True, slots=True)
class RelativeDate:
    """A phrase such as "last week", as a range of days before now. `unit` multiplies the number in the phrase."""

    pattern: re.Pattern[str]
    start: int
    end: int
    unit: int


@dataclass(frozen=True, slots=True)
class Language:
    """The stop words of one language, and examples.

    `shared` are stop words that are English words too. `phrases` match stop words of scripts without spaces.
    `letters` match letters that only this language has. `unrelated` are texts that have nothing in common.
    """

    stop_terms: frozenset[int]
    stop_words: frozenset[str]
    shared: frozenset[str]
    phrases: re.Pattern[str]
    letters: re.Pattern[str]
    unrelated: tuple[str, ...]

    def count_evidence(self, words: list[str]) -> int:
        """Count the words that speak for this language. A single word that is English too counts nothing."""
        own = [word for word in words if word in self.stop_words]
        has_letters = any(map(self.letters.match, words))
        return len(own) + has_letters if has_letters or len(own) > 1 or not self.shared.issuperset(own) else 0


@dataclass(frozen=True)
class Languages:
    """The patterns of all languages together, since a text does not say its language.

    Stop words stay apart in `by_name`: the article of one language is a verb of another.
    """

    by_name: dict[str, Language]
    by_stop_word: dict[str, tuple[str, ...]]  # the names of the languages that have it
    months: re.Pattern[str]
    month_numbers: dict[str, int]
    relative_dates: tuple[RelativeDate, ...]
    numbers: dict[str, int]
    statements: dict[str, re.Pattern[str]]
    hints: dict[str, dict[str, tuple[str, ...]]]  # phrases by one of their words
    words: dict[str, frozenset[str]]
    questions: dict[str, re.Pattern[str]]
    frames: dict[str, re.Pattern[str]]

    @property
    def stop_terms(self) -> frozenset[int]:
        return self.by_name[ENGLISH].stop_terms

    @cached_property
    def all_stop_terms(self) -> frozenset[int]:
        """The stop words of every language, for what compares texts of several."""
        return frozenset().union(*(language.stop_terms for language in self.by_name.values()))

    def detect(self, words: list[str]) -> str | None:
        """Name the language of these words, English on a tie; None without enough evidence."""
        # Only some languages have any of the words, and no letters of their own are in ASCII.
        likely = {name for word in words for name in self.by_stop_word.get(word, ())} | {ENGLISH}
        plain = all(map(str.isascii, words))
        evidence = {
            name: language.count_evidence(words)
            for name, language in self.by_name.items()
            if not plain or name in likely
        }
        best = max(evidence, key=lambda name: (evidence[name], name == ENGLISH))
        sure = best != ENGLISH or evidence[best] * WORDS_PER_ENGLISH_STOP_WORD >= max(len(words), 1)
        return best if sure else None


@cache
def load_languages() -> Languages:
    folder = resources.files("engrain.core") / "data"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name)
    return _combine({entry.name.split(".")[0]: tomllib.loads(entry.read_text("utf-8")) for entry in files})


def _combine(named: dict[str, dict[str, Any]]) -> Languages:
    tables = list(named.values())
    month_numbers: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for table in tables:
        for number, names in enumerate(table.get("months", []), start=1):
            month_numbers |= dict.fromkeys(names.split("|"), number)
        numbers |= table.get("relative", {}).get("numbers", {})
    by_name = {name: _make_language(table) for name, table in named.items()}
    by_stop_word: dict[str, tuple[str, ...]] = {}
    for name, language in by_name.items():
        for word in language.stop_words:
            by_stop_word[word] = (*by_stop_word.get(word, ()), name)
    return Languages(
        by_name=by_name,
        by_stop_word=by_stop_word,
        months=_compile_months(tables),
        month_numbers=month_numbers,
        relative_dates=tuple(
            RelativeDate(re.compile(row["pattern"]), row.get("from", 0), row.get("to", 0), row.get("unit", 0))
            for table in tables
            for row in table.get("relative", {}).get("days", [])
        ),
        numbers=numbers,
        statements=_compile_section(tables, "statements"),
        hints={name: _group_phrases(values) for name, values in merge_section(tables, "hints").items()},
        words={name: frozenset(" ".join(values).split()) for name, values in merge_section(tables, "words").items()},
        questions=_compile_section(tables, "questions"),
        frames=_compile_section(tables, "frames"),
    )


def _make_language(table: dict[str, Any]) -> Language:
    words = tokenize(table.get("stop_words", ""))
    shared = frozenset(tokenize(table.get("shared_with_english", "")))
    letters = re.compile(table.get("letters", _NEVER))
    unspaced = [word for word in table.get("stop_words", "").split() if count_unspaced_characters(word) > 1]
    phrases = re.compile(_join_longest_first(unspaced))
    unrelated = tuple(table.get("unrelated", ()))
    return Language(frozenset(map(hash_term, words)), frozenset(words), shared, phrases, letters, unrelated)


def _compile_months(tables: list[dict[str, Any]]) -> re.Pattern[str]:
    """Match a month with the day or year beside it.

    A name that is also a word ("May") counts only with a day, a year or a cue such as "in" before it.
    """
    sure: list[str] = []
    ambiguous: list[str] = []
    cues: list[str] = []
    for table in tables:
        doubtful = set(table.get("ambiguous_months", []))
        for name in (name for group in table.get("months", []) for name in group.split("|")):
            (ambiguous if name in doubtful else sure).append(name)
        cues += table.get("month_cues", [])
    day, year = r"\d{1,2}(?:st|nd|rd|th)?(?!\d)", r"(?:19|20)\d\d"
    known, doubt = _join_longest_first(sure), _join_longest_first(ambiguous)
    cue = "|".join(cues) or _NEVER
    return re.compile(
        rf"(?:\b(?P<before>{day})\s+(?:of\s+)?)?\b(?P<month>{known})\b\.?(?:\s+(?P<after>{day}))?(?:,?\s+(?P<year>{year}))?"
        rf"|\b(?P<before2>{day})\s+(?:of\s+)?(?P<month2>{doubt})\b\.?(?:,?\s+(?P<year2>{year}))?"
        rf"|\b(?P<month3>{doubt})\b\.?\s+(?:(?P<after3>{day})(?:,?\s+(?P<year3>{year}))?|(?P<year4>{year}))"
        rf"|\b(?:{cue})\s+(?P<month4>{doubt})\b"
    )


def _join_longest_first(words: list[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True)) or _NEVER


def _compile_section(tables: list[dict[str, Any]], section: str) -> dict[str, re.Pattern[str]]:
    # Matched against lower-case text: ignoring case in the pattern costs twice the time.
    merged = merge_section(tables, section)
    return {name: re.compile("|".join(f"(?:{part})" for part in parts)) for name, parts in merged.items()}


def _group_phrases(phrases: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Group phrases by their longest word."""
    found: dict[str, tuple[str, ...]] = {}
    for phrase in phrases:
        word = max(split_letters(phrase), key=len)
        found[word] = (*found.get(word, ()), phrase)
    return found


def merge_section(tables: Iterable[Mapping[str, Any]], section: str) -> dict[str, list[str]]:
    """Join the lists of one name over all languages. A text is a list of one."""
    merged: dict[str, list[str]] = {}
    for table in tables:
        for name, value in table.get(section, {}).items():
            merged.setdefault(name, []).extend([value] if isinstance(value, str) else value)
    return merged
