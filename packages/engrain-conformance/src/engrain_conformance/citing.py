"""Tests of plans whose later steps cite their earlier ones."""

from __future__ import annotations

import pytest

from engrain.core.errors import InvalidInput, NotFound
from engrain.core.model.items import FORGOTTEN, TRUST, Citation, Source
from engrain.core.model.plans import Add, Change, Correct, Forget, Plan, refer_to_step
from engrain.ports.items import ItemStore
from engrain_conformance.drafts import ANA, add, derived, fact, get_item, list_items, message, texts
from engrain_conformance.suite import Suite


class CitingSuite(Suite):
    def test_a_step_may_cite_what_an_earlier_one_gave(self, store: ItemStore) -> None:
        steps = (
            Add(message("I live in Lima 😀.", source=Source("w", "web"))),
            Add(derived("Ana lives in Lima.", Citation(refer_to_step(0), 2, 14))),
            Add(derived("Ana lives in Peru.", Citation(refer_to_step(1)), Citation(refer_to_step(0), 10, 14))),
        )
        said, lima, peru = (outcome.id or "" for outcome in store.apply(Plan(ANA, steps)).outcomes)
        assert get_item(store, lima).sources[0].cites == (Citation(said, 2, 14),)
        assert get_item(store, peru).sources[0].cites == (Citation(lima), Citation(said, 10, 14))
        assert get_item(store, lima).trust == get_item(store, peru).trust == TRUST["web"]
        assert set(store.apply(Plan(ANA, (Forget(said),))).outcomes[0].others) == {lima, peru}

    def test_what_a_step_gave_is_what_it_stands_for(self, store: ItemStore) -> None:
        old, wrong, said = add(store, fact("Old."), fact("Wrong."), fact("Said."))
        steps = (
            Add(fact("Old.")),
            Correct(wrong, fact("Right.")),
            Change(said, pinned=True),
            Correct(
                said, derived("So.", Citation(refer_to_step(0)), Citation(refer_to_step(1)), Citation(refer_to_step(2)))
            ),
        )
        outcomes = store.apply(Plan(ANA, steps)).outcomes
        cited = [cite.item for cite in get_item(store, outcomes[3].id).sources[0].cites]
        assert cited == [old, outcomes[1].id, said]

    def test_a_step_may_forget_what_an_earlier_one_gave(self, store: ItemStore) -> None:
        said = message("I live in Lima.")
        lima = derived("In Lima.", Citation(refer_to_step(0), 2, 14))
        steps = (Add(said), Add(lima), Forget(refer_to_step(1)), Forget(refer_to_step(1)), Forget(refer_to_step(7)))
        row, made, gone, *again = store.apply(Plan(ANA, steps, "once")).outcomes
        assert (gone.id, gone.status, gone.marked) == (made.id, "forgotten", (row.id,))
        assert [one.status for one in again] == ["missing", "missing"]
        assert texts(list_items(store)) == [f"I {FORGOTTEN}."]
        assert store.apply(Plan(ANA, steps, "once")).repeated

    @pytest.mark.parametrize("name", [refer_to_step(1), refer_to_step(2), refer_to_step(9), "#", "#-1", "#00", "#0 "])
    def test_only_an_earlier_step_can_be_cited(self, store: ItemStore, name: str) -> None:
        steps = (Add(message("Said.")), Add(derived("Made.", Citation(name))), Add(message("More.")))
        with pytest.raises(NotFound):
            store.apply(Plan(ANA, steps))
        add(store, message("Said."))
        with pytest.raises(NotFound):
            add(store, derived("Made.", Citation(refer_to_step(0))))
        assert texts(list_items(store)) == ["Said."]

    def test_a_span_of_an_earlier_step_must_be_inside_its_text(self, store: ItemStore) -> None:
        with pytest.raises(InvalidInput):
            store.apply(Plan(ANA, (Add(message("Said.")), Add(derived("Made.", Citation(refer_to_step(0), 2, 9))))))
        assert list_items(store) == []

    def test_what_rests_on_a_step_that_was_kept_out_is_kept_out(self, store: ItemStore) -> None:
        (gone, kept) = add(store, fact("Secret."), fact("Kept."))
        store.apply(Plan(ANA, (Forget(gone),)))
        steps = (
            Add(message("Secret.", derived=True)),
            Add(derived("Made of it.", Citation(refer_to_step(0), 0, 3), slot="s"), "line 1"),
            Add(derived("Made of that.", Citation(kept), Citation(refer_to_step(1)))),
            Correct(kept, derived("Better.", Citation(refer_to_step(0)))),
            Add(message("Said.")),
        )
        outcomes = store.apply(Plan(ANA, steps)).outcomes
        assert [outcome.status for outcome in outcomes] == ["kept_out"] * 4 + ["added"]
        assert [(outcome.id, outcome.others, outcome.place) for outcome in outcomes[:4]] == [(None, (), None)] * 4
        assert sorted(texts(list_items(store, history=True))) == ["Kept.", "Said."]
        assert store.apply(Plan(ANA, (Add(derived("Made of it.", slot="s"), "line 1"),))).outcomes[0].status == "added"

    def test_what_rests_on_what_is_gone_is_kept_out(self, store: ItemStore) -> None:
        once = Plan(ANA, (Add(message("Said."), "line 1"), Add(derived("Made.", Citation(refer_to_step(0))))))
        said, _ = store.apply(once).outcomes
        store.apply(Plan(ANA, (Forget(said.id or ""),)))
        outcomes = store.apply(once).outcomes
        assert [(outcome.status, outcome.id) for outcome in outcomes] == [("repeated", said.id), ("kept_out", None)]
        (old,) = add(store, fact("Old."))
        outcomes = store.apply(
            Plan(ANA, (Forget(old), Add(fact("New.", source=Source(cites=(Citation(refer_to_step(0)),))))))
        ).outcomes
        assert [outcome.status for outcome in outcomes] == ["forgotten", "kept_out"]
        assert list_items(store) == []
