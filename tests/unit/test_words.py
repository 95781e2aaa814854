"""Words match across case, accents, endings and scripts."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.text.tokenizer import lone, spaceless, spoken, stem, term, terms, tokens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ana's dog isn't here", ["ana", "dog", "isnt", "here"]),
        ("don\u2019t", ["dont"]),
        ("Größe, café, naïve", ["grosse", "cafe", "naive", "groesse"]),
        ("3,000 rows in v2; 3.5 each", ["3000", "rows", "in", "v2", "3.5", "each"]),
        ("snake_case_name", ["snake", "case", "name"]),
        ("userName", ["username", "user", "name"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("ПРИВЕТ мир", ["привет", "мир"]),
        ("", []),
        ("?!…", []),
    ],
)
def test_text_is_cut_into_words(text: str, words: list[str]) -> None:
    assert tokens(text) == words


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("東京", "先週、東京都に行きました。"),
        ("京", "東京"),
        ("서울", "서울에서 만났다"),
        ("ดี", "สวัสดีครับ"),
        ("カフェ", "新しいカフェへ"),
    ],
)
def test_scripts_without_spaces_are_found_by_one_and_two_characters(query: str, text: str) -> None:
    assert set(terms(query)) <= set(terms(text))


@pytest.mark.parametrize(
    ("query", "text"),
    [("Kaethe", "Käthe"), ("Käthe", "Kaethe"), ("Kathe", "Käthe"), ("Fuesse", "FU\u0308ßE"), ("Strasse", "Straße")],
)
def test_an_umlaut_is_found_however_it_is_written(query: str, text: str) -> None:
    assert set(terms(query)) & set(terms(text))


def test_no_other_word_is_taken_for_one_with_an_umlaut() -> None:
    assert tokens("queue blue poet does Joe") == ["queue", "blue", "poet", "does", "joe"]
    assert not set(terms("pot dos")) & set(terms("poet does"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("user.city", "user city"),
        ("homeAddress", "home address"),
        ("a_b-c/HTTPPort2", "a b c http port 2"),
        ("城市", "城市"),
    ],
)
def test_a_name_made_for_programs_is_said_in_words(name: str, said: str) -> None:
    assert spoken(name) == said


def test_only_a_single_character_of_a_script_without_spaces_is_lone() -> None:
    assert [lone(word) for word in ("猫", "東京", "a", "я", "")] == [True, False, False, False, False]


def test_javascript_is_found_however_it_is_written() -> None:
    assert term("javascript") in terms("Ana prefers JavaScript")
    assert term("postgresql") in terms("PostgreSQL")


@pytest.mark.parametrize(
    "family",
    [
        ["connect", "connected", "connecting", "connection", "connections"],
        ["run", "runs", "running"],
        ["hope", "hoped", "hoping"],
        ["prefer", "prefers", "preferred"],
        ["city", "cities"],
        ["use", "used", "using", "uses"],
        ["relational", "relate", "related"],
    ],
)
def test_endings_share_a_stem(family: list[str]) -> None:
    assert len({term(word) for word in family}) == 1


def test_short_and_foreign_words_keep_their_form() -> None:
    for word in ("is", "a", "привет", "東京", "x86", "3.5"):
        assert stem(word) == word


def test_different_words_stay_different() -> None:
    words = ["python", "java", "milk", "silk", "lima", "quito", "cat", "car", "card", "care", "sing"]
    assert len({term(word) for word in words}) == len(words)


@given(st.text())
def test_any_text_gives_terms_of_32_bits(text: str) -> None:
    assert all(0 <= number < 2**32 for number in terms(text))
    assert len(tokens(text)) == len(terms(text))
    assert spaceless(text) <= len(text)


@given(st.text(alphabet="abcXYZ äÖñ 09 привет", max_size=60))
def test_capitals_do_not_matter(text: str) -> None:
    assert terms(text.upper()) == terms(text.lower())


def test_lone_surrogates_do_no_harm() -> None:
    assert terms("a \ud800 b") == terms("a b")


def test_hostile_texts_take_linear_time() -> None:
    for text in ("a" * 300_000, "1," * 150_000, "a'" * 150_000, "aB" * 150_000, "1." * 150_000, "京" * 100_000):
        start = time.thread_time()
        terms(text)
        assert time.thread_time() - start < 5
