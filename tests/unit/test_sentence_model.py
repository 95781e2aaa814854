"""The model that judges sentences: what it is given, what it costs, and that it says the same everywhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from engrain.core.text.passages import split_sentences
from engrain.ingest.sentence_model import join_fragments, judge_sentences
from engrain.providers.local import local_embedder

KEPT = (
    "my sister Vera works at Bosch in Linz",
    "we switched from npm to pnpm last week",
)
PASSING = (
    "what should I cook tonight?",
    "if I moved to Oslo I would need a warmer coat",
    "lol ok thanks",
    "I'm at the station, the train is late",
    "kannst du mir das kürzer schreiben?",
)


def judge(text: str) -> list[bool]:
    sentences = join_fragments(text, split_sentences(text))
    found = judge_sentences(local_embedder().read_text(text), sentences)
    return [verdict.keep for verdict in found]


@pytest.mark.parametrize("text", KEPT)
def test_what_lasts_is_kept_in_everyday_words(text: str) -> None:
    assert judge(text) == [True]


@pytest.mark.parametrize("text", PASSING)
def test_what_passes_is_not_kept(text: str) -> None:
    assert judge(text) == [False]


def test_only_the_sentence_that_lasts_is_kept_of_a_message() -> None:
    text = "what a day. we switched from npm to pnpm last week. thanks a lot for yesterday!"
    assert judge(text) == [False, True, False]


def test_fragments_belong_to_their_neighbours_on_the_same_line() -> None:
    text = "Thea moved out. Last week. We split up.\nright"
    sentences = join_fragments(text, split_sentences(text))
    assert [text[one.start : one.end] for one in sentences] == ["Thea moved out. Last week", "We split up", "right"]


def test_the_vector_of_the_same_pass_is_the_vector_of_the_text() -> None:
    embedder, text = local_embedder(), "my sister Vera works at Bosch in Linz"
    (plain,) = embedder.embed([text], "document")
    states = embedder.read_text(text)
    whole, part = states.embed_spans([(0, len(text)), (0, 14)])
    np.testing.assert_allclose(states.vector, plain, atol=1e-6)
    np.testing.assert_allclose(whole, plain, atol=1e-6)
    assert float(part @ part) == pytest.approx(1, abs=1e-5)
    assert 0.5 < float(part @ embedder.embed(["my sister Vera"], "document")[0]) < 1


def test_a_span_beyond_the_limit_of_the_model_is_all_zero() -> None:
    text = "word " * 600 + "the end"
    (row,) = local_embedder().read_text(text).pool_spans([(len(text) - 7, len(text))])
    assert not row.any()


def test_judging_costs_little_beside_the_embedding() -> None:
    text = "We moved to Graz in May, and my sister Vera, who works at Bosch, helped with the boxes. " * 3
    sentences = join_fragments(text, split_sentences(text))
    states = local_embedder().read_text(text)
    judge_sentences(states, sentences)

    def measure(call: Callable[[], object], clock: Callable[[], float]) -> float:
        start = clock()
        call()
        return clock() - start

    # In turns, so that other programs slow down both. The embedder works in several threads.
    judging = embedding = math.inf
    for _ in range(20):
        judging = min(judging, measure(lambda: judge_sentences(states, sentences), time.thread_time))
        embedding = min(embedding, measure(lambda: local_embedder().read_text(text), time.process_time))
    assert judging < embedding / 2
