"""A sentence may ask for a manner of answering; orders for one text and words about others do not."""

from __future__ import annotations

import pytest

from engrain.core.rules.asked_manner import asks_for_manner

ASKED = """
    no smileys in your answers please
    whenever i send a stack trace, give me the fix first
    don't lecture me about screen time
    i'd rather you asked before changing anything
    could you keep the jargon out when you explain things
    if you're not sure, just say so
    two sentences tops, i'm on a bike
    lass die Einleitungen weg
    mich stört nichts, aber keine Emojis bitte
    ich mag es nicht, wenn du mich lobst
    wenn ich nach Wegen frage, dann bitte ohne Auto
    sei ruhig streng mit mir
    odio cuando empiezas con cumplidos
    prefiero respuestas cortas, sin rodeos
    si no lo sabes, dímelo
    mejor con ejemplos, y sin tecnicismos
    je préfère quand tu vas droit au but
    pas de listes à puces, merci
    évite les anglicismes avec moi
    si tu n'es pas sûre, dis-le
""".strip().splitlines()
NOT_ASKED = """
    make this shorter
    give me three examples of irony
    remove the emojis from the second paragraph
    translate that into plain English
    my boss always wants bullet points in reports
    draft a reply, two lines, polite
    mach den Text kürzer
    kannst du das auf Englisch schreiben
    die Kundin verlangt kurze Antworten
    ich esse lieber ohne Fleisch
    hazme una tabla con estos datos
    mi jefa quiere que los informes no tengan tablas
    quita las negritas del primer párrafo
    más corto
    traduis cette phrase en anglais
    mon prof veut des phrases courtes
    plus court
    fais-moi une liste de prénoms
    I hate it when trains are late
    if I win, I buy a boat
    estoy medio dormida, perdón si no me explico
    Wenn ich mal groß rauskomme, mach ich eine Bar auf
    kannst du mir helfen, höflich abzusagen
    help me answer him politely
""".strip().splitlines()


@pytest.mark.parametrize(("sentences", "asked"), [(ASKED, True), (NOT_ASKED, False)], ids=["asked", "not asked"])
def test_a_wish_for_all_answers_is_told_from_an_order_for_one_text(sentences: list[str], asked: bool) -> None:
    wrong = [one.strip() for one in sentences if asks_for_manner(one.strip()) is not asked]
    assert wrong == []


def test_a_question_asks_for_a_manner_only_as_a_request() -> None:
    assert not asks_for_manner("why do you always answer in lists", is_question=True)
    assert asks_for_manner("could you always answer in lists", is_question=True)


def test_an_order_of_the_task_before_it_holds_for_that_task_alone() -> None:
    assert not asks_for_manner("Use bullet points.", of_task=True)
    assert asks_for_manner("Always use bullet points.", of_task=True)


def test_a_long_text_asks_for_nothing() -> None:
    assert not asks_for_manner("no emojis please, " * 50)
