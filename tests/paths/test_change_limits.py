"""A change leaves standing what it does not contradict."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engrain import Store
from engrain.core.model.items import Item
from engrain.core.rules.profile import is_earlier


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def play(folder: Path, *texts: str) -> list[Item]:
    """Say the texts in sessions of their own, and return the current facts."""
    clock = Clock()
    with Store(folder / f"{abs(hash(texts))}.db", clock=clock) as store:
        memory = store.memory(user="ana")
        for text in texts:
            memory.start_session()
            memory.add_message("user", text)
            memory.end_session()
            clock.now += timedelta(days=40)
        return list(memory.list({"kind": "fact"}))


def list_ended(folder: Path, pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [old for old, new in pairs if old not in [item.text for item in play(folder, old, new)]]


def list_marked(folder: Path, pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [old for old, new in pairs if any(is_earlier(item) for item in play(folder, old, new))]


PARTS = [
    ("my sister Jess lives in cardiff w her husband Tom, hes a train driver", "Tom lost his job"),
    ("my sister Ann is a vet in Hull and has two boys", "Ann moved to Bath"),
    ("our neighbour Rosa is 80 and bakes us bread", "Rosa turned 81"),
    ("Meine Schwester Eva ist Ärztin in Ulm und fährt Motorrad", "Eva hat ihr Motorrad verkauft"),
    ("mi primo Juan vive en Cádiz con su novia Marta, que es abogada", "Marta ha dejado su trabajo"),
    ("mon frère Paul habite à Nantes avec sa femme Claire, elle est prof", "Claire a changé de travail"),
]
OTHERS = [
    ("I cycle to work", "I changed jobs"),
    ("nado antes del trabajo", "he dejado mi trabajo"),
    ("I work as a nurse at St Thomas'", "I run 5k before work every morning"),
    ("Meine Frau Sabine ist Grundschullehrerin", "Sabine arbeitet jetzt nur noch halbtags"),
    ("ma femme est architecte", "elle travaille maintenant à mi-temps"),
    ("we got a second cat", "me and Dan broke up"),
    ("nous avons deux lapins", "je me suis séparée de Marc"),
    ("my swimming day is monday", "my running day is now friday"),
    ("I run three times a week", "I cancelled my gym membership"),
]
CHANGES = [
    ("my sister Ann lives in Hull", "Ann moved to Bath"),
    ("my brother Tom is a teacher", "Tom lost his job"),
    ("my swimming day is monday", "my swimming day is now friday"),
    ("ich jogge jeden Morgen", "ich jogge nicht mehr"),
]


def test_a_change_of_one_claim_leaves_the_others_of_the_fact(tmp_path: Path) -> None:
    assert list_ended(tmp_path, PARTS) == []


def test_a_change_of_another_matter_neither_ends_nor_marks_a_fact(tmp_path: Path) -> None:
    assert list_ended(tmp_path, OTHERS) == []
    assert list_marked(tmp_path, OTHERS) == []


def test_a_change_of_the_only_claim_ends_the_fact(tmp_path: Path) -> None:
    assert list_ended(tmp_path, CHANGES) == [old for old, _ in CHANGES]


VALUES = [
    ("my sister lives in cardiff", "my sister moved to newport"),
    ("Mein Bruder wohnt in Köln", "mein Bruder ist nach Bonn gezogen"),
    ("my brother Tom is a teacher", "Tom works as a plumber now"),
    ("my yoga class is Mondays at six", "yoga's on Thursdays now"),
    ("I'm 34", "just turned 35"),
    ("tengo 29 años", "acabo de cumplir 30"),
    ("my rent is 950", "i pay 990 now"),
    ("mi alquiler son 700", "ahora pago 760"),
    ("Netflix costs 12 a month", "Netflix is now 15 a month"),
    ("ruf mich an unter 0151 234567", "neue Nummer: 0160 7654321"),
    ("i'm vegetarian", "i eat meat again since christmas"),
    ("soy vegetariano", "vuelvo a comer carne"),
    ("keep answers short", "actually give me full detail from now on"),
    ("antworte kurz", "ab jetzt bitte ausführlich"),
    ("always answer in German", "from now on use English with me"),
    ("Antworte auf Deutsch", "ab jetzt lieber auf Englisch bitte"),
    ("call me Kat", "dont call me Kat, Katie is fine"),
    ("nenn mich Alex", "nenn mich nicht Alex, Alexander passt"),
    ("llámame Pepe", "no me llames Pepe, mejor José"),
]
BOTH = [
    ("my gym is 35 a month", "the pool card is now 12 a month"),
    ("ich esse kein Fleisch", "mein Vater isst wieder Fleisch"),
    ("my daughter lives in Leeds", "my son moved to York"),
    ("keep answers short", "write emails in full detail"),
    ("call me Kat", "don't call me late at night"),
]


def test_another_value_of_the_same_matter_ends_the_older_one(tmp_path: Path) -> None:
    assert list_ended(tmp_path, VALUES) == [old for old, _ in VALUES]


def test_a_value_of_another_matter_ends_nothing(tmp_path: Path) -> None:
    assert list_ended(tmp_path, BOTH) == []


def test_a_new_employer_marks_the_manager_of_the_one_before(tmp_path: Path) -> None:
    news = [
        ("I work at Globex, my manager is Priya", "I started at Initech last week"),
        ("Ich arbeite bei Globex, meine Chefin ist Priya", "Ich arbeite jetzt bei Initech"),
    ]
    for old, new in news:
        facts = play(tmp_path, old, new)
        assert {item.text: is_earlier(item) for item in facts if "Priya" in item.text} == {old.split(", ")[1]: True}
    (manager,) = (item for item in play(tmp_path, "my manager is Priya", "I work at Globex") if "Priya" in item.text)
    assert not is_earlier(manager)


def test_what_was_announced_for_a_day_leaves_the_profile_when_it_has_passed(tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path / "days.db", clock=clock) as store:
        memory = store.memory(user="ana")
        for text in ("My flight to Lisbon is on 12 March.", "My birthday is on 12 March."):
            memory.add_message("user", text)
        assert "Lisbon" in memory.prompt("Write a poem", history=False)
        clock.now += timedelta(days=100)
        later = memory.prompt("Write a poem", history=False)
        assert "Lisbon" not in later
        assert "birthday" in later


def test_a_wish_holds_until_it_surely_ends(tmp_path: Path) -> None:
    first = "siempre háblame de tú y sin palabras rebuscadas"
    marked = list_marked(tmp_path, [(first, "de ahora en adelante pon las medidas en pulgadas")])
    assert marked == []
