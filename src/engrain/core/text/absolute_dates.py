"""Write the date that a relative one means behind it: "last Friday" becomes "last Friday (2026-11-13)"."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache, partial

from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import lower_each, split_letters, tokenize

MAX_AMOUNT = 1_000
_WEEKDAYS = (
    "monday|montag|lunes|lundi",
    "tuesday|dienstag|martes|mardi",
    "wednesday|mittwoch|miércoles|mercredi",
    "thursday|donnerstag|jueves|jeudi",
    "friday|freitag|viernes|vendredi",
    "saturday|samstag|sonnabend|sábado|samedi",
    "sunday|sonntag|domingo|dimanche",
)
_NUMBERS = (
    "one|a|an|ein|eine|einem|einer|un|una|une|eins",
    "two|zwei|dos|deux",
    "three|drei|tres|trois",
    "four|vier|cuatro|quatre",
    "five|fünf|cinco|cinq",
    "six|sechs|seis",
    "seven|sieben|siete|sept",
    "eight|acht|ocho|huit",
    "nine|neun|nueve|neuf",
    "ten|zehn|diez|dix",
)
_DAY_NUMBERS = {name: number for number, names in enumerate(_WEEKDAYS) for name in names.split("|")}
_AMOUNTS = {name: number for number, names in enumerate(_NUMBERS, 1) for name in names.split("|")}
_UNITS = {
    **dict.fromkeys(("day", "days", "tag", "tage", "tagen", "día", "días", "jour", "jours"), "day"),
    **dict.fromkeys(("week", "weeks", "woche", "wochen", "semana", "semanas", "semaine", "semaines"), "week"),
    **dict.fromkeys(("month", "months", "monat", "monate", "monaten", "mes", "meses", "mois"), "month"),
    **dict.fromkeys(("year", "years", "jahr", "jahre", "jahren", "año", "años", "an", "ans", "année"), "year"),
}
_NEAR = 80  # characters of a sentence on either side of a day
_MONTHS_AHEAD = 3  # in which a day of that number comes
_FRENCH_YESTERDAY = "hier"
_WEEKDAY = "|".join(_DAY_NUMBERS)
_UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
_AMOUNT = rf"\d{{1,4}}|{'|'.join(sorted(_AMOUNTS, key=len, reverse=True))}"
_LAST = r"last|letzte[nrsm]?|vergangene[nrsm]?|vorige[nrsm]?|pasad[oa]|dernière|dernier"
_NEXT = r"next|nächste[nrsm]?|kommende[nrsm]?|próxim[oa]|que viene|prochaine?"
_THIS = r"this|diese[nrsm]?|este|esta|cette|cet|ce"

# Words of the past or of a habit: "on Monday" behind or before one of them is no single day to come.
_NOT_TO_COME = re.compile(
    r"\b(?:was|were|had|did|went|saw|met|got|came|took|told|said|left|sold|bought|died|made|gave|felt|\w{3,}ed"
    r"|war|waren|hatten?|wurden?|ging|kam|sah|traf|ge\w{3,}(?:t|en)|(?:be|ver)\w{3,}t"
    r"|fue|fui|era|estuve|hice|tuve|he \w+[ai]do|\w{3,}[óé]|\w+(?:aron|ieron)|était|étais"
    r"|every|each|always|usually|never|often|mostly|jede[nrsm]?|immer|meistens|oft|nie"
    r"|cada|siempre|nunca|chaque|toujours|souvent|jamais)\b",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.!?;\n]")
# Days from the day of the text. "morgen" and "mañana" are also the morning, and "hier" is German for "here".
_PLAIN_DAYS = {
    "the day before yesterday|vorgestern|anteayer|avant-hier": -2,
    "the day after tomorrow|übermorgen|pasado mañana|après-demain": 2,
    "yesterday|gestern|ayer|hier": -1,
    "today|tonight|heute|hoy|aujourd'hui": 0,
    "tomorrow|demain": 1,
    r"(?<!am )(?<!guten )(?<!jeden )(?<!heute )(?<!gestern )(?<!bis zum )(?-i:morgen)(?! (?:früh)?s\b)": 1,
    r"(?<!la )(?<!esta )(?<!por )(?<!cada )(?<!pasado )mañana": 1,
}


def add_absolute_dates(text: str, said_on: date) -> str:
    """Add its date to each relative date of a text that was said on that day."""
    plain = text.replace("’", "'")
    if not _may_name_a_day(plain):
        return text
    written: list[str] = []
    at = 0
    is_french = _FRENCH_YESTERDAY in plain.lower() and load_languages().detect(tokenize(text)) == "fr"
    for match in _compile().finditer(plain):
        meant = _resolve(match, said_on)
        if meant and (is_french or match[0].lower() != _FRENCH_YESTERDAY):
            written += [text[at : match.end()], f" ({meant})"]
            at = match.end()
    return "".join((*written, text[at:]))


def _may_name_a_day(text: str) -> bool:
    """Rule out most texts by their words: the pattern takes 20 times as long."""
    if not text.isascii():
        return bool(_MAY_NAME_A_DAY.search(text))
    words = split_letters(text.lower())
    return not _DAY_WORDS.isdisjoint(words) or not (
        _MEASURED_WORDS.isdisjoint(words) or _MEASURING_WORDS.isdisjoint(words)
    )


# Every match has a word of the first set, or one of the second and one of the third.
_DAY_WORDS = frozenset(
    ("yesterday", "today", "tonight", "tomorrow", "vorgestern", "gestern", "heute", "morgen", "anteayer", "ayer", "hoy")
) | {"hier", "hui", "demain"}
_MEASURED_WORDS = frozenset((*_DAY_NUMBERS, *_UNITS, "st", "nd", "rd", "th"))
_MEASURING_WORDS = frozenset(
    (
        *(
            "last",
            "next",
            "this",
            "ago",
            "in",
            "vor",
            "pasado",
            "pasada",
            "viene",
            "este",
            "esta",
            "hace",
            "dentro",
            "en",
        ),
        *("on", "am", "el", "at", "um"),
        *("dernier", "prochain", "prochaine", "cette", "cet", "ce", "il", "dans"),
        *(f"{stem}e{end}" for stem in ("letzt", "vergangen", "vorig", "kommend", "dies") for end in ("", *"nrsm")),
    )
)
_MAY_NAME_A_DAY = re.compile(
    rf"ago\b|day|gest|heute|hoy|hui\b|ayer|hier|morg|mañana|tonight|tomorrow|demain|{_LAST}|{_NEXT}|{_THIS}"
    rf"|\b(?:{_WEEKDAY})\b|\bon the \d|\bvor |\bhace |\bil y a |\bin |\bdans |dentro de",
    re.IGNORECASE,
)


@cache
def _compile() -> re.Pattern[str]:
    plain = "|".join(f"(?P<plain{number}>{pattern})" for number, pattern in enumerate(_PLAIN_DAYS))
    what = rf"{_WEEKDAY}|{_UNIT}"
    return re.compile(
        rf"\b(?:{plain}"
        rf"|(?:(?P<last>{_LAST})|(?P<next>{_NEXT})|(?P<this>{_THIS})) (?P<what>{what})"
        rf"|(?P<what_first>{what}) (?:(?P<last_behind>{_LAST})|(?P<next_behind>{_NEXT}))(?! (?:{_UNIT})\b)"
        rf"|(?:on|am|el) (?P<on>{_WEEKDAY})(?! (?:{_LAST}|{_NEXT}|mornings|afternoons|evenings|nights))"
        rf"|(?P<at>{_WEEKDAY})(?= (?:at|um|à) (?:\d|noon|midi))"
        r"|on the (?P<nth>\d{1,2})(?:st|nd|rd|th)(?=$|[,.;!?]| (?:at|in the|and|from|around)\b)"
        rf"|(?P<ago>{_AMOUNT}) (?P<ago_unit>{_UNIT}) ago"
        rf"|(?:vor|hace|il y a) (?P<since>{_AMOUNT}) (?P<since_unit>{_UNIT})"
        rf"|(?:in|dans|dentro de|en) (?P<ahead>{_AMOUNT}) (?P<ahead_unit>{_UNIT})"
        r")\b(?! ?\()",
        re.IGNORECASE,
    )


def _resolve(match: re.Match[str], day: date) -> str | None:
    found = {name: lower_each(value) for name, value in match.groupdict().items() if value}
    for number, days in enumerate(_PLAIN_DAYS.values()):
        if f"plain{number}" in found:
            return _move(day, "day", days)
    for name, sign in (("ago", -1), ("since", -1), ("ahead", 1)):
        if name in found:
            amount = _AMOUNTS.get(found[name]) or int(found[name])
            return _move(day, _UNITS[found[f"{name}_unit"]], sign * amount) if amount <= MAX_AMOUNT else None
    if weekday := found.get("on") or found.get("at"):
        return _find_weekday(day, _DAY_NUMBERS[weekday], 1) if _is_to_come(match) else None
    if "nth" in found:
        return _find_day_of_month(day, int(found["nth"])) if _is_to_come(match) else None
    what = found.get("what") or found["what_first"]
    step = -1 if found.keys() & {"last", "last_behind"} else 1 if found.keys() & {"next", "next_behind"} else 0
    if what in _DAY_NUMBERS:
        return _find_weekday(day, _DAY_NUMBERS[what], step)
    # "this day" and "the next days" name no day.
    return None if _UNITS[what] == "day" else _move(day, _UNITS[what], step)


def _is_to_come(match: re.Match[str]) -> bool:
    """Tell if a sentence speaks of a single day to come: it has no word of the past or of a habit."""
    text = match.string
    before = max(
        (one.end() for one in _CLAUSE_END.finditer(text, max(0, match.start() - _NEAR), match.start())), default=0
    )
    start = max(before, match.start() - _NEAR)
    end = _CLAUSE_END.search(text, match.end(), match.end() + _NEAR)
    return _NOT_TO_COME.search(text, start, end.start() if end else match.end() + _NEAR) is None


def _find_day_of_month(day: date, wanted: int) -> str | None:
    """Return the next day of that number."""
    for months in range(_MONTHS_AHEAD):
        year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
        found = _guard(partial(_format_day, year, month + 1, wanted))
        if found and found > str(day):
            return found
    return None


def _format_day(year: int, month: int, day: int) -> str:
    return str(date(year, month, day))


def _find_weekday(day: date, wanted: int, step: int) -> str | None:
    ahead = (wanted - day.weekday()) % 7
    if step < 0:
        ahead -= 7
    elif step > 0 and ahead == 0:
        ahead = 7
    return _guard(lambda: str(day + timedelta(days=ahead)))


def _move(day: date, unit: str, amount: int) -> str | None:
    """Return a day, the Monday of a week, a month or a year, as exact as the unit is."""
    if unit == "day":
        return _guard(lambda: str(day + timedelta(days=amount)))
    if unit == "week":
        return _guard(lambda: f"week of {day + timedelta(days=7 * amount - day.weekday())}")
    months = day.year * 12 + day.month - 1 + (amount if unit == "month" else 12 * amount)
    year, month = divmod(months, 12)
    if not 1 <= year <= 9999:
        return None
    return f"{year:04d}-{month + 1:02d}" if unit == "month" else f"{year:04d}"


def _guard(compute: Callable[[], str]) -> str | None:
    try:
        return compute()
    except (OverflowError, ValueError):
        return None
