"""What a statement says of itself when it is written."""

from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.rules.statements import INSTRUCTION, IS_QUESTION, NUMBER_OR_TIME, PREFERENCE, detect_traits


@for_each(
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
        ("Where did you go?", IS_QUESTION),
        ("どこですか？", IS_QUESTION),
        ("The cat sleeps.", 0),
        ("He was never there, as always", 0),
    ],
)
def test_traits(text: str, bits: int) -> None:
    assert detect_traits(text) == bits


def test_an_assistants_advice_is_no_standing_order() -> None:
    text = "Always test your code. I prefer small functions."
    assert detect_traits(text, "user") == INSTRUCTION | PREFERENCE
    assert detect_traits(text, "assistant") == 0


def test_a_long_text_that_ends_with_a_question_still_tells_something() -> None:
    assert not detect_traits("word " * 40 + "right?") & IS_QUESTION


@given(st.text())
def test_any_text_has_traits(text: str) -> None:
    assert 0 <= detect_traits(text) < 16
