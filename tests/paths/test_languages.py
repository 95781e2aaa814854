"""Questions in English, German, Spanish and French find what was said in any of them, in other words."""

from __future__ import annotations

import pytest
from capture.score_languages import score


@pytest.mark.parametrize(
    ("facts", "questions", "least"),
    [("de", "de", 54), ("es", "es", 50), ("fr", "fr", 54), ("en", "de", 54), ("fr", "en", 66), ("en", "en", 74)],
)
def test_a_question_finds_what_was_said_in_other_words_and_languages(facts: str, questions: str, least: int) -> None:
    found, first, asked, empty, off_topic = score(facts, questions)
    assert (asked, off_topic) == (88, 30)
    assert found >= least
    assert first >= found / 2
    assert empty >= 15
