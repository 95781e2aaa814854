"""Tests of ItemStore: changes, the outbox, usage, status and closing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engrain.core.errors import StoreClosed
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Words
from engrain.core.model.plans import Add, Change, Embed, Plan
from engrain.core.model.queries import ListQuery, SketchQuery
from engrain.ports.items import ItemStore
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    MODEL,
    add,
    correct,
    derived,
    fact,
    forget,
    get_item,
    list_items,
    message,
    vector_query,
    without_vectors,
    word_query,
)
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.suite import Suite


def read_changes(store: ItemStore, since: int = 0, limit: int = 1) -> tuple[dict[str, bool], int]:
    """The latest state of each item that changed, read in small pages, and where the reader then stands."""
    seen: dict[str, bool] = {}
    while True:
        changes = store.changes(ANA, since, limit)
        assert [change.seq for change in changes.changes] == sorted(change.seq for change in changes.changes)
        assert all(since < change.seq <= changes.seq for change in changes.changes)
        assert len(changes.changes) <= limit
        seen |= {change.id: change.deleted for change in changes.changes}
        since = changes.seq
        if changes.complete:
            return seen, since
        assert changes.changes


class ChangeFeedSuite(Suite):
    # Changes

    def test_every_change_is_seen(self, store: ItemStore, clock: SetClock) -> None:
        a, b, c, d = add(store, fact("a"), fact("b", slot="s"), message("c"), without_vectors("d"))
        (e,) = add(store, derived("e", Citation(c, 0, 1)))
        seen, seq = read_changes(store)
        assert seen == dict.fromkeys([a, b, c, d, e], False)
        clock.advance()
        (f,) = add(store, fact("f", slot="s"))
        assert f in read_changes(store, seq)[0]
        assert b in read_changes(store, seq)[0]  # closed
        steps: list[tuple[set[str], Callable[[], Any]]] = [
            ({a}, lambda: store.apply(Plan(ANA, (Change(a, pinned=True),)))),
            ({a}, lambda: add(store, fact("a", importance=0.9))),
            ({d}, lambda: store.apply(Plan(ANA, tuple(_embeds(store))))),
            ({c, e}, lambda: forget(store, e)),
            ({a}, lambda: correct(store, a, fact("A"))),
        ]
        for ids, step in steps:
            _, seq = read_changes(store, seq)
            step()
            assert ids <= read_changes(store, seq, limit=2)[0].keys()
        seen, seq = read_changes(store)
        assert seen[e]
        assert not any(gone for id, gone in seen.items() if id != e)
        assert read_changes(store, seq) == ({}, seq)

    def test_an_answer_has_the_number_of_its_last_change(self, store: ItemStore) -> None:
        first = store.apply(Plan(ANA, (Add(fact("a")), Add(fact("b")))))
        second = store.apply(Plan(ANA, (Add(fact("c")), Add(fact("d")))))
        assert first.seq < second.seq <= store.status().seq
        assert len(store.changes(ANA, first.seq, 10).changes) == 2
        assert store.changes(ANA, second.seq, 10).changes == ()
        assert max(change.seq for change in store.changes(ANA, 0, 10).changes) == second.seq

    def test_changes_of_other_scopes_are_not_shown(self, store: ItemStore) -> None:
        add(store, fact("a"))
        add(store, *(fact(str(n)) for n in range(5)), scope=BEN)
        assert len(store.changes(ANA, 0, 10).changes) == 1
        assert store.changes(ANA, 0, 1).complete

    def test_the_memories_of_a_store_are_told_apart_and_each_is_told_once(self, store: ItemStore) -> None:
        assert store.scopes() == []
        mine, other = Scope("acme", "sales", "ana"), Scope("acme", None, "ana")
        for scope in (mine, other, mine):
            add(store, fact("a"), scope=scope)
        assert sorted(map(str, store.scopes())) == sorted(map(str, (mine, other)))

    def test_the_newest_number_is_that_of_one_who_has_seen_all(self, store: ItemStore) -> None:
        assert store.newest(ANA) == store.changes(ANA, 0, 10).seq
        ids = add(store, fact("a"), fact("b"))
        add(store, fact("c"), scope=BEN)
        forget(store, ids[0])
        assert store.newest(ANA) == store.changes(ANA, 0, 10).seq
        assert store.changes(ANA, store.newest(ANA), 10).changes == ()

    def test_a_use_is_no_change(self, store: ItemStore) -> None:
        ids = add(store, fact("a"))
        _, seq = read_changes(store)
        store.touch(ANA, ids)
        assert read_changes(store, seq)[0] == {}

    def test_a_reader_never_misses_a_change_of_concurrent_writers(self, store: ItemStore) -> None:
        done = threading.Event()
        seen: dict[str, bool] = {}

        def read() -> None:
            since = 0
            while True:
                last = done.is_set()
                found, since = read_changes(store, since, limit=3)
                seen.update(found)
                if last:
                    return

        reader = threading.Thread(target=read)
        reader.start()
        with ThreadPoolExecutor(6) as pool:
            ids = list(pool.map(lambda n: add(store, fact(str(n)), fact(f"{n} again"), fact("all")), range(30)))
        done.set()
        reader.join()
        assert seen == {id: False for three in ids for id in three}

    # Outbox

    def test_an_outbox_begins_with_everything_there_is(self, store: ItemStore) -> None:
        (a, b) = add(store, fact("a"), fact("b"))
        (c,) = add(store, fact("c"), scope=BEN)
        forget(store, b)
        entries = store.outbox("index", 10)
        assert [(entry.scope, entry.item) for entry in entries if not entry.deleted] == [(ANA, a), (BEN, c)]
        assert [entry.item for entry in store.outbox("index", 10, BEN)] == [c]
        assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
        assert store.outbox("index", 10) == entries
        assert store.outbox("index", 1) == entries[:1]

    def test_what_is_settled_is_not_handed_out_again(self, store: ItemStore) -> None:
        (a, b) = add(store, fact("a"), fact("b"))
        first = store.outbox("index", 10)
        store.outbox("other' --", 10)
        store.settle("index", first[0].seq)
        assert [entry.item for entry in store.outbox("index", 10)] == [b]
        store.apply(Plan(ANA, (Change(a, pinned=True),)))
        store.settle("index", first[-1].seq)
        assert [(entry.item, entry.deleted) for entry in store.outbox("index", 10)] == [(a, False)]
        store.settle("index", first[0].seq)
        assert len(store.outbox("index", 10)) == 1
        forget(store, a)
        assert [(entry.item, entry.deleted) for entry in store.outbox("index", 10)] == [(a, True)]
        assert [entry.item for entry in store.outbox("other' --", 10)] == [b, a]
        store.settle("index", store.outbox("index", 10)[-1].seq)
        assert store.outbox("index", 10) == []

    # Uses

    def test_uses_are_counted(self, store: ItemStore, clock: SetClock) -> None:
        a, b = add(store, fact("a"), fact("b"))
        assert (get_item(store, a).access_count, get_item(store, a).last_accessed) == (0, None)
        clock.advance()
        store.touch(ANA, [a, b, "nothing"])
        clock.advance()
        store.touch(ANA, [a])
        assert (get_item(store, a).access_count, get_item(store, a).last_accessed) == (2, clock())
        assert get_item(store, b).access_count == 1
        add(store, fact("c"))
        store.touch(ANA, [a])
        store.apply(Plan(ANA, (Change(a, pinned=True),)))
        assert (get_item(store, a).access_count, get_item(store, b).access_count) == (3, 1)

    def test_a_use_that_is_not_written_yet_does_not_hinder_forgetting(self, store: ItemStore) -> None:
        (a,) = add(store, fact("a"))
        store.touch(ANA, [a])
        forget(store, a)
        store.touch(ANA, [a])
        add(store, fact("b"))
        assert store.get_many(ANA, [a]) == []

    def test_uses_from_several_threads_all_count(self, store: ItemStore) -> None:
        (a,) = add(store, fact("a"))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: store.touch(ANA, [a]), range(100)))
        assert get_item(store, a).access_count == 100

    # The store as a whole

    def test_status_counts(self, store: ItemStore, clock: SetClock) -> None:
        assert store.status().items == store.status().scopes == 0
        add(store, fact("a", slot="s"), without_vectors("b"))
        clock.advance()
        (c,) = add(store, fact("c", slot="s"))
        add(store, fact("d"), scope=BEN)
        correct(store, c, fact("e"))
        status = store.status()
        assert (status.items, status.open_items, status.scopes, status.unembedded) == (5, 3, 2, 1)
        assert store.status(MODEL).unembedded == 1
        assert store.status("another model").unembedded == 5
        assert status.seq > 0
        assert status.backend
        forget(store, c)
        assert store.status().items == 4

    def test_a_healthy_store_passes_its_own_check(self, store: ItemStore) -> None:
        add(store, fact("a"))
        found = store.check()
        assert found
        assert not [one for one in found if one.state == "fail"]

    def test_words_are_rebuilt_from_the_texts(self, store: ItemStore, words: Any) -> None:
        ids = add(store, message("Some tea.", speaker="Zoe", words=Words()), fact("Some coffee."))
        add(store, fact("Other."), scope=BEN)
        before = words.best(word_query("coffee"))
        assert words.best(word_query("tea")).hits == []
        assert store.rebuild() == 3
        assert [hit.id for hit in words.best(word_query("tea")).hits] == [ids[0]]
        assert [hit.id for hit in words.best(word_query("Zoe")).hits] == [ids[0]]
        assert words.best(word_query("coffee")).hits == before.hits
        assert [item.id for item in list_items(store)] == ids[::-1]

    def test_rebuilding_keeps_vectors_that_fit(self, store: ItemStore, vectors: Any, feed: Any) -> None:
        (id,) = add(store, fact("Some tea."))
        store.rebuild()
        feed()
        assert vectors.nearest(vector_query("Some tea.")).ids == [id]

    def test_a_closed_store_refuses_every_call(self, store: ItemStore) -> None:
        add(store, fact("a"))
        store.close()
        store.close()
        calls: list[Callable[[], Any]] = [
            lambda: store.apply(Plan(ANA, (Add(fact("b")),))),
            lambda: store.get_many(ANA, ["a"]),
            lambda: store.page(ListQuery(ANA)),
            lambda: store.slots(ANA, "", None),
            lambda: store.slot(ANA, "s", None),
            lambda: store.history(ANA, "s"),
            lambda: store.about(ANA, "a", None),
            lambda: store.lineage(ANA, ["a"]),
            lambda: store.speakers(ANA),
            lambda: store.sketches(SketchQuery(ANA, ["a"])),
            lambda: store.having(ANA, 1, None, 1, None),
            lambda: store.outdated(ANA, ["a"]),
            lambda: store.changes(ANA, 0, 1),
            lambda: store.newest(ANA),
            lambda: store.unembedded(MODEL, 1),
            lambda: store.touch(ANA, ["a"]),
            lambda: store.purge(),
            lambda: store.outbox("t", 1),
            lambda: store.settle("t", 1),
            lambda: store.status(),
            lambda: store.check(),
            lambda: store.rebuild(),
        ]
        for call in calls:
            with pytest.raises(StoreClosed):
                call()

    def test_buffered_uses_are_written_at_the_close(self, store: ItemStore, another: Any) -> None:
        (id,) = add(store, fact("a"))
        store.touch(ANA, [id])
        store.close()
        assert get_item(another(), id).access_count == 1


def _embeds(store: ItemStore) -> list[Embed]:
    return [
        Embed(pending.id, pending.hash, HashEmbedder().vectors(pending.text)) for pending in store.unembedded(MODEL, 9)
    ]
