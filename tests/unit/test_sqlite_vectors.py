"""The vector arm is exact, whatever the vectors are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from examples import up_to
from hypothesis import given, settings
from hypothesis import strategies as st
from index_store import ANA, DIMENSION, MODEL, IndexStore, unit, vectors_of, words_of

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Words
from engrain.core.model.queries import VectorQuery
from engrain.stores.sqlite.dialect import IndexRows
from engrain.stores.sqlite.index import vectors as vector_index


@pytest.fixture(params=["numkong", "numpy"], autouse=True)
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(vector_index, "numkong", None)
    else:
        pytest.importorskip("numkong")


def check(store: IndexStore, query: np.ndarray, limit: int, model: str = MODEL) -> None:
    found = store.nearest(query, limit, model=model)
    wanted = store.true_nearest(query, model, limit)
    assert found.exact
    assert found.cosines == pytest.approx([cosine for cosine, _ in wanted], abs=1e-9)
    if found.ids != [id for _, id in wanted]:
        # Two different vectors may have the same cosine: the last bit of a float then says which is first.
        true = {id: cosine for cosine, id in store.true_nearest(query, model, 10**6)}
        assert [true[id] for id in found.ids] == pytest.approx([cosine for cosine, _ in wanted], abs=1e-14)


def test_the_best_of_many_clustered_vectors_are_the_true_ones() -> None:
    random = np.random.default_rng(1)
    store = IndexStore()
    centres = random.standard_normal((20, 64))
    for place in range(3_000):
        store.add(vectors={"m/64": [unit(centres[place % 20] + random.standard_normal(64) * 0.3)]})
    for place in range(20):
        check(store, unit(centres[place] + random.standard_normal(64) * 0.3), 50, "m/64")


def test_near_ties_far_below_the_rounding_come_in_the_true_order() -> None:
    random = np.random.default_rng(2)
    store = IndexStore()
    base = unit(random.standard_normal(DIMENSION))
    for place in range(400):
        store.add(vectors={MODEL: [unit(base + random.standard_normal(DIMENSION) * 10.0 ** -(place % 7))]})
    for limit in (1, 7, 100):
        check(store, base, limit)
        check(store, unit(random.standard_normal(DIMENSION)), limit)


def test_equal_vectors_come_newest_first_and_do_not_crowd_out_better_ones() -> None:
    store = IndexStore()
    same, better = unit([1, 1, 0, 0, 0, 0, 0, 0]), unit([1, 0.9, 0, 0, 0, 0, 0, 0])
    store.add(vectors={MODEL: [better]})
    for _ in range(300):
        store.add(vectors={MODEL: [same]})
    check(store, unit([1, 0.5, 0, 0, 0, 0, 0, 0]), 5)


def test_ids_decide_ties_even_when_they_did_not_come_in_order() -> None:
    store = IndexStore()
    for name in ("m", "z", "a", "q"):
        store.add(id=name, vectors={MODEL: [unit([1] * DIMENSION)]})
    assert store.nearest(unit([1] * DIMENSION), 3).ids == ["z", "q", "m"]


def test_an_item_with_several_windows_counts_with_its_best() -> None:
    random = np.random.default_rng(3)
    store = IndexStore()
    for place in range(200):
        count = 1 + place % 9
        store.add(vectors={MODEL: [unit(random.standard_normal(DIMENSION)) for _ in range(count)]})
    crowd = unit(random.standard_normal(DIMENSION))
    store.add(vectors={MODEL: [unit(crowd + random.standard_normal(DIMENSION) * 1e-4) for _ in range(80)]})
    check(store, crowd, 20)


def test_models_of_other_dimensions_and_items_without_vectors_stay_apart() -> None:
    random = np.random.default_rng(4)
    store = IndexStore()
    for place in range(60):
        vectors = {}
        if place % 3:
            vectors[MODEL] = [unit(random.standard_normal(DIMENSION))]
        if place % 2:
            vectors["other/5"] = [unit(random.standard_normal(5))]
        store.add(vectors=vectors)
    check(store, unit(random.standard_normal(DIMENSION)), 100)
    check(store, unit(random.standard_normal(5)), 100, "other/5")
    assert store.nearest(unit([1] * 8), model="unheard/8").ids == []
    with pytest.raises(InvalidInput):
        store.nearest(unit([1] * 7))


def test_one_hot_zero_and_opposite_vectors() -> None:
    store = IndexStore()
    for axis in range(DIMENSION):
        for sign in (1.0, -1.0):
            store.add(vectors={MODEL: [np.eye(DIMENSION, dtype=np.float32)[axis] * sign]})
    store.add(vectors={MODEL: [np.zeros(DIMENSION, dtype=np.float32)]})
    check(store, unit([1, 0, 0, 0, 0, 0, 0, 0]), 17)
    check(store, unit([3, -2, 1, 0, 0, 0, 0, 1]), 5)


def test_the_rounding_of_the_question_is_part_of_the_bound() -> None:
    # By its rounded form (1, 1/127, 0, 0, …) the first of the two rows is the better one; in truth the second is.
    query = unit([1, 0.0045, 0.0039, 0.0039, 0, 0, 0, 0])
    store = IndexStore()
    store.add(vectors={MODEL: [unit([1, 1, -1, -1, 1, 1, 1, 1])]})
    store.add(vectors={MODEL: [unit([1, -1, 1, 1, 1, 1, 1, 1])]})
    check(store, query, 1)


def test_a_vector_put_in_the_place_of_another_is_found_by_the_new_one() -> None:
    random = np.random.default_rng(7)
    store = IndexStore()
    rows = [store.add(vectors={MODEL: [unit(random.standard_normal(DIMENSION))]}) for _ in range(300)]
    for row in rows[::60]:
        query = unit(random.standard_normal(DIMENSION))
        check(store, query, 2)
        row.vectors = {MODEL: [query]}
        store.write(row)
        assert store.nearest(query, 1).ids == [row.id]
        check(store, unit(random.standard_normal(DIMENSION)), 300)


def test_cosines_are_those_of_nearest_and_nan_without_a_vector() -> None:
    random = np.random.default_rng(5)
    store = IndexStore()
    rows = [store.add(vectors={MODEL: [unit(random.standard_normal(DIMENSION))]}) for _ in range(50)]
    bare = store.add()
    past = store.add(vectors={MODEL: [unit([1] * 8)]}, valid_to=5)
    query = unit(random.standard_normal(DIMENSION))
    nearest = store.nearest(query, 50)
    asked = [bare.id, *nearest.ids, "unknown", rows[0].id, past.id]
    found = store.index.cosines(VectorQuery(query, MODEL, ANA), asked)
    assert math.isnan(found[0])
    assert math.isnan(found[51])
    assert math.isnan(found[53])
    assert found[1:51] == nearest.cosines
    assert found[52] == found[1 + nearest.ids.index(rows[0].id)]
    nothing = store.index.cosines(VectorQuery(query, "unheard", ANA), ["a"])
    assert len(nothing) == 1
    assert math.isnan(nothing[0])


def test_a_limit_of_nothing_finds_nothing() -> None:
    store = IndexStore()
    store.add(vectors={MODEL: [unit([1] * 8)]})
    assert store.nearest(unit([1] * 8), 0).ids == []
    assert store.nearest(unit([1] * 8), -3).ids == []


@settings(max_examples=up_to(60), deadline=None)
@given(
    vectors=st.lists(st.lists(st.integers(-3, 3), min_size=8, max_size=8).filter(any), min_size=1, max_size=60),
    nudges=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    query=st.lists(st.integers(-3, 3), min_size=8, max_size=8).filter(any),
    limit=st.integers(1, 70),
)
def test_coarse_directions_with_slight_nudges(
    vectors: list[list[int]], nudges: list[int], query: list[int], limit: int
) -> None:
    store = IndexStore()
    for place, values in enumerate(vectors):
        nudge = nudges[place % len(nudges)]
        nudged = np.array(values) + (0 if nudge == 0 else 10.0**-nudge) * np.roll(values, 1)
        store.add(vectors={MODEL: [unit(nudged if np.any(nudged) else values)]})
    check(store, unit(query), limit)


@settings(max_examples=up_to(60), deadline=None)
@given(st.lists(st.floats(-1, 1, width=32), min_size=DIMENSION, max_size=DIMENSION))
def test_the_stated_error_is_never_less_than_the_true_one(values: list[float]) -> None:
    vector = np.array([values], dtype=np.float32)
    coded = vector_index.quantise(vector)
    rest = vector.astype(np.float64) - coded["scale"].astype(np.float64)[:, None] * coded["codes"]
    assert coded["error"][0] >= np.sqrt((rest**2).sum())


def test_vectors_that_cannot_be_compared_are_refused() -> None:
    store = IndexStore()
    row = store.add(vectors={MODEL: [unit([1] * 8)]})
    for wrong in ([unit([1] * 8), unit([1] * 7)], [unit([1] * 9)], [np.full(8, np.nan)], [np.full(8, 2.0)]):
        with pytest.raises(InvalidInput):
            IndexRows(store).replace_vectors(row.n, vectors_of(MODEL, wrong))
    with pytest.raises(InvalidInput):
        store.nearest(np.full(8, np.inf))


def test_dropping_an_item_leaves_no_row_of_any_model() -> None:
    store = IndexStore()
    row = store.add(passages=[{1: 1}], vectors={MODEL: [unit([1] * 8)], "other/3": [unit([1, 2, 3])]})
    IndexRows(store).delete_vectors(row.n, "other/3")
    assert [len(store.rows(f"select * from {table}")) for table in ("words", "code", "vector")] == [1, 1, 1]
    IndexRows(store).delete(row.n)
    assert [len(store.rows(f"select * from {table}")) for table in ("words", "code", "vector")] == [0, 0, 0]


def test_many_at_once_write_what_one_by_one_would() -> None:
    random = np.random.default_rng(6)
    one, many = IndexStore(), IndexStore()
    entries = []
    for place in range(12):
        vectors = [unit(random.standard_normal(8)) for _ in range(1 + place % 3)]
        words = words_of([{place: 1}]) if place % 4 else Words()
        entry = (one.add().n, words, vectors_of(MODEL, vectors) if place % 5 else None)
        many.add()
        for store in (one, many):
            IndexRows(store).delete(entry[0])
        IndexRows(one).add([entry])
        entries.append(entry)
    IndexRows(many).add(entries)
    for table in ("words", "code", "vector", "model"):
        assert one.rows(f"select * from {table}") == many.rows(f"select * from {table}")


def test_a_store_may_be_collected_while_its_thread_makes_a_slot() -> None:
    """The collector may run a store's finalizer at any allocation, even inside the lock."""
    from engrain.stores.sqlite.index.lru import IndexLru, Slots

    indexes, old = IndexLru(), Slots()
    indexes.use(old, "a")
    with indexes._lock:
        indexes.drop(old)
    assert not old
