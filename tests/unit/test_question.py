"""A question is understood without knowing whose memory it is put to."""

import time
from datetime import UTC, datetime

import pytest
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.text.tokenizer import hash_term
from engrain.retrieval.query import PartialDate, Question, parse_query

NOW = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)


def asked(query: str, *speakers: str) -> Question:
    return parse_query(query, speakers, NOW)


def test_names_of_speakers_leave_the_meaning_and_stay_among_the_words() -> None:
    question = asked("What is Carla's dog called?", "Carla", "Ben")
    assert question.text == "What is dog called?"
    assert question.speakers == {"Carla"}
    assert question.names == {hash_term("carla")}
    assert hash_term("carla") in question.terms
    assert hash_term("what") not in question.terms


def test_a_first_name_is_enough_and_roles_are_no_names() -> None:
    assert asked("Where was Carla born?", "Carla Rossi").speakers == {"Carla Rossi"}
    assert asked("What did the user say?", "user", "assistant").speakers == frozenset()


def test_a_name_that_is_a_word_needs_its_capital() -> None:
    assert asked("When will Ana come?", "Will").speakers == frozenset()
    assert asked("when does will come", "Will").speakers == {"Will"}


def test_a_query_of_nothing_but_a_name_is_still_embedded() -> None:
    assert asked("Carla?", "Carla").text == "Carla?"


@for_each(
    ("query", "language", "words"),
    [
        ("Wie heißt die Katze?", "de", ["katze"]),
        ("Wo ist das Kind?", "de", ["kind"]),
        ("Quel est le mot de passe du serveur ?", "fr", ["mot", "passe", "serveur"]),
        ("¿Cómo se llama el perro?", "es", ["perro"]),
        ("Chi ha vinto i mondiali?", "it", ["vinto", "mondiali"]),
        ("Como se chama o cão?", "pt", ["cao"]),
        ("Wie is de president van Frankrijk?", "nl", ["president", "frankrijk"]),
        ("Как зовут кошку?", "ru", ["кошку"]),
        ("猫叫什么?", "zh", ["猫", "叫", "猫叫"]),
        ("猫はどこですか?", "ja", ["猫", "猫は"]),
        ("고양이는 어디예요?", "ko", ["고", "양", "고양", "양이", "이는"]),
        ("What was the die cast from?", "en", ["die", "cast"]),
        ("die hard actor", None, ["die", "hard", "actor"]),
        ("Ile kosztuje lot do Tokio?", None, ["ile", "kosztuje", "lot", "tokio"]),
        ("server password", None, ["server", "password"]),
    ],
)
def test_stop_words_go_by_the_language_of_the_question(query: str, language: str | None, words: list[str]) -> None:
    question = asked(query)
    assert question.language == language
    assert question.terms == tuple(map(hash_term, words))


def test_single_characters_are_light_and_two_spellings_are_one_word() -> None:
    assert asked("猫叫什么?").single_characters == {hash_term("猫"), hash_term("叫")}
    assert asked("Wo wohnt Käthe?").spelling_pairs == ((hash_term("kaethe"), hash_term("kathe")),)


def test_a_query_of_stop_words_keeps_them() -> None:
    assert asked("who are you").terms


@for_each(
    ("query", "days"),
    [
        ("What happened in May 2023?", (PartialDate(2023, 5),)),
        ("Who called on 4 July?", (PartialDate(0, 7, 4),)),
        ("What was said on March 20th, 2024?", (PartialDate(2024, 3, 20),)),
        ("What is due 2024-02-29?", (PartialDate(2024, 2, 29),)),
        ("What did we buy in 2019?", (PartialDate(2019),)),
        ("May I march on?", ()),
        ("Who came in May?", (PartialDate(0, 5),)),
        ("Order 20231 arrived", ()),
    ],
)
def test_dates(query: str, days: tuple[PartialDate, ...]) -> None:
    assert asked(query).days == days


def test_relative_dates_count_from_now() -> None:
    (span,) = asked("What did I eat yesterday?").spans
    assert span.start == datetime(2026, 11, 14, tzinfo=UTC).timestamp()
    assert span.end == datetime(2026, 11, 15, tzinfo=UTC).timestamp()
    (span,) = asked("Whom did I meet two weeks ago?").spans
    assert span.start < datetime(2026, 11, 1, tzinfo=UTC).timestamp() < span.end
    assert (span.start, span.end) == (day(10, 28), day(11, 5))
    (span,) = asked("Whom did I meet 3 days ago?").spans
    assert (span.start, span.end) == (day(11, 12), day(11, 13))
    (span,) = asked("Whom did I meet 8 days ago?").spans
    assert (span.start, span.end) == (day(11, 5), day(11, 10))
    assert asked("What did I eat?").spans == ()


def day(month: int, number: int) -> float:
    return datetime(2026, month, number, tzinfo=UTC).timestamp()


def test_two_months_of_one_year_share_it() -> None:
    assert asked("Was it in May or in June 2023?").days == (PartialDate(2023, 5), PartialDate(2023, 6))
    assert asked("In 2019 or in 2021?").days == (PartialDate(2019), PartialDate(2021))
    assert asked("What is due 2024-13-01?").days == ()


@pytest.mark.parametrize(
    ("query", "requests"),
    [
        ("Can you suggest a restaurant?", True),
        ("How should I start my essay?", True),
        ("What did you suggest to me last week?", False),
        ("Where does Ana live?", False),
    ],
)
def test_a_wish_for_advice_is_told_from_a_look_back(query: str, requests: bool) -> None:
    assert asked(query).asks_for_advice is requests


def test_what_is_asked_for() -> None:
    assert "asks_number_or_time" in asked("When did Ana move?").asks
    assert asked("Can you list all the books?").wants_several
    assert not asked("Who is Ana?").wants_several


@given(st.text(min_size=1), st.frozensets(st.text(max_size=12), max_size=4))
def test_any_query_is_understood(query: str, speakers: frozenset[str]) -> None:
    question = parse_query(query, speakers, NOW)
    assert len(question.terms) == len(set(question.terms)) <= 64
    assert question.names <= set(question.terms)


@given(st.from_regex(r"\A(?:[0-9]{1,30} (?:days?|weeks?|months?) ago|[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2} may)\Z"))
def test_no_date_is_too_strange(query: str) -> None:
    asked(query)


def test_a_number_without_end_is_no_date() -> None:
    assert parse_query("9" * 5000 + " days ago", frozenset(), NOW).spans == ()


def test_thousands_of_speakers_cost_little() -> None:
    speakers = frozenset(f"Person{n} Name{n}" for n in range(6000))
    start = time.thread_time()
    question = parse_query("What did Person77 say?", speakers, NOW)
    assert question.speakers == {"Person77 Name77"}
    assert time.thread_time() - start < 1.0


def test_a_name_of_one_letter_names_nobody() -> None:
    assert asked("What does A eat?", "A", "Bo").speakers == frozenset()
    assert asked("What does Bo eat?", "A", "Bo").speakers == {"Bo"}


@for_each(
    ("query", "text"),
    [
        ("Sum up what I said about the garden so far.", "said about the garden."),
        ("Can you give me a summary of the contract with Bo?", "the contract with Bo?"),
        ("List the order in which I brought up the different parts of the kitchen, in order.", "the kitchen."),
        ("Fasse zusammen, was wir über den neuen Garten gesagt haben.", "den neuen Garten."),
        ("In welcher Reihenfolge habe ich die Themen des Umbaus erwähnt?", "des Umbaus?"),
        ("Resume lo que hemos hablado sobre el jardín nuevo.", "el jardín nuevo."),
        ("¿En qué orden hablé de los temas de la reforma?", "la reforma?"),
        ("Résume ce que nous avons dit sur le nouveau jardin.", "le nouveau jardin."),
        ("Dans quel ordre ai-je parlé des étapes de la rénovation ?", "la rénovation ?"),
        ("How should I update my resume for the new job?", "How should I update my resume for the new job?"),
        ("Walk me through the order in which we discussed the move across our chats. Use two sentences.", "the move."),
        ("Give me an overview.", "Give me an overview."),
        ("What is the order number of the parcel?", "What is the order number of the parcel?"),
        ("In which order do the pupils line up?", "In which order do the pupils line up?"),
    ],
)
def test_a_question_about_everything_is_stripped_to_its_subject(query: str, text: str) -> None:
    assert parse_query(query, (), NOW).text == text
