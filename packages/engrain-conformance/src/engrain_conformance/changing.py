"""Tests of ItemStore.apply: correcting, changing and embedding items."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engrain.core.errors import NotFound
from engrain.core.model.items import Citation, SessionPosition, Source
from engrain.core.model.plans import Change, Embed, Forget, Plan
from engrain.ports.items import ItemStore
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    MODEL,
    add,
    add_one,
    correct,
    derived,
    fact,
    get_item,
    list_items,
    message,
    texts,
    without_vectors,
)
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.suite import Suite


class ChangingSuite(Suite):
    # Correct

    def test_a_correction_takes_the_place_of_the_old_version(self, store: ItemStore, clock: SetClock) -> None:
        place = SessionPosition("s", 2, "Ana", "user")
        day = clock() - timedelta(days=1)
        (id,) = add(store, fact("Lima", kind="message", slot="city", position=place, occurred_at=day))
        store.apply(Plan(ANA, (Change(id, pinned=True),)))
        later = clock.advance(10)
        outcome = correct(store, id, fact("Quito", importance=0.9, source=Source("b"), metadata={"k": 1}))
        assert (outcome.status, outcome.others, outcome.place) == ("replaced", (id,), 2)
        old, new = get_item(store, id), get_item(store, outcome.id)
        assert (old.retracted_at, old.replaced_by, old.text) == (later, new.id, "Lima")
        assert (new.kind, new.slot, new.session, new.place, new.speaker) == ("message", "city", "s", 2, "Ana")
        assert (new.valid_from, new.valid_to, new.occurred_at, new.recorded_at) == (day, None, day, later)
        assert (new.importance, new.source, new.metadata, new.pinned) == (0.9, "b", {"k": 1}, True)
        assert texts(list_items(store)) == ["Quito"]

    def test_a_correction_may_bring_its_own_date(self, store: ItemStore, clock: SetClock) -> None:
        (id,) = add(store, fact("Went on Monday."))
        day = clock() - timedelta(days=4)
        assert get_item(store, correct(store, id, fact("Went on Tuesday.", occurred_at=day)).id).occurred_at == day

    def test_a_correction_into_what_is_known_points_to_that(self, store: ItemStore) -> None:
        wrong, right = add(store, fact("Ana likes coffee."), fact("Ana likes tea.", importance=0.2))
        outcome = correct(store, wrong, fact("Ana likes tea.", importance=0.7))
        assert (outcome.id, outcome.status, outcome.others) == (right, "repeated", (wrong,))
        assert get_item(store, wrong).replaced_by == right
        assert get_item(store, right).importance == 0.7
        assert texts(list_items(store)) == ["Ana likes tea."]

    def test_a_correction_in_the_same_words_is_a_new_version(self, store: ItemStore) -> None:
        (id,) = add(store, fact("Same."))
        new = correct(store, id, fact("Same."))
        assert (new.status, new.id == id) == ("replaced", False)
        assert [item.id for item in list_items(store)] == [new.id]

    def test_what_was_corrected_can_be_said_again(self, store: ItemStore) -> None:
        (id,) = add(store, fact("Wrong."))
        correct(store, id, fact("Right."))
        assert add_one(store, fact("Wrong.")).status == "added"

    def test_only_what_stands_is_changed_or_corrected(self, store: ItemStore) -> None:
        (id, foreign) = add(store, fact("Wrong.")) + add(store, fact("Ben's."), scope=BEN)
        correct(store, id, fact("Right."))
        for gone in (id, foreign, "nothing"):
            with pytest.raises(NotFound):
                correct(store, gone, fact("Other."))
            with pytest.raises(NotFound):
                store.apply(Plan(ANA, (Change(gone, importance=1.0),)))
        assert texts(list_items(store)) == ["Right."]

    # Change

    def test_a_change_makes_no_new_version(self, store: ItemStore) -> None:
        (id,) = add(store, fact("Kept.", importance=0.3, metadata={"a": 1, "b": 2}))
        before = get_item(store, id)
        outcome = store.apply(Plan(ANA, (Change(id, importance=0.9),))).outcomes[0]
        assert (outcome.id, outcome.status) == (id, "changed")
        store.apply(Plan(ANA, (Change(id, pinned=True, metadata={"c": 3}),)))
        after = get_item(store, id)
        assert (after.importance, after.pinned, after.metadata) == (0.9, True, {"c": 3})
        store.apply(Plan(ANA, (Change(id, pinned=False, metadata={}, importance=0.0),)))
        after = get_item(store, id)
        assert (after.importance, after.pinned, after.metadata) == (0.0, False, {})
        assert (after.text, after.recorded_at, after.valid_from) == (before.text, before.recorded_at, before.valid_from)

    def test_a_change_sets_when_an_item_ends(self, store: ItemStore) -> None:
        (id,) = add(store, fact("The code of today is 4711."))
        before = get_item(store, id)
        end = before.recorded_at + timedelta(hours=1)
        store.apply(Plan(ANA, (Change(id, expires_at=end),)))
        assert get_item(store, id).expires_at == end
        store.apply(Plan(ANA, (Change(id, importance=0.9),)))
        assert get_item(store, id).expires_at == end, "what is not given stays as it is"
        store.apply(Plan(ANA, (Change(id, expires_at=before.recorded_at),)))
        assert list_items(store) == []

    # Embed

    def test_missing_vectors_are_found_and_made_up_for(self, store: ItemStore, clock: SetClock) -> None:
        (first,) = add(store, without_vectors("First."))
        clock.advance()
        (foreign,) = add(store, without_vectors("Ben's."), scope=BEN)
        (_, closed) = add(
            store, fact("With."), without_vectors("Old.", slot="s", occurred_at=clock() - timedelta(days=1))
        )
        add(store, fact("New.", slot="s"))
        missing = store.unembedded(MODEL, 10)
        assert store.vectors(ANA, [pending.id for pending in missing], MODEL) == {}
        assert [(pending.id, pending.scope, pending.text, pending.kind, pending.slot) for pending in missing] == [
            (first, ANA, "First.", "fact", None), (foreign, BEN, "Ben's.", "fact", None),
            (closed, ANA, "Old.", "fact", "s"),
        ]  # fmt: skip
        assert [pending.id for pending in store.unembedded(MODEL, 2)] == [first, foreign]
        for pending in missing:
            vectors = HashEmbedder().vectors(pending.text)
            outcome = store.apply(Plan(pending.scope, (Embed(pending.id, pending.hash, vectors),))).outcomes[0]
            assert (outcome.id, outcome.status) == (pending.id, "changed")
        assert store.unembedded(MODEL, 10) == []

    def test_models_are_missing_one_by_one(self, store: ItemStore) -> None:
        other = HashEmbedder("other")
        (id,) = add(store, fact("Text."))
        (pending,) = store.unembedded(other.model.key, 10)
        assert pending.id == id
        store.apply(Plan(ANA, (Embed(id, pending.hash, other.vectors("Text.")),)))
        assert store.unembedded(other.model.key, 10) == store.unembedded(MODEL, 10) == []

    def test_vectors_of_a_text_that_changed_are_stale(self, store: ItemStore) -> None:
        (id,) = add(store, message("I live in Lima."))
        (item,) = store.unembedded("another model", 10)
        (made,) = add(store, derived("Ana lives in Lima.", Citation(id, 0, 14)))
        store.apply(Plan(ANA, (Forget(made),)))
        vectors = HashEmbedder().vectors(item.text)
        outcomes = store.apply(Plan(ANA, (Embed(id, item.hash, vectors), Embed(made, item.hash, vectors)))).outcomes
        assert [outcome.status for outcome in outcomes] == ["stale", "missing"]
        assert [pending.id for pending in store.unembedded(MODEL, 10)] == [id]

    def test_vectors_of_another_scope_s_item_are_missing(self, store: ItemStore) -> None:
        (id,) = add(store, without_vectors("Ben's."), scope=BEN)
        (item,) = store.unembedded(MODEL, 10)
        step = Embed(id, item.hash, HashEmbedder().vectors(item.text))
        assert store.apply(Plan(ANA, (step,))).outcomes[0].status == "missing"
        assert len(store.unembedded(MODEL, 10)) == 1
