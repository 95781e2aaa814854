"""BM25 as the books have it, and the properties that every store relies on."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.text.bm25 import compute_idf, score_bm25


def test_the_formula() -> None:
    weight = math.log(1 + (10 - 2 + 0.5) / (2 + 0.5))
    expected = weight * 3 * 2.2 / (3 + 1.2 * (0.25 + 0.75 * 8 / 4))
    assert np.allclose(score_bm25([[3]], [8], compute_idf([2], 10), 4.0), [expected])


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=8), st.integers(0, 1_000))
def test_weights_are_never_negative_and_fall_with_frequency(frequency: list[int], passages: int) -> None:
    weights = compute_idf(sorted(frequency), passages)
    assert (weights >= 0).all()
    assert (np.diff(weights) <= 0).all()


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.integers(1, 500), st.floats(0, 100))
def test_more_of_a_word_never_lowers_a_score(counts: list[int], length: int, average: float) -> None:
    weights = compute_idf([1, 5, 30], 40)
    less, more = score_bm25([counts, [count + 1 for count in counts]], [length, length], weights, average)
    assert 0 <= less < more
    assert math.isfinite(more)


def test_shorter_passages_win_with_equal_counts() -> None:
    short, long = score_bm25([[1], [1]], [5, 50], compute_idf([2], 9), 10.0)
    assert short > long
