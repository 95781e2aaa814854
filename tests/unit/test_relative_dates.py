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


def test_a_single_weekday_to_come_gets_its_day() -> None:
    written = {
        "my dentist appointment is on thursday at 9": "on thursday (2026-11-19)",
        "am Donnerstag habe ich einen Termin": "am Donnerstag (2026-11-19)",
        "tengo dentista el viernes a las 9": "el viernes (2026-11-20)",
        "mon vol est vendredi à 9h": "vendredi (2026-11-20)",
        "my flight is on the 3rd at 9am": "on the 3rd (2026-12-03)",
        "the talk is on Tuesday": "on Tuesday (2026-11-24)",
    }
    assert [text for text, part in written.items() if part not in add_absolute_dates(text, TUESDAY)] == []


def test_a_weekday_of_the_past_or_of_a_habit_stays_as_it_is() -> None:
    texts = (
        "I saw her on Thursday", "am Montag war ich beim Arzt", "I usually swim on Thursday", "on Thursdays I swim",
        "el lunes fui al médico", "my desk is on the 3rd floor", "on Monday mornings I teach",
    )  # fmt: skip
    assert [text for text in texts if add_absolute_dates(text, TUESDAY) != text] == []
