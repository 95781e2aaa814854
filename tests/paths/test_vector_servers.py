"""A vector server next to the store: what was written is found, whatever happens to the server or to the process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chroma_server import ChromaProcess, new_server, shared_server
from click.testing import CliRunner
from engrain_conformance.drafts import ANA, BEN, EMBEDDER, MODEL, add, correct, fact, forget, vector_query
from engrain_conformance.embedder import DIMENSION, HashEmbedder
from examples import for_each
from fed_kit import feed_all
from free_ports import free_port
from lazy_classes import ChromaServer, QdrantServer

from engrain import Memory
from engrain.cli.main import root
from engrain.core.errors import (
    BackendMissing,
    BackendUnavailableWarning,
    ConfigError,
    NotFound,
    StoreBusy,
    StoreUnavailable,
)
from engrain.core.model.erasure import Subject
from engrain.core.model.items import Vectors
from engrain.core.model.plans import Change, Embed, Plan
from engrain.core.model.queries import FOREVER, VectorPoint, VectorQuery
from engrain.maintenance import schedule_and_sync
from engrain.stores.sqlite import SqliteStore
from engrain.stores.vectors import outbox_index
from engrain.stores.vectors.outbox_index import OutboxVectorIndex

HERE = Path(__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "agent.db")
    yield opened
    opened.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QdrantServer]:
    opened = QdrantServer(f"qdrant://{tmp_path}/vectors")
    yield opened
    opened.close()


@pytest.fixture
def index(store: SqliteStore, server: QdrantServer) -> OutboxVectorIndex:
    return OutboxVectorIndex(store, server, EMBEDDER)


def chroma_url() -> str:
    return f"{shared_server().url}/?collection=test-{uuid.uuid4().hex[:12]}"


def found(index: Any, text: str, **values: Any) -> list[str]:
    return index.nearest(vector_query(text, **values)).ids


# Feeding


def test_what_is_forgotten_cut_or_corrected_is_gone_from_the_server(
    index: OutboxVectorIndex, server: QdrantServer, store: SqliteStore
) -> None:
    kept, wrong, gone = add(store, fact("Ana likes tea."), fact("Ana likes coffee."), fact("Ana likes cocoa. " * 80))
    feed_all(index)
    assert server.count(MODEL, [gone]) == 3
    assert server.count(MODEL, [kept, wrong]) == 2
    correct(store, wrong, fact("Ana likes mate."))
    forget(store, gone)
    feed_all(index)
    assert server.count(MODEL, [wrong, gone]) == 0
    assert server.count(MODEL) == 2


def test_fewer_windows_leave_no_point_behind(
    index: OutboxVectorIndex, server: QdrantServer, store: SqliteStore
) -> None:
    (id,) = add(store, fact("Ana likes cocoa. " * 80))
    feed_all(index)
    (hash,) = (one.hash for one in store.unembedded("unknown", 1))
    store.apply(Plan(ANA, (Embed(id, hash, EMBEDDER.vectors("short")),)))
    feed_all(index)
    assert server.count(MODEL, [id]) == server.count(MODEL) == 1


def test_a_collection_of_another_model_loses_what_is_forgotten_too(server: QdrantServer, store: SqliteStore) -> None:
    new = HashEmbedder("new")
    id, other = add(store, fact("Ana likes tea."), fact("Ana plays chess."))
    feed_all(OutboxVectorIndex(store, server, EMBEDDER))
    index = OutboxVectorIndex(store, server, new)
    feed_all(index)
    assert server.count(MODEL, [id, other]) == 2
    forget(store, id)
    feed_all(index)
    assert server.count(MODEL, [id, other]) == 1
    forget(store, other)
    feed_all(index)
    assert server.models() == [new.model.key], "nor is an empty collection left"


def test_a_slow_feeder_does_not_bring_back_what_a_faster_one_removed(
    index: OutboxVectorIndex, server: QdrantServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes feed one server: the first has read the item when the second forgets it and settles that."""
    (id,) = add(store, fact("Ana likes tea."))
    put = server.put

    def slow(model: str, points: Any) -> None:
        monkeypatch.setattr(server, "put", put)
        forget(store, id)
        server.drop(model, [id])
        store.settle(server.target(model, DIMENSION), store.status().seq)
        put(model, points)

    monkeypatch.setattr(server, "put", slow)
    feed_all(index)
    assert server.count(MODEL) == 0


def test_a_dropped_collection_fills_itself_again(
    index: OutboxVectorIndex, server: QdrantServer, store: SqliteStore
) -> None:
    (id,) = add(store, fact("Ana likes tea."))
    feed_all(index)
    for name in [one.name for one in server._call("get_collections").collections]:
        server._call("delete_collection", name)
    assert found(index, "Ana likes tea.") == [id]
    feed_all(index)
    assert server.count(MODEL, [id]) == 1
    assert index.state()["behind"] == 0


def test_an_index_behind_says_how_far(index: OutboxVectorIndex, store: SqliteStore) -> None:
    add(store, *(fact(f"Number {n}.") for n in range(5)))
    assert index.state()["behind"] == 5
    assert [one.state for one in index.check()] == ["warn"]
    assert index.feed(3) == 3
    assert index.state()["behind"] == 2
    feed_all(index)
    assert index.state()["behind"] == 0
    assert [one.state for one in index.check()] == ["pass"]


def test_a_server_that_is_too_slow_for_a_batch_is_fed_in_smaller_ones(
    index: OutboxVectorIndex, server: QdrantServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_index, "RETRY_PAUSE_SECONDS", 0.0)
    put, sizes = server.put, []

    def slow(model: str, points: Any) -> None:
        sizes.append(len(points))
        if len(points) > 8:
            raise StoreUnavailable("it did not answer in time")
        put(model, points)

    monkeypatch.setattr(server, "put", slow)
    add(store, *(fact(f"Number {n}.") for n in range(60)))
    for _ in range(40):
        try:
            if not index.feed(64):
                break
        except StoreUnavailable:
            pass
    assert server.count(MODEL) == 60
    assert sizes[:4] == [60, 32, 16, 8]
    monkeypatch.setattr(server, "put", put)
    add(store, *(fact(f"Later {n}.") for n in range(60)))
    feed_all(index)
    assert server.count(MODEL) == 120


# Search


def random_rows(count: int, seed: int = 1) -> Any:
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSION))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def with_row(text: str, row: Any, **values: Any) -> Any:
    return fact(text, vectors=Vectors(MODEL, (row.astype("<f4").tobytes(),)), **values)


def test_a_filter_that_leaves_many_far_away_is_applied_before_the_limit(
    index: OutboxVectorIndex, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than are compared one by one, and all beyond what the server names first."""
    monkeypatch.setattr(outbox_index, "MAX_DIRECT_ITEMS", 20)
    monkeypatch.setattr(outbox_index, "MIN_POINTS", 16)
    rows = random_rows(300)
    order = np.argsort(-(rows @ rows[0]))
    far = set(order[-70:].tolist())
    ids = add(store, *(with_row(str(n), row, metadata={"far": n in far}) for n, row in enumerate(rows)))
    feed_all(index)
    query = vector_query("x", where={"metadata.far": True}, limit=10)
    answer = index.nearest(VectorQuery(rows[0], MODEL, ANA, query.where, None, 10))
    assert answer.ids == [ids[n] for n in order if n in far][:10]
    assert answer.exact


def test_more_equals_than_the_server_names_come_newest_first(
    index: OutboxVectorIndex, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_index, "MIN_POINTS", 16)
    row = random_rows(1)[0]
    ids = add(store, *(with_row(str(n), row) for n in range(200)))
    feed_all(index)
    assert index.nearest(VectorQuery(row, MODEL, ANA, limit=5)).ids == ids[::-1][:5]


def test_points_of_a_store_that_shares_the_collection_are_left_alone(
    index: OutboxVectorIndex, server: QdrantServer, store: SqliteStore, tmp_path: Path
) -> None:
    other = SqliteStore(tmp_path / "other.db")
    (foreign,) = add(other, fact("Ana likes tea."))
    feed_all(OutboxVectorIndex(other, server, EMBEDDER))
    (own,) = add(store, fact("Ana likes coffee."))
    feed_all(index)
    assert found(index, "Ana likes tea.") == [own]
    assert found(OutboxVectorIndex(other, server, EMBEDDER), "Ana likes tea.") == [foreign]
    other.close()


@pytest.mark.parametrize("kind", ["qdrant", "chroma"])
def test_an_erasure_takes_what_a_server_that_was_set_back_has_again(
    kind: str, store: SqliteStore, tmp_path: Path
) -> None:
    make = QdrantServer if kind == "qdrant" else ChromaServer
    with closing(make(f"{kind}://{tmp_path}/vectors")) as server:
        index = OutboxVectorIndex(store, server, EMBEDDER)
        told, forgotten = add(store, fact("Ana likes tea."), fact("Ana likes coffee."))
        (bens,) = add(store, fact("Ben likes tea."), scope=BEN)
        feed_all(index)
        row = store.vectors(ANA, [told], MODEL)[told].rows[0]
        forget(store, forgotten)
        forget(store, bens, scope=BEN)
        feed_all(index)
        back = [(forgotten, 0, ANA), (forgotten, 1, ANA), (bens, 0, BEN), ("foreign", 0, ANA)]
        server.put(MODEL, [VectorPoint(item, window, scope.id, 0, FOREVER, row) for item, window, scope in back])
        store.erasing.begin("e1", Subject(ANA, "user", ANA.user or ""))
        store.erasing.delete_rows("e1")
        assert index.count_remaining(ANA) == 4
        assert index.erase(ANA) == 4
        assert (index.count_remaining(ANA), index.erase(ANA)) == (0, 0)
        assert server.count(MODEL, ["foreign"]) == server.count(MODEL) == 1, "another store has it there"


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.19, 1.0])
def test_chroma_reaches_the_true_best_in_scopes_of_every_size(share: float, store: SqliteStore, tmp_path: Path) -> None:
    server = ChromaServer(f"chroma://{tmp_path}/vectors")
    index = OutboxVectorIndex(store, server, EMBEDDER)
    rows, questions = random_rows(4_000), random_rows(20, 2)
    inside = rows[: int(share * len(rows))]
    ids = add(store, *(with_row(str(n), row) for n, row in enumerate(inside)))
    add(store, *(with_row(str(n), row) for n, row in enumerate(rows[len(inside) :])), scope=BEN)
    feed_all(index)
    hits = []
    for row in questions:
        answer = index.nearest(VectorQuery(row, MODEL, ANA, limit=10))
        assert not answer.exact
        hits.append(len({*answer.ids} & {ids[n] for n in np.argsort(-(inside @ row))[:10]}) / min(10, len(ids)))
    server.close()
    assert np.mean(hits) >= 0.95


# A process that dies


@pytest.mark.parametrize(
    "where", ["before the server has it", pytest.param("before it is settled", marks=pytest.mark.slow)]
)
def test_a_crash_between_store_and_server_heals(where: str, tmp_path: Path) -> None:
    url = chroma_url()
    program = [sys.executable, str(HERE / "fed_program.py"), str(tmp_path / "agent.db"), url, where]
    ended = subprocess.run(program, capture_output=True, timeout=300, check=False)
    assert ended.returncode == -9, ended.stderr.decode()
    store, server = SqliteStore(tmp_path / "agent.db"), ChromaServer(url)
    index = OutboxVectorIndex(store, server, EMBEDDER)
    assert index.state()["behind"] == 5
    for text in (*(f"First {n}." for n in range(5)), *(f"Second {n}." for n in range(5))):
        (nearest, *_), (item, *_) = found(index, text), store.page(listed(text))
        assert nearest == item.id
    feed_all(index)
    assert index.state()["behind"] == 0
    assert server.count(MODEL) == 10
    server.clear()
    server.close()
    store.close()


def listed(text: str) -> Any:
    from engrain.core.model.filters import parse_filter
    from engrain.core.model.queries import ListQuery

    return ListQuery(ANA, parse_filter({"text": text}))


# A server that goes away


@pytest.fixture
def mortal() -> Iterator[ChromaProcess]:
    process = new_server()
    yield process
    process.kill()


@pytest.mark.slow
def test_a_server_that_dies_costs_nothing_that_was_written(mortal: ChromaProcess, store: SqliteStore) -> None:
    server = ChromaServer(f"{mortal.url}/?timeout=3")
    index = OutboxVectorIndex(store, server, EMBEDDER)
    (old,) = add(store, fact("Ana likes tea."))
    feed_all(index)
    mortal.kill()
    (new,) = add(store, fact("Ana likes coffee."))
    with pytest.warns(BackendUnavailableWarning, match="did not answer within 3 s"):
        assert found(index, "Ana likes coffee.", limit=1) == [new]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is not asked again at once
        assert found(index, "Ana likes tea.", limit=1) == [old]
    with pytest.raises(StoreUnavailable):
        index.feed(100)
    assert "did not answer" in index.state()["error"]
    forget(store, old)
    mortal.start()
    index._again = 0.0
    feed_all(index)
    assert index.state() == {"server": server.where, "behind": 0, "error": None}
    assert (server.count(MODEL, [old]), server.count(MODEL, [new])) == (0, 1)
    server.close()


def test_a_server_that_falls_silent_is_given_up_in_time(mortal: ChromaProcess, store: SqliteStore) -> None:
    server = ChromaServer(f"{mortal.url}/?timeout=8")
    index = OutboxVectorIndex(store, server, EMBEDDER)
    (id,) = add(store, fact("Ana likes tea."))
    feed_all(index)
    mortal.pause()
    began = time.monotonic()
    with pytest.warns(BackendUnavailableWarning):
        assert found(index, "Ana likes tea.") == [id]
    assert time.monotonic() - began < 60
    forget(store, id)
    mortal.resume()
    index._again = 0.0
    feed_all(index)
    assert server.count(MODEL) == 0
    server.close()


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_writes_has_all_of_them_in_the_end(
    mortal: ChromaProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_index, "RETRY_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(schedule_and_sync, "MAX_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(schedule_and_sync, "POLL_SECONDS", 0.01)
    with Memory(settings(tmp_path, f"{mortal.url}/?timeout=3"), embedder=EMBEDDER) as memory:
        ids = []
        for n in range(90):
            ids.append(memory.remember(f"This is note number {n}."))
            if n == 30:
                mortal.kill()
            if n == 60:
                mortal.start()
        ends = time.monotonic() + 180
        while memory.store.status(memory.scope).background["vectors"]["behind"] != 0:
            assert time.monotonic() < ends
            time.sleep(0.1)
    server = ChromaServer(mortal.url)
    server.target(MODEL, DIMENSION)
    assert server.count(MODEL) == server.count(MODEL, ids) == 90
    server.close()


@pytest.mark.parametrize("kind", [ChromaServer, QdrantServer])
def test_a_server_that_says_nothing_is_given_up_in_time(kind: Any, store: SqliteStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        scheme = kind.__name__.removesuffix("Server").lower()
        server = kind(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/?timeout=1")
        index = OutboxVectorIndex(store, server, EMBEDDER)
        (id,) = add(store, fact("Ana likes tea."))
        began = time.monotonic()
        with pytest.warns(BackendUnavailableWarning):
            assert found(index, "Ana likes tea.") == [id]
        assert time.monotonic() - began < 60
        assert [one.state for one in index.check()] == ["fail"]
        server.close()


# Memories on a TOML


def settings(tmp_path: Path, vectors: str) -> Path:
    path = tmp_path / "engrain.toml"
    path.write_text(f'[stores]\ndefault = "{tmp_path}/agent.db"\nvectors = "{vectors}"\n')
    return path


@pytest.mark.parametrize("kind", ["chroma server", "chroma", "qdrant"])
def test_a_memory_with_a_vector_server_remembers_recalls_and_forgets(kind: str, tmp_path: Path) -> None:
    url = chroma_url() if kind == "chroma server" else f"{kind}://{tmp_path}/vectors"
    toml = settings(tmp_path, url)
    with Memory(toml, user="ana", embedder=EMBEDDER) as memory:
        id = memory.remember("Ana drinks green tea every morning.")
        memory.remember("The train to Porto leaves at nine.")
        assert memory.recall("green tea every morning", min_relevance=0.0).hits[0].item.id == id
    with Memory(toml, user="ana", embedder=EMBEDDER) as memory:
        assert memory.store.status(memory.scope).background["vectors"]["behind"] == 0
        hit = memory.recall("green tea every morning", min_relevance=0.0).hits[0]
        assert (hit.item.id, "meaning" in hit.found_by) == (id, True)
        forgotten = memory.forget(id)
        assert (forgotten.ids, forgotten.pending) == ((id,), False)
    server: Any = ChromaServer(url) if "chroma" in kind else QdrantServer(url)
    server.target(MODEL, DIMENSION)
    assert (server.count(MODEL, [id]), server.count(MODEL)) == (0, 1)
    server.clear()
    server.close()


def test_a_memory_opens_and_works_while_its_server_is_away(tmp_path: Path) -> None:
    toml = settings(tmp_path, f"qdrant://127.0.0.1:{free_port()}/?timeout=1")
    with Memory(toml, user="ana", embedder=EMBEDDER, background=False) as memory:
        id = memory.remember("Ana drinks green tea.")
        with pytest.warns(BackendUnavailableWarning):
            assert memory.recall("green tea", min_relevance=0.0).hits[0].item.id == id
        assert memory.store.status(memory.scope).background["vectors"]["behind"] is None
        assert [one.state for one in memory.store.doctor(memory.scope) if one.name == "vector server"] == ["fail"]
        assert memory.forget(id).pending


def test_a_rebuild_feeds_everything_anew(tmp_path: Path) -> None:
    toml = settings(tmp_path, f"qdrant://{tmp_path}/vectors")
    with Memory(toml, user="ana", embedder=EMBEDDER) as memory:
        id = memory.remember("Ana drinks green tea.")
        server = memory.store.services.vectors._server  # type: ignore[union-attr]
        while memory.store.status(memory.scope).background["vectors"]["behind"]:
            time.sleep(0.05)
        before = server.target(MODEL, DIMENSION)
        server.drop(MODEL, [id])
        memory.store.rebuild()
        assert server.target(MODEL, DIMENSION) != before
        assert server.count(MODEL, [id]) == 1


def test_two_memories_of_one_process_share_an_embedded_server(tmp_path: Path) -> None:
    toml = settings(tmp_path, f"qdrant://{tmp_path}/vectors")
    with Memory(toml, user="ana", embedder=EMBEDDER) as one, Memory(toml, user="ben", embedder=EMBEDDER) as other:
        one.remember("Ana drinks tea.")
        other.remember("Ben drinks coffee.")
        assert [hit.text for hit in other.recall("drinks", min_relevance=0.0).hits] == ["Ben drinks coffee."]
    with Memory(toml, user="ana", embedder=EMBEDDER) as one:
        assert [hit.text for hit in one.recall("drinks", min_relevance=0.0).hits] == ["Ana drinks tea."]


@pytest.mark.parametrize("kind", ["chroma", pytest.param("qdrant", marks=pytest.mark.slow)])
def test_an_embedded_server_is_refused_to_a_second_process(kind: str, tmp_path: Path) -> None:
    module, name = f"engrain.stores.vectors.{kind}", f"{kind.capitalize()}Server"
    opening = f"from {module} import {name}; {name}('{kind}://{tmp_path}/vectors'); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", opening], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        make: Any = ChromaServer if kind == "chroma" else QdrantServer
        with pytest.raises(StoreBusy, match="serves one process"):
            make(f"{kind}://{tmp_path}/vectors")
        process.kill()
    make(f"{kind}://{tmp_path}/vectors").close()


@pytest.mark.parametrize(("kind", "package"), [("chroma", "chromadb"), ("qdrant", "qdrant_client")])
def test_a_missing_package_is_named(kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"engrain.stores.vectors.{kind}", raising=False)
    with pytest.raises(BackendMissing, match=rf"engrain\[{kind}\]"):
        Memory(settings(tmp_path, f"{kind}://{tmp_path}/v"), embedder=EMBEDDER)


@for_each(
    "url",
    ["qdrant://", "qdrant://host/folder", "qdrant://host/?colour=red", "qdrant://me:key@host", "qdrant://h:99999",
     "qdrant://h/?timeout=no", "qdrant://h/?tls=perhaps", "qdrant://h/?collection=a/b", "faiss:///x"],
)  # fmt: skip
def test_an_address_that_cannot_be_used_is_a_config_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Memory(settings(tmp_path, url), embedder=EMBEDDER)


def test_a_vector_server_is_no_store_of_items() -> None:
    with pytest.raises(ConfigError, match="vectors = "):
        Memory("qdrant://localhost:6333", embedder=EMBEDDER)


def test_an_item_that_waits_and_is_on_the_server_is_found_once(index: OutboxVectorIndex, store: SqliteStore) -> None:
    (id,) = add(store, fact("Ana likes tea."))
    feed_all(index)
    store.apply(Plan(ANA, (Change(id, metadata={"k": 1}),)))
    assert found(index, "Ana likes tea.", where={"metadata.k": 1}) == [id]
    assert found(index, "Ana likes tea.") == [id]  # once, although the server has it too


def test_a_collection_is_not_made_for_nothing(server: QdrantServer) -> None:
    with pytest.raises(NotFound):
        server.target("old/64/0", 0)
    assert server.models() == []


def test_status_tells_people_where_the_vectors_are(tmp_path: Path) -> None:
    toml = settings(tmp_path, f"qdrant://{tmp_path}/vectors")
    with Memory(toml, embedder=EMBEDDER):
        pass
    told = CliRunner().invoke(root, ["status", "--store", str(toml)])
    assert f"qdrant://{tmp_path}/vectors: up to date" in told.stdout.replace("\n", "")
