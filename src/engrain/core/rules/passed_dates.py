"""Tell if a statement announced something for a day that has passed."""

from __future__ import annotations

import re
from datetime import date

from engrain.core.text.absolute_dates import add_absolute_dates

_MAX_CHARACTERS = 300
_MONTHS = (
    "jan|januar|january|jänner|enero|janvier",
    "feb|februar|february|febrero|février",
    "mar|märz|march|marzo|mars",
    "apr|april|abril|avril",
    "mai|may|mayo",
    "jun|juni|june|junio|juin",
    "jul|juli|july|julio|juillet",
    "aug|august|agosto|août",
    "sep|sept|september|septiembre|septembre",
    "oct|okt|oktober|october|octubre|octobre",
    "nov|november|noviembre|novembre",
    "dec|dez|dezember|december|diciembre|décembre",
)
_NUMBERS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split("|")}
_MONTH = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_ISO = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_DAY_FIRST = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th|er|\.)? (?:of |de )?({_MONTH})\b\.?(?:,? (?:de )?(\d{{4}}))?", re.IGNORECASE
)
_MONTH_FIRST = re.compile(rf"\b({_MONTH})\b\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (\d{{4}}))?", re.IGNORECASE)
# What comes back each year or goes on from that day is not over.
_LASTS = re.compile(
    r"\b(?:born|birthday|anniversary|every|each|annual\w*|since|from|start\w*|begin\w*|join\w*|mov(?:e|es|ing)|geboren|"
    r"geburtstag|jahrestag|jede\w*|jährlich|seit|ab|anfang\w*|fange|beginn\w*|zieh\w*|nac\w+|cumple\w*|aniversario|cada|desde|"
    r"empie\w+|comien\w+|née?|anniversaire|chaque|depuis|dès|partir|commenc\w+|déménag\w+)\b",
    re.IGNORECASE,
)


def is_over(text: str, said_on: date, today: date) -> bool:
    """Tell if all days that a statement named lay ahead when it was made, and have passed since."""
    part = text[:_MAX_CHARACTERS]
    if _LASTS.search(part):
        return False
    days = _find_days(add_absolute_dates(part, said_on), said_on)
    return bool(days) and all(said_on <= day < today for day in days)


def _find_days(text: str, said_on: date) -> list[date]:
    found = [_build_date(int(one[1]), int(one[2]), int(one[3])) for one in _ISO.finditer(text)]
    named = [(one[3], _NUMBERS[one[2].lower()], int(one[1])) for one in _DAY_FIRST.finditer(text)]
    named += [(one[3], _NUMBERS[one[1].lower()], int(one[2])) for one in _MONTH_FIRST.finditer(text)]
    for year, month, day in named:
        this = _build_date(int(year) if year else said_on.year, month, day)
        later = this is not None and not year and this < said_on
        found.append(_build_date(said_on.year + 1, month, day) if later else this)
    return [one for one in found if one is not None]


def _build_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
