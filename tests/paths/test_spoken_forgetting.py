"""A message that asks to forget something cuts the one thing that it means, and nothing if that is uncertain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engrain import Memory
from engrain.providers.local import LocalEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "a.db", user="ana", embedder=LocalEmbedder(), background=False) as opened:
        opened.start_session("one")
        yield opened


def tell(memory: Memory, *texts: str) -> list[str]:
    return [memory.add_message("user", text).id for text in texts]


def list_left(memory: Memory, ids: list[str], texts: tuple[str, ...]) -> list[bool]:
    """Tell for each message whether its words are still there."""
    items = [memory.get(id) for id in ids]
    return [item is not None and text in item.text for item, text in zip(items, texts, strict=True)]


@pytest.mark.parametrize(
    ("said", "request_", "left"),
    [
        # by kind, in other words
        (("I live at 31 Larch Grove, Telford", "I cycle to work"), "erase my address pls", [False, True]),
        (("ich verdien 2900 netto", "mein Hund heißt Anton"), "nimm mein Gehalt wieder raus", [False, True]),
        (("mi móvil es el 611 203 998", "me gusta el pádel"), "borra mi teléfono de tus notas", [False, True]),
        (("je suis née le 9 août 1966", "j'ai un potager"), "Merci d'effacer ma date de naissance", [False, True]),
        # the matter is two clauses or two sentences away from the order
        (
            ("Soy perito agrónomo.", "Me divorcié en 2022."),
            "Elimine, por favor, el dato sobre mi divorcio.",
            [True, False],
        ),
        (("we start IVF in May", "I fix bikes"), "remember the IVF thing? please don't. take it out", [False, True]),
        # by a part of a number
        (("office line is 089 4471 220", "privat: 0151 2290 8813"), "die 0151er Nummer bitte löschen", [True, False]),
        # the speaker's own, not that of another
        (("my sister's getting divorced", "I'm divorced since May"), "forget that I'm divorced", [True, False]),
        # all that was said of somebody is one thing, with what goes on about them
        (
            ("Gemma is my ex", "she kept the house in Fareham", "I coach rowing"),
            "I want you to wipe everything about Gemma",
            [False, False, True],
        ),
        # the message before
        (("I teach maths", "one of the TAs told me she's pregnant"), "oh god forget that last bit", [True, False]),
    ],
)
def test_one_thing_that_is_meant_is_cut(memory: Memory, said: tuple[str, ...], request_: str, left: list[bool]) -> None:
    ids = tell(memory, *said)
    memory.add_message("user", request_)
    assert list_left(memory, ids, said) == left


@pytest.mark.parametrize(
    "said",
    [
        "The billing service is written in Go.",
        "my engagement ring was his grandmother's, I never take it off",
    ],
)
def test_a_statement_is_no_request_and_stays(memory: Memory, said: str) -> None:
    message = memory.add_message("user", said)
    assert message.facts
    assert not message.forgotten
    assert not message.proposed


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        (("my boss is Ulla", "I'm a joiner"), "I might ask you to delete the stuff about my boss one day"),
        (("my doctor is Dr Bloom", "I swim"), "I keep forgetting the name of my doctor"),
        (("I'm vegetarian", "I live in Ely"), "oh sure, just forget I'm vegetarian again, brilliant"),
        (("I have three kids", "I work nights"), "with three kids you can forget sleep"),
        (("my number is 555 0101", "I run a kennel"), 'a guest wrote: "please forget my number"'),
        (("The yarn shop's number is 01595 555 014", "I knit"), "please forget my phone number"),
        (("my mother's name is Ivy", "I've a kayak"), "please forget my stepmother's name"),
        (("soy maestra", "tengo una moto"), "borra lo de mi operación"),
        # only a part of the matter's words, or only its kind, and not near in meaning
        (("my first name is Ottoline", "I'm from Cork"), "take my middle name off your list"),
        (("the kids go to the Montessori", "I bake challah on Fridays"), "forget the kids' names"),
        (("meine Adresse ist Torweg 1", "ich bin neu hier"), "nein, meine Adresse nicht löschen!"),
    ],
)
def test_nothing_is_cut_where_nothing_is_asked_or_nothing_fits(
    memory: Memory, said: tuple[str, ...], request_: str
) -> None:
    ids = tell(memory, *said)
    assert memory.add_message("user", request_).forgotten == ()
    assert list_left(memory, ids, said) == [True] * len(said)


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        (("my mobile is 555 0101", "the kennel landline is 555 0190"), "delete my phone number"),
        (("meine Chefin ist Frau Abel", "die andere Chefin ist Frau Dorn"), "vergiss meine Chefin"),
        (("Jo from work is covering my shift", "my cousin Jo is staying with us"), "forget about Jo"),
    ],
)
def test_several_that_fit_are_proposed(memory: Memory, said: tuple[str, ...], request_: str) -> None:
    ids = tell(memory, *said)
    result = memory.add_message("user", request_)
    assert result.forgotten == ()
    assert len(result.proposed) >= 2
    assert list_left(memory, ids, said) == [True] * len(said)
