"""What was announced for a day is over when the day has passed."""

from __future__ import annotations

from datetime import date

from engrain.core.rules.passed_dates import is_over

SAID, LATER = date(2026, 1, 7), date(2026, 6, 1)


def test_an_announced_day_passes() -> None:
    for text in (
        "my flight to Lisbon is on 12 March 2026",
        "my flight to Lisbon is on March 12",
        "I have an exam next friday",
        "meine Prüfung ist am 3. Februar",
        "la boda es el 20 de marzo",
        "la soutenance est le 4 mai 2026",
    ):
        assert is_over(text, SAID, LATER), text
        assert not is_over(text, SAID, SAID), text


def test_what_lasts_or_was_over_when_it_was_said_does_not_pass() -> None:
    for text in (
        "I live in Leeds",
        "I moved here on 3 March 2020",
        "my birthday is on 12 March",
        "I start at Initech on 1 March",
        "Ich habe am 12. März Geburtstag",
        "mi cumpleaños es el 20 de marzo",
        "the lease runs until 30 September 2026",
        "bin day is tuesday",
        "the house was built on 31 February 2026",
    ):
        assert not is_over(text, SAID, LATER), text
