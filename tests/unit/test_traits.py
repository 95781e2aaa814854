"""What a statement says of itself when it is written."""

from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.rules.statements import (
    CONDITION,
    INSTRUCTION,
    IS_QUESTION,
    NUMBER_OR_TIME,
    PREFERENCE,
    detect_traits,
    find_conditions,
)


@for_each(
    ("text", "bits"),
    [
        ("Always answer in French when I ask about wine.", INSTRUCTION | CONDITION),
        ("From now on, keep replies short.", INSTRUCTION),
        ("Please never use tabs.", INSTRUCTION),
        ("I prefer trains to planes.", PREFERENCE),
        ("I\u2019d rather walk.", PREFERENCE),
        ("We don't like surprises.", PREFERENCE),
        ("My favourite tea is green.", PREFERENCE),
        ("She preferred tea.", PREFERENCE),
        ("We dislike queuing.", PREFERENCE),
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


@for_each(
    ("text", "conditions"),
    [
        ("Always add the due date when I ask about invoices.", ["invoices"]),
        ("Whenever I plan a trip, always suggest trains first.", ["plan a trip"]),
        ("Every time we talk about budgets please always add a table.", ["budgets"]),
        (
            "When I ask you for a recipe, never use peanuts. If I ask how to bake, always give grams.",
            ["a recipe", "bake"],
        ),
        ("From now on answer in Spanish.", []),
        ("If I were you, I would leave.", []),
        ("Wenn ich nach Rechnungen frage, nenne immer das Fälligkeitsdatum.", ["rechnungen"]),
        ("Nenne mir immer die Kalorien, wenn ich dich um ein Rezept bitte.", ["ein rezept"]),
        ("Bei Fragen zu Reisen immer zuerst Züge vorschlagen.", ["reisen"]),
        ("Ich bin immer müde, wenn ich arbeite.", []),
        ("Cuando pregunte por facturas, añade siempre la fecha de vencimiento.", ["facturas"]),
        ("Si te pido una receta, nunca uses cacahuetes.", ["una receta"]),
        ("Siempre como fuera cuando trabajo.", []),
        ("Quand je parle de factures, ajoute toujours la date d\u2019échéance.", ["factures"]),
        ("Chaque fois que je parle d'impôts, cite la loi.", ["impôts"]),
        ("Je mange toujours tôt quand je travaille.", []),
    ],
)
def test_the_condition_of_a_standing_order_is_its_subject(text: str, conditions: list[str]) -> None:
    assert find_conditions(text) == conditions


def test_an_assistants_advice_is_no_standing_order() -> None:
    text = "Always test your code. I prefer small functions."
    assert detect_traits(text, "user") == INSTRUCTION | PREFERENCE
    assert detect_traits(text, "assistant") == 0


def test_a_long_text_that_ends_with_a_question_still_tells_something() -> None:
    assert not detect_traits("word " * 40 + "right?") & IS_QUESTION


@given(st.text())
def test_any_text_has_traits(text: str) -> None:
    assert 0 <= detect_traits(text) < 16
