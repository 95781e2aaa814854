"""Tests of the Reranker port: a number for each text in order, from any thread, and one error for every failure."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from engrain.core.errors import RerankerFailed
from engrain.ports.reranker import Reranker

# What the service or the model behind a reranker answers: its scores, whatever they are, or an error.
Answer = Callable[[str, Sequence[str]], list[Any]]
OpenReranker = Callable[[Answer], Reranker]

QUESTION = "Where does Ana live?"
TEXTS = (
    "The parser reads integers.",
    "Ana does live in Lima.",
    "Ana: where?\nBen: here.",
    'He said "no", \\ and left.',
    "東京",
    "",
    "word " * 2_000,
)


def count_common_words(query: str, texts: Sequence[str]) -> list[Any]:
    """Answer as a good service does."""
    asked = set(query.lower().split())
    return [len(asked.intersection(text.lower().split())) for text in texts]


def _refuse(query: str, texts: Sequence[str]) -> list[Any]:
    raise RuntimeError("out of memory")


class RerankerSuite:
    """A backend's test gives `open_reranker`: it opens a reranker whose service or model answers so.

    `late_seconds` is the longest time that such a reranker waits for an answer. None: it computes in the process, and
    only the caller can stop waiting.
    """

    late_seconds: ClassVar[float | None] = None

    @pytest.fixture
    def open_reranker(self) -> OpenReranker:
        raise NotImplementedError("give the suite an `open_reranker` fixture.")

    @pytest.fixture
    def reranker(self, open_reranker: OpenReranker) -> Reranker:
        return open_reranker(count_common_words)

    def test_it_has_a_name_for_people(self, reranker: Reranker) -> None:
        assert reranker.name.strip()

    def test_each_text_has_a_finite_number(self, reranker: Reranker) -> None:
        scores = reranker.score(QUESTION, TEXTS)
        assert len(scores) == len(TEXTS)
        assert all(type(one) is float and math.isfinite(one) for one in scores)

    def test_the_better_a_text_answers_the_higher_its_number(self, reranker: Reranker) -> None:
        worse, better = reranker.score(QUESTION, TEXTS[:2])
        assert better > worse

    def test_the_numbers_have_the_order_of_the_texts(self, reranker: Reranker) -> None:
        assert list(reranker.score(QUESTION, TEXTS[::-1])) == list(reranker.score(QUESTION, TEXTS))[::-1]

    def test_equal_texts_have_a_number_each(self, reranker: Reranker) -> None:
        first, second = reranker.score(QUESTION, [TEXTS[1], TEXTS[1]])
        assert first == second

    def test_no_text_is_no_number(self, reranker: Reranker) -> None:
        assert list(reranker.score(QUESTION, [])) == []

    def test_any_scale_will_do(self, open_reranker: OpenReranker) -> None:
        reranker = open_reranker(lambda _, texts: [-1e9 * number for number in range(len(texts))])
        assert list(reranker.score(QUESTION, TEXTS[:3])) == [0.0, -1e9, -2e9]

    def test_threads_get_their_own_numbers(self, reranker: Reranker) -> None:
        queries = [" ".join(QUESTION.split()[:count]) for count in (1, 2, 3, 4)] * 5
        wanted = [list(reranker.score(query, TEXTS[:3])) for query in queries]
        with ThreadPoolExecutor(8) as threads:
            assert [list(one) for one in threads.map(lambda query: reranker.score(query, TEXTS[:3]), queries)] == wanted

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(_refuse, id="an error"),
            pytest.param(lambda _, texts: [1.0] * (len(texts) - 1), id="too few"),
            pytest.param(lambda _, texts: [1.0] * (len(texts) + 1), id="too many"),
            pytest.param(lambda _, texts: [], id="none"),
            pytest.param(lambda _, texts: [*[1.0] * (len(texts) - 1), math.nan], id="not a number"),
            pytest.param(lambda _, texts: [math.inf] * len(texts), id="infinite"),
            pytest.param(lambda _, texts: [10**400] * len(texts), id="too large"),
            pytest.param(lambda _, texts: ["good"] * len(texts), id="words"),
            pytest.param(lambda _, texts: [None] * len(texts), id="nulls"),
            pytest.param(lambda _, texts: [[1.0]] * len(texts), id="lists"),
        ],
    )
    def test_an_answer_that_is_of_no_use_is_an_error(self, open_reranker: OpenReranker, answer: Answer) -> None:
        with pytest.raises(RerankerFailed) as failed:
            open_reranker(answer).score(QUESTION, TEXTS[:3])
        assert str(failed.value).strip()

    def test_it_can_be_used_again_after_a_failure(self, open_reranker: OpenReranker) -> None:
        answers: Iterator[Answer] = iter((lambda _, texts: [], count_common_words))
        reranker = open_reranker(lambda query, texts: next(answers)(query, texts))
        with pytest.raises(RerankerFailed):
            reranker.score(QUESTION, TEXTS[:3])
        assert len(reranker.score(QUESTION, TEXTS[:3])) == 3

    def test_an_answer_that_is_late_is_an_error(self, open_reranker: OpenReranker) -> None:
        if self.late_seconds is None:
            pytest.skip("it computes in the process: recall stops waiting for it")
        told = threading.Event()

        def wait(query: str, texts: Sequence[str]) -> list[Any]:
            told.wait(20 * (self.late_seconds or 0))
            return [1.0] * len(texts)

        try:
            with pytest.raises(RerankerFailed):
                open_reranker(wait).score(QUESTION, TEXTS[:3])
        finally:
            told.set()
