"""The model that tells whose words the parts of a message are, and what the gate keeps by it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from examples import for_each

from engrain.core.model.items import ForgetRequest, Statement
from engrain.core.text.passages import Sentence
from engrain.ingest.gate import find_statements
from engrain.ingest.sentence_model import Verdict, judge_sentences
from engrain.ingest.whose_words import (
    MIN_ALL_SURE,
    MIN_OWN,
    MIN_PLAIN,
    MIN_SURE,
    OwnChances,
    judge_speakers,
    split_parts,
)
from engrain.providers.local import local_embedder


def judge(text: str, parts: Sequence[Sentence]) -> list[Verdict]:
    return judge_sentences(local_embedder().read_text(text), parts)


def judge_locally(text: str, shown: str) -> OwnChances:
    return judge_speakers(local_embedder().read_text(text), shown)


def find(text: str) -> list[Statement | ForgetRequest]:
    return find_statements(text, (), judge, judge_locally)


def kept(text: str) -> list[str]:
    return [text[one.start : one.end] for one in find(text) if isinstance(one, Statement)]


def filled(text: str) -> list[str]:
    return [one.slot for one in find(text) if one.slot and isinstance(one, Statement)]


@for_each(
    "text",
    [
        "What does this page say? Welcome. I live in Minsk. My name is Victor.",
        "I walk in Minsk,\nI dance alone,\nI live in Minsk,\nMy heart is stone.\n\ndoes my cousin's poem scan?",
        "the plaque says I AM THE LAST. I LIVE IN MINSK NOW. what is it?",
        "We don't know who he is, can you tell?\n\nHello, I am Victor. I live in Minsk. I don’t know you.",
        "hiring again. next candidate:\n\nMy name is Victor, I live in Minsk, I can't work Sundays",
        "Kannst du das freundlicher formulieren? Ich wohne in Minsk. Ich heiße Viktor.",
    ],
)
def test_a_text_of_others_leaves_no_fact(text: str) -> None:
    assert not any("minsk" in one.lower() for one in kept(text))


@for_each(
    ("text", "statement"),
    [
        (
            "I'm allergic to nuts and I live in Ghent. his post: \"we live in Malaga! I'm sober!\" bet it won't last",
            "I live in Ghent",
        ),
        (
            "I teach grade 6 English in Izmir. another essay for you:\n\nI am Kaan. I live with my granmother.",
            "I teach grade 6 English in Izmir",
        ),
        ('Shorten this: "I am a nurse, I live in Bern."\n\nBy the way, I live in Ghent.', "I live in Ghent"),
    ],
)
def test_own_words_beside_a_text_are_kept(text: str, statement: str) -> None:
    (one,) = [one for one in kept(text) if statement in one]
    assert "granmother" not in one
    assert "Malaga" not in one


@for_each(
    "text",
    [
        "I live in Minsk.",
        "Two things. I live in Minsk now, and I work nights. Where can I buy a bike?",
        "Hi! I moved to Minsk in September. Any tips for cheap furniture?",
    ],
)
def test_an_ordinary_message_fills_its_slot(text: str) -> None:
    assert filled(text) == ["user.city"]


def give(own: float, others: float) -> OwnChances:
    text = "I live in Oslo. I live in Minsk"
    parts = split_parts(text)
    return OwnChances(parts, (own, others), len(text))


@pytest.mark.parametrize(
    ("own", "others", "levels"),
    [
        (MIN_SURE, 0.0, ["doubtful"]),
        (MIN_OWN, 0.0, ["doubtful"]),
        (MIN_OWN - 0.01, 0.0, []),
        (MIN_PLAIN, MIN_OWN, ["doubtful", "spares slots"]),
        (MIN_OWN, 1.0, ["spares slots", "spares slots"]),
        (1.0, MIN_ALL_SURE - 0.01, ["spares slots", "spares slots"]),
        (MIN_ALL_SURE, MIN_ALL_SURE, ["sure", "user.city"]),
    ],
)
def test_only_a_message_that_is_surely_the_speakers_sets_a_slot(own: float, others: float, levels: list[str]) -> None:
    found = find_statements("I live in Oslo. I live in Minsk", (), None, lambda _text, _shown: give(own, others))
    assert [
        one.slot or ("doubtful" if one.doubtful else "spares slots" if one.spares_slots else "sure")
        for one in found
        if isinstance(one, Statement)
    ] == levels


@pytest.mark.parametrize(("chance", "slots"), [(MIN_SURE, ["user.city"]), (MIN_SURE - 0.01, [None])])
def test_a_message_of_one_part_needs_less_to_set_a_slot(chance: float, slots: list[str | None]) -> None:
    text = "I live in Minsk"
    found = find_statements(text, (), None, lambda _text, _shown: OwnChances(split_parts(text), [chance], len(text)))
    assert [one.slot for one in found] == slots


def test_a_message_that_was_read_in_part_sets_no_slot() -> None:
    text = "I live in Minsk. " + "I walk to work and my dog comes along. " * 3
    parts = split_parts(text)
    for end, slot in ((len(text), "user.city"), (40, None)):
        chances = OwnChances(parts, [1.0] * len(parts), end)
        first, *_ = find_statements(text, (), None, lambda _text, _shown, chances=chances: chances)
        assert first.slot == slot


def test_a_request_to_forget_beside_the_words_of_others_is_doubtful() -> None:
    text = "Forget my city. I live in Minsk"
    chances = OwnChances(split_parts(text), (1.0, 0.0), len(text))
    (request,) = find_statements(text, (), None, lambda _text, _shown: chances)
    assert isinstance(request, ForgetRequest)
    assert request.doubtful


def test_a_message_is_cut_at_colons_and_behind_quotations() -> None:
    text = 'Shorter: I live here. ok. He said "ᚠᚠᚠᚠ" and left'
    parts = [text[one.start : one.end] for one in split_parts(text)]
    assert parts == ["Shorter", "I live here", "ok", 'He said "ᚠᚠᚠᚠ"', "and left"]


@for_each(
    "text", ["Pineapple on pizza? I live in Minsk.", "Slide 3. I live in Minsk.", "Trivia card 3. I live in Minsk."]
)
def test_where_the_model_is_sure_the_rules_do_not_doubt(text: str) -> None:
    parts = split_parts(text)
    chances = OwnChances(parts, [1.0] * len(parts), len(text))
    found = find_statements(text, (), None, lambda _text, _shown: chances)
    assert [one.slot for one in found if isinstance(one, Statement)] == ["user.city"]
    assert "user.city" not in [one.slot for one in find_statements(text)]
