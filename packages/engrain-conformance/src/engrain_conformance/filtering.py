"""Tests of filters: every store answers as matches_filter does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.filters import FIELDS, OPERATORS, Filter, matches_filter, parse_filter
from engrain.core.model.items import Draft, Item, Relation, SessionPosition, Source
from engrain.core.model.plans import Add, Change, Plan
from engrain.core.model.queries import ListQuery
from engrain.ports.items import ItemStore
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, HOSTILE, add, correct, fact, list_items
from engrain_conformance.suite import Suite

KEYS = (
    "k",
    "x') or 1=1 --",
    'quo"te',
    "a.b",
    "$",
    "$.k",
    "a[0]",
    "日本",
    "Ünï",
    "%",
    " ",
    "K",
    "metadata.k",
    "😀" * 100,
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 2**53 + 1, -(2**63), 2**63 - 1, 0.0, 1.0, 0.5, 1e300, -1e-300, float(2**53), "",
    "1", "True", "null", "abc", "ABC", "äbc", "a%c", "a_c", "日本語", "😀", "' or 1=1 --", [], [1], ["abc"], {},
    {"k": 1},
)  # fmt: skip
TIMES = tuple(START + timedelta(seconds=n) for n in (-1, 0, 0.000_001, 1, 2))

_numbers = count()


def _drafts() -> Iterator[Draft]:
    """Items with every field present and missing, and every value under an awkward key."""
    for n, value in enumerate(VALUES):
        yield fact(f"value {n}", metadata={KEYS[n % len(KEYS)]: value, "k": value})
    for n, source in enumerate([Source(), Source("a"), Source("a%c"), Source("äbc", "web"), Source("", "tool")]):
        yield fact(f"source {n}", source=source, importance=n / 4)
    for n, text in enumerate(["abc", "ABC", "äbc", "a%c", "a_c", "日本語", "x' or 1=1 --", "line\nbreak"]):
        yield fact(text, slot=text, position=SessionPosition(text, n, text, text))
    yield fact("a is b", kind="relation", relation=Relation("a", "is", "b"))
    yield fact("dated", occurred_at=START - timedelta(seconds=1))
    yield fact("dated finely", occurred_at=START - timedelta(microseconds=1))


def fill_store(store: ItemStore, clock: SetClock, scope: Scope = ANA) -> None:
    ids = add(store, *_drafts(), scope=scope)
    clock.advance()
    add(store, fact("abc", source=Source("second", "agent")), fact("newer", slot="abc"), scope=scope)
    store.apply(Plan(scope, (Change(ids[0], pinned=True), Add(fact("source 1", source=Source("b"))))))
    correct(store, ids[3], fact("corrected", metadata={"k": "abc"}), scope=scope)


def filter_in_python(store: ItemStore, where: Filter | None, scope: Scope = ANA, **values: Any) -> list[Item]:
    return [item for item in list_items(store, scope, **values) if matches_filter(where, item)]


def _tests(field: str) -> list[Any]:
    kind = FIELDS.get(field)
    if kind == "time":
        return [None, *TIMES]
    if kind == "flag":
        return [None, True, False]
    return [*VALUES[:-5], "value 1", "fact", "user", "a", 0.3, 0.25]


def _comparisons(field: str) -> list[Filter | None]:
    """Every operator with every value that it takes."""
    found = []
    for operator, value in product(OPERATORS, _tests(field)):
        for right in ([value, "abc", None], []) if operator in ("in", "not in") else (value,):
            choices = [one for one in right if one is not None] if isinstance(right, list) else right
            test = bool(right) if operator == "exists" else choices
            with suppress(InvalidInput):
                found.append(parse_filter({field: {operator: test}}))
    return found


def conditions() -> st.SearchStrategy[dict[str, Any]]:
    """Filters as a caller writes them, some of which parse_filter refuses."""

    def tests(field: str) -> st.SearchStrategy[Any]:
        value = st.sampled_from(_tests(field))
        if not field.startswith("metadata.") and FIELDS[field] == "text":
            value |= st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=3)
        if field.startswith("metadata."):
            value |= st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab1%_'", max_size=2) | st.booleans()
        single = st.sampled_from([op for op in OPERATORS if op not in ("in", "not in", "exists")])
        return st.one_of(
            st.tuples(single, value),
            st.tuples(st.sampled_from(["in", "not in"]), st.lists(value, max_size=4)),
            st.tuples(st.just("exists"), st.booleans()),
        ).map(lambda pair: {pair[0]: pair[1]})

    fields = st.sampled_from([*FIELDS, *(f"metadata.{key}" for key in KEYS), "metadata.nothing"])
    one = fields.flatmap(lambda field: st.tuples(st.just(field), tests(field)))
    return st.lists(one, min_size=1, max_size=3).map(dict)


class FilteringSuite(Suite):
    @pytest.fixture
    def filled(self, store: ItemStore, clock: SetClock) -> ItemStore:
        fill_store(store, clock)
        return store

    def test_every_comparison_answers_like_the_oracle(self, filled: ItemStore) -> None:
        everything = list_items(filled, history=True)
        for field in (*FIELDS, "metadata.k", "metadata.x') or 1=1 --", "metadata.nothing"):
            comparisons = _comparisons(field)
            assert len(comparisons) > 10
            for where in comparisons:
                found = filled.page(ListQuery(ANA, where, history=True, limit=1_000))
                assert found == [item for item in everything if matches_filter(where, item)], where

    @settings(
        deadline=None,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.function_scoped_fixture],
    )
    @given(raw=conditions())
    def test_random_filters_answer_like_the_oracle(self, filled: ItemStore, raw: dict[str, Any]) -> None:
        try:
            where = parse_filter(raw)
        except InvalidInput:
            return
        assert filled.page(ListQuery(ANA, where, limit=1_000)) == filter_in_python(filled, where)
        some = filled.page(ListQuery(ANA, where, history=True, limit=3))
        assert some == filter_in_python(filled, where, history=True)[:3]

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.function_scoped_fixture],
    )
    @given(data=st.data())
    def test_random_metadata_answers_like_the_oracle(self, store: ItemStore, data: st.DataObject) -> None:
        scope = Scope(user=f"example {next(_numbers)}")
        text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=4)
        plain = text | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
        values = plain | st.booleans() | st.none() | st.lists(st.integers(), max_size=2)
        keys = text.filter(bool)
        given_ = data.draw(st.lists(st.dictionaries(keys, values, max_size=3), min_size=1, max_size=4))
        add(store, *(fact(f"item {n}", metadata=metadata) for n, metadata in enumerate(given_)), scope=scope)
        assert repr([item.metadata for item in list_items(store, scope)]) == repr(given_[::-1])
        known = sorted({key for metadata in given_ for key in metadata}) or ["none"]
        stored = [value for one in given_ for value in one.values() if isinstance(value, (str, int, float))]
        pool = st.sampled_from(stored) | plain if stored else plain
        operators = st.sampled_from([op for op in OPERATORS if op not in ("in", "not in", "exists")])
        for _ in range(6):
            raw = {f"metadata.{data.draw(st.sampled_from(known))}": {data.draw(operators): data.draw(pool)}}
            try:
                where = parse_filter(raw)
            except InvalidInput:
                continue
            assert store.page(ListQuery(scope, where)) == filter_in_python(store, where, scope), raw

    def test_a_hostile_key_is_only_a_name(self, store: ItemStore) -> None:
        names = [name for name in HOSTILE if name]
        add(store, *(fact(f"item {n}", metadata={name: n}) for n, name in enumerate(names)))
        for n, name in enumerate(names):
            found = list_items(store, where={f"metadata.{name}": {">=": 0}})
            assert [item.metadata for item in found] == [{name: n}]

    def test_all_conditions_must_hold(self, filled: ItemStore) -> None:
        where = {"metadata.k": {">=": 0, "<": 2, "!=": 0.5}, "kind": "fact", "text": {"starts with": "value"}}
        found = [item.metadata["k"] for item in list_items(filled, where=where)]
        assert sorted(found) == [0.0, 1, 1.0]
