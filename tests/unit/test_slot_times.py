"""Whatever is told, corrected, forgotten and erased, a slot has one value at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import combinations
from typing import Any
from uuid import uuid4

import pytest
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, add_one, correct, fact, forget
from engrain_conformance.reference import ReferenceStore
from servers import postgres

from engrain.core.model.erasure import Subject
from engrain.core.model.items import Item, Source
from engrain.stores.postgres import PostgresStore
from engrain.stores.sqlite import SqliteStore


def on_postgres(clock: SetClock) -> PostgresStore:
    return PostgresStore(f"{postgres().url()}?schema=slots_{uuid4().hex}&pool=2", clock=clock)


STORES: dict[str, Callable[[SetClock], Any]] = {
    "reference": lambda clock: ReferenceStore(clock=clock),
    "sqlite": lambda clock: SqliteStore(":memory:", clock=clock),
    "postgres": on_postgres,
}
# To make a schema takes a second.
HISTORIES = {"reference": 30, "sqlite": 30, "postgres": 2}
LATEST = START + timedelta(days=999)


def standing(store: Any) -> list[Item]:
    return [item for item in store.history(ANA, "city") if item.retracted_at is None]


def together(one: Item, other: Item) -> bool:
    return max(one.valid_from, other.valid_from) < min(one.valid_to or LATEST, other.valid_to or LATEST)


def erase(store: Any, source: str) -> None:
    id = str(uuid4())
    store.erasing.begin(id, Subject(ANA, "source", source))
    store.erasing.delete_rows(id)
    store.erasing.anonymize(id)
    store.erasing.complete(id, {})


def live(store: Any, clock: SetClock, chance: random.Random) -> None:
    """One thing that happens."""
    clock.advance(chance.choice([0, 1, 5]))
    known = [item.id for item in standing(store)]
    text, source = chance.choice("ABCD"), Source(chance.choice("pqz"))
    act = chance.choice(["tell", "tell", "tell", "correct", "correct", "forget", "erase"])
    if act == "erase":
        erase(store, source.name or "")
    elif act == "tell" or not known:
        at = chance.choice([None, None, clock() + timedelta(seconds=chance.randrange(-60, 60))])
        add_one(store, fact(text, slot="city", occurred_at=at, source=source))
    elif act == "correct":
        correct(store, chance.choice(known), fact(text, source=source))
    else:
        forget(store, chance.choice(known))


@pytest.mark.parametrize("backend", STORES)
def test_a_slot_has_one_value_at_a_time(backend: str) -> None:
    for seed in range(HISTORIES[backend]):
        clock, chance = SetClock(), random.Random(seed)
        store = STORES[backend](clock)
        for _ in range(20):
            live(store, clock, chance)
            assert not [pair for pair in combinations(standing(store), 2) if together(*pair)], f"seed {seed}"
        store.close()


@pytest.mark.parametrize("backend", STORES)
def test_a_source_that_was_erased_leaves_room_for_another(backend: str) -> None:
    store = STORES[backend](SetClock())
    for name in ("p", "q"):
        add_one(store, fact("A", source=Source(name)))
    erase(store, "p")
    told = add_one(store, fact("A", source=Source("r")))
    (item,) = store.get_many(ANA, [told.id])
    assert [one.name for one in item.sources] == ["q", "r"]
    store.close()


@pytest.mark.parametrize("backend", STORES)
def test_what_was_corrected_twice_goes_with_the_last_word(backend: str) -> None:
    """Although the correction in between was erased."""
    store = STORES[backend](SetClock())
    first = add_one(store, fact("A", slot="city", source=Source("q"))).id
    second = correct(store, first or "", fact("B", source=Source("p"))).id
    third = correct(store, second or "", fact("C", source=Source("z"))).id
    erase(store, "p")
    assert [(item.id, item.retracted_at is None) for item in store.history(ANA, "city")] == [
        (first, False),
        (third, True),
    ]
    forget(store, third or "")
    assert store.history(ANA, "city") == []
    store.close()
