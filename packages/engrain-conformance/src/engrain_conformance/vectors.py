"""Tests of the VectorIndex port: exact order, inside the scope, after filter and validity."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from engrain.core.identity import Scope
from engrain.core.model.items import Vectors
from engrain.core.model.plans import Change, Embed, Plan
from engrain.core.model.queries import Nearest, VectorQuery
from engrain.ports.items import ItemStore
from engrain.ports.search import VectorIndex
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    EMBEDDER,
    MODEL,
    add,
    correct,
    fact,
    forget,
    hostile_scopes,
    list_items,
    vector_query,
    without_vectors,
)
from engrain_conformance.embedder import DIMENSION, HashEmbedder
from engrain_conformance.suite import Suite

Feed = Callable[[], None]
CLOSE = 1e-5


def random_rows(count: int, seed: int) -> Any:
    random = np.random.default_rng(seed).standard_normal((count, DIMENSION))
    return (random / np.linalg.norm(random, axis=1, keepdims=True)).astype(np.float32)


def fact_with_rows(text: str, *vectors: Any, **values: Any) -> Any:
    return fact(text, vectors=Vectors(MODEL, tuple(row.astype("<f4").tobytes() for row in vectors)), **values)


def check_order(found: Nearest, truth: dict[str, float], limit: int) -> None:
    """Exact up to the rounding of float32."""
    assert found.exact
    assert len(found.ids) == len(set(found.ids)) == min(limit, len(truth))
    assert found.cosines == pytest.approx([truth[id] for id in found.ids], abs=CLOSE)
    assert found.cosines == sorted(found.cosines, reverse=True)
    assert found.cosines == pytest.approx(sorted(truth.values(), reverse=True)[:limit], abs=CLOSE)


def check_background(found: float | None, truth: float) -> None:
    assert found == pytest.approx(truth, abs=0.02)


class VectorIndexSuite(Suite):
    """An approximate index overrides check_order and check_background; everything else holds for it as well."""

    check_order = staticmethod(check_order)
    check_background = staticmethod(check_background)

    @pytest.mark.parametrize("limit", [1, 10, 299, 300, 1_000])
    def test_the_nearest_are_those_of_a_full_comparison(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed, limit: int
    ) -> None:
        matrix = random_rows(300, 1)
        ids = add(store, *(fact_with_rows(f"item {n}", row) for n, row in enumerate(matrix)))
        feed()
        for query in random_rows(5, 2):
            truth = {
                id: float(np.dot(row.astype(float), query.astype(float))) for id, row in zip(ids, matrix, strict=True)
            }
            self.check_order(vectors.nearest(VectorQuery(query, MODEL, ANA, limit=limit)), truth, limit)

    def test_a_text_is_nearest_to_itself(self, store: ItemStore, vectors: VectorIndex, feed: Feed) -> None:
        ids = add(store, fact("Ana likes tea."), fact("The weather in Oslo."))
        feed()
        found = vectors.nearest(vector_query("Ana likes tea."))
        assert found.ids[0] == ids[0]
        assert found.cosines[0] == pytest.approx(1.0, abs=CLOSE)
        opposite = VectorQuery(-EMBEDDER.embed(["Ana likes tea."], "query")[0], MODEL, ANA)
        assert vectors.nearest(opposite).cosines[-1] == pytest.approx(-1.0, abs=CLOSE)
        assert all(
            -1 <= cosine <= 1 for query in (vector_query("tea"), opposite) for cosine in vectors.nearest(query).cosines
        )

    def test_equals_come_newer_first(self, store: ItemStore, vectors: VectorIndex, feed: Feed, clock: SetClock) -> None:
        row, other = random_rows(2, 3)
        ids = add(store, *(fact_with_rows(f"a{n}", row if n % 3 else other) for n in range(20)))
        clock.advance()
        ids += add(store, *(fact_with_rows(f"b{n}", row) for n in range(13)))
        feed()
        same = [id for n, id in enumerate(ids) if n >= 20 or n % 3][::-1]
        assert vectors.nearest(VectorQuery(row, MODEL, ANA, limit=5)).ids == same[:5]
        assert vectors.nearest(VectorQuery(row, MODEL, ANA, limit=100)).ids[: len(same)] == same

    def test_an_item_counts_with_its_best_vector(self, store: ItemStore, vectors: VectorIndex, feed: Feed) -> None:
        matrix = random_rows(9, 4)
        many, one = add(store, fact_with_rows("many", *matrix[:8]), fact_with_rows("one", matrix[8]))
        feed()
        for n, row in enumerate(matrix):
            found = vectors.nearest(VectorQuery(row, MODEL, ANA, limit=2))
            assert found.ids == ([many, one] if n < 8 else [one, many])
            assert found.cosines[0] == pytest.approx(1.0, abs=CLOSE)

    def test_the_background_is_the_mean_of_all_that_was_compared(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed, clock: SetClock
    ) -> None:
        matrix, query = random_rows(60, 11), random_rows(1, 12)[0]
        matrix[:20] = query * 0.6 + matrix[:20] * 0.8
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        truth = matrix.astype(float) @ query.astype(float)
        add(store, fact_with_rows("many", *matrix[:9], metadata={"n": 0}))
        add(store, *(fact_with_rows(str(n), row, metadata={"n": n}) for n, row in enumerate(matrix[9:40], 9)))
        add(store, *(fact_with_rows(str(n), row, slot=f"s{n}") for n, row in enumerate(matrix[40:], 40)))
        clock.advance()
        add(store, *(without_vectors(f"Later {n}.", slot=f"s{n}") for n in range(40, 60)))
        add(store, *(fact_with_rows(f"foreign {n}", query) for n in range(9)), scope=BEN)
        feed()
        for where, at, expected in (
            (None, None, truth[:40]),
            (None, START, truth),
            ({"metadata.n": {"<": 20}}, None, truth[:20]),
            ({"metadata.n": 30}, None, truth[30:31]),
        ):
            asked = vector_query("x", where=where, at=at, limit=3)
            found = vectors.nearest(VectorQuery(query, MODEL, ANA, asked.where, at, 3)).background
            self.check_background(found, float(expected.mean()))
        assert vectors.nearest(vector_query("x", where={"metadata.n": 99})).background is None
        assert vectors.nearest(vector_query("x", model="unknown")).background is None

    def test_a_long_text_is_found_by_its_end(self, store: ItemStore, vectors: VectorIndex, feed: Feed) -> None:
        text = "Filler sentence about nothing at all. " * 40 + "The password is xylophone quartz."
        long, _ = add(store, fact(text), fact("Something else entirely."))
        feed()
        query = VectorQuery(EMBEDDER.embed([EMBEDDER.windows(text)[-1]], "query")[0], MODEL, ANA, limit=1)
        assert vectors.nearest(query).ids == [long]

    def test_filter_and_validity_come_before_the_limit(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed, clock: SetClock
    ) -> None:
        query = "Ana likes tea"
        (match, dated) = add(
            store,
            fact("Something else.", metadata={"keep": True}),
            fact("Or this.", metadata={"keep": True}, occurred_at=START - timedelta(days=9)),
        )
        add(store, *(fact(f"{query} {n}", metadata={"keep": False}) for n in range(30)))
        expired = add(store, *(fact(f"{query}! {n}", expires_at=START + timedelta(seconds=1)) for n in range(9)))
        closed = add(store, *(fact(f"{query}? {n}", slot=f"s{n}") for n in range(9)))
        clock.advance()
        add(store, *(fact(f"Zzz {n}.", slot=f"s{n}") for n in range(9)))
        feed()
        assert set(vectors.nearest(vector_query(query, where={"metadata.keep": True}, limit=3)).ids) == {match, dated}
        hidden = {*expired, *closed}
        assert not hidden & set(vectors.nearest(vector_query(query, limit=100)).ids)
        assert hidden <= set(vectors.nearest(vector_query(query, at=START, limit=100)).ids)
        past = vector_query(query, at=START - timedelta(days=1), limit=5)
        assert vectors.nearest(past).ids == [dated]

    def test_corrected_and_forgotten_items_are_not_found(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed
    ) -> None:
        wrong, gone = add(store, fact("Ana likes coffee."), fact("Ana likes cocoa."))
        feed()
        assert len(vectors.nearest(vector_query("Ana likes coffee.")).ids) == 2
        right = correct(store, wrong, fact("Ana likes tea.")).id
        forget(store, gone)
        feed()
        for at in (None, START):
            assert vectors.nearest(vector_query("Ana likes coffee.", at=at)).ids == [right]

    def test_a_write_is_seen_at_once(self, store: ItemStore, vectors: VectorIndex, feed: Feed, clock: SetClock) -> None:
        for n in range(30):
            (id,) = add(store, fact(f"Number {n} of many."))
            feed()
            assert vectors.nearest(vector_query(f"Number {n} of many.", limit=1)).ids == [id]
            if n % 3 == 0:
                store.apply(Plan(ANA, (Change(id, metadata={"n": n}),)))
                feed()
                found = vectors.nearest(vector_query("Number", where={"metadata.n": n}))
                assert found.ids == [id]
            if n % 5 == 0:
                forget(store, id)
                feed()
                assert id not in vectors.nearest(vector_query(f"Number {n} of many.", limit=99)).ids

    def test_another_handle_s_write_is_seen_at_once(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed, another: Callable[[], Any]
    ) -> None:
        other = another()
        for n in range(5):
            (id,) = add(other, fact(f"Number {n}."))
            feed()
            assert vectors.nearest(vector_query(f"Number {n}.", limit=1)).ids == [id]
        forget(other, id)
        feed()
        assert id not in vectors.nearest(vector_query("Number 4.")).ids

    def test_models_are_never_compared(self, store: ItemStore, vectors: VectorIndex, feed: Feed) -> None:
        other = HashEmbedder("other")
        (a, b) = add(store, fact("Ana likes tea."), fact("Ana likes tea!", vectors=other.vectors("Ana likes tea!")))
        add(store, without_vectors("Ana likes tea?"))
        feed()
        assert vectors.nearest(vector_query("Ana likes tea.")).ids == [a]
        assert vectors.nearest(vector_query("Ana likes tea.", model=other.model.key)).ids == [b]
        assert vectors.nearest(vector_query("Ana likes tea.", model="unknown")).ids == []

    def test_embedding_replaces_the_vectors_of_the_model(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed
    ) -> None:
        first, second, third = random_rows(3, 5)
        (id,) = add(store, fact_with_rows("text", first, second))
        (hash,) = (pending.hash for pending in store.unembedded("unknown", 1))
        store.apply(Plan(ANA, (Embed(id, hash, fact_with_rows("text", third).vectors),)))
        feed()
        assert vectors.nearest(VectorQuery(third, MODEL, ANA)).cosines == pytest.approx([1.0], abs=CLOSE)
        assert vectors.nearest(VectorQuery(first, MODEL, ANA)).cosines[0] < 0.9

    def test_the_scope_is_never_crossed(self, store: ItemStore, vectors: VectorIndex, feed: Feed) -> None:
        (foreign,) = add(store, fact("Ana likes tea."), scope=BEN)
        feed()
        assert vectors.nearest(vector_query("Ana likes tea.")).ids == []
        assert math.isnan(vectors.cosines(vector_query("Ana likes tea."), [foreign])[0])
        (own,) = add(store, fact("Mine."))
        feed()
        assert vectors.nearest(vector_query("Ana likes tea.")).ids == [own]

    def test_scopes_with_awkward_names_are_kept_apart(self, store: ItemStore, vectors: VectorIndex, feed: Feed) -> None:
        own = {scope: add(store, fact("The same text."), scope=scope) for scope in hostile_scopes()}
        feed()
        for scope, ids in own.items():
            assert vectors.nearest(vector_query("The same text.", scope, limit=99)).ids == ids

    def test_rows_of_another_scope_change_nothing(self, store: ItemStore, vectors: VectorIndex, feed: Feed) -> None:
        add(store, *(fact_with_rows(str(n), row) for n, row in enumerate(random_rows(30, 6))))
        feed()
        query = VectorQuery(random_rows(1, 7)[0], MODEL, ANA, limit=10)
        before = vectors.nearest(query)
        add(store, *(fact_with_rows(str(n), query.vector) for n in range(60)), scope=BEN)
        add(store, fact("x"), scope=Scope())
        feed()
        assert vectors.nearest(query) == before

    def test_cosines_are_given_in_the_order_asked(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed, clock: SetClock
    ) -> None:
        matrix = random_rows(20, 8)
        ids = add(store, *(fact_with_rows(str(n), row) for n, row in enumerate(matrix)))
        (bare, slot) = add(store, without_vectors("bare"), fact("Lima", slot="city"))
        clock.advance()
        add(store, fact("Quito", slot="city"))
        feed()
        query = VectorQuery(matrix[0], MODEL, ANA, limit=1)
        mixed = [*ids[::-1], ids[0]]
        exact = [float(np.dot(matrix[0].astype(float), matrix[ids.index(id)].astype(float))) for id in mixed]
        assert vectors.cosines(query, mixed) == pytest.approx(exact, abs=CLOSE)
        assert all(math.isnan(cosine) for cosine in vectors.cosines(query, [bare, "nothing", slot]))
        assert not math.isnan(vectors.cosines(vector_query("x", at=START), [slot])[0])
        assert all(math.isnan(cosine) for cosine in vectors.cosines(vector_query("x", model="unknown"), ids))
        filtered = vector_query("0", where={"text": "0"})
        assert not any(math.isnan(cosine) for cosine in vectors.cosines(filtered, ids))
        assert vectors.cosines(query, []) == []

    def test_an_empty_scope_has_nothing_near(self, vectors: VectorIndex) -> None:
        found = vectors.nearest(vector_query("anything"))
        assert (found.ids, found.cosines) == ([], [])

    def test_order_and_filter_hold_over_many_random_questions(
        self, store: ItemStore, vectors: VectorIndex, feed: Feed, clock: SetClock
    ) -> None:
        matrix = random_rows(120, 9)
        drafts = [
            fact_with_rows(str(n), row, metadata={"n": n % 7}, occurred_at=START - timedelta(hours=n))
            for n, row in enumerate(matrix)
        ]
        ids = add(store, *drafts)
        feed()
        for n, query in enumerate(random_rows(20, 10)):
            at = START - timedelta(hours=3 * n)
            where = {"metadata.n": {"<": n % 8}}
            shown = {item.id for item in list_items(store, where=where, at=at)}
            truth = {
                id: float(np.dot(row.astype(float), query.astype(float)))
                for id, row in zip(ids, matrix, strict=True)
                if id in shown
            }
            asked = vector_query("x", where=where, at=at, limit=5)
            found = vectors.nearest(VectorQuery(query, MODEL, ANA, asked.where, at, 5))
            self.check_order(found, truth, 5)
