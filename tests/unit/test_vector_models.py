"""What a store promises that can let go of one model's vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.reference import ReferenceStore
from servers import postgres

from engrain.core.identity import Scope
from engrain.core.model.items import Draft
from engrain.core.model.plans import Add, Embed, Plan
from engrain.core.model.queries import VectorQuery
from engrain.stores.postgres import PostgresStore
from engrain.stores.sqlite import SqliteStore

ANA, BEN = Scope(user="ana"), Scope(user="ben")
ONE, TWO = HashEmbedder("one"), HashEmbedder("two")


@pytest.fixture(params=["sqlite", "reference", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "postgres":
        yield from in_postgres()
        return
    made: Any = SqliteStore(tmp_path / "agent.db") if request.param == "sqlite" else ReferenceStore()
    yield made
    made.close()


def in_postgres() -> Iterator[Any]:
    made = PostgresStore(f"{postgres().url()}?schema=vector_models&pool=2")
    yield made
    made.close()
    postgres().run("drop schema if exists vector_models cascade")


def fill(store: Any, scope: Scope, count: int) -> None:
    texts = [f"{scope} fact {n}." for n in range(count)]
    store.apply(Plan(scope, tuple(Add(Draft(text, vectors=ONE.vectors(text))) for text in texts)))
    for one in [one for one in store.unembedded(TWO.model.key, 99) if one.scope == scope]:
        store.apply(Plan(scope, (Embed(one.id, one.hash, TWO.vectors(one.text)),)))


def nearest(store: Any, scope: Scope, embedder: HashEmbedder) -> int:
    vector = embedder.embed(["fact 1."], "query")[0]
    return len(store.nearest(VectorQuery(vector, embedder.model.key, scope, limit=99)).ids)


def test_one_models_vectors_go_and_the_others_stay(store: Any) -> None:
    assert store.models() == {}
    fill(store, ANA, 5)
    fill(store, BEN, 2)
    assert store.models() == {ONE.model.key: 7, TWO.model.key: 7}
    assert nearest(store, ANA, ONE) == 5, "a search that has read them before"
    since = store.status().seq
    assert [store.drop_model(ONE.model.key, 4) for _ in range(3)] == [4, 3, 0]
    assert store.models() == {TWO.model.key: 7}
    assert [nearest(store, scope, ONE) for scope in (ANA, BEN)] == [0, 0]
    assert [nearest(store, scope, TWO) for scope in (ANA, BEN)] == [5, 2]
    assert len(store.changes(ANA, since, 99).changes) == 5, "whoever follows the changes learns of it"
    assert len(store.unembedded(ONE.model.key, 99)) == 7
    assert all(one.state != "fail" for one in store.check())


def test_an_unknown_model_has_no_vectors(store: Any) -> None:
    fill(store, ANA, 1)
    assert store.drop_model("nobody's", 9) == 0
    assert store.models()[ONE.model.key] == 1
