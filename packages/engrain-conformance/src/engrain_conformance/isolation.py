"""Tests of isolation: no method and no name crosses the border of a scope."""

from __future__ import annotations

import pytest

from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import Citation, Relation
from engrain.core.model.plans import Add, Change, Correct, Embed, Forget, Plan, Step
from engrain.core.model.queries import ListQuery, SketchQuery
from engrain.ports.items import ItemStore
from engrain_conformance.drafts import ANA, BEN, add, add_one, derived, fact, hostile_scopes, list_items, message, texts
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.suite import Suite

CANARY = "zanzibar-canary"


def add_canaries(store: ItemStore, scope: Scope = BEN) -> list[str]:
    """Something of every kind, with the canary in every field that holds text."""
    relation = Relation(CANARY, "is", "shared")
    ids = add(
        store,
        fact(f"{CANARY} fact", metadata={CANARY: CANARY}, traits=1),
        fact(f"{CANARY} slot", slot="shared"),
        fact(f"{CANARY} new", slot="shared"),
        fact(f"{CANARY} is shared", kind="relation", relation=relation),
        message(f"{CANARY} zero", "shared", speaker=CANARY, traits=1),
        message(f"{CANARY} one", "shared", speaker=CANARY),
        scope=scope,
    )
    return ids + add(store, derived(f"{CANARY} derived", Citation(ids[-1], 0, 5)), scope=scope)


class IsolationSuite(Suite):
    def test_no_read_crosses_the_wall(self, store: ItemStore) -> None:
        foreign = add_canaries(store)
        own = add(store, fact("Mine.", slot="mine"), message("Mine too.", "shared", number=1, traits=2))
        where = Filter((Condition("text", "contains", CANARY),))
        everything = Filter((Condition("text", "!=", "x' or 1=1 --"),))
        answers = {
            "get_many": store.get_many(ANA, foreign),
            "page": [list_items(store), list_items(store, history=True), store.page(ListQuery(ANA, everything))],
            "filtered": store.page(ListQuery(ANA, where)),
            "after": list_items(store, after=max(foreign) + "z"),
            "slots": [store.slots(ANA, prefix, None) for prefix in ("", "shared", "%")],
            "slot": [store.slot(ANA, name, None) for name in ("", "shared", "%")],
            "history": store.history(ANA, "shared"),
            "about": [store.about(ANA, name, None) for name in ("shared", CANARY)],
            "lineage": store.lineage(ANA, foreign),
            "speakers": sorted(store.speakers(ANA)),
            "sketches": store.sketches(SketchQuery(ANA, [*own, *foreign], 10)),
            "having": [store.having(ANA, 0xFFFF, one, 99, None) for one in (None, everything)],
            "outdated": store.outdated(ANA, foreign),
            "changes": store.changes(ANA, 0, 99).changes,
        }
        for name, answer in answers.items():
            assert CANARY not in repr(answer), name
            assert not any(id in repr(answer) for id in foreign), name

    def test_no_write_crosses_the_wall(self, store: ItemStore) -> None:
        foreign = add_canaries(store)
        before = list_items(store, BEN, history=True)
        (id,) = add(store, fact("Mine."))
        steps: list[Step] = [
            *(Change(scope, importance=1.0, pinned=True) for scope in foreign),
            *(Correct(scope, fact("Other.")) for scope in foreign),
            *(Add(derived("Made up.", Citation(scope))) for scope in foreign),
        ]
        for step in steps:
            with pytest.raises(NotFound):
                store.apply(Plan(ANA, (step,)))
        hashes = {pending.id: pending.hash for pending in store.unembedded("another model", 99)}
        for scope in foreign:
            wrong = (Forget(scope), Embed(scope, hashes[scope], HashEmbedder("another").vectors("x")))
            assert [each.status for each in store.apply(Plan(ANA, wrong)).outcomes] == ["missing", "missing"]
        store.touch(ANA, foreign)
        add(store, fact(f"{CANARY} fact", importance=1.0), fact("New.", slot="shared"), message("x", "shared"))
        store.apply(Plan(ANA, (Forget(id),)))
        assert list_items(store, BEN, history=True) == before

    def test_the_same_names_mean_other_things_in_every_scope(self, store: ItemStore) -> None:
        scopes = hostile_scopes()
        for n, scope in enumerate(scopes):
            outcomes = store.apply(
                Plan(scope, (Add(fact("Same.")), Add(fact(f"{n}", slot="s")), Add(message(f"m{n}"))), request_id="r")
            )
            assert [outcome.status for outcome in outcomes.outcomes] == ["added"] * 3
            assert not outcomes.repeated
            assert outcomes.outcomes[2].place == 0
        for n, scope in enumerate(scopes):
            assert texts(list_items(store, scope)) == [f"m{n}", f"{n}", "Same."]
            assert texts(store.slots(scope, "", None)) == [f"{n}"]
        assert store.status().scopes == len(scopes)

    def test_an_empty_part_and_a_missing_one_are_two(self, store: ItemStore) -> None:
        add(store, fact("Empty."), scope=Scope(user=""))
        assert list_items(store, Scope()) == list_items(store, Scope(tenant="")) == []

    def test_an_id_may_be_anything(self, store: ItemStore) -> None:
        foreign = add_canaries(store)
        add_one(store, fact("Mine."))
        for id in ("' or 1=1 --", '" or ""="', "%", "*", "", "\U0001f600", "x" * 100_000, foreign[0] + " "):
            assert store.get_many(ANA, [id]) == store.get_many(BEN, [id]) == []
            assert [*store.lineage(BEN, [id]), *store.outdated(BEN, [id])] == []
            assert store.apply(Plan(BEN, (Forget(id),))).outcomes[0].status == "missing"
        assert len(list_items(store, BEN)) == len(foreign) - 1
