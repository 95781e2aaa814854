"""Tests of ItemStore.apply: adding items, and plans as a whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.errors import Conflict, InvalidInput, NotFound
from engrain.core.model.items import TRUST, Citation, Item, Relation, SessionPosition, Source
from engrain.core.model.plans import Add, Change, Correct, Forget, Plan
from engrain.core.model.sessions import Episode, EpisodeDraft
from engrain.ports.items import ItemStore
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    add,
    add_one,
    derived,
    fact,
    get_item,
    list_items,
    message,
    texts,
    without_vectors,
)
from engrain_conformance.suite import Suite

LETTERS = {
    "quotes": 'it\'s "quoted" `code` -- ; %s {x} \\',
    "emoji": "👩‍👩‍👧 🇵🇪 😀",
    "cjk": "私は東京に住んでいます。",
    "rtl": "אני גר בתל אביב \u202eabc",
    "combining": "e\u0301 is not é",
    "breaks": "a\r\nb\tc\u2028d\x0b",
    "spaces": "  kept as it is  ",
    "astral": "\U0001f9e0\U00020000",
}


class AddingSuite(Suite):
    # Add

    def test_an_item_comes_back_with_everything_it_was_given(self, store: ItemStore, clock: SetClock) -> None:
        source = Source("a page", "web")
        draft = fact(
            "Ana drives to Quito.",
            kind="relation",
            importance=0.8,
            metadata={"a": 1, "b": [1, {"c": None}], "ü": "x", "f": 0.1, "t": True, "n": None},
            source=source,
            occurred_at=clock() - timedelta(days=3, microseconds=1),
            expires_at=clock() + timedelta(days=3, microseconds=1),
            relation=Relation("Ana", "drives to", "Quito"),
        )
        outcome = add_one(store, draft)
        assert (outcome.status, outcome.others, outcome.marked, outcome.place) == ("added", (), (), None)
        assert get_item(store, outcome.id) == Item(
            id=outcome.id or "",
            kind="relation",
            text=draft.text,
            importance=0.8,
            recorded_at=clock(),
            valid_from=clock() - timedelta(days=3, microseconds=1),
            occurred_at=draft.occurred_at,
            metadata=draft.metadata,
            sources=(source,),
            trust=TRUST["web"],
            relation=draft.relation,
            expires_at=draft.expires_at,
        )

    def test_a_place_comes_back_with_its_speaker_and_role(self, store: ItemStore) -> None:
        outcome = add_one(store, fact("Hi.", kind="message", position=SessionPosition("s", 4, "Ana", "user")))
        item = get_item(store, outcome.id)
        assert (item.session, item.place, item.speaker, item.role, outcome.place) == ("s", 4, "Ana", "user", 4)

    @pytest.mark.parametrize("text", LETTERS.values(), ids=LETTERS.keys())
    def test_text_is_kept_letter_by_letter(self, store: ItemStore, text: str) -> None:
        place = SessionPosition(text, 0, text, text)
        draft = fact(text, slot=text, metadata={text: text}, source=Source(text), position=place)
        item = get_item(store, add_one(store, draft).id)
        assert item.text == item.slot == item.session == item.speaker == item.role == item.source == text
        assert item.metadata == {text: text}

    def test_a_megabyte_of_text_is_kept(self, store: ItemStore) -> None:
        text = "Überraschung, word by word. " * 35_000
        assert get_item(store, add_one(store, without_vectors(text)).id).text == text

    def test_the_same_words_again_are_the_same_item(self, store: ItemStore, clock: SetClock) -> None:
        first = add_one(store, fact("Ana likes tea.", importance=0.4, source=Source("a"), metadata={"k": 1}))
        clock.advance()
        again = add_one(store, fact("Ana likes tea.", importance=0.9, source=Source("b", "web"), metadata={"k": 2}))
        lower = add_one(store, fact("Ana likes tea.", importance=0.1, source=Source("a")))
        assert [one.status for one in (first, again, lower)] == ["added", "repeated", "repeated"]
        assert first.id == again.id == lower.id
        item = get_item(store, first.id)
        assert (item.importance, item.metadata) == (0.9, {"k": 2})
        assert item.sources == (Source("a"), Source("b", "web"))
        assert item.recorded_at == item.valid_from == clock() - timedelta(seconds=1)

    def test_a_repeat_keeps_the_higher_trust(self, store: ItemStore) -> None:
        (id,) = add(store, fact("Tea is hot.", source=Source("w", "web")))
        add(store, fact("Tea is hot.", source=Source("u", "user")))
        assert get_item(store, id).trust == TRUST["user"]
        add(store, fact("Tea is hot.", source=Source("t", "tool")))
        assert get_item(store, id).trust == TRUST["user"]

    def test_a_repeat_keeps_the_later_expiry(self, store: ItemStore, clock: SetClock) -> None:
        day = timedelta(days=1)
        (id,) = add(store, fact("Milk is open.", expires_at=clock() + day))
        add(store, fact("Milk is open.", expires_at=clock() + 2 * day))
        add(store, fact("Milk is open.", expires_at=clock() + day))
        assert get_item(store, id).expires_at == clock() + 2 * day
        clock.advance(3 * 86_400)
        assert list_items(store) == []
        add(store, fact("Milk is open."))
        assert texts(list_items(store)) == ["Milk is open."]
        assert get_item(store, id).expires_at is None

    @pytest.mark.parametrize(
        "draft",
        [
            fact("Ana likes tea"),
            fact("ana likes tea."),
            fact("Ana likes tea.", kind="procedure"),
            fact("Ana likes tea.", kind="relation", relation=Relation("Ana", "likes", "tea")),
            fact("Ana likes tea.", slot="drink"),
            fact("Ana likes tea.", occurred_at=SetClock()()),
            message("Ana likes tea."),
        ],
        ids=["text", "case", "kind", "relation", "slot", "date", "place"],
    )
    def test_what_differs_stands_beside(self, store: ItemStore, draft: Any) -> None:
        (id,) = add(store, fact("Ana likes tea."))
        assert add_one(store, draft).status == "added"
        assert add_one(store, fact("Ana likes tea.")).id == id
        assert len(list_items(store)) == 2

    def test_dated_texts_and_messages_are_never_merged(self, store: ItemStore, clock: SetClock) -> None:
        day = clock() - timedelta(days=1)
        ids = add(store, fact("Ran.", occurred_at=day), fact("Ran.", occurred_at=day), message("Ran."), message("Ran."))
        assert len(set(ids)) == 4

    def test_two_relations_in_the_same_words_are_two(self, store: ItemStore) -> None:
        one, two = (Relation("Ana", "is", "x y"), Relation("Ana", "is x", "y"))
        ids = add(store, *(fact("Ana is x y", kind="relation", relation=each) for each in (one, two)))
        assert len(set(ids)) == 2

    def test_a_repeat_inside_one_plan_is_seen(self, store: ItemStore) -> None:
        first, second = add(store, fact("Twice."), fact("Twice."))
        assert first == second

    def test_ids_sort_by_the_order_of_writing(self, store: ItemStore, clock: SetClock) -> None:
        ids = add(store, *(fact(f"Number {n}.") for n in range(5)))
        clock.advance(-100)
        ids += add(store, fact("Later."))
        assert ids == sorted(ids)

    # Places

    def test_places_are_numbered_from_zero(self, store: ItemStore) -> None:
        outcomes = store.apply(Plan(ANA, tuple(Add(message(f"m{n}")) for n in range(3)))).outcomes
        assert [outcome.place for outcome in outcomes] == [0, 1, 2]
        assert add_one(store, message("other", "tuesday")).place == 0
        assert add_one(store, message("seven", number=7)).place == 7
        assert add_one(store, message("eight")).place == 8
        assert add_one(store, message("five", number=5)).place == 5
        assert add_one(store, message("nine")).place == 9

    def test_a_taken_place_repeats_or_conflicts(self, store: ItemStore) -> None:
        (id,) = add(store, message("Hello.", number=3))
        again = add_one(store, message("Hello.", number=3, importance=0.9))
        assert (again.id, again.status, again.place) == (id, "repeated", 3)
        assert get_item(store, id).importance == 0.9
        with pytest.raises(Conflict):
            add(store, message("Goodbye.", number=3))

    def test_a_place_that_was_forgotten_is_free(self, store: ItemStore) -> None:
        (id,) = add(store, message("Hello.", number=3))
        store.apply(Plan(ANA, (Forget(id),)))
        assert add_one(store, message("Other.", number=3)).status == "added"
        assert add_one(store, message("Next.")).place == 4

    def test_expect_is_the_length_of_the_session(self, store: ItemStore) -> None:
        store.apply(Plan(ANA, (Add(message("a")), Add(message("b"))), expect=("monday", 0)))
        for wrong in (0, 1, 3):
            with pytest.raises(Conflict):
                store.apply(Plan(ANA, (Add(message("c")),), expect=("monday", wrong)))
        store.apply(Plan(ANA, (Add(message("c")),), expect=("monday", 2)))
        assert sorted(texts(list_items(store))) == ["a", "b", "c"]

    # Trust

    def test_trust_is_the_source_s_and_no_more_than_what_it_cites(self, store: ItemStore) -> None:
        web, said = add(store, fact("From the web.", source=Source("w", "web")), fact("Said."))
        weak = add_one(store, derived("Both say so.", Citation(web), Citation(said)))
        assert get_item(store, weak.id).trust == TRUST["web"]
        strong = add_one(store, derived("One says so.", Citation(said)))
        assert get_item(store, strong.id).trust == TRUST["agent"]
        chain = add_one(store, fact("And so on.", source=Source(cites=(Citation(weak.id or ""),))))
        assert get_item(store, chain.id).trust == TRUST["web"]

    def test_citing_an_unknown_item_is_refused(self, store: ItemStore) -> None:
        (foreign,) = add(store, fact("Ben's."), scope=BEN)
        for unknown in ("nothing", foreign):
            with pytest.raises(NotFound):
                add(store, derived("Made up.", Citation(unknown)))
        assert list_items(store) == []

    @pytest.mark.parametrize("span", [(0, 99), (3, 3), (4, 2), (-1, 2), (12, 14)])
    def test_citing_a_span_outside_the_text_is_refused(self, store: ItemStore, span: tuple[int, int]) -> None:
        (id,) = add(store, message("A text of 13."))
        with pytest.raises(InvalidInput):
            add(store, derived("Made up.", Citation(id, *span)))

    def test_cites_come_back_with_their_source(self, store: ItemStore) -> None:
        (id,) = add(store, message("I live in Lima 😀 now."))
        one, two = (
            Source("x", "agent", (Citation(id, 2, 14), Citation(id))),
            Source("y", "agent", (Citation(id, 0, 21),)),
        )
        (made,) = add(store, fact("Ana lives in Lima.", source=one))
        add(store, fact("Ana lives in Lima.", source=two))
        assert get_item(store, made).sources == (one, two)

    # One plan, one transaction

    def test_a_plan_happens_whole_or_not_at_all(self, store: ItemStore) -> None:
        (kept, slot, said) = add(store, fact("Kept."), fact("Lima", slot="city"), message("Hello.", number=0))
        before = (list_items(store, history=True), store.changes(ANA, 0, 100), store.status().items)
        steps = (
            Add(fact("New.")),
            Add(fact("Quito", slot="city")),
            Add(message("More.")),
            Add(fact("Kept.", importance=1.0)),
            Change(kept, pinned=True),
            Correct(kept, fact("Other.")),
            Forget(slot),
        )
        bad = (
            Change("nothing", importance=1.0),
            Add(message("Taken.", number=0)),
            Add(derived("x", Citation("nothing"))),
        )
        for last in bad:
            with pytest.raises((NotFound, Conflict)):
                store.apply(Plan(ANA, (*steps, last), request_id="r"))
        assert (list_items(store, history=True), store.changes(ANA, 0, 100), store.status().items) == before
        assert add_one(store, derived("Lima", Citation(said))).status == "added"  # and no tombstone was left
        assert add_one(store, message("Next.")).place == 1
        assert not store.apply(Plan(ANA, (Add(fact("New.")),), request_id="r")).repeated

    def test_outcomes_come_in_the_order_of_the_steps(self, store: ItemStore) -> None:
        (old,) = add(store, fact("Old."))
        steps = (Forget("nothing"), Add(fact("New.")), Change(old, pinned=True), Forget(old), Forget(old))
        outcomes = store.apply(Plan(ANA, steps)).outcomes
        assert [outcome.status for outcome in outcomes] == ["missing", "added", "changed", "forgotten", "missing"]
        assert store.apply(Plan(ANA, ())).outcomes == ()

    def test_a_request_is_done_once(self, store: ItemStore, clock: SetClock) -> None:
        plan = Plan(
            ANA, (Add(message("Hello.")), Add(fact("Lima", slot="city"))), request_id="r' 1", expect=("monday", 0)
        )
        first = store.apply(plan)
        clock.advance()
        add(store, fact("Quito", slot="city"))
        again = store.apply(plan)
        assert (first.repeated, again.repeated) == (False, True)
        assert (again.outcomes, again.seq) == (first.outcomes, first.seq)
        assert store.apply(Plan(ANA, (), request_id="r' 1")).outcomes == first.outcomes
        for other in (fact("Never written."), fact("Lima", slot="town"), message("Hello.")):
            with pytest.raises(Conflict):
                store.apply(Plan(ANA, (Add(other),), request_id="r' 1"))
        assert sorted(texts(list_items(store))) == ["Hello.", "Quito"]
        assert not store.apply(Plan(BEN, (Add(fact("Ben's.")),), request_id="r' 1")).repeated

    def test_a_request_keeps_every_kind_of_outcome(self, store: ItemStore) -> None:
        (said,) = add(store, message("I live in Lima."))
        (made,) = add(store, derived("Ana lives in Lima.", Citation(said, 0, 14)))
        add(store, derived("So it goes.", Citation(made)))
        steps = (Forget(made), Add(derived("Ana lives in Lima.", Citation(said))), Add(message("Next.")), Forget("x"))
        first = store.apply(Plan(ANA, steps, request_id="r"))
        assert store.apply(Plan(ANA, steps, request_id="r")).outcomes == first.outcomes

    def test_a_repeat_takes_new_metadata(self, store: ItemStore) -> None:
        (id,) = add(store, fact("Same.", metadata={"a": 1, "b": {"x": 1}}))
        assert add_one(store, fact("Same.", metadata={"b": None, "c": "é"})).id == id
        assert get_item(store, id).metadata == {"a": 1, "b": None, "c": "é"}
        add(store, fact("Same."))
        assert get_item(store, id).metadata == {"a": 1, "b": None, "c": "é"}

    def test_an_add_with_its_own_request_is_done_once_in_any_plan(self, store: ItemStore) -> None:
        (said,) = add(store, fact("Forget me."))
        store.apply(Plan(ANA, (Forget(said),)))
        steps = (
            Add(message("Hello."), "line 1"),
            Add(message("Hello."), "line 2"),
            Add(derived("Forget me."), "line 3"),
        )
        first = store.apply(Plan(ANA, steps)).outcomes
        assert [one.status for one in first] == ["added", "added", "kept_out"]
        again = store.apply(Plan(ANA, (Add(message("New."), "line 4"), *steps))).outcomes
        assert [one.status for one in again] == ["added", "repeated", "repeated", "kept_out"]
        assert [(one.id, one.place) for one in again[1:]] == [(one.id, one.place) for one in first]
        assert sorted(texts(list_items(store))) == ["Hello.", "Hello.", "New."]
        assert store.apply(Plan(BEN, steps[:1])).outcomes[0].status == "added"

    def test_a_store_without_episodes_refuses_them(self, store: ItemStore, clock: SetClock) -> None:
        if hasattr(store, "episodes"):
            pytest.skip("this store holds episodes")
        happening = EpisodeDraft(Episode("e", "s", "turn", "x", 0.5, clock(), None))
        with pytest.raises(InvalidInput):
            store.apply(Plan(ANA, (Add(fact("Kept.")),), episodes=(happening,)))
        assert list_items(store) == []

    def test_another_handle_sees_what_was_acknowledged(
        self, store: ItemStore, another: Callable[[], ItemStore]
    ) -> None:
        other = another()
        (id,) = add(store, fact("Written here."))
        assert get_item(other, id).text == "Written here."
        (back,) = add(other, fact("Written there."))
        assert get_item(store, back).text == "Written there."
        assert add_one(other, fact("Written here.")).id == id
