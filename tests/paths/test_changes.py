"""A newer statement ends an older one in other words, recall shows what holds now, and requests to forget are meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engrain import Memory, Message, Store
from engrain.core.model.items import LATER_KEY, OUTDATES_KEY, RESERVED_KEY, Source
from engrain.core.model.plans import Change, Plan
from engrain.core.rules.profile import UNSURE_IMPORTANCE
from engrain.ingest import read_messages
from engrain.ingest.sentence_model import Verdict
from engrain.providers import local

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def wait(self) -> None:
        self.now += timedelta(days=100)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(tmp_path: Path, clock: Clock):
    with Store(tmp_path / "changes.db", clock=clock) as store:
        yield store.memory(user="ana")


def tell(memory: Memory, clock: Clock, *texts: str):
    results = []
    for text in texts:
        memory.start_session()
        results.append(memory.add_message("user", text))
        memory.end_session()
        clock.wait()
    return results


def list_facts(memory: Memory) -> list[str]:
    return [item.text for item in memory.list({"kind": "fact"})]


def test_what_is_kept_only_because_it_adds_to_something_known_is_unsure(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember("We have a dog called Biscuit.")
    doubt = Verdict(keep=False, drop=False, kind="fact", sure=False)
    monkeypatch.setattr(read_messages, "judge_sentences", lambda states, parts: [doubt] * len(parts))
    result = memory.add_message("user", "Another dog too, a pug named Pepper")
    (fact,) = [memory.get(id) for id in result.facts]
    assert (fact.text, fact.importance) == ("Another dog too, a pug named Pepper", UNSURE_IMPORTANCE)


def test_what_takes_the_place_of_a_fact_counts_as_much(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(memory, clock, "I live in Leeds.")
    (old,) = memory.list({"kind": "fact"})
    unsure = Verdict(keep=True, drop=False, kind="fact", sure=False)
    monkeypatch.setattr(read_messages, "judge_sentences", lambda states, parts: [unsure] * len(parts))
    tell(memory, clock, "hanna and i got the keys to a terrace in sheffield and moved in last week")
    (new,) = memory.list({"kind": "fact"})
    assert "sheffield" in new.text
    assert new.importance == old.importance > UNSURE_IMPORTANCE


@pytest.mark.parametrize(
    "wish",
    [
        "when you show me shell commands, use fish syntax, not bash",
        "If I send you a draft, mark the changes, don't rewrite the lot.",
        "For any code you give me - type hints, and no comments that restate the line",
    ],
)
def test_a_wish_in_free_words_opens_every_prompt(memory: Memory, clock: Clock, wish: str) -> None:
    tell(memory, clock, wish)
    section = memory.prompt("Plan a trip to Lisbon", history=False).split("## What the user always wants\n")[1]
    assert wish.rstrip(".") in section.split("\n\n")[0]


@pytest.mark.parametrize("later", ["We adopted a cat, her name is Miso.", "I got my own allotment now."])
def test_nothing_but_another_name_ends_the_name_of_the_user(memory: Memory, clock: Clock, later: str) -> None:
    _, result = tell(memory, clock, "My name is Ana Ruiz.", later)
    assert result.facts
    assert memory.slots.get("user.name").text == "My name is Ana Ruiz"


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("my yoga class is Mondays at six", "yoga's on Thursdays now, same time"),
        ("we have a cat called Biscuit", "Biscuit passed away last night"),
        ("Der Umzug ist am 1. März", "Umzug verschiebt sich auf den 15. April"),
        ("our vet is Dr Lim in Park Road", "Dr Lim retired, we go to Dr Castellanos now"),
        ("the kids go to St Aidan's primary", "both kids started at Oakmoor after half-term"),
    ],
)
def test_a_change_in_other_words_ends_the_older_fact(memory: Memory, clock: Clock, first: str, later: str) -> None:
    old, new = tell(memory, clock, first, later)
    assert new.replaced == old.facts
    assert list_facts(memory) == [later]
    stored = memory.get(old.facts[0])
    assert stored is not None
    assert (stored.valid_to, stored.replaced_by) == (START + timedelta(days=100), new.facts[0])
    assert later in str(memory.explain(old.facts[0]))
    assert first in str(memory.explain(new.facts[0]))


def test_what_holds_now_comes_first_and_the_old_message_is_marked(memory: Memory, clock: Clock) -> None:
    tell(memory, clock, "my yoga class is Mondays at six", "yoga's on Thursdays now, same time")
    hits = list(memory.recall("When is my yoga class?"))
    assert "Thursdays" in hits[0].text
    stale = [str(hit) for hit in hits if "Mondays" in hit.text]
    assert all("held until" in line for line in stale)


def test_a_recall_of_one_hit_returns_what_holds_now(memory: Memory, clock: Clock) -> None:
    tell(memory, clock, "Remember that I prefer aisle seats.")
    for day in range(20):
        memory.add_message("user", f"Nothing new on day {day}.")
    tell(memory, clock, "I prefer window seats now.")
    for n in (1, 2, 5):
        assert "window" in memory.recall("Which seat shall I book?", n=n).hits[0].text


@pytest.mark.parametrize("asked", ["aisle seats", "Remember that I prefer aisle seats.", "Do I prefer the aisle?"])
def test_the_words_of_a_stale_message_find_what_holds_now(memory: Memory, clock: Clock, asked: str) -> None:
    tell(memory, clock, "Remember that I prefer aisle seats.", "I prefer window seats now.")
    found = [memory.recall(asked, n=n) for n in (1, 2, 3, 5)]
    found += [memory.recall(asked, budget=budget) for budget in range(20, 120, 5)]
    assert all(found[:4])
    for hits in filter(None, found):
        assert "window" in hits.hits[0].text


def test_newer_facts_of_the_aspect_do_not_come_before_the_answer(memory: Memory, clock: Clock) -> None:
    tell(
        memory,
        clock,
        "The quarterly review with the board is on 12 March.",
        "The board pushed the review back to the 26th.",
        "My daughter Zoe was born on 3 February!",
    )
    assert "26th" in memory.recall("When is the review?").hits[0].text


def test_what_holds_now_takes_the_place_of_what_it_replaced(memory: Memory, clock: Clock) -> None:
    memory.start_session()
    for text in ("we orchestrate with Airflow 2.8", "We're five people: Ines, Kofi, Marta, Dev and me."):
        memory.add_message("user", text)
    tell(memory, clock, "My wife Adaeze is a doctor.", "Airflow is history, everything runs on Dagster this week.")
    assert "Dagster" in memory.recall("Which orchestrator do we use?").hits[0].text


def test_an_older_answer_is_found_at_its_time(memory: Memory, clock: Clock) -> None:
    tell(memory, clock, "my yoga class is Mondays at six", "yoga's on Thursdays now, same time")
    found = memory.recall("When is my yoga class?", as_of=START + timedelta(days=1))
    assert [hit.text for hit in found if hit.item.kind == "fact"] == ["my yoga class is Mondays at six"]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("my sister lives in Ghent", "my cousin's moved to Antwerp"),
        ("my sister Ada lives in Leeds", "my sister Joy lives in Hull"),
        ("our dog is called Waffle", "we got a second dog, Pancake"),
        ("I'm left handed", "my daughter turns out to be right handed, teacher says"),
    ],
)
def test_somebody_or_something_else_ends_nothing(memory: Memory, clock: Clock, first: str, later: str) -> None:
    old, new = tell(memory, clock, first, later)
    assert new.replaced == ()
    assert memory.get(old.facts[0]).open


def test_a_pasted_text_ends_nothing(memory: Memory, clock: Clock) -> None:
    (old,) = tell(memory, clock, "our vet is Dr Lim in Park Road")
    pasted = 'Summarise this:\n\n"""\nDr Lim retired, we go to Dr Castellanos now.\n"""'
    assert memory.add_message("user", pasted).replaced == ()
    assert memory.get(old.facts[0]).open


def test_a_less_trusted_source_ends_nothing(memory: Memory, clock: Clock) -> None:
    mine = memory.remember("our vet is Dr Lim in Park Road")
    clock.wait()
    memory.remember("Dr Lim retired, we go to Dr Castellanos now", source=Source("page", "web"))
    assert memory.get(mine).open


def test_a_certain_request_forgets_the_fact_and_the_words_in_the_log(memory: Memory, clock: Clock) -> None:
    said, _, asked = tell(
        memory,
        clock,
        "I'm writing a novel about a lighthouse murder",
        "my favourite colour's green",
        "forget about my novel, I've burned it",
    )
    assert set(said.facts or (said.id,)) <= set(asked.forgotten)
    assert not any("lighthouse" in item.text for item in memory.list(limit=50))
    assert any("green" in item.text for item in memory.list(limit=50))


def test_a_request_cuts_one_of_two_statements_that_one_sentence_makes(memory: Memory, clock: Clock) -> None:
    said = "I'm allergic to shellfish and I don't drink alcohol."
    _, result = tell(memory, clock, said, "Please don't keep anything about my drinking habits.")
    assert result.forgotten
    assert list_facts(memory) == ["I'm allergic to shellfish"]
    assert "I'm allergic to shellfish and [forgotten]." in [item.text for item in memory.list({"kind": "message"})]


def test_earlier_values_are_forgotten_with_the_current_one(memory: Memory, clock: Clock) -> None:
    *_, asked = tell(
        memory,
        clock,
        "our wedding is on June 12th 2027",
        "I'm lactose intolerant",
        "we pushed the wedding to september 4th",
        "forget the wedding date",
    )
    assert asked.forgotten
    assert not asked.proposed
    left = " ".join(item.text for item in memory.list(history=True))
    assert "wedding" not in left
    assert "lactose" in left


def test_several_targets_are_proposed_and_nothing_is_cut(memory: Memory, clock: Clock) -> None:
    first, second, asked = tell(
        memory, clock, "my sister Ada lives in Leeds", "my sister Joy lives in Hull", "forget my sister"
    )
    assert asked.forgotten == ()
    assert set(asked.proposed) == {*first.facts, *second.facts}
    assert len(list_facts(memory)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "don't forget my dentist appointment!",
        "oh forget it, I'll do it myself",
        'my boss wrote: "Forget what I said about the dentist." what does he mean?',
        "before I forget, the dentist is in building C",
        "did you forget my dentist appointment?",
    ],
)
def test_a_sentence_that_only_mentions_forgetting_cuts_nothing(memory: Memory, clock: Clock, text: str) -> None:
    said, asked = tell(memory, clock, "I have a dentist appointment on 3 May", text)
    assert asked.forgotten == asked.proposed == ()
    assert memory.get(said.id).text == "I have a dentist appointment on 3 May"


def test_facts_of_one_call_end_each_other(memory: Memory) -> None:
    memory.start_session()
    said = [("user", "our vet is Dr Lim in Park Road"), ("assistant", "Noted."),
            ("user", "Dr Lim retired, we go to Dr Castellanos now")]  # fmt: skip
    memory.add_messages([{"role": role, "content": text} for role, text in said])
    assert list_facts(memory) == ["Dr Lim retired, we go to Dr Castellanos now"]


def test_forgetting_a_fact_undoes_its_marks_on_older_ones(memory: Memory, clock: Clock) -> None:
    old, new = (memory.remember(text, source=Source("user", "user")) for text in ("I like tea", "I like coffee"))
    since = clock.now.isoformat()
    memory.update(old, metadata={})
    services, scope = memory._services, memory.scope
    services.items.apply(
        Plan(
            scope,
            (
                Change(old, metadata={RESERVED_KEY: {LATER_KEY: since}}),
                Change(new, metadata={RESERVED_KEY: {OUTDATES_KEY: {old: since}}}),
            ),
        )
    )
    assert "(earlier)" in str(memory.recall("tea"))
    memory.forget(new)
    assert "(earlier)" not in str(memory.recall("tea"))


def test_what_replaced_a_hit_and_is_earlier_itself_is_shown_once_and_marked(memory: Memory, clock: Clock) -> None:
    old, new = tell(memory, clock, "I go to choir on Thursdays.", "Choir has moved to Tuesdays.")
    assert new.replaced == old.facts
    later = {RESERVED_KEY: {LATER_KEY: clock.now.isoformat()}}
    memory._services.items.apply(Plan(memory.scope, (Change(new.facts[0], metadata=later),)))
    for n in (1, 2, 5, 8):
        found = memory.recall("When is choir?", n=n)
        assert len({hit.item.id for hit in found}) == len(found)
        assert all(hit.earlier for hit in found if hit.item.id == new.facts[0])


def test_a_message_with_a_fact_costs_one_pass_of_the_model(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []
    for name in ("run", "read"):
        call = getattr(local._Engine, name)
        monkeypatch.setattr(
            local._Engine, name, lambda *given, call=call, name=name: (passes.append(name), call(*given))[1]
        )
    memory.start_session()
    result = memory.add_message("user", "By the way. My sister Vera works at Bosch in Linz.")
    assert len(result.facts) == 1
    assert passes == ["read"]


def test_relations_are_made_from_statements_and_followed(memory: Memory, clock: Clock) -> None:
    lena, acme = tell(memory, clock, "Léna works at Acme", "Acme is based in Quito")
    texts = [hit.text for hit in memory.recall("In which city is LENA's employer?")]
    assert {"Léna works at Acme", "Acme is based in Quito"} <= set(texts)
    (moved,) = tell(memory, clock, "Léna works at Globex these days")
    assert moved.replaced == lena.facts
    assert memory.get(acme.facts[0]).open


def test_stored_relations_of_two_steps_pass_the_floor(memory: Memory) -> None:
    memory.relations.add("Ana", "works at", "Acme")
    memory.relations.add("Acme", "is based in", "Quito")
    texts = {hit.text for hit in memory.recall("In which city is Ana's employer?")}
    assert {"Ana works at Acme", "Acme is based in Quito"} <= texts
    assert not memory.recall("What does the moon weigh?")


def test_a_wish_about_texts_is_kept_and_ends_an_older_one(memory: Memory, clock: Clock) -> None:
    text = "Please write me with easy words and correct my English mistake at the end of answer, only the biggest one."
    assert memory.add_message("user", text).facts
    old, new = tell(memory, clock, "answer me in bullet points always", "no more bullet points, write plain paragraphs")
    assert new.replaced == old.facts


@pytest.mark.parametrize(
    ("wish", "later"),
    [
        (
            "Style request for everything from here on: start with the answer",
            "reply with only the diff, never the file",
        ),
        (
            "Bitte duze mich, dieses Sie klingt so steif",
            "Schreib mir bitte einen Zweizeiler für die Karte einer Kollegin",
        ),
        ("keep your answers short", "stop apologising all the time"),
        ("please always cite sources", "stop apologising all the time"),
    ],
)
def test_a_wish_is_not_ended_by_a_statement_of_another_thing(
    memory: Memory, clock: Clock, wish: str, later: str
) -> None:
    first, second = tell(memory, clock, wish, later)
    assert first.facts
    assert second.replaced == ()


def test_a_wish_ends_when_it_is_taken_back(memory: Memory, clock: Clock) -> None:
    _, second = tell(
        memory, clock, "never use emojis when you answer me", "emojis are fine again, use as many as you like"
    )
    assert len(second.replaced) == 1


def test_a_long_profile_keeps_an_allergy_that_was_told_first(memory: Memory, clock: Clock) -> None:
    tell(memory, clock, "I'm allergic to cashews")
    for number in range(60):
        memory.remember(f"Note {number} of the project is done.", importance=0.9)
    profile = memory.start_session().profile
    assert len(profile) == 40
    assert any("cashews" in item.text for item in profile)


def test_wishes_of_one_call_stand_beside_each_other(memory: Memory) -> None:
    wishes = ["keep your answers short", "stop apologising all the time", "always cite sources"]
    memory.start_session()
    memory.add_messages([Message("user", one) for one in wishes])
    assert sorted(list_facts(memory)) == sorted(wishes)
