"""In a large scope an index finds the nearest vectors, as comparing all does, and the answer says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import MODEL, add, fact, forget
from engrain_conformance.embedder import DIMENSION
from postgres_schemas import Pooler, fresh_schema, open_store
from servers import postgres

from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Draft, Vectors
from engrain.core.model.plans import Add, Plan
from engrain.core.model.queries import VectorQuery
from engrain.stores.postgres import PostgresStore
from engrain.stores.postgres.vectors import make_index_name

SMALL, MIDDLE, WHOLE = Scope(user="one in a hundred"), Scope(user="one in five"), Scope(user="most of all")
SIZES = {SMALL: 60, MIDDLE: 400, WHOLE: 1_600}
LARGE = 300
LIMIT = 10


def rows(count: int, seed: int) -> Any:
    """Clustered, as texts are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((40, DIMENSION))
    found = centres[random.integers(0, 40, count)] + 0.7 * random.standard_normal((count, DIMENSION))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype("<f4")


def with_vector(text: str, vector: Any, **values: Any) -> Draft:
    return fact(text, vectors=Vectors(MODEL, (vector.tobytes(),)), **values)


def fill(store: PostgresStore, scope: Scope, count: int) -> None:
    matrix = rows(count, count)
    for first in range(0, count, 256):
        numbers = range(first, min(first + 256, count))
        store.apply(Plan(scope, tuple(Add(with_vector(f"{n}", matrix[n], metadata={"n": n})) for n in numbers)))


@pytest.fixture(scope="module")
def store() -> Iterator[PostgresStore]:
    with fresh_schema() as schema:
        opened = open_store(schema, clock=SetClock())
        for scope, count in SIZES.items():
            fill(opened, scope, count)
        opened.large = LARGE
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def indexed(store: PostgresStore) -> PostgresStore:
    for scope in SIZES:
        assert store.nearest(VectorQuery(rows(1, 1)[0], MODEL, scope)).exact  # until the index is there
        store.vector_indexes.wait()
    return store


def share_found(store: PostgresStore, scope: Scope, **values: Any) -> tuple[float, set[bool]]:
    """How many of the true nearest come up, and whether the store says that all were compared."""
    shares, exact = [], set()
    for vector in rows(30, 7):
        query = VectorQuery(vector, MODEL, scope, limit=LIMIT, **values)
        found = store.nearest(query)
        store.large = 10**9
        truth = store.nearest(query)
        store.large = LARGE
        assert truth.exact
        assert found.cosines == sorted(found.cosines, reverse=True)
        known = dict(zip(truth.ids, truth.cosines, strict=True))
        for id, cosine in zip(found.ids, found.cosines, strict=True):
            assert cosine == pytest.approx(known.get(id, cosine), abs=1e-6)
        shares.append(len({*found.ids} & {*truth.ids}) / len(truth.ids))
        exact.add(found.exact)
    return float(np.mean(shares)), exact


@pytest.mark.parametrize(("scope", "exact"), [(SMALL, True), (MIDDLE, False), (WHOLE, False)], ids=lambda one: str(one))
def test_a_scope_of_any_share_finds_its_nearest(indexed: PostgresStore, scope: Scope, exact: bool) -> None:
    share, said = share_found(indexed, scope)
    assert share >= (1.0 if exact else 0.95)
    assert said == {exact}


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize("most", [800, 80, 7, 0])
def test_a_filter_comes_before_the_limit(
    indexed: PostgresStore, most: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little passes: if the index names too few of them, those that pass are compared, or all."""
    monkeypatch.setattr(indexed, "few", few)
    where = parse_filter({"metadata.n": {"<": most}})
    if not most:
        assert indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, WHOLE, where)).ids == []
        return
    share, exact = share_found(indexed, WHOLE, where=where)
    assert share >= 0.95
    assert exact == {most == 7}


def test_a_write_is_found_at_once_in_an_indexed_scope(indexed: PostgresStore) -> None:
    vector = rows(1, 99)[0]
    (id,) = add(indexed, with_vector("New.", vector), scope=WHOLE)
    found = indexed.nearest(VectorQuery(vector, MODEL, WHOLE, limit=3))
    assert (found.ids[0], found.exact) == (id, False)
    assert found.cosines[0] == pytest.approx(1.0, abs=1e-6)


def test_the_mean_is_that_of_all(indexed: PostgresStore) -> None:
    for vector in rows(5, 3):
        query = VectorQuery(vector, MODEL, WHOLE, limit=LIMIT)
        found = indexed.nearest(query)
        indexed.large = 10**9
        truth = indexed.nearest(query)
        indexed.large = LARGE
        assert found.background == pytest.approx(truth.background, abs=0.02)
    narrowed = VectorQuery(vector, MODEL, WHOLE, parse_filter({"metadata.n": {"<": 1_000}}), limit=LIMIT)
    assert indexed.nearest(narrowed).background is None


def test_the_index_is_of_its_scope_alone_and_is_used_under_row_level_security(indexed: PostgresStore) -> None:
    def explained(connection: psycopg.Connection[Any]) -> str:
        with connection.transaction():
            connection.execute(f"set local search_path = {indexed._database.path}".encode())
            settings = "select set_config('engrain.scope', %s, true), set_config('enable_sort', 'off', true)"
            connection.execute(settings, (WHOLE.id,))
            statement = (
                f"explain select item from embedding where scope = '{WHOLE.id}' and model = 1 order by "
                f"vector::halfvec({DIMENSION}) <#> array_fill(0.1::real, array[{DIMENSION}])::halfvec({DIMENSION}) "
                "limit 5"
            )
            return "\n".join(row[0] for row in connection.execute(statement.encode()).fetchall())

    assert make_index_name(1, WHOLE.id) in indexed._database.alone(explained)
    assert make_index_name(1, SMALL.id) not in repr(_indexes(indexed))
    assert len(_indexes(indexed)) == 2
    assert not [one for one in indexed.check() if one.state == "fail"]


def test_a_build_that_was_cut_short_is_made_anew(indexed: PostgresStore) -> None:
    _drop(indexed, make_index_name(1, MIDDLE.id))
    indexed.vector_indexes.forget_attempts()
    assert indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact
    indexed.vector_indexes.wait()
    assert not indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact


def test_one_that_another_process_has_built_meanwhile_is_left_as_it_is(indexed: PostgresStore) -> None:
    name = make_index_name(1, MIDDLE.id)
    before = _made(indexed, name)
    indexed.vector_indexes.forget_attempts()
    indexed.vector_indexes.request(MIDDLE.id, 1, DIMENSION)
    indexed.vector_indexes.wait()
    assert _made(indexed, name) == before


def test_one_that_could_not_be_built_is_tried_again_later(
    indexed: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have died while it built it."""
    name = make_index_name(1, MIDDLE.id)
    _drop(indexed, name)
    indexed.vector_indexes.forget_attempts()
    with psycopg.connect(postgres().url(), autocommit=True) as other:
        lock = "select pg_advisory_lock(hashtext(%s), hashtext(%s))"
        other.execute(lock, (indexed._database.address.schema, name))
        assert indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact
        indexed.vector_indexes.wait()
    assert indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact
    indexed.vector_indexes.wait()
    assert _made(indexed, name) is None  # not at once
    later = time.monotonic() + 3_600
    monkeypatch.setattr("engrain.stores.postgres.vectors.time.monotonic", lambda: later)
    assert indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact
    indexed.vector_indexes.wait()
    assert not indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact


def test_one_that_was_left_half_built_is_told_and_mended(indexed: PostgresStore) -> None:
    name = make_index_name(1, MIDDLE.id)
    indexed.vector_indexes.forget_attempts()
    indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE))  # has it built, if a test before has dropped it
    indexed.vector_indexes.wait()
    place = f"'{indexed._database.address.schema}.{name}'::regclass"
    postgres().run(f"update pg_index set indisvalid = false where indexrelid = {place}")
    assert [one.point for one in indexed.check() if one.state == "fail"] == ["indexes"]
    indexed.rebuild()
    assert not [one for one in indexed.check() if one.state == "fail"]
    indexed.vector_indexes.forget_attempts()
    assert indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact
    indexed.vector_indexes.wait()
    assert not indexed.nearest(VectorQuery(rows(1, 1)[0], MODEL, MIDDLE)).exact


def test_one_is_built_behind_a_pooler_that_gives_every_statement_to_another_session(
    indexed: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_index_name(1, MIDDLE.id)
    _drop(indexed, name)
    indexed.vector_indexes.forget_attempts()
    with Pooler(indexed._database.parameters()) as pooler:
        monkeypatch.setattr(indexed._database, "connect", pooler.connect)
        monkeypatch.setattr(indexed._database, "address", replace(indexed._database.address, prepare=False))
        indexed.vector_indexes.request(MIDDLE.id, 1, DIMENSION)
        indexed.vector_indexes.wait()
        assert pooler.left() == set()
    assert _made(indexed, name) is not None


def test_a_forgotten_vector_is_not_named(indexed: PostgresStore) -> None:
    vector = rows(1, 98)[0]
    (id,) = add(indexed, with_vector("Secret.", vector), scope=WHOLE)
    forget(indexed, id, scope=WHOLE)
    assert id not in indexed.nearest(VectorQuery(vector, MODEL, WHOLE)).ids


def test_one_of_a_scope_that_became_small_is_dropped_with_the_next_sweep(
    indexed: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle, whole = make_index_name(1, MIDDLE.id), make_index_name(1, WHOLE.id)
    assert {*_indexes(indexed)} >= {(middle,), (whole,)}
    for large, left in ((2 * SIZES[MIDDLE], [(middle,), (whole,)]), (3 * SIZES[MIDDLE], [(whole,)])):
        monkeypatch.setattr(indexed, "large", large)
        forget(indexed, *add(indexed, fact("Secret."), scope=SMALL), scope=SMALL)
        _purge(indexed)
        indexed.vector_indexes.wait()
        assert sorted(_indexes(indexed)) == sorted(left)


def _purge(store: PostgresStore) -> None:
    """Purge as soon as no transaction of another worker's test holds the rows back."""
    end = time.monotonic() + 20
    while not store.purge():
        assert time.monotonic() < end
        time.sleep(0.05)


def _indexes(store: PostgresStore) -> list[Any]:
    named = b"select indexname from pg_indexes where schemaname = %s and indexname like 'near\\_%%'"
    return store._database.alone(
        lambda connection: connection.execute(named, (store._database.address.schema,)).fetchall()
    )


def _drop(store: PostgresStore, name: str) -> None:
    statement = f'drop index {store._database.address.schema}."{name}"'.encode()
    store._database.alone(lambda connection: connection.execute(statement))


def _made(store: PostgresStore, name: str) -> int | None:
    """A number of its own for each index that is made."""
    asked = b"select to_regclass(%s)::oid"
    place = f"{store._database.address.schema}.{name}"
    ((found,),) = store._database.alone(lambda connection: connection.execute(asked, (place,)).fetchall())
    return found
