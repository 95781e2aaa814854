"""What a statement says of itself when it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.rules.statements import ASKS, INSTRUCTION, NUMBER_OR_TIME, PREFERENCE, traits


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("Always answer in French when I ask about wine.", INSTRUCTION),
        ("From now on, keep replies short.", INSTRUCTION),
        ("Please never use tabs.", INSTRUCTION),
        ("I prefer trains to planes.", PREFERENCE),
        ("I\u2019d rather walk.", PREFERENCE),
        ("We don't like surprises.", PREFERENCE),
        ("My favourite tea is green.", PREFERENCE),
        ("The rent is 900 francs.", NUMBER_OR_TIME),
        ("We met last Tuesday.", NUMBER_OR_TIME),
        ("Where did you go?", ASKS),
        ("どこですか？", ASKS),
        ("The cat sleeps.", 0),
        ("He was never there, as always", 0),
    ],
)
def test_traits(text: str, bits: int) -> None:
    assert traits(text) == bits


def test_an_assistants_advice_is_no_standing_order() -> None:
    text = "Always test your code. I prefer small functions."
    assert traits(text, "user") == INSTRUCTION | PREFERENCE
    assert traits(text, "assistant") == 0


def test_a_long_text_that_ends_with_a_question_still_tells_something() -> None:
    assert not traits("word " * 40 + "right?") & ASKS


@given(st.text())
def test_any_text_has_traits(text: str) -> None:
    assert 0 <= traits(text) < 16
