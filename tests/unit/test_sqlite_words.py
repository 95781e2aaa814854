"""Word search: the scope's own numbers, the best passage of each item, exact order."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from examples import up_to
from hypothesis import given, settings
from hypothesis import strategies as st
from index_store import ANA, BEN, IndexStore, words_of

from engrain.core.model.queries import WordQuery
from engrain.stores.sqlite.index import words as word_index
from engrain.stores.sqlite.index.words import Postings, parse_pairs

passage = st.dictionaries(st.integers(1, 12), st.sampled_from([1, 1, 1, 2, 3, 30, 31, 32, 900, 65_535]), max_size=6)


def check(store: IndexStore, terms: tuple[int, ...], limit: int) -> None:
    found, wanted = store.best(terms, limit), store.true_words(terms)
    assert [tuple(hit) for hit in found.hits] == wanted["hits"][:limit]
    assert (found.passages, found.frequency) == (wanted["passages"], wanted["frequency"])
    assert found.average == pytest.approx(wanted["average"])


@settings(max_examples=up_to(80), deadline=None)
@given(
    items=st.lists(st.lists(passage, min_size=1, max_size=4), min_size=1, max_size=40),
    terms=st.lists(st.integers(1, 13), min_size=1, max_size=5, unique=True),
    limit=st.integers(1, 45),
)
def test_the_ranking_is_that_of_the_oracle(items: list[list[dict[int, int]]], terms: list[int], limit: int) -> None:
    store = IndexStore()
    for passages in items:
        store.add(passages=passages)
    check(store, tuple(terms), limit)


def test_the_highest_and_the_lowest_term_are_found() -> None:
    store = IndexStore()
    store.add(passages=[{0: 1, 2**32 - 1: 2}])
    store.add(passages=[{2**32 - 2: 1, 1: 1}])
    check(store, (0, 2**32 - 1), 5)
    check(store, (2**32 - 2,), 5)


def test_another_scope_changes_no_number() -> None:
    store = IndexStore()
    for place in range(30):
        store.add(passages=[{1: 1, 2 + place % 3: 1}])
    before = store.best((1, 2, 3), 30)
    for _ in range(50):
        store.add(BEN, passages=[{1: 9, 2: 5}])
    assert store.best((1, 2, 3), 30) == before
    assert len(store.best((1, 2, 3), 100, scope=BEN).hits) == 50
    assert store.new_index().best(WordQuery((1, 2, 3), ANA, limit=30)) == before


def test_ties_come_newest_first_and_the_first_of_equal_passages_is_named() -> None:
    store = IndexStore()
    rows = [store.add(passages=[{5: 1}, {1: 1}, {1: 1}]) for _ in range(20)]
    hits = store.best((1,), 3).hits
    assert [hit.id for hit in hits] == [row.id for row in reversed(rows[-3:])]
    assert {hit.passage for hit in hits} == {1}


def test_equal_scores_tie_in_whatever_order_their_parts_are_added() -> None:
    store = IndexStore()
    rows = [store.add(passages=[dict(zip((1, 2, 3, 4), counts, strict=True))]) for counts in permutations((1, 2, 3, 7))]
    assert [hit.id for hit in store.best((1, 2, 3, 4), 100).hits] == [row.id for row in reversed(rows)]


def test_a_passage_beyond_what_an_item_admits_to_stays_with_the_item() -> None:
    blobs = [words_of([{1: 1}, {2: 1}, {3: 1}]).pairs, words_of([{4: 1}]).pairs]
    pairs = parse_pairs(blobs, np.array([1, 1]))
    assert pairs.passages.tolist() == [3, 1]
    assert pairs.passage.tolist() == [0, 1, 2, 3]


def test_counts_come_in_the_order_asked_and_without_those_that_have_no_term() -> None:
    store = IndexStore()
    rows = [store.add(passages=[{place % 3: 1, 9: 1}, {place % 3: 4}]) for place in range(9)]
    past = store.add(passages=[{1: 1}], valid_to=5)
    asked = [rows[4].id, "unknown", rows[0].id, rows[1].id, rows[4].id, past.id]
    found = store.index.counts(WordQuery((1, 7), ANA, limit=1), asked)
    assert [tuple(hit) for hit in found.hits] == [
        (rows[4].id, 1, 4, (4, 0)), (rows[1].id, 1, 4, (4, 0)), (rows[4].id, 1, 4, (4, 0)),
    ]  # fmt: skip
    best = store.best((1, 7), 100)
    assert (found.passages, found.average, found.frequency) == (best.passages, best.average, best.frequency)


def test_nothing_to_look_for_and_nothing_to_look_in() -> None:
    store = IndexStore()
    empty = store.best((1, 2))
    assert (empty.hits, empty.passages, empty.average, empty.frequency) == ([], 0, 0.0, (0, 0))
    store.add(passages=[{}, {}])
    assert store.best((1,)).hits == []
    assert store.best((1,)).passages == 2
    assert store.best(()).hits == []
    assert store.best((1,), 0).hits == []


@settings(max_examples=up_to(40), deadline=None)
@given(st.lists(st.lists(passage, min_size=1, max_size=3), min_size=1, max_size=60), st.integers(2, 30))
def test_a_tail_that_is_merged_holds_what_one_run_would(items: list[list[dict[int, int]]], tail: int) -> None:
    runs = Postings()
    kept = word_index.MAX_TAIL
    word_index.MAX_TAIL = tail
    wanted: dict[int, list[tuple[int, int]]] = {}
    try:
        number = 0
        for one in items:
            for counts in one:
                terms = np.array(sorted(counts), dtype=np.uint32)
                times = np.array([counts[term] for term in sorted(counts)], dtype=np.uint32)
                runs.add(terms, np.full(len(terms), number), times)
                for term, count in counts.items():
                    wanted.setdefault(term, []).append((number, count))
                number += 1
            runs.sort_tail()
    finally:
        word_index.MAX_TAIL = kept
    for term, (passages, counts) in zip(range(14), runs.find(tuple(range(14))).split(), strict=True):
        assert list(zip(passages.tolist(), counts.tolist(), strict=True)) == wanted.get(term, [])
