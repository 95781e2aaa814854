"""The Postgres store keeps every contract, on a real server and as a role that row-level security holds back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from engrain_conformance import (
    DumpRestoreSuite,
    EpisodesSuite,
    ErasureSuite,
    HoldSuite,
    ItemStoreSuite,
    LateWriteSuite,
    OutcomesSuite,
    RecordsSuite,
    SessionLogSuite,
    TransactionSuite,
    VectorIndexSuite,
    WordIndexSuite,
)
from engrain_conformance.clock import SetClock
from engrain_conformance.machine import compare_with_reference
from schemas import empty_store
from servers import postgres

from engrain.stores.postgres import PostgresStore

Open = Callable[[], PostgresStore]


class Postgres:
    @pytest.fixture
    def url(self) -> Iterator[str]:
        with empty_store("&pool=8") as url:
            yield url

    @pytest.fixture
    def another(self, url: str, clock: SetClock) -> Iterator[Open]:
        opened: list[PostgresStore] = []

        def open_store() -> PostgresStore:
            opened.append(PostgresStore(url, clock=clock))
            return opened[-1]

        yield open_store
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, another: Open) -> PostgresStore:
        return another()


class TestItems(Postgres, ItemStoreSuite):
    in_full_only = (
        "test_every_comparison_answers_like_the_oracle",  # random filters are tried by default
        "test_no_two_versions_hold_at_once_after_any_history[1]",
        "test_no_two_versions_hold_at_once_after_any_history[2]",
        "test_more_plans_than_one_transaction_takes",
        "test_a_megabyte_of_text_is_kept",
    )


class TestVectors(Postgres, VectorIndexSuite):
    in_full_only = tuple(f"test_the_nearest_are_those_of_a_full_comparison[{n}]" for n in (1, 10, 299))


class TestWords(Postgres, WordIndexSuite):
    in_full_only = ("test_scopes_with_awkward_names_are_kept_apart",)  # as those of vectors


class TestWordsThatAreKept(Postgres, WordIndexSuite):
    """As of words that stand in much of a large scope."""

    by_default = (
        "test_the_best_are_those_of_a_full_comparison",
        "test_corrected_and_forgotten_items_count_no_more",
        "test_a_write_is_seen_at_once",
        "test_nothing_outside_the_scope_changes_an_order_or_a_number",
    )

    @pytest.fixture
    def another(self, url: str, clock: SetClock) -> Iterator[Open]:
        opened: list[PostgresStore] = []

        def open_store() -> PostgresStore:
            opened.append(PostgresStore(url, clock=clock))
            opened[-1].postings.common = 0
            return opened[-1]

        yield open_store
        for store in opened:
            store.close()


class TestSessions(Postgres, SessionLogSuite):
    pass


class TestEpisodes(Postgres, EpisodesSuite):
    in_full_only = ("test_a_session_keeps_its_newest",)


class TestOutcomes(Postgres, OutcomesSuite):
    pass


class TestRecords(Postgres, RecordsSuite):
    in_full_only = tuple(f"test_random_calls_do_what_they_do_to_the_reference[{n}]" for n in (1, 2))


class TestMoving(Postgres, DumpRestoreSuite):
    in_full_only = (
        *(f"test_the_rows_of_one_scope_are_those_and_no_others[{n}]" for n in (1, 1000)),
        "test_rows_come_in_the_order_of_their_keys_page_by_page[1]",
        "test_every_kind_of_row_is_tried",  # of the suite itself: SQLite's run tells
    )


class TestTogether(Postgres, TransactionSuite):
    pass


@pytest.mark.parametrize(("examples", "steps"), [(1, 12), pytest.param(4, 50, marks=pytest.mark.slow)])
def test_random_plans_do_what_they_do_to_the_reference(examples: int, steps: int) -> None:
    schemas = (f"{postgres().url()}?schema=machine_{examples}_{n}" for n in count())
    compare_with_reference(lambda clock: PostgresStore(next(schemas), clock=clock), examples, steps)


class TestHolds(Postgres, HoldSuite):
    pass


class TestLate(Postgres, LateWriteSuite):
    pass


class TestErasing(Postgres, ErasureSuite):
    pass
