"""Tests of reading items: pages, relations, lineage, neighbours, traits, outdated spans."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Citation, Relation, SessionPosition, Source
from engrain.core.model.plans import Change, Plan
from engrain.core.model.queries import ItemCitation, ListQuery, OutdatedSpan, Sketch, SketchQuery
from engrain.ports.items import ItemStore
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    add,
    add_one,
    correct,
    derived,
    fact,
    forget,
    get_item,
    list_items,
    message,
    texts,
)
from engrain_conformance.suite import Suite

DAY = timedelta(days=1)


class ReadingSuite(Suite):
    # get_many and page

    def test_items_come_in_the_order_asked(self, store: ItemStore, clock: SetClock) -> None:
        a, b, c = add(store, fact("a"), fact("b"), fact("c", expires_at=START + DAY))
        correct(store, b, fact("B"))
        clock.advance(2 * 86_400)
        assert texts(store.get_many(ANA, [c, "nothing", b, a])) == ["c", "b", "a"]
        assert store.get_many(ANA, []) == []

    def test_more_ids_than_a_statement_binds(self, store: ItemStore) -> None:
        (id,) = add(store, fact("a"))
        ids = [f"unknown {n}" for n in range(40_000)]
        assert texts(store.get_many(ANA, [*ids, id])) == ["a"]

    def test_a_page_shows_the_newest_first(self, store: ItemStore, clock: SetClock) -> None:
        for n in range(7):
            add(store, fact(f"{n}a", occurred_at=START - n * DAY), fact(f"{n}b"))
            clock.advance()
        seen: list[str] = []
        while batch := store.page(ListQuery(ANA, limit=3, after=seen[-1] if seen else None)):
            assert len(batch) <= 3
            seen += [item.id for item in batch]
        assert texts(store.get_many(ANA, seen)) == [f"{n}{part}" for n in reversed(range(7)) for part in "ba"]
        assert seen == sorted(seen, reverse=True)

    def test_a_page_goes_on_after_an_item_that_is_gone(self, store: ItemStore) -> None:
        ids = add(store, *(fact(str(n)) for n in range(5)))
        forget(store, ids[2])
        assert texts(list_items(store, after=ids[2])) == ["1", "0"]

    def test_a_page_shows_what_held_at_the_moment(self, store: ItemStore, clock: SetClock) -> None:
        add(store, fact("Lima", slot="city"), fact("Milk.", expires_at=START + DAY))
        (wrong,) = add(store, fact("Wrong."))
        clock.advance(10)
        correct(store, wrong, fact("Right."))
        add(store, fact("Quito", slot="city"), fact("Later."))
        assert texts(list_items(store)) == ["Later.", "Quito", "Right.", "Milk."]
        assert texts(list_items(store, at=START)) == ["Right.", "Milk.", "Lima"]
        assert list_items(store, at=START - DAY) == []
        assert texts(list_items(store, at=START + DAY)) == ["Later.", "Quito", "Right."]
        everything = ["Later.", "Quito", "Right.", "Wrong.", "Milk.", "Lima"]
        assert (
            texts(list_items(store, history=True))
            == texts(list_items(store, history=True, at=START - DAY))
            == everything
        )

    def test_the_filter_comes_before_the_limit(self, store: ItemStore) -> None:
        add(store, *(fact(f"{n}", metadata={"even": n % 2 == 0}) for n in range(20)))
        found = list_items(store, where={"metadata.even": True}, limit=4)
        assert texts(found) == ["18", "16", "14", "12"]
        assert texts(list_items(store, where={"metadata.even": True}, limit=4, after=found[-1].id)) == [
            "10",
            "8",
            "6",
            "4",
        ]

    def test_an_item_expires_at_its_moment(self, store: ItemStore, clock: SetClock) -> None:
        add(store, fact("Milk.", expires_at=START + DAY))
        clock.advance(86_399.999_999)
        assert texts(list_items(store)) == ["Milk."]
        clock.advance(0.000_001)
        assert list_items(store) == []

    # about and lineage

    def test_relations_are_found_from_either_side(self, store: ItemStore, clock: SetClock) -> None:
        for one in (
            ("Ana", "likes", "Tea"),
            ("Änne", "knows", "ana"),
            ("Straße", "is in", "ÄNNE"),
            ("Anabel", "is", "x"),
        ):
            add(store, fact(" ".join(one), kind="relation", relation=Relation(*one)))
            clock.advance()
        add(store, fact("Ana is mentioned.", slot="Ana"))
        assert texts(store.about(ANA, "ANA", None)) == ["Änne knows ana", "Ana likes Tea"]
        assert texts(store.about(ANA, "änne", None)) == ["Straße is in ÄNNE", "Änne knows ana"]
        assert texts(store.about(ANA, "anne", None)) == ["Straße is in ÄNNE", "Änne knows ana"]
        assert texts(store.about(ANA, "STRASSE", None)) == ["Straße is in ÄNNE"]
        assert texts(store.about(ANA, "ana", START)) == ["Ana likes Tea"]
        assert store.about(ANA, "likes", None) == store.about(ANA, "%", None) == store.about(ANA, "An", None) == []

    def test_a_relation_that_was_corrected_or_forgotten_is_not_found(self, store: ItemStore) -> None:
        wrong, gone = add(
            store,
            fact("a b c", kind="relation", relation=Relation("a", "b", "c")),
            fact("a b d", kind="relation", relation=Relation("a", "b", "d")),
        )
        correct(store, wrong, fact("a b e", relation=Relation("a", "b", "e")))
        forget(store, gone)
        assert texts(store.about(ANA, "a", None)) == ["a b e"]
        assert store.about(ANA, "c", None) == store.about(ANA, "d", None) == []

    def test_a_count_is_that_of_all_pages(self, store: ItemStore, clock: SetClock) -> None:
        add(store, fact("a", slot="s"), fact("b"), fact("c", importance=0.9))
        clock.advance()
        add(store, fact("d", slot="s"))
        add(store, fact("e"), scope=BEN)
        high = parse_filter({"importance": {">": 0.8}})
        assert store.count(ListQuery(ANA, limit=1)) == 3
        assert store.count(ListQuery(ANA, history=True)) == 4
        assert store.count(ListQuery(ANA, high)) == store.count(ListQuery(BEN)) == 1
        assert store.count(ListQuery(Scope(user="nobody"))) == 0

    def test_lineage_is_one_step_each_way(self, store: ItemStore) -> None:
        (said,) = add(store, message("I live in Lima."))
        (one,) = add(store, derived("Lives in Lima.", Citation(said, 2, 14), Citation(said)))
        add(store, fact("Lives in Lima.", source=Source("twice", cites=(Citation(said, 2, 14),))))
        (two,) = add(store, derived("Lives in Peru.", Citation(one)))
        add(store, derived("Speaks Spanish.", Citation(two)))
        above = {ItemCitation(one, Citation(said, 2, 14)), ItemCitation(one, Citation(said))}
        assert set(store.lineage(ANA, [said])) == above
        assert set(store.lineage(ANA, [one])) == {*above, ItemCitation(two, Citation(one))}
        found = store.lineage(ANA, [said, one])
        assert len(found) == len(set(found)) == 3
        correct(store, one, fact("Lives in Quito."))
        assert set(store.lineage(ANA, [said])) == above
        assert store.lineage(ANA, ["nothing"]) == store.lineage(ANA, []) == []

    # Speakers, sketches, traits

    def test_speakers_are_those_of_all_items(self, store: ItemStore) -> None:
        ids = add(
            store, message("a", speaker="Ana"), message("b", speaker="Zoe's"), message("c", speaker=None), fact("d")
        )
        wrong, _ = ids[0], add(store, message("e", speaker="ben"), scope=BEN)
        correct(store, wrong, fact("A"))
        assert store.speakers(ANA) == {"Ana", "Zoe's"}
        forget(store, ids[1])
        assert store.speakers(ANA) == {"Ana"}

    def test_a_sketch_says_what_ranking_needs(self, store: ItemStore, clock: SetClock) -> None:
        long = "A long text of many words. " * 100
        day = START - DAY
        place = SessionPosition("s", 3, "Ana", "user")
        draft = fact(
            long, kind="message", importance=0.7, position=place, occurred_at=day, traits=5, source=Source("p", "web")
        )
        (id, bare) = add(store, draft, fact("Short."))
        store.apply(Plan(ANA, (Change(id, pinned=True),)))
        (sketch,) = store.sketches(SketchQuery(ANA, [id]))
        assert sketch == Sketch(
            id, "message", "s", 3, "Ana", "user", day.timestamp(), 5, draft.words.passages, 0.7, True, 0.3, "p"
        )
        assert draft.words.passages > 1
        (other,) = store.sketches(SketchQuery(ANA, [bare]))
        assert (other.session, other.place, other.occurred_at, other.source) == (None, None, START.timestamp(), None)

    def test_neighbours_are_those_within_reach(self, store: ItemStore) -> None:
        ids = add(store, *(message(str(n)) for n in range(10)), *(message(str(n), "tuesday") for n in range(10)))
        add(store, fact("No place."))
        for reach in (0, 1, 2, 50):
            found = store.sketches(SketchQuery(ANA, [ids[0], ids[4]], reach))
            near = {n for n in range(10) if min(n, abs(n - 4)) <= reach}
            assert sorted((one.session, one.place) for one in found) == sorted(("monday", n) for n in near)

    def test_neighbours_are_visible_and_match(self, store: ItemStore, clock: SetClock) -> None:
        ids = add(store, *(message(str(n), metadata={"n": n}) for n in range(5)))
        clock.advance()
        new = correct(store, ids[1], fact("one", metadata={"n": 1}))
        forget(store, ids[3])
        (late,) = add(store, message("5"))
        found = {sketche.id for sketche in store.sketches(SketchQuery(ANA, [ids[2]], 4))}
        assert found == {ids[0], new.id, ids[2], ids[4], late}
        seen = store.sketches(SketchQuery(ANA, [ids[2]], 4, at=START))
        assert {sketch.id for sketch in seen} == {ids[0], new.id, ids[2], ids[4]}
        where = parse_filter({"metadata.n": {"<": 2}})
        assert {sketche.id for sketche in store.sketches(SketchQuery(ANA, [ids[2]], 4, where))} == {ids[0], new.id}
        assert {sketche.id for sketche in store.sketches(SketchQuery(ANA, [ids[1]], 1))} == {ids[0], new.id, ids[2]}
        assert store.sketches(SketchQuery(ANA, ["nothing", ids[3]], 4)) == store.sketches(SketchQuery(ANA, [])) == []

    def test_traits_are_found_newest_first(self, store: ItemStore, clock: SetClock) -> None:
        ids = add(store, *(fact(str(n), traits=n) for n in range(8)))
        clock.advance()
        (hidden,) = add(store, fact("8", traits=4, slot="s", occurred_at=START + 2 * DAY))
        assert store.having(ANA, 4, None, 10, None) == [ids[7], ids[6], ids[5], ids[4]]
        assert store.having(ANA, 3, None, 3, None) == [ids[7], ids[6], ids[5]]
        assert store.having(ANA, 8, None, 10, None) == []
        assert store.having(ANA, 4, None, 1, START + 3 * DAY) == [hidden]
        assert store.having(ANA, 4, None, 10, START - DAY) == []

    def test_a_filter_on_traits_comes_before_the_limit(self, store: ItemStore) -> None:
        ids = add(store, *(fact(str(n), traits=1, metadata={"even": n % 2 == 0}) for n in range(6)))
        even = parse_filter({"metadata.even": True})
        assert store.having(ANA, 1, even, 2, None) == [ids[4], ids[2]]
        assert store.having(ANA, 1, parse_filter({"metadata.even": None}), 2, None) == []
        assert store.having(ANA, 2, even, 2, None) == []

    # Outdated spans

    def test_a_span_is_outdated_once_its_item_was_replaced(self, store: ItemStore, clock: SetClock) -> None:
        (said, other) = add(store, message("I live in Lima and like tea."), message("Quito now."))
        add(store, derived("Lima", Citation(said, 10, 14), slot="city"), derived("Likes tea.", Citation(said, 19, 27)))
        assert store.outdated(ANA, [said]) == []
        until = clock.advance()
        (quito,) = add(store, derived("Quito", Citation(other), slot="city"))
        assert store.outdated(ANA, [other, said]) == [OutdatedSpan(said, 10, 14, until, "Quito", quito)]
        clock.advance()
        (cusco,) = add(store, fact("Cusco", slot="city"))
        assert store.outdated(ANA, [said, other]) == [
            OutdatedSpan(said, 10, 14, until, "Cusco", cusco), OutdatedSpan(other, 0, 10, clock(), "Cusco", cusco),
        ]  # fmt: skip
        assert [span.id for span in store.outdated(ANA, [other, said])] == [other, said]
        assert store.outdated(ANA, []) == store.outdated(ANA, ["nothing"]) == []

    def test_a_cite_without_words_is_not_outdated(self, store: ItemStore) -> None:
        (said,) = add(store, message("I like coffee."))
        (first,) = add(store, derived("Likes coffee.", Citation(said, 0, 0)))
        correct(store, first, fact("Likes cocoa."))
        assert store.outdated(ANA, [said]) == []

    def test_a_span_is_outdated_once_its_item_was_corrected(self, store: ItemStore, clock: SetClock) -> None:
        (said,) = add(store, message("I like coffee, I mean tea."))
        (first,) = add(store, derived("Likes coffee.", Citation(said, 2, 13)))
        until = clock.advance()
        second = correct(store, first, fact("Likes cocoa."))
        clock.advance()
        third = correct(store, second.id or "", fact("Likes tea."))
        assert store.outdated(ANA, [said]) == [OutdatedSpan(said, 2, 13, until, "Likes tea.", third.id)]
        forget(store, third.id or "")
        assert store.outdated(ANA, [said]) == []

    def test_a_span_is_named_once_for_each_item_that_cites_it(self, store: ItemStore, clock: SetClock) -> None:
        (said,) = add(store, message("Lima"))
        one, two = add(
            store, derived("One.", Citation(said), Citation(said, 0, 4)), derived("Two.", Citation(said, 0, 4))
        )
        for id, text in ((one, "1"), (two, "2")):
            correct(store, id, fact(text))
        assert {span.now for span in store.outdated(ANA, [said])} == {"1", "2"}
        assert len(store.outdated(ANA, [said])) == 2

    def test_a_value_that_still_holds_is_not_outdated(self, store: ItemStore, clock: SetClock) -> None:
        (said,) = add(store, message("Lima until Friday."))
        add(store, derived("Lima", Citation(said, 0, 4), slot="city"))
        (quito,) = add(store, fact("Quito", slot="city", occurred_at=START + DAY))
        assert store.outdated(ANA, [said]) == []
        clock.advance(86_400)
        assert store.outdated(ANA, [said]) == [OutdatedSpan(said, 0, 4, START + DAY, "Quito", quito)]

    # Time

    @pytest.mark.parametrize("jump", [-1, -86_400 * 3_650])
    def test_recorded_times_never_run_backwards(self, store: ItemStore, clock: SetClock, jump: float) -> None:
        ids = [*add(store, fact("first", slot="s"))]
        clock.advance(jump)
        ids += add(store, fact("second", slot="s"))
        assert texts(list_items(store)) == ["second"]
        ids += [correct(store, ids[-1], fact("third")).id or ""]
        clock.advance(-2 * jump)
        ids += add(store, fact("fourth", slot="s"))
        recorded = [get_item(store, id).recorded_at for id in ids]
        assert all(before <= after for before, after in pairwise(recorded))
        assert recorded[0] == recorded[1] == START
        assert get_item(store, ids[1]).retracted_at == START
        assert texts(store.slots(ANA, "s", None)) == ["fourth"]

    def test_a_clock_that_jumped_ahead_and_back_loses_nothing(self, store: ItemStore, clock: SetClock) -> None:
        add(store, fact("before"))
        clock.advance(86_400 * 3_650)
        add(store, fact("ahead"))
        clock.advance(-86_400 * 3_650)
        add_one(store, fact("after"))
        assert texts(list_items(store)) == ["after", "ahead", "before"]
