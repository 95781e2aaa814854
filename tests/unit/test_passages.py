"""Passages cover a text in order, and its words are stored by passage."""

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.text.passages import (
    CHARACTERS_PER_PASSAGE,
    WORDS_PER_PASSAGE,
    NamedText,
    find_sentence_spans,
    index_many,
    index_words,
    split_passages,
    split_sentences,
)
from engrain.core.text.tokenizer import extract_terms, hash_term


def unpacked(pairs: bytes) -> list[tuple[int, int, int]]:
    return [(packed >> 16, number, packed & 0xFFFF) for number, packed in struct.iter_unpack("<II", pairs)]


def test_a_short_text_is_one_passage() -> None:
    assert split_passages("  One. Two!\nThree? ") == [(2, 18)]


def test_an_empty_text_has_none() -> None:
    assert split_passages(" \n ") == []
    assert index_words("").pairs == b""


def test_a_long_text_breaks_at_sentences_and_lines() -> None:
    sentence = "This sentence has exactly eight words in it. "
    text = sentence * 30
    pieces = [text[start:end] for start, end in split_passages(text)]
    assert len(pieces) == 3
    assert all(piece.endswith("it.") and len(piece.split()) <= WORDS_PER_PASSAGE for piece in pieces)


@given(st.text(max_size=3_000) | st.text(alphabet="ab .\n京", max_size=4_000))
def test_passages_are_in_order_within_bounds_and_miss_nothing(text: str) -> None:
    spans = split_passages(text)
    last = 0
    for start, end in spans:
        assert last <= start < end <= len(text)
        assert not text[last:start].strip()
        assert end - start <= CHARACTERS_PER_PASSAGE
        assert text[start:end] == text[start:end].strip()
        last = end
    assert not text[last:].strip()


@pytest.mark.parametrize("text", ["x" * 100_000, "word " * 20_000, "京" * 50_000, "a.\n" * 30_000, "?" * 100_000])
def test_hostile_texts_are_cut_quickly(text: str) -> None:
    start = time.thread_time()
    assert all(end - first <= CHARACTERS_PER_PASSAGE for first, end in split_passages(text))
    index_words(text)
    assert time.thread_time() - start < 5


def test_words_are_sorted_by_passage_and_term_and_counted() -> None:
    text = "tea tea cake. " * 40
    found = unpacked(index_words(text).pairs)
    assert found == sorted(found)
    assert index_words(text).passages == len(split_passages(text)) == 2
    first = {number: count for passage, number, count in found if passage == 0}
    start, end = split_passages(text)[0]
    assert sum(first.values()) == len(extract_terms(text[start:end]))
    assert first[hash_term("tea")] == 2 * first[hash_term("cake")]


def test_a_named_speaker_counts_in_every_passage_and_a_role_in_none() -> None:
    text = "tea and cake, please. " * 60
    named = [passage for passage, number, _ in unpacked(index_words(text, "Ana").pairs) if number == hash_term("ana")]
    assert named == list(range(len(split_passages(text))))
    assert index_words(text, "Assistant") == index_words(text, None)


TEXTS = st.text(max_size=300) | st.text(alphabet="ab .\n京", max_size=3_000)


NAMED_TEXTS = st.tuples(TEXTS, st.sampled_from([None, "Ana", "user"]), st.sampled_from([None, "user.city"]))


@given(st.lists(NAMED_TEXTS, min_size=8))
def test_many_texts_are_indexed_like_each_alone(texts: list[NamedText]) -> None:
    assert index_many(texts) == [index_words(*one) for one in texts]


def test_more_texts_than_one_round_takes_and_a_long_one_are_indexed_alike() -> None:
    texts: list[NamedText] = [(f"tea {number}", None, None) for number in range(1_100)]
    texts.insert(3, ("tea " * 500, None, None))
    assert index_many(texts) == [index_words(*one) for one in texts]


@pytest.mark.parametrize(
    "text",
    [
        "Am 12. April lauf ich meinen ersten Halbmarathon. Dann ist Ruhe.",
        "Mia kommt in die 2. Klasse. Tom bleibt zu Hause.",
        "Ab dem 15. sind wir weg. Bis bald.",
        "Dr. Okafor is my new doctor. She is kind.",
    ],
)
def test_a_dot_within_a_sentence_ends_none(text: str) -> None:
    first, second = find_sentence_spans(text, 0, len(text))
    assert text[slice(*first)] + " " + text[slice(*second)] == text
    assert [text[one.start : one.end] + "." for one in split_sentences(text)] == [
        text[slice(*first)],
        text[slice(*second)],
    ]
