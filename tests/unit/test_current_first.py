"""Among hits of one matter the newest that still holds comes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from engrain.core.model.items import ASPECT_KEY, RESERVED_KEY, Item
from engrain.core.model.recall import Hit
from engrain.retrieval.current_before_stale import put_current_first

START = datetime(2026, 1, 1, tzinfo=UTC)


def hit(text: str, day: int, relevance: float = 0.9, aspect: str = "city", ended: int | None = None) -> Hit:
    at = START + timedelta(days=day)
    own = {RESERVED_KEY: {ASPECT_KEY: aspect}}
    item = Item(text, "fact", text, 0.5, at, at, metadata=own)
    item = item if ended is None else replace(item, valid_to=START + timedelta(days=ended))
    return Hit(item, text, (0, len(text)), 1.0, relevance)


def order(*hits: Hit) -> list[str]:
    return [one.text for one in put_current_first({one.text: one for one in hits}, None).values()]


def test_the_newer_of_two_current_values_comes_first() -> None:
    assert order(hit("Lima", 1), hit("Quito", 2)) == ["Quito", "Lima"]


def test_a_value_that_ended_stays_behind_however_new_it_is() -> None:
    assert order(hit("Quito", 5, ended=6), hit("Lima", 1)) == ["Lima", "Quito"]
    assert order(hit("Lima", 1), hit("Oslo", 2), hit("Quito", 5, ended=6)) == ["Oslo", "Lima", "Quito"]


def test_values_of_other_matters_and_faint_ones_keep_their_place() -> None:
    assert order(hit("Lima", 1), hit("nurse", 2, aspect="job")) == ["Lima", "nurse"]
    assert order(hit("Lima", 1), hit("Quito", 2, relevance=0.3)) == ["Lima", "Quito"]
