"""Tests of slots: one value at a time, ordered by the start of its validity."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from random import Random
from typing import Any

import pytest

from engrain.core.model.erasure import Subject
from engrain.core.model.items import Item, Source
from engrain.core.model.plans import refer_to_step
from engrain.ports.erasure import Erasing
from engrain.ports.items import ItemStore
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, HOSTILE, add, add_one, correct, fact, forget, get_item, list_items, texts
from engrain_conformance.erasure import run_erasure
from engrain_conformance.suite import Suite

LAST = datetime.max.replace(tzinfo=UTC)
DAY = timedelta(days=1)


class SlotSuite(Suite):
    def test_a_newer_value_closes_the_older(self, store: ItemStore, clock: SetClock) -> None:
        lima = add_one(store, fact("Lima", slot="city"))
        moved = clock.advance()
        quito = add_one(store, fact("Quito", slot="city"))
        assert (lima.status, quito.status, quito.others) == ("added", "replaced", (lima.id,))
        old = get_item(store, lima.id)
        assert (old.valid_to, old.replaced_by, old.retracted_at, old.open) == (moved, quito.id, None, False)
        assert texts(store.slots(ANA, "city", None)) == texts(list_items(store)) == ["Quito"]

    def test_a_less_trusted_source_never_replaces_a_value(self, store: ItemStore, clock: SetClock) -> None:
        (lima,) = add(store, fact("Lima", slot="city"))
        clock.advance()
        page = Source("a page", "web")
        claim = add_one(store, fact("Minsk", slot="city", source=page))
        later = add_one(store, fact("Omsk", slot="city", source=page, occurred_at=clock() + 9 * DAY))
        again = add_one(store, fact("Minsk", slot="city", source=page))
        assert (claim.status, claim.others, later.others) == ("added", (), ())
        assert (again.id, again.status) == (claim.id, "repeated")
        stored = get_item(store, claim.id)
        assert (stored.slot, stored.metadata, stored.trust) == (None, {"claims": "city"}, 0.3)
        assert [item.id for item in store.slots(ANA, "city", clock() + 99 * DAY)] == [lima]
        assert texts(store.history(ANA, "city")) == ["Lima"]

    def test_an_equally_trusted_source_replaces_a_value(self, store: ItemStore, clock: SetClock) -> None:
        (lima,) = add(store, fact("Lima", slot="city", source=Source("a page", "web")))
        clock.advance()
        quito = add_one(store, fact("Quito", slot="city", source=Source("a form", "web")))
        clock.advance()
        cusco = add_one(store, fact("Cusco", slot="city"))
        assert (quito.others, cusco.others) == ((lima,), (quito.id,))

    def test_there_and_back_is_three_versions(self, store: ItemStore, clock: SetClock) -> None:
        for city in ("Lima", "Quito", "Lima"):
            add(store, fact(city, slot="city"))
            clock.advance()
        versions = store.history(ANA, "city")
        assert texts(versions) == ["Lima", "Quito", "Lima"]
        assert len({item.id for item in versions}) == 3
        assert [item.replaced_by for item in versions] == [versions[1].id, versions[2].id, None]
        at = [texts(store.slots(ANA, "city", START + timedelta(seconds=n))) for n in (-1, 0, 1, 2, 9)]
        assert at == [[], ["Lima"], ["Quito"], ["Lima"], ["Lima"]]

    def test_there_and_back_in_one_instant_is_three_versions(self, store: ItemStore) -> None:
        add(store, *(fact(city, slot="city") for city in ("Lima", "Quito", "Lima")))
        assert texts(store.history(ANA, "city")) == ["Lima", "Quito", "Lima"]
        assert texts(list_items(store)) == ["Lima"]

    def test_the_same_value_again_is_a_repeat(self, store: ItemStore, clock: SetClock) -> None:
        (id,) = add(store, fact("Lima", slot="city", importance=0.2))
        clock.advance()
        again = add_one(store, fact("Lima", slot="city", importance=0.6, source=Source("b")))
        assert (again.id, again.status) == (id, "repeated")
        assert (get_item(store, id).importance, get_item(store, id).valid_from) == (0.6, START)

    def test_a_late_import_goes_behind_and_closes_nothing_after_it(self, store: ItemStore, clock: SetClock) -> None:
        (now,) = add(store, fact("Quito", slot="city"))
        late = add_one(store, fact("Lima", slot="city", occurred_at=START - 9 * DAY))
        assert (late.status, late.others) == ("behind", ())
        old = get_item(store, late.id)
        assert (old.valid_from, old.valid_to, old.replaced_by) == (START - 9 * DAY, START, now)
        assert get_item(store, now).open
        assert texts(store.slots(ANA, "", None)) == ["Quito"]
        assert texts(store.slots(ANA, "", START - DAY)) == ["Lima"]

    def test_a_late_import_between_two_closes_the_one_before(self, store: ItemStore, clock: SetClock) -> None:
        (first,) = add(store, fact("Lima", slot="city", occurred_at=START - 9 * DAY))
        (last,) = add(store, fact("Quito", slot="city"))
        between = add_one(store, fact("Cusco", slot="city", occurred_at=START - 3 * DAY))
        assert (between.status, between.others) == ("behind", (first,))
        assert [(item.text, item.valid_to, item.replaced_by) for item in store.history(ANA, "city")] == [
            ("Lima", START - 3 * DAY, between.id), ("Cusco", START, last), ("Quito", None, None),
        ]  # fmt: skip
        repeat = add_one(store, fact("Lima", slot="city", occurred_at=START - 5 * DAY))
        assert (repeat.id, repeat.status) == (first, "repeated")

    def test_a_value_from_a_date_to_come_holds_from_then_on(self, store: ItemStore, clock: SetClock) -> None:
        add(store, fact("Lima", slot="city"))
        add(store, fact("Quito", slot="city", occurred_at=START + DAY))
        assert texts(store.slots(ANA, "city", None)) == ["Lima"]
        clock.advance(86_400)
        assert texts(store.slots(ANA, "city", None)) == ["Quito"]

    def test_what_was_corrected_was_never_so(self, store: ItemStore, clock: SetClock) -> None:
        (wrong,) = add(store, fact("Lyma", slot="city"))
        clock.advance(10)
        right = correct(store, wrong, fact("Lima", slot="elsewhere"))
        clock.advance(10)
        for at in (None, START, START + timedelta(seconds=5), START + timedelta(seconds=15)):
            assert texts(store.slots(ANA, "city", at)) == texts(list_items(store, at=at)) == ["Lima"]
        assert [item.id for item in store.history(ANA, "city")] == [wrong, right.id]
        assert store.history(ANA, "elsewhere") == []

    def test_a_closed_version_is_corrected_where_it_stands(self, store: ItemStore, clock: SetClock) -> None:
        (wrong,) = add(store, fact("Lyma", slot="city"))
        clock.advance(10)
        (now,) = add(store, fact("Quito", slot="city"))
        clock.advance(10)
        right = get_item(store, correct(store, wrong, fact("Lima")).id)
        assert (right.valid_from, right.valid_to, right.replaced_by) == (START, START + timedelta(seconds=10), now)
        assert texts(store.slots(ANA, "city", None)) == ["Quito"]
        assert texts(store.slots(ANA, "city", START)) == ["Lima"]

    def test_after_a_correction_the_slot_goes_on(self, store: ItemStore, clock: SetClock) -> None:
        (wrong,) = add(store, fact("Lyma", slot="city"))
        right = correct(store, wrong, fact("Lima"))
        clock.advance()
        assert add_one(store, fact("Lima", slot="city")).status == "repeated"
        assert add_one(store, fact("Lyma", slot="city")).others == (right.id,)

    def test_forgetting_the_present_value_does_not_bring_back_the_past(self, store: ItemStore, clock: SetClock) -> None:
        (lima,) = add(store, fact("Lima", slot="city"))
        clock.advance()
        (quito,) = add(store, fact("Quito", slot="city"))
        forget(store, quito)
        assert store.slots(ANA, "", None) == list_items(store) == []
        assert get_item(store, lima).valid_to == clock()
        assert add_one(store, fact("Cusco", slot="city")).status == "added"

    def test_an_expired_value_is_replaced_like_any_other(self, store: ItemStore, clock: SetClock) -> None:
        (old,) = add(store, fact("Lima", slot="city", expires_at=START + DAY))
        clock.advance(2 * 86_400)
        assert store.slots(ANA, "", None) == []
        assert add_one(store, fact("Quito", slot="city")).others == (old,)
        assert texts(store.slots(ANA, "", START)) == ["Lima"]

    def test_slots_are_found_by_prefix_and_sorted_by_name(self, store: ItemStore, clock: SetClock) -> None:
        names = ["user.name", "user.city", "user", "users", "User.name", "user%", "us_r", "ünique", "😀", "\ufb01"]
        add(store, *(fact(f"Value of {name}.", slot=name) for name in names), fact("No slot."))
        for prefix in ("", "user", "user.", "user%", "us_", "User", "ü", "😀", "x", "user.name.x"):
            found = [item.slot for item in store.slots(ANA, prefix, None)]
            assert found == sorted(name for name in names if name.startswith(prefix))

    def test_one_slot_is_found_by_its_exact_name(self, store: ItemStore, clock: SetClock) -> None:
        names = ["user", "user.city", "User.city", "user.cit", "us_r"]
        ids = dict(zip(names, add(store, *(fact(f"Value of {name}.", slot=name) for name in names)), strict=True))
        for name in (*names, "user.", "use", "", "%", "us%"):
            found = store.slot(ANA, name, None)
            assert (found and found.id) == ids.get(name)
        clock.advance()
        (newer,) = add(store, fact("Quito", slot="user.city"))
        assert store.slot(ANA, "user.city", None) == get_item(store, newer)
        assert store.slot(ANA, "user.city", START) == get_item(store, ids["user.city"])
        assert store.slot(ANA, "user.city", START - DAY) is None

    def test_a_slot_may_have_any_name(self, store: ItemStore) -> None:
        add(store, *(fact(f"Of {n}.", slot=name) for n, name in enumerate(HOSTILE)))
        for n, name in enumerate(HOSTILE):
            value = f"The value {n}."
            add(store, fact(value, slot=name))
            assert value in texts(store.slots(ANA, name, None)), name
            held = store.slot(ANA, name, None)
            assert held, name
            assert (held.slot, held.text) == (name, value)
            assert [item.slot for item in store.history(ANA, name)] == [name, name]
        assert len(store.slots(ANA, "", None)) == len(HOSTILE)

    def test_concurrent_writers_leave_one_open_value(self, store: ItemStore) -> None:
        def write(writer: int) -> None:
            for n in range(5):
                add(store, fact(f"{writer}/{n}", slot="city"))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        versions = store.history(ANA, "city")
        assert len(versions) == 40
        assert len([item for item in versions if item.open]) == len(store.slots(ANA, "city", None)) == 1
        assert {item.replaced_by for item in versions} == {None, *(item.id for item in versions)} - {versions[0].id}, (
            "every version but the first replaced another"
        )

    def test_two_processes_in_one_instant_leave_one_open_value(
        self, store: ItemStore, another: Callable[[], ItemStore]
    ) -> None:
        """The ids of two processes are in no order."""
        stores = (store, another())
        for n in range(24):
            add(stores[n % 2], fact(f"Value {n}.", slot="city"))
        versions = store.history(ANA, "city")
        assert len(versions) == 24
        assert texts([item for item in versions if item.open]) == texts(store.slots(ANA, "city", None)) == ["Value 23."]

    def test_concurrent_writers_of_one_text_leave_one_item(self, store: ItemStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda n: add_one(store, fact("The same.", source=Source(str(n)))), range(24)))
        assert sorted(one.status for one in done) == ["added"] + ["repeated"] * 23
        (item,) = list_items(store)
        assert {source.name for source in item.sources} == {str(n) for n in range(24)}

    @pytest.mark.parametrize("seed", range(3))
    def test_no_two_versions_hold_at_once_after_any_history(
        self, store: Any, erasing: Erasing, clock: SetClock, seed: int
    ) -> None:
        """Values that arrive late or begin later, corrections, and removals of items and sources, in any order."""
        random = Random(seed)
        for history in range(15):
            slot, sources = f"user.s{history}", [f"{history} {name}" for name in ("web", "mail")]
            for _ in range(random.randrange(4, 14)):
                clock.advance(random.choice([0, 0, 1, 1]))
                live = [version for version in store.history(ANA, slot) if version.retracted_at is None]
                draft = fact(random.choice("ABC"), slot=slot, source=Source(random.choice(sources), "user"))
                act = random.choice(["add", "add", "correct", "correct", "forget", "undo"])
                if act == "add" or not live:
                    late = random.choice([None, None, *range(-3, 4)])
                    occurred = None if late is None else clock() + timedelta(seconds=late)
                    add(store, replace(draft, occurred_at=occurred))
                elif act == "correct":
                    correct(store, random.choice(live).id, draft)
                elif act == "forget":
                    forget(store, random.choice(live).id)
                else:
                    run_erasure(erasing, Subject(ANA, "source", random.choice(sources)))
                assert _find_overlaps(store.history(ANA, slot)) == []

    # Items that a draft ends without a slot of their own

    def test_a_draft_closes_the_items_that_it_ends(self, store: ItemStore, clock: SetClock) -> None:
        first, other, held = add(store, fact("Tea is fine."), fact("Rain."), fact("Lima", slot="city"))
        moved = clock.advance()
        new = add_one(store, fact("No tea any more.", ends=(first, held, "unknown")))
        assert (new.status, set(new.others)) == ("replaced", {first, held})
        for id in (first, held):
            old = get_item(store, id)
            assert (old.valid_to, old.replaced_by, old.retracted_at) == (moved, new.id, None)
        assert sorted(texts(list_items(store))) == ["No tea any more.", "Rain."]
        assert get_item(store, other).open
        assert store.slot(ANA, "city", None) is None
        assert texts(store.slots(ANA, "city", START)) == ["Lima"]

    def test_a_draft_may_end_the_item_of_an_earlier_step(self, store: ItemStore, clock: SetClock) -> None:
        past = fact("Tea is fine.", occurred_at=clock() - DAY)
        first, new = add(store, past, fact("No tea any more.", ends=(refer_to_step(0),)))
        assert get_item(store, first).replaced_by == new

    def test_a_less_trusted_later_or_closed_item_is_not_ended(self, store: ItemStore, clock: SetClock) -> None:
        (mine,) = add(store, fact("Tea is fine."))
        clock.advance()
        new = add_one(store, fact("No tea any more.", source=Source("page", "web"), ends=(mine,)))
        assert (new.status, new.others) == ("added", ())
        late = add_one(store, fact("No tea last year.", occurred_at=clock() - 400 * DAY, ends=(mine,)))
        assert (late.status, late.others) == ("added", ())
        (done,) = add(store, fact("No tea for me.", ends=(mine,)))
        assert get_item(store, mine).replaced_by == done
        again = add_one(store, fact("Never tea.", ends=(mine,)))
        assert (again.status, again.others) == ("added", ())

    def test_a_repeated_draft_ends_items_too(self, store: ItemStore, clock: SetClock) -> None:
        (first,) = add(store, fact("Tea is fine."))
        (coffee,) = add(store, fact("Coffee only."))
        clock.advance()
        again = add_one(store, fact("Coffee only.", ends=(first, coffee)))
        assert (again.id, again.status, again.others) == (coffee, "repeated", (first,))
        assert texts(list_items(store)) == ["Coffee only."]


def _find_overlaps(versions: list[Item]) -> list[tuple[Item, Item]]:
    held = [
        (version, version.valid_from, version.valid_to or LAST) for version in versions if version.retracted_at is None
    ]
    pairs = combinations(sorted(held, key=lambda each: (each[1], each[2])), 2)
    return [(a, b) for (a, _, ends), (b, begins, other) in pairs if begins < ends and begins < other]
