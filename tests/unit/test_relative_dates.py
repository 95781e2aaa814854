"""Relative dates in told text get the date that they meant, in four languages and in linear time."""

from __future__ import annotations

from datetime import date

import pytest

from engrain.core.text.absolute_dates import add_absolute_dates

TUESDAY = date(2026, 11, 17)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("yesterday", "yesterday (2026-11-16)"),
        ("three days ago", "three days ago (2026-11-14)"),
        ("next month", "next month (2026-12)"),
        ("last year", "last year (2025)"),
        ("this Friday", "this Friday (2026-11-20)"),
        ("last Tuesday", "last Tuesday (2026-11-10)"),
        ("in 2 weeks", "in 2 weeks (week of 2026-11-30)"),
        ("vor 3 Monaten", "vor 3 Monaten (2026-08)"),
        ("übermorgen", "übermorgen (2026-11-19)"),
        ("hace dos días", "hace dos días (2026-11-15)"),
        ("la semana que viene", "la semana que viene (week of 2026-11-23)"),
        ("il y a trois jours", "il y a trois jours (2026-11-14)"),
        ("je l'ai vu hier soir avec elle", "je l'ai vu hier (2026-11-16) soir avec elle"),
        ("Aujourd’hui, rien", "Aujourd’hui (2026-11-17), rien"),
        # letters that a pattern takes for "i" and "s" when it ignores case
        ("3 dayſ ago", "3 dayſ ago (2026-11-14)"),
        ("vor dreİ Tagen", "vor dreİ Tagen (2026-11-14)"),
        ("last frıday", "last frıday (2026-11-13)"),
    ],
)
def test_a_relative_date_gets_its_day(text: str, written: str) -> None:
    assert add_absolute_dates(text, TUESDAY) == written


@pytest.mark.parametrize(
    "text",
    [
        "last Friday (2026-11-13)", "Guten Morgen!", "am Morgen", "por la mañana", "Die Praxis ist hier in Leipzig",
        "the last day", "Mondays are long", "9999999 days ago", "5000 years ago", "",
    ],
)  # fmt: skip
def test_other_words_stay_as_they_are(text: str) -> None:
    assert add_absolute_dates(text, TUESDAY) == text


def test_a_date_beyond_the_calendar_is_left_out() -> None:
    assert add_absolute_dates("tomorrow", date.max) == "tomorrow"
