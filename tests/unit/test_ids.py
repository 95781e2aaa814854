"""Ids that sort by the time they were made."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from engrain.core.identity import ID_LENGTH, SortableIds

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def test_ids_rise_with_the_time() -> None:
    ids = [SortableIds()(NOW + timedelta(microseconds=n)) for n in range(100)]
    assert ids == sorted(ids)
    assert {len(id) for id in ids} == {ID_LENGTH}


def test_ids_rise_within_one_source_whatever_the_clock_does() -> None:
    source = SortableIds()
    ids = [source(NOW + timedelta(seconds=(n * 7) % 5 - n)) for n in range(500)]
    assert all(before < after for before, after in pairwise(ids))


def test_ids_of_several_threads_and_sources_differ() -> None:
    source = SortableIds()
    with ThreadPoolExecutor(8) as pool:
        same = list(pool.map(lambda _: source(NOW), range(2_000)))
    others = [SortableIds()(NOW) for _ in range(2_000)]
    assert len({*same, *others}) == 4_000


def test_a_time_before_1970_still_gives_an_id() -> None:
    assert len(SortableIds()(datetime(1, 1, 1, tzinfo=UTC))) == ID_LENGTH
    late = SortableIds()(datetime(2100, 1, 1, tzinfo=UTC))
    assert late > SortableIds()(NOW)
    assert len(late) == ID_LENGTH
