"""Messages that say nothing by themselves, and questions about their speaker."""

from __future__ import annotations

from engrain.core.rules.empty_talk import is_about_speaker, says_nothing


def test_acknowledgements_thanks_and_greetings_say_nothing() -> None:
    empty = (
        "ok will do", "Mach ich.", "Vale.", "Alles klar, danke dir!", "thanks so much!", "De acuerdo, muchas gracias",
        "D'accord, merci", "No problem, you're welcome", "wird gemacht", "Pas de souci !", "👍",
    )  # fmt: skip
    assert [text for text in empty if not says_nothing(text)] == []
    told = ("Rex, 3 years", "on tuesday at 9", "Ja, Rex", "yes, with nuts", "Mach ich am Montag", "no nuts please")
    assert [text for text in told if says_nothing(text)] == []


def test_a_question_about_the_speaker_names_them() -> None:
    own = ("where do I live?", "Wo arbeite ich?", "¿dónde trabajo?", "où est-ce que j'habite ?")
    assert [text for text in own if not is_about_speaker(text)] == []
    others = ("when is the offsite?", "wann ist das Treffen?", "¿cuándo es la boda?")
    assert [text for text in others if is_about_speaker(text)] == []
