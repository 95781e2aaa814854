"""Tests of the WordIndex port: BM25 over the scope's own words, after filter and validity."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from engrain.core.identity import Scope
from engrain.core.model.items import Citation
from engrain.core.model.plans import Change, Plan
from engrain.core.model.queries import ListQuery, WordHit, WordMatches, WordQuery
from engrain.core.text.bm25 import compute_idf, score_bm25
from engrain.core.text.passages import index_words
from engrain.ports.items import ItemStore
from engrain.ports.search import WordIndex
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    add,
    correct,
    derived,
    forget,
    hostile_scopes,
    list_items,
    message,
    texts,
    without_vectors,
    word_query,
)
from engrain_conformance.suite import Suite

LEXICON = [
    "tea",
    "coffee",
    "cocoa",
    "milk",
    "sugar",
    "the",
    "a",
    "of",
    "and",
    "in",
    "Lima",
    "Quito",
    "Cusco",
    "Ana",
    "Ben",
    "Zoe",
    "lives",
    "works",
    "likes",
    "train",
    "Tuesday",
    "東京",
    "住む",
    "café",
    "naïve",
    "3.5",
    "userName",
]


def count_passages(text: str, speaker: str | None, slot: str | None = None) -> list[dict[int, int]]:
    words = index_words(text, speaker, slot)
    found: list[dict[int, int]] = [{} for _ in range(words.passages)]
    for term, packed in struct.iter_unpack("<II", words.pairs):
        found[packed >> 16][term] = packed & 0xFFFF
    return found


def expect_matches(
    store: ItemStore, query: WordQuery, at: datetime | None = None
) -> tuple[WordMatches, dict[str, float]]:
    """The statistics and the score of every item that has a term, computed from the texts alone."""
    items = list_items(store, query.scope, at=at)
    cut = {item.id: count_passages(item.text, item.speaker, item.slot) for item in items}
    every = [item for some in cut.values() for item in some]
    average = sum(sum(item.values()) for item in every) / len(every) if every else 0.0
    frequency = tuple(sum(term in item for item in every) for term in query.terms)
    weights = compute_idf(frequency, len(every))
    scores: dict[str, float] = {}
    hits = []
    for id, some in cut.items():
        best = None
        for number, one in enumerate(some):
            counts = tuple(one.get(term, 0) for term in query.terms)
            score = float(score_bm25([counts], [sum(one.values())], weights, average)[0])
            if any(counts) and (best is None or score > scores[id] + 1e-12):
                best, scores[id] = WordHit(id, number, sum(one.values()), counts), score
        hits += [best] if best else []
    return WordMatches(hits, len(every), average, frequency), scores


def check_query(store: ItemStore, words: WordIndex, query: WordQuery, at: datetime | None = None) -> list[str]:
    """The answer is that of a full comparison; ties by newer id."""
    found = words.best(query)
    wanted, scores = expect_matches(store, query, at)
    assert (found.passages, found.frequency) == (wanted.passages, wanted.frequency)
    assert found.average == pytest.approx(wanted.average)
    shown = {item.id for item in store.page(_listing(query, at))}
    known = {hit.id: hit for hit in wanted.hits if hit.id in shown}
    assert len(found.hits) == min(query.limit, len(known))
    assert [known[hit.id] for hit in found.hits] == found.hits
    ranked = sorted(known, key=lambda id: (round(scores[id], 9), id), reverse=True)
    assert [hit.id for hit in found.hits] == ranked[: query.limit]
    return [hit.id for hit in found.hits]


def _listing(query: WordQuery, at: datetime | None) -> ListQuery:
    return ListQuery(query.scope, query.where, at, limit=100_000)


class WordIndexSuite(Suite):
    def test_the_best_are_those_of_a_full_comparison(self, store: ItemStore, words: WordIndex) -> None:
        chance = random.Random(1)
        drafts = [
            message(
                " ".join(chance.choices(LEXICON, k=chance.randint(1, 30))) + ".", speaker=chance.choice(["Ana", None])
            )
            for _ in range(100)
        ]
        add(store, *drafts)
        for n in range(24):
            query = " ".join(chance.choices(LEXICON, k=chance.randint(1, 6)))
            check_query(store, words, word_query(query, limit=(1, 5, 1_000)[n % 3]))

    def test_a_long_text_counts_with_its_best_passage(self, store: ItemStore, words: WordIndex) -> None:
        filler = "Nothing of note was said here, and then some more. " * 60
        (long, short) = add(
            store,
            without_vectors(filler + "The password is xylophone." + filler),
            without_vectors("A xylophone plays."),
        )
        found = words.best(word_query("xylophone password"))
        assert (
            [hit.id for hit in found.hits]
            == check_query(store, words, word_query("xylophone password"))
            == [long, short]
        )
        assert found.hits[0].passage > 0
        assert found.hits[0].counts == (1, 1)

    def test_of_equal_passages_the_first_is_named(self, store: ItemStore, words: WordIndex) -> None:
        sentence = "Xylophone " + "word " * 88 + "end. "
        add(store, without_vectors(sentence * 3))
        (hit,) = words.best(word_query("xylophone")).hits
        assert (hit.passage, hit.length) == (0, sum(count_passages(sentence, None)[0].values()))

    def test_equals_come_newer_first(self, store: ItemStore, words: WordIndex, clock: SetClock) -> None:
        ids = add(store, *(message("Some tea.", speaker=None) for _ in range(17)))
        clock.advance()
        ids += add(store, *(message("Some tea.", speaker=None) for _ in range(9)))
        assert [hit.id for hit in words.best(word_query("tea", limit=5)).hits] == ids[::-1][:5]
        assert [hit.id for hit in words.best(word_query("tea some", limit=50)).hits] == ids[::-1]

    def test_filter_and_validity_come_before_the_limit(
        self, store: ItemStore, words: WordIndex, clock: SetClock
    ) -> None:
        add(store, *(without_vectors(f"Tea tea tea {n}.", metadata={"keep": False}) for n in range(20)))
        (match,) = add(store, without_vectors("A long text in which tea is only mentioned.", metadata={"keep": True}))
        closed = add(store, *(without_vectors(f"Tea tea {n}.", slot=f"s{n}") for n in range(5)))
        expired = add(store, without_vectors("Tea.", expires_at=START + timedelta(seconds=1)))
        clock.advance()
        add(store, *(without_vectors(f"Other {n}.", slot=f"s{n}") for n in range(5)))
        assert check_query(store, words, word_query("tea", where={"metadata.keep": True}, limit=1)) == [match]
        now = check_query(store, words, word_query("tea", limit=50))
        assert not {*closed, *expired} & set(now)
        then = check_query(store, words, word_query("tea", at=START, limit=50), START)
        assert {*closed, *expired} <= set(then)
        assert (
            check_query(store, words, word_query("tea", at=START - timedelta(days=1)), START - timedelta(days=1)) == []
        )

    def test_the_statistics_do_not_depend_on_the_filter(self, store: ItemStore, words: WordIndex) -> None:
        add(store, *(without_vectors(f"Tea number {n}.", metadata={"n": n}) for n in range(6)))
        all_of_them = words.best(word_query("tea"))
        one_of_them = words.best(word_query("tea", where={"metadata.n": 3}, limit=1))
        assert (one_of_them.passages, one_of_them.average) == (all_of_them.passages, all_of_them.average)
        assert one_of_them.frequency == all_of_them.frequency == (6,)

    def test_corrected_and_forgotten_items_count_no_more(self, store: ItemStore, words: WordIndex) -> None:
        wrong, gone, kept = add(
            store, without_vectors("Coffee a."), without_vectors("Coffee b."), without_vectors("Coffee c.")
        )
        assert words.best(word_query("coffee")).frequency == (3,)
        correct(store, wrong, without_vectors("Tea."))
        forget(store, gone)
        assert check_query(store, words, word_query("coffee")) == [kept]
        assert words.best(word_query("coffee")).frequency == (1,)
        assert words.best(word_query("coffee", at=START)).passages == 2

    def test_the_name_of_a_slot_stays_among_the_words(self, store: ItemStore, words: WordIndex) -> None:
        (id,) = add(store, without_vectors("In Quito, near the park.", slot="user.homeCity"))
        before = words.best(word_query("home city quito"))
        store.rebuild()
        assert words.best(word_query("home city quito")) == before
        (made,) = add(store, derived("Near the park.", Citation(id, 10, 23)))
        forget(store, made)
        found = words.best(word_query("home city quito park"))
        assert [(hit.id, hit.counts) for hit in found.hits] == [(id, (1, 1, 1, 0))]

    def test_a_write_is_seen_at_once(self, store: ItemStore, words: WordIndex) -> None:
        for n in range(20):
            (id,) = add(store, without_vectors(f"Xylophone number {n}."))
            assert check_query(store, words, word_query(f"xylophone {n}", limit=1)) == [id]
            if n % 4 == 0:
                store.apply(Plan(ANA, (Change(id, metadata={"n": n}),)))
                assert check_query(store, words, word_query("xylophone", where={"metadata.n": n})) == [id]
            if n % 3 == 0:
                forget(store, id)
                assert id not in check_query(store, words, word_query("xylophone", limit=99))

    def test_another_handle_s_write_is_seen_at_once(
        self, store: ItemStore, words: WordIndex, another: Callable[[], Any]
    ) -> None:
        other = another()
        for n in range(5):
            (id,) = add(other, without_vectors(f"Xylophone {n}."))
            assert check_query(store, words, word_query(f"{n}")) == [id]

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("私は東京に住んでいます。", "東京"),
            ("서울에서 일합니다", "서울"),
            ("A CAFÉ in São Paulo", "cafe sao"),
            ("She was running late", "run"),
            ("'; drop table item; --", "drop"),
            ("अनुवाद करना", "अनुवाद"),
            ("שלום עולם", "עולם"),
        ],
    )
    def test_words_of_every_script_are_found(self, store: ItemStore, words: WordIndex, text: str, query: str) -> None:
        (id, _) = add(store, without_vectors(text), without_vectors("Something else."))
        assert check_query(store, words, word_query(query)) == [id]

    def test_no_terms_or_unknown_terms_find_nothing(self, store: ItemStore, words: WordIndex) -> None:
        assert words.best(word_query("tea")) == WordMatches([], 0, 0.0, (0,))
        add(store, without_vectors("Some tea."))
        assert words.best(WordQuery((), ANA)) == WordMatches([], 1, 2.0, ())
        assert words.best(word_query("xylophone")) == WordMatches([], 1, 2.0, (0,))
        assert words.best(WordQuery((0, 2**32 - 1), ANA)).hits == []

    def test_counts_follow_the_order_of_the_terms(self, store: ItemStore, words: WordIndex) -> None:
        (id,) = add(store, without_vectors("Tea and tea and coffee."))
        one, two = (words.best(word_query(text)).hits[0] for text in ("tea coffee cocoa", "cocoa coffee tea"))
        assert (one.counts, two.counts) == ((2, 1, 0), (0, 1, 2))
        assert (one.id, one.length) == (id, two.length)

    # counts

    def test_counts_of_given_items_come_in_the_order_asked(
        self, store: ItemStore, words: WordIndex, clock: SetClock
    ) -> None:
        ids = add(store, *(without_vectors(f"Tea {'tea ' * n}number {n}.", metadata={"n": n}) for n in range(6)))
        (other, slot) = add(store, without_vectors("Coffee."), without_vectors("Tea in Lima.", slot="city"))
        clock.advance()
        add(store, without_vectors("Quito", slot="city"))
        (foreign,) = add(store, without_vectors("Tea of Ben."), scope=BEN)
        query = word_query("tea number", where={"metadata.n": 3}, limit=1)
        asked = [ids[4], "nothing", ids[0], other, foreign, slot, ids[2]]
        found = words.counts(query, asked)
        wanted, _ = expect_matches(store, query)
        known = {hit.id: hit for hit in wanted.hits}
        assert found.hits == [known[id] for id in (ids[4], ids[0], ids[2])]
        assert (found.passages, found.frequency) == (wanted.passages, wanted.frequency)
        assert found.average == pytest.approx(wanted.average)
        assert [hit.id for hit in words.counts(word_query("tea", at=START), [slot]).hits] == [slot]
        assert words.counts(query, []).hits == []

    # The wall

    def test_nothing_outside_the_scope_changes_an_order_or_a_number(self, store: ItemStore, words: WordIndex) -> None:
        add(
            store,
            without_vectors("Tea for Ana."),
            without_vectors("Coffee for Ana, and tea."),
            without_vectors("Ana likes the train."),
        )
        queries = [word_query(text) for text in ("tea coffee", "ana", "the train", "tea")]
        before = [words.best(query) for query in queries]
        foreign = add(store, *(without_vectors(f"Tea tea coffee {n}.") for n in range(50)), scope=BEN)
        add(store, without_vectors("Tea."), scope=Scope())
        assert [words.best(query) for query in queries] == before
        assert words.counts(queries[0], foreign).hits == []

    def test_scopes_with_awkward_names_are_kept_apart(self, store: ItemStore, words: WordIndex) -> None:
        own = {scope: add(store, without_vectors("The same text."), scope=scope) for scope in hostile_scopes()}
        for scope, ids in own.items():
            found = words.best(word_query("same text", scope, limit=99))
            assert [hit.id for hit in found.hits] == ids
            assert (found.passages, found.frequency) == (1, (1, 1))
            assert texts(list_items(store, scope)) == ["The same text."]
