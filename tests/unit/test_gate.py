"""What the gate keeps of a message, what it leaves, and where each thing goes."""

from __future__ import annotations

import hashlib
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.model.items import ForgetRequest, Statement
from engrain.core.rules.statements import compile_pattern, load_statement_rules
from engrain.ingest.gate import MAX_STATEMENTS, find_statements

FILES = Path(__file__).parent.parent / "files"
GIVEN = FILES / "gate-sentences.jsonl"
OWN = FILES / "gate-dev.jsonl"


def sentences(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def kept(text: str, before: tuple[tuple[str, str], ...] = ()) -> list[Statement]:
    return [one for one in find_statements(text, before) if isinstance(one, Statement)]


def said(text: str) -> list[str]:
    return [text[one.start : one.end] for one in kept(text)]


def slot(text: str, before: tuple[tuple[str, str], ...] = ()) -> str | None:
    (one,) = kept(text, before)
    return one.slot


def figures(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Precision and recall. A span without the value is a miss and a false alarm."""
    right = alarms = 0
    for row in rows:
        spans = said(row["text"])
        found = row["keep"] and any(row["value"] in span for span in spans)
        right += found
        alarms += bool(spans) and not found
    return right / (right + alarms), right / sum(row["keep"] for row in rows)


def test_the_rules_do_on_the_200_what_they_must() -> None:
    precision, recall = figures(sentences(GIVEN))
    assert precision >= 0.9
    assert recall >= 0.7


def test_the_rules_hold_on_the_sentences_they_were_built_on() -> None:
    precision, recall = figures(sentences(OWN))
    assert precision >= 0.97
    assert recall >= 0.93


def test_the_200_are_as_they_were_written() -> None:
    digest = hashlib.sha256(GIVEN.read_bytes()).hexdigest()
    assert digest == "a3cd9a17a108d37a3c26bc75abc625af925627cb0a04e6eb02385c2b37c519ce"


@for_each(
    ("text", "spans"),
    [
        ("Remember that I prefer aisle seats.", ["I prefer aisle seats"]),
        ("Oh, by the way, my name is Ana!", ["my name is Ana"]),
        ("remember that I'm vegan and my wife is coeliac", ["I'm vegan", "my wife is coeliac"]),
        (
            "I live in Oslo, my name is Ana, and I love jazz, any ideas?",
            ["I live in Oslo", "my name is Ana", "I love jazz"],
        ),
        ("Hi! I'm a nurse. What is a good shoe?", ["I'm a nurse"]),
        ("My doctor is Dr. Patel. She is kind.", ["My doctor is Dr. Patel"]),
        ("As a vegetarian, what can I order?", ["As a vegetarian"]),
        ("We eat no meat on Fridays. Please remember that.", ["We eat no meat on Fridays"]),
        ("- I hate olives\n- I love capers", ["I hate olives", "I love capers"]),
        ("He said he likes tea, but I prefer coffee.", ["I prefer coffee"]),
        ("I told the dentist I'm allergic to latex.", ["I'm allergic to latex"]),
        ("The flat is loud. Anyway, I don't eat pork.", ["I don't eat pork"]),
    ],
)
def test_what_is_kept_is_word_for_word_and_no_more_than_the_statement(text: str, spans: list[str]) -> None:
    assert said(text) == spans


@for_each(
    ("text", "name"),
    [
        ("My name is Priya.", "user.name"),
        ("call me Kit", "user.name"),
        ("hi, it's Priya from accounting", "user.name"),
        ("I moved to Tallinn.", "user.city"),
        ("I work as a welder", "user.job"),
        ("I work at Siemens.", "user.employer"),
        ("My birthday is 7 July.", "user.birthday"),
        ("My email is lena@northwind.example", "user.email"),
        ("My number is 0151 2345678", "user.phone"),
        ("My time zone is CET.", "user.timezone"),
        ("My pronouns are they/them.", "user.pronouns"),
        ("Always answer in German.", "user.language"),
        ("Answer in English again.", "user.language"),
        ("Please reply in French now.", "user.language"),
        ("Please answer in English again from now on.", "user.language"),
        ("from today answer me in Spanish please", "user.language"),
        ("ab heute bitte auf Englisch mit mir schreiben", "user.language"),
        ("My husband's name is Henrik.", "user.partner"),
        ("My wife is called Paula.", "user.partner"),
        ("Sorry, my manager is Dana White now, Carla left.", "user.manager"),
        ("My favorite color is teal.", "user.favourite.colour"),
        ("I prefer window seats now.", "user.prefers.seat"),
        ("I'd prefer a window seat on long flights.", "user.prefers.seat"),
        ("I prefer long, detailed answers with examples.", "user.prefers.answer"),
        ("I prefer short and precise replies.", "user.prefers.answer"),
        ("I prefer Python.", "user.prefers.programming_language"),
        ("I prefer dark mode", "user.prefers.theme"),
        ("I like tea more than coffee", "user.prefers.drink"),
        ("I prefer `pnpm` to npm", "user.prefers.package_manager"),
        ("We use Postgres.", "we.database"),
        ("We're moving from Jenkins to GitHub Actions.", "we.ci"),
        ("I switched from Vim to Emacs.", "user.editor"),
        ("I'm vegan.", "user.diet"),
        ("Ich wohne in Köln.", "user.city"),
        ("Je m'appelle Chloé.", "user.name"),
        ("Vivo en Sevilla.", "user.city"),
    ],
)
def test_what_can_change_has_a_slot(text: str, name: str) -> None:
    assert slot(text) == name


@for_each(
    "text",
    [
        "I'm allergic to shellfish.",
        "My daughter Mia is seven.",
        "I love jazz.",
        "I speak Farsi.",
        "I prefer trains.",
        "I prefer Rust for tools.",
        "My budget for the bike is 900 euros.",
        "We use Python.",
        "I use Python and Rust.",
        "My old address is 4 Elm Road.",
        "My work phone number is 0151 234567.",
        "My second favourite film is Alien.",
        "I also work as a barista.",
        "My city is beautiful.",
        "We switched flour suppliers, it's Matthews Cotswold from now on.",
        "I prefer the, well, quiet.",
        "Ich bin Vegetarier.",
    ],
)
def test_what_is_no_single_value_of_the_user_has_no_slot(text: str) -> None:
    assert slot(text) is None


@for_each(
    ("text", "name", "old"),
    [
        ("I'm not a nurse any more.", "user.job", "nurse"),
        ("I am not a primary school teacher anymore.", "user.job", "primary school teacher"),
        ("I'm no longer a nurse.", "user.job", "nurse"),
        ("I'm not a nurse.", "user.job", "nurse"),
        ("I don't work as a nurse any more.", "user.job", "nurse"),
        ("My name isn't Tom.", "user.name", "Tom"),
        ("My name is not Tom.", "user.name", "Tom"),
        ("I'm not called Tom.", "user.name", "Tom"),
        ("I'm not Tom.", "user.name", "Tom"),
        ("My wife isn't Maria.", "user.partner", "Maria"),
        ("My wife's name is not Maria.", "user.partner", "Maria"),
        ("My partner is not called Sam.", "user.partner", "Sam"),
        ("I broke up with Maria.", "user.partner", "Maria"),
        ("I broke up with my girlfriend.", "user.partner", None),
        ("I don't have a boyfriend any more.", "user.partner", None),
        ("I quit my job.", "user.employer", None),
        ("I've just left my job, what now?", "user.employer", None),
        ("I got fired last week.", "user.employer", None),
        ("I quit my job at Acme.", "user.employer", "Acme"),
        ("Ich bin kein Lehrer mehr.", "user.job", "Lehrer"),
        ("Ich arbeite nicht mehr als Lehrer.", "user.job", "Lehrer"),
        ("Ich wohne nicht mehr in Köln.", "user.city", "Köln"),
        ("Ich arbeite nicht mehr bei Siemens.", "user.employer", "Siemens"),
        ("Ich habe meinen Job gekündigt.", "user.employer", None),
        ("Ich heiße nicht Tom.", "user.name", "Tom"),
        ("Mein Name ist nicht Tom.", "user.name", "Tom"),
        ("Meine Frau heißt nicht Eva.", "user.partner", "Eva"),
        ("Je ne suis plus infirmière.", "user.job", "infirmière"),
        ("Je n'habite plus à Paris.", "user.city", "Paris"),
        ("Je ne travaille plus chez Renault.", "user.employer", "Renault"),
        ("J'ai quitté mon travail.", "user.employer", None),
        ("J'ai démissionné.", "user.employer", None),
        ("Je ne m'appelle pas Tom.", "user.name", "Tom"),
        ("Mon nom n'est pas Tom.", "user.name", "Tom"),
        ("Ya no soy enfermera.", "user.job", "enfermera"),
        ("Ya no vivo en Lima.", "user.city", "Lima"),
        ("Ya no trabajo en Acme.", "user.employer", "Acme"),
        ("He dejado mi trabajo.", "user.employer", None),
        ("No me llamo Tom.", "user.name", "Tom"),
        ("Mi nombre no es Tom.", "user.name", "Tom"),
    ],
)
def test_what_is_denied_or_over_names_its_slot_and_its_value(text: str, name: str, old: str | None) -> None:
    (one,) = kept(text)
    assert (one.slot, one.replaces) == (name, old)


@for_each(
    "text",
    [
        "Please write the release notes. Use bullet points.",
        "Please save the report as PDF.",
        "Write the code so that it passes the tests.",
        "Store our logs for 30 days in the bucket.",
        "Please note the changes in the changelog.",
        "Moved to done.",
        "I moved to Done.",
        "moved to In Review",
        "Moved to Backlog, thanks!",
        "I moved to main.",
        "Note it.",
        "note that",
        "Note this down, please.",
        "Note: it",
        "Forget about it.",
        "Forget about the meeting.",
        "Forget about Lima.",
        "Let's forget about Project Apollo.",
        "I'm not a lawyer, but can they do that?",
        "I'm not Sure about this.",
        "Olvídalo.",
        "Vergiss es.",
        "Ich bin Anfänger.",
        "Oublie ça.",
    ],
)
def test_what_only_sounds_like_a_fact_is_none(text: str) -> None:
    assert find_statements(text) == []


def test_a_changed_preference_meets_the_one_it_was_told_to_remember() -> None:
    first, later = kept("Remember that I prefer aisle seats."), kept("I prefer window seats now")
    assert first[0].slot == later[0].slot == "user.prefers.seat"
    assert first[0].explicit
    assert not later[0].explicit


@pytest.mark.parametrize(
    "text", ["I live by the sea. Remember that!", "The bins stand round the back. Please note that."]
)
def test_the_sentence_before_can_be_asked_for(text: str) -> None:
    (one,) = kept(text)
    assert one.explicit
    assert text[one.start : one.end] == text.split(".")[0]


def test_of_two_values_for_one_slot_in_a_message_the_last_fills_it() -> None:
    assert [one.slot for one in kept("I lived well. I live in Bonn. No, I live in Köln.")] == [None, "user.city"]


@for_each(
    ("text", "importance"),
    [
        ("Remember that the bins go out on Monday.", 0.8),
        ("My name is Ana.", 0.8),
        ("Never use tabs.", 0.8),
        ("I love jazz.", 0.7),
        ("We decided to use Postgres.", 0.7),
        ("No, it's Anne with an e.", 0.6),
        ("As a nurse, what shoes do I need?", 0.6),
    ],
)
def test_importance_goes_by_kind(text: str, importance: float) -> None:
    assert [one.importance for one in kept(text)] == [importance]


@for_each(
    ("text", "old"),
    [
        ("I prefer tea over coffee.", "coffee"),
        ("We chose Kotlin instead of Java for the app.", "Java"),
        ("I switched from Vim to Emacs.", "Vim"),
        ("I prefer trains to planes", "planes"),
        ("No, I'm an architect, not an engineer.", "an engineer"),
        ("I prefer tea.", None),
        ("Ich trinke lieber Tee statt Kaffee.", "Kaffee"),
    ],
)
def test_what_it_takes_the_place_of_is_named(text: str, old: str | None) -> None:
    assert kept(text)[0].replaces == old


NAMED = (("user", "My name is Anna."), ("assistant", "So your name is Anna. Nice to meet you!"))


@for_each(
    ("text", "before", "name"),
    [
        ("No, it's Ana.", NAMED, "user.name"),
        ("No. It's Ana.", NAMED, "user.name"),
        ("it's spelled Ana", NAMED, "user.name"),
        ("That's wrong, it's hannah", NAMED, "user.name"),
        ("No, it's Lyon", (("assistant", "You live in Paris, right?"),), "user.city"),
        ("Actually it's the 12th", (("assistant", "Your birthday is on March 11th."),), "user.birthday"),
        ("no, it is mysql", (("user", "We use Postgres."),), "we.database"),
        ("I meant window seats", (("user", "I prefer aisle seats"),), "user.prefers.seat"),
        ("Nein, es ist Bonn", (("assistant", "Deine Adresse ist Köln?"),), "user.address"),
        ("No, I live in Basel", NAMED, "user.city"),
        ("No, it's Lyon", (("assistant", "You live in Paris. Is that right?"),), "user.city"),
        ("Sorry, it's Rob.", (("user", "My name is Bob."),), "user.name"),
        ("Actually, it's San José de Mayo", (("user", "I live in Lima."),), "user.city"),
        ("No, it's bo@north.example", (("assistant", "Your email is b@north.example?"),), "user.email"),
        ("I meant vegan", (("user", "I'm vegetarian."),), "user.diet"),
        ("My name is Bob. Sorry, it's Rob.", (("assistant", "You live in Lima?"),), "user.name"),
        ("No, it's Anne with an e.", (), None),
    ],
)
def test_a_correction_takes_the_slot_of_what_it_corrects(
    text: str, before: tuple[tuple[str, str], ...], name: str | None
) -> None:
    assert kept(text, before)[-1].slot == name


LIMA = ("user", "I live in Lima.")
BOB = ("user", "My name is Bob.")


@for_each(
    ("text", "before"),
    [
        ("No, it's Canberra.", (LIMA, ("assistant", "The capital of Australia is Sydney."))),
        ("No, it's Canberra.", (("assistant", "You live in Lima. The capital of Australia is Sydney."),)),
        ("The capital of Australia is Sydney. No, it's Canberra.", (LIMA,)),
        ("No, it's falcon.", (BOB, ("assistant", "Which server is down?"), ("user", "It's heron."))),
        ("No, it's Falcon.", (BOB, ("assistant", "Hi Bob!"), ("user", "It's Heron."))),
        ("no, it's a bug in the parser", (BOB,)),
        ("I meant Tuesday", (BOB,)),
        ("Actually, it's Tuesday today", (BOB,)),
        ("No, it's expensive.", (LIMA,)),
        ("No, it's expensive.", (("assistant", "So you live in Lima, is it cheap there?"),)),
        ("No, it's Ana.", (("assistant", "Your phone number is 0151 234567?"),)),
        ("No, it's Claudia.", (("assistant", "My name is Claude."),)),
        ("No, it's Ana.", ()),
    ],
)
def test_a_no_to_something_else_overwrites_nothing(text: str, before: tuple[tuple[str, str], ...]) -> None:
    assert kept(text, before) == []


@pytest.mark.parametrize("text", ["No, it's fine.", "Actually it's working now.", "No, that's not it.", "No thanks."])
def test_not_every_no_corrects_something(text: str) -> None:
    assert kept(text, NAMED) == []


@for_each(
    ("text", "span", "name"),
    [
        ("Forget that I live in Bonn.", "I live in Bonn", "user.city"),
        ("please forget my address", "my address", "user.address"),
        ("Ignore that, forget my phone number.", "my phone number", "user.phone"),
        ("I changed my mind, forget that I live in Lima.", "I live in Lima", "user.city"),
        ("Delete what I said about my divorce.", "my divorce", None),
        ("Can you remove my phone number from your memory?", "my phone number", "user.phone"),
        ("Don't store my birthday.", "my birthday", "user.birthday"),
        ("Forget where I live.", "where I live", "user.city"),
        ("Please forget who I work for", "who I work for", "user.employer"),
        ("Forget that the gizmo is in Rack 4.", "the gizmo is in Rack 4", None),
        ("Forget the gizmo is in Rack 4.", "the gizmo is in Rack 4", None),
        ("Forget that invoices go to Ingrid", "invoices go to Ingrid", None),
        ("forget I live in Lima", "I live in Lima", "user.city"),
        ("Forget my favourite colour.", "my favourite colour", "user.favourite.colour"),
        ("Forget that my phone is dead.", "my phone is dead", None),
        ("Vergiss bitte meine Adresse", "meine Adresse", "user.address"),
        ("Oublie mon adresse.", "mon adresse", "user.address"),
        ("Olvida mi dirección", "mi dirección", "user.address"),
    ],
)
def test_a_wish_to_forget_says_what(text: str, span: str, name: str | None) -> None:
    (one,) = find_statements(text)
    assert isinstance(one, ForgetRequest)
    assert (text[one.start : one.end], one.slot) == (span, name)


def test_two_statements_are_forgotten_as_they_were_kept() -> None:
    kept_as, forgotten = (
        [(text[one.start : one.end], one.slot) for one in find_statements(text)]
        for text in ("Remember that I'm vegan and my wife is coeliac.", "Forget that I'm vegan and my wife is coeliac.")
    )
    assert kept_as == forgotten == [("I'm vegan", "user.diet"), ("my wife is coeliac", None)]


@for_each(
    "text",
    [
        "Forget it.",
        "Forget about it.",
        "Forget that.",
        "Forget that old idea.",
        "Forget that last message is what I meant",
        "Forget I said that.",
        "Forget that I asked.",
        "Don't forget!",
        "Guess where I live",
        "Tell me where I live.",
        "Please guess what I do for a living",
        "Ask me where I live",
        "don't forget",
        "I forget",
        "I always forget my keys.",
        "Forget my last message.",
        "Remove my name from the list.",
        "Forget everything about me.",
        "Remember to buy milk.",
        "Do you remember that I'm vegan?",
        "Remember that match?",
    ],
)
def test_words_of_memory_that_ask_for_nothing(text: str) -> None:
    assert find_statements(text) == []


@for_each(
    "text",
    [
        "```\nmy name is Bob\n```",
        "```\nmy name is Bob",
        "> I prefer tea\nwhy?",
        "She wrote “I live in Rome”.",
        "What does `I prefer tea` mean",
        "Is 'I love jazz' correct",
        "The poem “Night, I love the sea” is short.",
        "Tom said he is tired, and we decided to drop Python 3.8.",
        "She keeps saying: I live in Rome.",
        "2024-05-01 12:00:03 INFO I live in Oslo",
        "Translate into French: my name is Anna. I live in Rome.",
        "Anna: I love hiking\nBen: I hate hiking\nWho is right?",
        "Look:\n\n---- Forwarded message ----\nI moved to Berlin.",
        "# NOTE: remember that this is O(n)\nx = 1",
        "Write a story. My name is Thorn and I live in a tower.",
        "Suppose I'm a lawyer. I have two kids.",
        "My favourite hobby: filling in forms... love it /s",
        "Off the record, I hate my job.",
    ],
)
def test_what_is_not_the_speakers_own_or_not_meant_is_left(text: str) -> None:
    assert find_statements(text) == []


def test_an_order_does_not_void_what_is_told_beside_it() -> None:
    assert said("Tell me where I can eat, I'm vegan.") == ["I'm vegan"]
    assert said("Tell me what I can cook as a vegan.") == ["as a vegan"]


def test_what_comes_before_the_story_is_still_meant() -> None:
    assert said("I'm a teacher. Write a story in which my name is Thorn.") == ["I'm a teacher"]


@for_each(
    "text",
    [
        "My password is hunter2.",
        "Remember that my card number is 4111 1111 1111 1111.",
        "Remember this: 4111-1111-1111-1111 is for the shop",
        "Note that our key is AKIAIOSFODNN7EXAMPLE",
        "Remember: ghp_1234567890abcdefghijABCDEFGHIJ123456",
        "The verification code is 482913, remember that.",
        "Password: hunter2. Remember that.",
        "Merk dir: mein Passwort ist Sonne7",
        "Remember: my shop login is kez_1999 with the password lemonade7",
        "Merk dir: die PIN von der Karte ist 4471",
        "Note the garage door code 4410, please remember it",
    ],
)
def test_secrets_are_never_kept(text: str) -> None:
    assert find_statements(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Never commit passwords to the repo.",
        "Remember that order 4111 1111 1111 1112 is for Tom",
        "My zip code is 90210.",
    ],
)
def test_what_only_looks_like_a_secret_is_kept(text: str) -> None:
    assert len(kept(text)) == 1


@given(
    st.lists(st.sampled_from([row["text"] for row in sentences(OWN)]), max_size=6),
    st.sampled_from(["\n", " ", ", and "]),
)
def test_spans_are_in_order_and_never_overlap(texts: list[str], between: str) -> None:
    text = between.join(texts)
    found = find_statements(text)
    assert len(found) <= MAX_STATEMENTS
    for one, after in pairwise(found):
        assert one.end <= after.start
    assert all(text[one.start : one.end].strip() for one in found)
    assert found == find_statements(text)


@given(st.text(), st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text()), max_size=3))
def test_no_text_is_too_strange(text: str, before: list[tuple[str, str]]) -> None:
    assert all(0 <= one.start < one.end <= len(text) for one in find_statements(text, before))


def test_of_a_long_message_both_ends_are_read() -> None:
    text = "My name is Ana.\n" + "The log goes on and on.\n" * 40_000 + "Remember that I prefer aisle seats."
    assert said(text) == ["My name is Ana", "I prefer aisle seats"]


HOSTILE = {
    "prose": "I went there and it was fine, but then my friend came. ",
    "statements": "I prefer tea\n",
    "spaces": " ",
    "lines": "\n",
    "dots": ". ",
    "questions": "x?\n",
    "quotes": '"',
    "ticks": "`",
    "apostrophes": "' a",
    "commas": ", i am a ",
    "leads": "oh hey well so ",
    "asks": "remember that ",
    "tasks": "translate ",
    "names": "My very old friend Ana ",
    "long sentences": "I " + "really " * 80 + "x. ",
    "hyphens": "my " + "a-b " * 140 + ". ",
    "fiction": "write " + "a " * 290 + ". ",
    "since": "I've been " + "for since " * 55 + ". ",
    "digits": "1 ",
}


@for_each("name", HOSTILE)
def test_a_megabyte_of_anything_takes_no_time(name: str) -> None:
    text = (HOSTILE[name] * (1_000_000 // len(HOSTILE[name]) + 1))[:1_000_000]

    def measure() -> float:
        start = time.thread_time()
        find_statements(text)
        return time.thread_time() - start

    # At most 30 ms on a machine of our day; to go back over the text again and again would take minutes.
    assert any(measure() < 1.0 for _ in range(3))


def test_every_pattern_is_a_pattern() -> None:
    known = load_statement_rules()
    rules = {rule for some in (*known.by_word.values(), known.inner_rules) for rule in some}
    for rule in rules:
        assert not rule.anywhere or "said" in rule.pattern.groupindex, rule.source
        assert not compile_pattern(rule.source).fullmatch("")
    for pattern in (*known.signs.values(), *(one for some in known.asks.values() for one in some)):
        compile_pattern(pattern)


@pytest.mark.parametrize("text", ["forget where I lİve", "forget where I lıve", "forget my addreſs"])
def test_letters_that_a_pattern_takes_for_others_raise_no_error(text: str) -> None:
    (found,) = find_statements(text)
    assert isinstance(found, ForgetRequest)
    assert found.slot


def test_a_plan_for_a_day_is_kept_and_a_floor_is_none() -> None:
    plans = (
        "my dentist appointment is next friday at 9",
        "my flight is on the 3rd at 9am",
        "I have a job interview on Tuesday at 10",
        "mein Flug geht am 3. um 9 Uhr",
        "am Donnerstag habe ich einen Termin beim Zahnarzt",
        "la boda es el sábado que viene",
        "tengo cita con el dentista el viernes a las 9",
        "le mariage est samedi prochain",
        "j'ai rendez-vous chez le dentiste vendredi à 9h",
    )
    assert [text for text in plans if said(text) != [text]] == []
    others = ("my desk is on the 3rd floor", "my train is late today", "when is my flight on the 3rd?")
    assert [text for text in others if said(text)] == []


def test_jobs_homes_and_friends_are_known_in_more_words() -> None:
    texts = {
        "Ich bin Krankenpfleger am Uniklinikum": "user.job",
        "ya estamos instaladas en Barcelona": "user.city",
        "my best mate Raj works at Sky": None,
        "mi amiga Ana trabaja en Correos": None,
    }
    assert {text: slot(text) for text in texts} == texts
