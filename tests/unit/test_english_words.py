"""German, Spanish and French are read word by word in English; everything else as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import up_to
from hypothesis import given, settings
from hypothesis import strategies as st

import engrain.core
from engrain.core.text.english_words import (
    ENDINGS,
    ENGLISH,
    LANGUAGES,
    MAX_JOINED,
    NOUNS,
    load_words,
    read_in_english,
)

FOLDER = Path(engrain.core.__file__).parent / "data" / "english"
NAMES = [ENGLISH, *LANGUAGES, *(name + NOUNS for name in LANGUAGES)]


def read(text: str) -> str:
    return " ".join(piece.text.strip() for piece in read_in_english(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unsere Katze heißt Minka.", "our cat be called Minka ."),
        ("hab gekündigt", "have quit"),
        ("unser Zahnarzttermin", "our dentist appointment"),
        ("Hund", "dog"),
        ("mi hija trabaja en un hospital", "my daughter work in a hospital"),
        ("vivo en Bilbao", "i live in Bilbao"),
        ("soy alergica a las nueces", "i am allergic at nuts"),
        ("je n'ai plus de voiture", "i no longer have of car"),
        ("ma sœur a 30 ans", "my sister has 30 year"),
    ],
)
def test_known_words_are_read_in_english(text: str, expected: str) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "I moved to Leeds in March.",
        "prod sits on two Hetzner boxes",
        "the chef cut a chat short, and the main pain was gone",
        "for n in range(10): print(n)",
        "Anna mieszka w Krakowie od pięciu lat.",
        "La mia ragazza si chiama Giulia e vive a Roma.",
        "Mijn hond heet Bello en ik woon in Utrecht.",
        "用户喜欢简洁的回答",
        "",
        "...",
        "\x00\ud800",
    ],
)
def test_english_code_and_other_languages_stay_as_they_are(text: str) -> None:
    assert "".join(piece.text for piece in read_in_english(text)) == text
    assert not any(piece.is_translated for piece in read_in_english(text))


def test_what_is_typed_in_short_is_read_in_full() -> None:
    assert read("my bf lives w me n hes a nurse") == "my boyfriend lives with me and he is a nurse"


def test_each_sentence_is_read_in_its_own_language() -> None:
    assert read("I live in Leeds. Meine Schwester wohnt in Bonn.") == "I live in Leeds. my sister live in Bonn ."
    assert read("Sie wohnt in Bonn. Seit Mai.") == "she live in Bonn . since may ."


@pytest.mark.parametrize(
    ("language", "words"),
    [("de", ["gross", "groß", "GROSS"]), ("de", ["muede", "müde"]), ("es", ["manana", "mañana"])],
)
def test_a_word_is_known_however_its_letters_are_typed(language: str, words: list[str]) -> None:
    assert len({load_words(language).read(word.lower()) for word in words} - {None}) == 1


def test_the_word_before_tells_a_noun_from_a_verb() -> None:
    assert read("la porte est rouge").startswith("the door")
    assert read("je porte une veste") == "i carry a jacket"


@given(text=st.text(max_size=200) | st.text("aeioußüñé nt.,'!-\n", max_size=200))
@settings(max_examples=up_to(200), deadline=None)
def test_pieces_are_in_order_and_lose_no_word(text: str) -> None:
    pieces = list(read_in_english(text))
    starts = [piece.start for piece in pieces]
    assert starts == sorted(set(starts))
    for piece in pieces:
        if not piece.is_translated:
            assert text.startswith(piece.text, piece.start)
    if not any(piece.is_translated for piece in pieces):
        assert "".join(piece.text for piece in pieces) == text


def test_a_long_english_text_is_read_in_parts() -> None:
    text = "A short sentence. " * 5_000
    pieces = list(read_in_english(text))
    assert "".join(piece.text for piece in pieces) == text
    assert max(len(piece.text) for piece in pieces) < MAX_JOINED + 100


@pytest.mark.parametrize("name", NAMES)
def test_a_list_is_sorted_lower_case_and_has_each_word_once(name: str) -> None:
    lines = [line.partition(": ") for line in (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()]
    keys = [english for english, _, _ in lines if english != ENDINGS]
    assert all(words and words == words.lower() for _, _, words in lines)
    words = [word for english, _, words in lines if english != ENDINGS for word in words.split()]
    assert len(words) == len(set(words))
    if name != ENGLISH:
        assert keys == sorted(set(keys))
