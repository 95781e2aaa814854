"""What a recall shows: under which heading, each thing once, and what relations lead to."""

from __future__ import annotations

import pytest

from engrain import Memory, Source

pytestmark = pytest.mark.meaning


def titles(found: object) -> list[str]:
    return [line for line in str(found).splitlines() if line.startswith("## ")]


def test_a_slot_is_a_fact_and_the_rest_is_knowledge(memory: Memory) -> None:
    memory.remember("Quito", slot="user.city")
    memory.remember("The city has a tram line since 1995.")
    found = memory.recall("Which city, and does the city have a tram?")
    assert titles(found) == ["## Facts", "## Relevant knowledge"]
    assert [section.title for section in found.sections] == ["Facts", "Relevant knowledge"]


def test_two_texts_with_the_same_words_are_both_kept_and_one_is_shown(memory: Memory) -> None:
    first = memory.remember("The deploy key is in the blue folder.")
    second = memory.remember("Deploy key is in the blue folder")
    found = memory.recall("Where is the deploy key?")
    assert len(found.hits) == 1
    assert found.hits[0].item.id in {first, second}
    assert [(left.reason, left.count) for left in found.omitted if left.reason == "double"] == [("double", 1)]
    assert memory.get(first) is not None
    assert memory.get(second) is not None


def test_a_double_makes_room_for_the_next(memory: Memory) -> None:
    memory.remember("The deploy key is in the blue folder.")
    memory.remember("The deploy key is in the blue folder!")
    other = memory.remember("The deploy key was made in May by Bruno.")
    found = memory.recall("Where is the deploy key?", n=2)
    assert other in [hit.item.id for hit in found.hits]


def test_texts_that_differ_in_a_number_or_a_not_are_two(memory: Memory) -> None:
    memory.remember("Staging listens on port 5432.")
    memory.remember("Staging listens on port 6432.")
    memory.remember("Staging does not listen on port 5432.")
    memory.remember("Staging was on port 5432.")
    memory.remember("Staging is on port 5432.")
    assert len(memory.recall("On which port does staging listen?", n=9).hits) == 5


def test_the_same_value_of_two_slots_is_two_facts(memory: Memory) -> None:
    memory.remember("Quito", slot="user.city")
    memory.remember("Quito", slot="user.birthplace")
    assert len(memory.recall("Which city or birthplace has the user?").hits) == 2


def test_a_relation_leads_to_the_next(memory: Memory) -> None:
    memory.relations.add("Ana", "works at", "Zorblatt")
    memory.relations.add("Zorblatt", "is insured with", "Helvetia")
    memory.relations.add("Ben", "plays", "chess")
    found = memory.recall("Where does Ana work?", n=3)
    assert [hit.item.text for hit in found.hits][:2] == ["Ana works at Zorblatt", "Zorblatt is insured with Helvetia"]
    assert "Ben plays chess" not in str(found)
    assert memory.recall("Where does Ana work?", n=1).hits[0].item.text == "Ana works at Zorblatt"


def test_a_filter_holds_for_what_a_relation_leads_to(memory: Memory) -> None:
    memory.relations.add("Ana", "works at", "Zorblatt", importance=0.9)
    memory.relations.add("Zorblatt", "is insured with", "Helvetia", importance=0.1)
    assert "Helvetia" not in str(memory.recall("Where does Ana work?", min_importance=0.5))


def test_of_untrusted_relations_two_of_five_are_led_to(memory: Memory) -> None:
    memory.relations.add("Ana", "works at", "Zorblatt")
    for name in ("Helvetia", "Allianz", "Generali", "Axa"):
        memory.relations.add("Zorblatt", "is insured with", name, source=Source(f"{name}.example", "web"))
    found = memory.recall("Where does Ana work?", n=5)
    assert found.hits[0].item.text == "Ana works at Zorblatt"
    assert [hit.item.text.rpartition(" ")[0] for hit in found.hits[1:]] == ["Zorblatt is insured with"] * 2
    assert {one.reason: one.count for one in found.omitted}["trust"] == 2


def test_what_the_user_says_one_after_another_is_all_trusted(memory: Memory) -> None:
    memory.remember_many([f"A parcel came on day {n}." for n in range(5)])
    said = [f"The {color} parcel lies in the harbour." for color in ("red", "blue", "green")]
    for text in ("Good morning.", *said):
        memory.add_message("user", text, session="monday")
    found = memory.recall("Which parcel lies in the harbour?", n=5)
    assert {hit.item.text.rstrip(".") + "." for hit in found.hits[:3]} == set(said)


def test_what_was_found_is_not_told_again_as_what_happened_last(memory: Memory) -> None:
    memory.add_message("user", "Where would the yellow boat be tonight?")
    memory.add_message("assistant", "The weather is fine.")
    found = memory.recall("the yellow boat")
    assert [hit.item.text for hit in found.hits][:1] == ["Where would the yellow boat be tonight?"]
    assert str(found).count("yellow boat") == 1
    assert "The weather is fine." not in str(found)  # a remark on something else
