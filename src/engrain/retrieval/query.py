"""Parse a query: the text to embed, its terms, the speakers and dates that it names, the kind of answer it wants."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from engrain.core.model.items import ROLES
from engrain.core.text.languages import ENGLISH, Language, Languages, load_languages
from engrain.core.text.tokenizer import hash_term, is_lone_character, spell_out_umlauts, tokenize

MAX_QUERY_TERMS = 64
MIN_SUBJECT_WORDS = 2
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class PartialDate:
    """A date of which the question may give only parts: a missing part is 0."""

    year: int = 0
    month: int = 0
    day: int = 0


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A period, in seconds since 1970."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Question:
    text: str  # to embed, without speakers' names: nearly every turn of a conversation is near a name
    terms: tuple[int, ...]
    names: frozenset[int]  # the terms that name a speaker
    speakers: frozenset[str]
    asks: frozenset[str]
    days: tuple[PartialDate, ...]
    spans: tuple[TimeSpan, ...]
    language: str | None = None
    # Terms of one character, in scripts without spaces: their pairs matter more.
    single_characters: frozenset[int] = frozenset()
    spelling_pairs: tuple[tuple[int, int], ...] = ()  # one word with its umlaut spelled out, and folded

    @property
    def asks_for_advice(self) -> bool:
        """Standing orders and preferences apply to a request for advice or help."""
        return "request" in self.asks and self.looks_forward

    @property
    def looks_forward(self) -> bool:
        """Standing orders with a condition apply to every question that does not ask about earlier statements."""
        return "looks_back" not in self.asks

    @property
    def wants_several(self) -> bool:
        return not self.asks.isdisjoint(("list", "summary", "order"))


def parse_query(query: str, speakers: Iterable[str], now: datetime) -> Question:
    all_languages = load_languages()
    lower = query.lower().replace("\u2019", "'")
    asks = frozenset(name for name, pattern in all_languages.questions.items() if pattern.search(lower))
    subject = query if asks.isdisjoint(("order", "summary")) else _strip_frame(query, all_languages)
    named, rest = _extract_speakers(subject, speakers)
    words = {query: tokenize(query)}
    language = all_languages.detect(words[query])
    written, kept = _extract_terms(subject, all_languages.by_name[language or ENGLISH], words)
    names = frozenset(hash_term(word) for name in named for word in tokenize(name))
    return Question(
        text=rest if any(mark.isalnum() for mark in rest) else query,
        terms=tuple(kept[:MAX_QUERY_TERMS]),
        names=names & frozenset(kept),
        speakers=frozenset(named),
        asks=asks,
        days=_parse_dates(lower, all_languages),
        spans=_parse_time_spans(lower, all_languages, now),
        language=language,
        single_characters=frozenset(hash_term(word) for word in written if is_lone_character(word)),
        spelling_pairs=tuple((hash_term(out), hash_term(folded)) for out, folded in spell_out_umlauts(query)),
    )


def _strip_frame(query: str, all_languages: Languages) -> str:
    """Return the subject of a question for an order or a summary: "the budget" of "sum up what I said on the budget".

    A question that would lose nearly all its words keeps them.
    """
    lower = query.lower().replace("\u2019", "'")
    if len(lower) != len(query):
        return query
    spans = [match.span() for match in all_languages.frames["tail"].finditer(lower)]
    if lead := all_languages.frames["lead"].search(lower):
        spans.insert(0, lead.span())
    kept, end = "", 0
    for start, stop in sorted(spans):
        kept += query[end : max(start, end)]
        end = max(end, stop)
    kept = _SPACES.sub(" ", kept + query[end:]).strip()
    return kept if len(kept.split()) >= MIN_SUBJECT_WORDS else query


def _extract_terms(query: str, language: Language, known: dict[str, list[str]]) -> tuple[list[str], list[int]]:
    """Return the words of a query, and its terms without stop words. A query of stop words alone keeps them all.

    `known` has the words of texts that were cut before.
    """
    for text in (language.phrases.sub(" ", query), query):
        words = known[text] if text in known else tokenize(text)
        kept = dict.fromkeys(number for number in map(hash_term, words) if number not in language.stop_terms)
        if kept:
            return words, list(kept)
    return words, list(dict.fromkeys(map(hash_term, words)))


def _extract_speakers(query: str, speakers: Iterable[str]) -> tuple[list[str], str]:
    """Return the speakers that a query names, in full or by first name, and the query without them."""
    all_lowercase = query == query.lower()
    lower = query.lower()
    named: list[str] = []
    for speaker in speakers:
        # A scope may know thousands of speakers: most are ruled out without a pattern.
        if speaker.partition(" ")[0].lower() not in lower:
            continue
        pattern = _compile_name_pattern(speaker, all_lowercase)
        if pattern is None:
            continue
        found = pattern.search(query)
        if found:
            named.append(speaker)
            query = pattern.sub(" ", query)
    return named, _SPACES.sub(" ", query).strip()


@lru_cache(maxsize=4096)
def _compile_name_pattern(speaker: str, ignore_case: bool) -> re.Pattern[str] | None:
    parts = speaker.split()
    if not parts or speaker.casefold() in ROLES or len(parts[0]) < 2:
        return None
    full = r"\s+".join(map(re.escape, parts))
    choice = full if len(parts) == 1 else f"{full}|{re.escape(parts[0])}"
    return re.compile(rf"\b(?:{choice})\b(?:['\u2019]s\b)?", re.IGNORECASE if ignore_case else 0)


def _parse_dates(lower: str, all_languages: Languages) -> tuple[PartialDate, ...]:
    days = [PartialDate(int(y), int(m), int(d or 0)) for y, m, d in _ISO.findall(lower) if 1 <= int(m) <= 12]
    lower = _ISO.sub(" ", lower)
    for match in all_languages.months.finditer(lower):
        part = {name.rstrip("234"): value for name, value in match.groupdict().items() if value}
        day = re.match(r"\d+", part.get("before") or part.get("after") or "")
        month = all_languages.month_numbers[part["month"]]
        days.append(PartialDate(int(part.get("year", 0)), month, int(day.group()) if day else 0))
    years = [int(year) for year in _YEAR.findall(lower)]
    if days and len(set(years)) == 1:
        days = [PartialDate(day.year or years[0], day.month, day.day) for day in days]
    return tuple(days) or tuple(PartialDate(year) for year in dict.fromkeys(years))


def _parse_time_spans(lower: str, all_languages: Languages, now: datetime) -> tuple[TimeSpan, ...]:
    spans = []
    for phrase in all_languages.relative_dates:
        match = phrase.pattern.search(lower)
        if not match:
            continue
        first, last = phrase.start, phrase.end
        if phrase.unit:
            number = all_languages.numbers.get(match.group(1)) or int(match.group(1))
            centre, slack = number * phrase.unit, number * phrase.unit // 4
            first, last = max(0, centre - slack), centre + slack + (phrase.unit > 1)
        if last < 40_000:
            midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            start = midnight - timedelta(days=last)
            spans.append(TimeSpan(start.timestamp(), (midnight - timedelta(days=first - 1)).timestamp()))
    return tuple(spans)
