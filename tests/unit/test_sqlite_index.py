"""The index sees every change before it answers, keeps to its cap, and never crosses its scope."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import up_to
from hypothesis import given, settings
from hypothesis import strategies as st
from index_store import ANA, BEN, MODEL, IndexStore, Row, unit

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.queries import BY_MEANING, CandidateQuery, Candidates, SketchQuery, VectorQuery, WordQuery
from engrain.stores.sqlite import connection
from engrain.stores.sqlite.index import items, words
from engrain.stores.sqlite.index.view import IndexCache

TERMS = (1, 2, 3)
DIRECTIONS = [unit(np.random.default_rng(place).standard_normal(8)) for place in range(12)]


def answers(store: IndexStore, index: Any, at: int | None) -> dict[str, Any]:
    moment = None if at is None else from_micros(at)
    ids = [row.id for row in list(store.items.values())[::2]]
    return {
        "nearest": index.nearest(VectorQuery(DIRECTIONS[0], MODEL, ANA, at=moment, limit=7)),
        "best": index.best(WordQuery(TERMS, ANA, at=moment, limit=7)),
        "counts": index.counts(WordQuery(TERMS, ANA, at=moment), ids),
        "sketches": sorted(store.reads.sketches(SketchQuery(ANA, ids[:4], 1, at=moment))),
        "having": store.reads.having(ANA, 3, None, 5, moment),
        "speakers": index.speakers(ANA),
        "collect": described(index.collect(wanted(moment))),
    }


def wanted(at: datetime | None) -> CandidateQuery:
    words, meaning = WordQuery(TERMS, ANA, at=at, limit=3), VectorQuery(DIRECTIONS[0], MODEL, ANA, at=at, limit=3)
    return CandidateQuery(words, meaning, traits=3, max_with_traits=2, reach=1, min_trusted=2, trust=0.7)


def described(found: Candidates) -> list[Any]:
    """The columns as plain values; the numbers of sessions are only the index's own."""
    items, words = found.items, found.words
    fields = (items.kind, items.role, items.speaker, items.source, items.place, items.occurred_at, items.traits)
    more = (items.importance, items.pinned, items.trust, found.cosine.round(9), found.found_by, words.rows)
    plain = [one.tolist() for one in (*fields, *more, words.passage, words.length, words.counts)]
    same = (items.session[:, None] == items.session[None, :]).tolist()
    return [items.ids, same, str(plain), words.passages, round(words.average, 9), words.frequency, found.nearest]


def check(store: IndexStore, at: int | None) -> None:
    found = answers(store, store.index, at)
    # An index that has followed every change answers as a new one, and as the oracle does.
    assert found == answers(store, store.new_index(), at)
    wanted = store.true_nearest(DIRECTIONS[0], MODEL, 7, at)
    assert found["nearest"].ids == [id for _, id in wanted]
    words = store.true_words(TERMS, at)
    assert [tuple(hit) for hit in found["best"].hits] == words["hits"][:7]
    assert found["best"].frequency == words["frequency"]
    visible = {row.id: row for row in store.visible(ANA, at)}
    having = [row.id for row in reversed(visible.values()) if row.traits & 3]
    assert found["having"] == having[:5]
    here = [row for row in store.items.values() if row.scope == ANA]
    assert found["speakers"] == {row.speaker for row in here if row.speaker}
    check_sketches(store, visible, found["sketches"])


def check_sketches(store: IndexStore, visible: dict[str, Row], sketches: list[Any]) -> None:
    seeds = [row for row in list(store.items.values())[::2][:4] if row.scope == ANA]
    near = {
        row.id
        for row in visible.values()
        for seed in seeds
        if row.id == seed.id or (row.session and row.session == seed.session and abs(row.place - seed.place) <= 1)
    }
    assert {sketch.id for sketch in sketches} == near
    for sketch in sketches:
        row = visible[sketch.id]
        named = next((name for name in row.sources if name), None)
        assert (sketch.session, sketch.place, sketch.speaker, sketch.source) == (
            row.session,
            row.place,
            row.speaker,
            named,
        )
        assert (sketch.importance, sketch.pinned, sketch.traits) == (row.importance, row.pinned, row.traits)


class Changes:
    """One change of a store, chosen by three small numbers."""

    def __init__(self, store: IndexStore) -> None:
        self.store = store
        self.places: dict[str, int] = {}

    def make(self, what: str, which: int, value: int) -> None:
        rows = list(self.store.items.values())
        if what == "add" or not rows:
            self.add(which, value)
        else:
            getattr(self, what)(rows[which % len(rows)], value)

    def add(self, which: int, value: int) -> None:
        session = f"s{which % 2}" if which % 3 else None
        if session:
            self.places[session] = self.places.get(session, -1) + 1
        self.store.add(
            BEN if which % 7 == 6 else ANA,
            passages=[{1 + (which + place) % 4: 1 + place, 9: value % 3 + 1} for place in range(1 + value % 3)],
            vectors={MODEL: [DIRECTIONS[(which + place) % 12] for place in range(value % 3)]},
            session=session,
            place=self.places[session] if session else None,
            speaker=("Ana", "Ben", None)[value % 3],
            traits=value % 4,
            sources=[None, "page"][: value % 3],
        )

    def close(self, row: Row, value: int) -> None:
        row.valid_to = self.store.clock + value % 3 - 1
        self.store.write(row, index=False)

    def retract(self, row: Row, value: int) -> None:
        row.retracted_at = self.store.clock
        self.store.write(row, index=False)

    def expire(self, row: Row, value: int) -> None:
        row.expires_at = self.store.clock + value
        self.store.write(row, index=False)

    def weigh(self, row: Row, value: int) -> None:
        row.importance, row.pinned, row.traits = value / 10, bool(value % 2), value % 4
        row.sources = ["later", None, "page"][value % 4 :]
        self.store.write(row)

    def reword(self, row: Row, value: int) -> None:
        row.passages = [{1 + value % 4: 1 + place} for place in range(1 + value % 4)]
        self.store.write(row)

    def embed(self, row: Row, value: int) -> None:
        row.vectors = {MODEL: [DIRECTIONS[(value + place) % 12] for place in range(value % 4)]}
        self.store.write(row)

    def forget(self, row: Row, value: int) -> None:
        self.store.forget(row)

    def wait(self, row: Row, value: int) -> None:
        self.store.clock += value


WHAT = ("add", "add", "add", "close", "retract", "expire", "weigh", "reword", "embed", "forget", "wait")
steps = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=40)


@settings(max_examples=up_to(120), deadline=None)
@given(steps=steps, ask=st.integers(1, 6), before=st.integers(-3, 5))
def test_the_index_follows_every_sequence_of_changes(steps: list[tuple[str, int, int]], ask: int, before: int) -> None:
    store = IndexStore()
    changes = Changes(store)
    kept = words.MAX_TAIL, items.MIN_REMOVED, connection.PAGE_ROWS
    words.MAX_TAIL, items.MIN_REMOVED, connection.PAGE_ROWS = 8, 3, 4
    try:
        for number, (what, which, value) in enumerate(steps):
            changes.make(what, which, value)
            if number % ask == 0:
                check(store, None)
                check(store, store.clock - before)
        check(store, None)
    finally:
        words.MAX_TAIL, items.MIN_REMOVED, connection.PAGE_ROWS = kept


def test_a_write_is_seen_by_the_next_search_and_costs_few_statements() -> None:
    store = IndexStore()
    for place in range(50):
        store.add(passages=[{place: 1}], vectors={MODEL: [DIRECTIONS[place % 12]]})
    store.nearest(DIRECTIONS[1])
    store.best((1,))
    row = store.add(passages=[{77: 1}], vectors={MODEL: [DIRECTIONS[1]]})
    before = store.run_count
    assert store.nearest(DIRECTIONS[1], 1).ids == [row.id]
    assert [hit.id for hit in store.best((77,)).hits] == [row.id]
    assert store.run_count - before <= 8
    before = store.run_count
    store.best((77,))
    assert store.run_count - before == 1


def test_validity_is_judged_at_the_moment_asked() -> None:
    store = IndexStore()
    store.clock = 100
    row = store.add(passages=[{1: 1}], vectors={MODEL: [DIRECTIONS[0]]}, valid_to=200)
    for at, there in ((99, False), (100, True), (199, True), (200, False)):
        assert bool(store.nearest(DIRECTIONS[0], at=at).ids) is there
        assert bool(store.best((1,), at=at).hits) is there
    assert store.nearest(DIRECTIONS[0]).ids == [row.id]
    store.clock = 200
    assert store.nearest(DIRECTIONS[0]).ids == []
    assert store.best((1,)).passages == 0


def test_filter_and_validity_come_before_the_limit() -> None:
    store = IndexStore()
    for place in range(60):
        store.add(
            passages=[{1: 1}], vectors={MODEL: [DIRECTIONS[0]]}, kind="message", valid_to=None if place % 2 else 5
        )
    wanted = store.add(passages=[{1: 1, 2: 50}], vectors={MODEL: [DIRECTIONS[1]]}, session="s", place=1)
    store.add(passages=[{2: 1}], vectors={MODEL: [DIRECTIONS[1]]}, kind="message", session="s", place=2)
    where = parse_filter({"kind": "fact"})
    assert store.nearest(DIRECTIONS[0], 1, where=where).ids == [wanted.id]
    best = store.best((1,), 1, where=where)
    assert [hit.id for hit in best.hits] == [wanted.id]
    assert best.passages == 32
    assert [sketch.id for sketch in store.sketches([wanted.id], where=where)] == [wanted.id]
    wanted.kind = "message"
    store.write(wanted, index=False)
    assert store.nearest(DIRECTIONS[0], 1, where=where).ids == []


def test_an_id_may_come_back_after_its_item_went() -> None:
    store = IndexStore()
    row = store.add(id="same", passages=[{1: 1}], vectors={MODEL: [DIRECTIONS[0]]})
    store.nearest(DIRECTIONS[0])
    store.forget(row)
    store.add(id="same", passages=[{2: 1}], vectors={MODEL: [DIRECTIONS[1]]})
    assert store.nearest(DIRECTIONS[0]).ids == ["same"]
    assert [hit.id for hit in store.best((2,)).hits] == ["same"]
    assert [sketch.id for sketch in store.sketches(["same"])] == ["same"]
    assert store.best((1,)).hits == []


def test_a_scope_read_among_many_others_is_the_same_as_alone() -> None:
    store = IndexStore()
    for place in range(200):
        owner = ANA if place % 20 == 0 else BEN
        store.add(owner, passages=[{1: 1, place: 1}], vectors={MODEL: [DIRECTIONS[place % 12]]}, sources=["page"])
    check(store, None)
    assert {sketch.source for sketch in store.sketches([row.id for row in store.visible(ANA, None)])} == {"page"}


def test_the_scopes_in_use_stay_under_the_cap() -> None:
    store = IndexStore()
    scopes = [Scope(user=str(place)) for place in range(6)]
    for scope in scopes:
        for place in range(50):
            store.add(scope, passages=[{place: 1}], vectors={MODEL: [DIRECTIONS[place % 12]]})
    store.best((1,), scope=scopes[0])
    one = store.index.usage()["bytes"]
    store.index = store.new_index(cap=3 * one + one // 2)
    for scope in scopes:
        assert len(store.best((1,), scope=scope).hits) == 1
    held = store.index.usage()
    assert (held["scopes"], held["dropped"], held["over_cap"]) == (3, 3, 0)
    assert 0 < held["bytes"] <= held["cap"]


def test_a_scope_larger_than_the_cap_still_answers_and_is_reported() -> None:
    store = IndexStore(cap=100)
    row = store.add(passages=[{1: 1}], vectors={MODEL: [DIRECTIONS[0]]})
    assert store.nearest(DIRECTIONS[0]).ids == [row.id]
    assert [hit.id for hit in store.best((1,)).hits] == [row.id]
    held = store.index.usage()
    assert (held["bytes"], held["mapped"], held["over_cap"]) == (0, 1, 2)


def test_a_scope_larger_than_the_cap_is_mapped_and_not_read_again(tmp_path: Path) -> None:
    store = IndexStore(cap=100)
    store.index = IndexCache(store.read, lambda _: store.clock, 100, str(tmp_path))
    rows = [store.add(passages=[{1: 1, place: 2}], vectors={MODEL: [DIRECTIONS[place % 12]]}) for place in range(300)]
    first = store.best((1,), limit=300)
    before = store.run_count
    store.best((7,))
    assert store.run_count == before + 1  # only what is new
    rows.append(store.add(passages=[{1: 1}], vectors={MODEL: [DIRECTIONS[0]]}))
    assert store.nearest(DIRECTIONS[0]).ids[0] == rows[-1].id
    assert {hit.id for hit in store.best((1,), limit=400).hits} == {hit.id for hit in first.hits} | {rows[-1].id}
    held = store.index.usage()
    assert (held["mapped"], held["over_cap"]) == (1, 0)
    assert list(tmp_path.iterdir()) == []  # the files have no names
    assert store.best((1,), limit=400) == store.new_index().best(WordQuery((1,), ANA, limit=400))


def test_scopes_above_the_cap_are_mapped_and_not_read_again(tmp_path: Path) -> None:
    store = IndexStore()
    scopes = [Scope(user=str(place)) for place in range(12)]
    for scope in scopes:
        for place in range(200):
            store.add(scope, passages=[{place: 1, 7: 2}], vectors={MODEL: [DIRECTIONS[place % 12]]})
    fresh = [store.new_index().best(WordQuery((3, 7), scope, limit=9)) for scope in scopes]
    store.nearest(DIRECTIONS[0], scope=scopes[0])
    one = store.index.usage()["bytes"]
    store.index.clear()
    store.index = IndexCache(store.read, lambda _: store.clock, 11 * one, str(tmp_path))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        before = store.run_count
        for scope, expected in zip(scopes, fresh, strict=True):
            assert store.best((3, 7), scope=scope, limit=9) == expected
            assert store.nearest(DIRECTIONS[1], scope=scope).ids
    assert store.run_count - before < 4 * len(scopes)  # changes, and the vectors that are compared
    held = store.index.usage()
    assert (held["scopes"], held["dropped"], held["over_cap"]) == (12, 0, 0)
    assert held["mapped"] > 4
    assert held["bytes"] <= held["cap"]
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 2
    assert list(tmp_path.iterdir()) == []  # the files have no names
    row = store.add(scopes[0], passages=[{3: 1, 7: 9}], vectors={MODEL: [DIRECTIONS[3]]})
    assert store.best((3, 7), scope=scopes[0], limit=300) == store.new_index().best(
        WordQuery((3, 7), scopes[0], limit=300)
    )
    assert store.nearest(DIRECTIONS[3], scope=scopes[0], limit=1).ids == [row.id]


def test_mapped_scopes_of_which_too_much_stays_in_memory_are_dropped(tmp_path: Path) -> None:
    store = IndexStore()
    store.index = IndexCache(store.read, lambda _: store.clock, 20_000, str(tmp_path))
    scopes = [Scope(user=str(place)) for place in range(10)]
    for scope in scopes:
        for place in range(20):
            store.add(scope, passages=[{place: 1}], vectors={MODEL: [DIRECTIONS[place % 12]]})
        assert len(store.best((1,), scope=scope).hits) == 1
    held = store.index.usage()
    assert held["dropped"] > 0
    assert held["scopes"] + held["dropped"] == 10
    assert held["bytes"] <= held["cap"]


def test_candidates_are_what_the_single_searches_find() -> None:
    store = IndexStore()
    for place in range(40):
        store.add(
            passages=[{1 + place % 3: 1, 9: place % 4 + 1}], vectors={MODEL: [DIRECTIONS[place % 12]]}, session="s",
            place=2 * place + place // 20, traits=place % 5, speaker=f"Ana {place % 2}",
        )  # fmt: skip
    found = store.index.collect(wanted(None))
    near = store.index.nearest(VectorQuery(DIRECTIONS[0], MODEL, ANA, limit=3))
    best = store.index.best(WordQuery(TERMS, ANA, limit=3))
    sketches = {one.id: one for one in store.sketches([*near.ids, *(hit.id for hit in best.hits)], 1)}
    assert sketches.keys() <= {*found.items.ids}
    for row, id in enumerate(found.items.ids):
        sketch = sketches.get(id)
        if sketch:
            assert (found.items.speaker[row], found.items.traits[row]) == (sketch.speaker, sketch.traits)
            assert (found.items.place[row], found.items.trust[row]) == (sketch.place, sketch.trust)
        assert bool(found.found_by[row] & BY_MEANING) >= (id in near.ids)
        assert found.cosine[row] == store.index.cosines(VectorQuery(DIRECTIONS[0], MODEL, ANA), [id])[0]
    hits = store.index.counts(WordQuery(TERMS, ANA), found.items.ids).hits
    assert [found.items.ids[row] for row in found.words.rows] == [hit.id for hit in hits]
    assert [tuple(counts) for counts in found.words.counts.tolist()] == [hit.counts for hit in hits]


def test_stores_of_a_process_share_one_cap() -> None:
    stores = [IndexStore() for _ in range(3)]
    for store in stores:
        for place in range(50):
            store.add(passages=[{place: 1}])
        store.best((1,))
    one = stores[0].index.usage()["bytes"]
    for store in stores:
        store.index = store.new_index(cap=2 * one + one // 2)
    for store in stores:
        assert len(store.best((1,)).hits) == 1
    assert [store.index.usage()["scopes"] for store in stores] == [0, 1, 1]
    assert stores[0].best((1,)) == stores[0].new_index().best(WordQuery((1,), ANA, limit=10))


def test_after_all_was_let_go_the_next_answer_is_made_anew() -> None:
    store = IndexStore()
    store.add(passages=[{1: 1}])
    assert len(store.best((1,)).hits) == 1
    store.index.clear()
    assert store.index.usage()["scopes"] == 0
    assert len(store.best((1,)).hits) == 1


def test_a_file_that_went_back_in_time_is_read_anew() -> None:
    store = IndexStore()
    store.add(passages=[{1: 1}])
    row = store.add(passages=[{1: 1}])
    assert len(store.best((1,)).hits) == 2
    store.run("delete from words where item = ?", (row.n,))
    store.run("delete from item where n = ?", (row.n,))
    assert len(store.best((1,)).hits) == 1


def test_what_went_leaves_the_memory_as_well() -> None:
    store = IndexStore()
    rows = [store.add(passages=[{place % 50: 1}], vectors={MODEL: [DIRECTIONS[place % 12]]}) for place in range(1200)]
    store.nearest(DIRECTIONS[0])
    store.best((1,))
    full = store.index.usage()["bytes"]
    for row in rows[:800]:
        store.forget(row)
    store.nearest(DIRECTIONS[0])
    store.best((1,))
    assert store.index.usage()["bytes"] < full / 2
    for turn, row in enumerate(rows[800:] * 4):
        row.passages = [{turn % 53: 1, 99: 1}]
        row.vectors = {MODEL: [DIRECTIONS[0]] * (1 + turn // 400 % 2)}
        store.write(row)
        if store.seq % 100 == 0:
            store.nearest(DIRECTIONS[0])
            store.best((1,))
    assert len(store.best((99,), 1000).hits) == len(store.nearest(DIRECTIONS[0], 1000).ids) == 400
    index = store.index._slots[ANA.id].index
    assert index is not None
    assert len(index._words) < 700
    assert len(index._vectors[MODEL]) < 1200


def test_an_unknown_scope_is_empty_and_is_seen_once_it_exists() -> None:
    store = IndexStore()
    assert store.nearest(DIRECTIONS[0]).ids == []
    assert store.sketches(["a"]) == []
    assert store.index.speakers(ANA) == frozenset()
    assert store.reads.having(ANA, 1, None, 5, None) == []
    store.add(passages=[{1: 1}], speaker="Ana")
    assert len(store.best((1,)).hits) == 1
    assert store.index.speakers(ANA) == {"Ana"}


def test_a_sketch_names_the_first_named_source_there_is_now() -> None:
    store = IndexStore()
    row = store.add(sources=[None, "", "page", "book"])
    for sources, named in ((row.sources, "page"), (["book"], "book"), ([None], None), ([], None)):
        row.sources = sources
        store.write(row)
        assert [sketch.source for sketch in store.sketches([row.id])] == [named]


def test_neighbours_stay_in_their_session() -> None:
    store = IndexStore()
    rows = [store.add(session=f"s{place // 5}", place=place % 5) for place in range(15)]
    odd = store.add(session="s0", place=1 << 45)
    bare = store.add()
    found = [sketch.id for sketch in store.sketches([rows[4].id, bare.id, rows[5].id, "no", odd.id], 2)]
    near = [rows[place].id for place in (2, 3, 4, 5, 6, 7)]
    assert sorted(found) == sorted([*near, bare.id, odd.id])
    assert [sketch.id for sketch in store.sketches([rows[4].id, rows[4].id], 0)] == [rows[4].id]


def test_threads_see_every_write_that_was_committed_before_they_asked(tmp_path: Path) -> None:
    store = IndexStore(path=str(tmp_path / "one.db"))
    store.add(passages=[{1: 1}], vectors={MODEL: [DIRECTIONS[0]]})
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            at_least = len(store.items)
            found = store.best((1,), 1000)
            assert len(found.hits) == found.frequency[0] >= at_least
            assert len(store.nearest(DIRECTIONS[0], 1000).ids) >= at_least

    with ThreadPoolExecutor(3) as pool:
        searches = [pool.submit(search) for _ in range(3)]
        for _ in range(60):
            store.add(passages=[{1: 1}], vectors={MODEL: [DIRECTIONS[0]]})
        done.set()
        for one in searches:
            one.result()


def test_an_index_that_was_interrupted_half_way_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = IndexStore()
    store.add(passages=[{1: 1}])
    assert len(store.best((1,)).hits) == 1
    store.add(passages=[{1: 1}])

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(words.WordIndex, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.best((1,))
    assert len(store.best((1,)).hits) == 2
    assert store.best((1,)) == store.new_index().best(WordQuery((1,), ANA, limit=10))
