"""Words match across case, accents, endings and scripts."""

import time
import unicodedata

import pytest
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.text.tokenizer import (
    count_unspaced_characters,
    extract_terms,
    hash_term,
    is_lone_character,
    normalize_unicode,
    split_identifier,
    stem_word,
    tokenize,
)


@for_each(
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
    assert tokenize(text) == words


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
    assert set(extract_terms(query)) <= set(extract_terms(text))


@pytest.mark.parametrize(
    ("query", "text"),
    [("Kaethe", "Käthe"), ("Käthe", "Kaethe"), ("Kathe", "Käthe"), ("Fuesse", "FU\u0308ßE"), ("Strasse", "Straße")],
)
def test_an_umlaut_is_found_however_it_is_written(query: str, text: str) -> None:
    assert set(extract_terms(query)) & set(extract_terms(text))


def test_no_other_word_is_taken_for_one_with_an_umlaut() -> None:
    assert tokenize("queue blue poet does Joe") == ["queue", "blue", "poet", "does", "joe"]
    assert not set(extract_terms("pot dos")) & set(extract_terms("poet does"))


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
    assert split_identifier(name) == said


def test_only_a_single_character_of_a_script_without_spaces_is_lone() -> None:
    assert [is_lone_character(word) for word in ("猫", "東京", "a", "я", "")] == [True, False, False, False, False]


def test_javascript_is_found_however_it_is_written() -> None:
    assert hash_term("javascript") in extract_terms("Ana prefers JavaScript")
    assert hash_term("postgresql") in extract_terms("PostgreSQL")


@for_each(
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
    assert len({hash_term(word) for word in family}) == 1


def test_short_and_foreign_words_keep_their_form() -> None:
    for word in ("is", "a", "привет", "東京", "x86", "3.5"):
        assert stem_word(word) == word


def test_different_words_stay_different() -> None:
    words = ["python", "java", "milk", "silk", "lima", "quito", "cat", "car", "card", "care", "sing"]
    assert len({hash_term(word) for word in words}) == len(words)


@given(st.text())
def test_any_text_gives_terms_of_32_bits(text: str) -> None:
    assert all(0 <= number < 2**32 for number in extract_terms(text))
    assert len(tokenize(text)) == len(extract_terms(text))
    assert count_unspaced_characters(text) <= len(text)


@given(st.text(alphabet="abcXYZ äÖñ 09 привет", max_size=60))
def test_capitals_do_not_matter(text: str) -> None:
    assert extract_terms(text.upper()) == extract_terms(text.lower())


def test_lone_surrogates_do_no_harm() -> None:
    assert extract_terms("a \ud800 b") == extract_terms("a b")


def test_hostile_texts_take_linear_time() -> None:
    for text in ("a" * 300_000, "1," * 150_000, "a'" * 150_000, "aB" * 150_000, "1." * 150_000, "京" * 100_000):
        start = time.thread_time()
        extract_terms(text)
        assert time.thread_time() - start < 5


# Letters with marks, syllables of Hangul, vowels of two parts: whatever joins must not be cut between two pieces.
JOINING = [
    "e\u0301",
    "\u1112\u1161\u11ab",
    "\u0995\u09c7\u09be",
    "か\u3099",
    "क\u093c",
    "ｶﾞ",
    "\u0316\u0301",
    "a",
    "漢",
    " ",
]


@given(st.lists(st.sampled_from(JOINING), min_size=1, max_size=8), st.integers(100, 700))
def test_a_long_text_is_normalized_as_a_whole(parts: list[str], times: int) -> None:
    text = "a".join("".join(parts) * 2 for _ in range(times))
    assert normalize_unicode("NFC", text) == unicodedata.normalize("NFC", text)
    assert normalize_unicode("NFKD", text) == unicodedata.normalize("NFKD", text)
