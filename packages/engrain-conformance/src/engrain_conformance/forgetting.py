"""Tests of forgetting: the item, what was derived from it and the spans it cites are gone, and stay so."""

from __future__ import annotations

from typing import Any

import pytest

from engrain.core.model.items import FORGOTTEN, Citation, Relation, Source
from engrain.core.model.plans import Add, Change, Forget, Plan
from engrain.ports.items import ItemStore
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    MODEL,
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
    vector_query,
    word_query,
)
from engrain_conformance.suite import Suite

SAID = "My name is Ana, I live in Lima and I like tea."


def cite(id: str, part: str, text: str = SAID) -> Citation:
    return Citation(id, text.index(part), text.index(part) + len(part))


class ForgettingSuite(Suite):
    def test_a_forgotten_item_is_gone(self, store: ItemStore) -> None:
        gone, kept = add(store, fact("Secret.", slot="s"), fact("Kept."))
        outcome = forget(store, gone)
        assert (outcome.id, outcome.status, outcome.others, outcome.marked) == (gone, "forgotten", (), ())
        assert store.get_many(ANA, [gone, kept]) == list_items(store, history=True)
        assert texts(list_items(store, history=True)) == ["Kept."]
        assert store.history(ANA, "s") == []

    def test_what_is_not_there_is_missing(self, store: ItemStore) -> None:
        (foreign,) = add(store, fact("Ben's."), scope=BEN)
        for id in ("nothing", "", foreign, "' or 1=1 --"):
            assert forget(store, id).status == "missing"
        assert texts(list_items(store, BEN)) == ["Ben's."]

    def test_what_was_derived_goes_too(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        (one, beside) = add(store, derived("Ana lives in Lima.", cite(said, "Lima")), fact("Beside."))
        (two,) = add(store, derived("Ana lives in Peru.", Citation(one)))
        (three,) = add(store, derived("Ana speaks Spanish.", Citation(two), Citation(beside)))
        outcome = forget(store, said)
        assert set(outcome.others) == {one, two, three}
        assert outcome.marked == ()
        assert texts(list_items(store, history=True)) == ["Beside."]
        assert store.lineage(ANA, [said, one, two, three, beside]) == []

    def test_items_that_cite_each_other_go_together(self, store: ItemStore) -> None:
        one, two = add(store, fact("One."), fact("Two."))
        add(store, fact("One.", source=Source("x", cites=(Citation(two),))))
        add(store, fact("Two.", source=Source("x", cites=(Citation(one),))))
        assert forget(store, one).others == (two,)
        assert list_items(store) == []

    def test_closed_and_corrected_versions_that_cite_it_go_too(self, store: ItemStore, clock: SetClock) -> None:
        (said,) = add(store, message(SAID))
        (old,) = add(store, derived("Lima", cite(said, "Lima"), slot="city"))
        clock.advance()
        (wrong,) = add(store, derived("Tee", cite(said, "tea"), slot="drink"))
        correct(store, wrong, fact("Tea"))
        add(store, fact("Quito", slot="city"))
        assert set(forget(store, said).others) == {old, wrong}
        assert sorted(texts(list_items(store, history=True))) == ["Quito", "Tea"]

    # Spans

    def test_the_cited_span_is_cut_out_of_what_stays(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID, number=3))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima")))
        outcome = forget(store, made)
        assert (outcome.others, outcome.marked) == ((), (said,))
        item = get_item(store, said)
        assert item.text == SAID.replace("I live in Lima", FORGOTTEN)
        assert (item.session, item.place, item.speaker, item.open) == ("monday", 3, "Ana", True)

    def test_the_whole_text_is_cut_when_no_span_is_named(self, store: ItemStore) -> None:
        said, fact_one, fact_two = add(store, message(SAID), fact("A fact."), fact("Another fact."))
        (made,) = add(store, derived("In sum.", Citation(said), Citation(fact_one), Citation(fact_two)))
        assert set(forget(store, made).marked) == {said, fact_one, fact_two}
        assert texts(list_items(store)) == [FORGOTTEN] * 3

    def test_what_has_no_words_of_an_item_goes_with_it_and_cuts_nothing(self, store: ItemStore) -> None:
        said, other = add(store, message(SAID), message("I like cocoa."))
        one, two = add(store, derived("One.", Citation(said, 0, 0)), derived("Two.", Citation(other, 0, 0)))
        outcome = forget(store, one)
        assert (outcome.others, outcome.marked) == ((), ())
        assert get_item(store, said).text == SAID
        assert forget(store, other).others == (two,)

    def test_what_has_no_words_of_an_item_goes_when_any_of_it_is_cut(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        tea, told = add(store, derived("Tea.", cite(said, "I like tea")), derived("He told me.", Citation(said, 0, 0)))
        assert forget(store, tea).others == (told,)
        assert get_item(store, said).text == SAID.replace("I like tea", FORGOTTEN)

    def test_forgetting_one_message_leaves_the_others_a_summary_cites(self, store: ItemStore) -> None:
        first, second = add(store, message("Secret."), message(SAID))
        (summary,) = add(store, derived("In sum.", Citation(first), Citation(second), kind="summary"))
        (spans,) = add(store, derived("In short.", Citation(first, 0, 6), cite(second, "tea"), kind="summary"))
        outcome = forget(store, first)
        assert (set(outcome.others), outcome.marked) == ({summary, spans}, ())
        assert texts(list_items(store)) == [SAID]

    def test_forgetting_a_summary_cuts_nothing(self, store: ItemStore) -> None:
        said, fact_one = add(store, message(SAID), fact("A fact."))
        cites = (Citation(said), cite(said, "Lima"), Citation(fact_one))
        (summary,) = add(store, derived("In sum.", *cites, kind="summary"))
        (made,) = add(store, derived("Drinks tea.", Citation(summary), cite(said, "I like tea")))
        outcome = forget(store, summary)
        assert (outcome.others, outcome.marked) == ((made,), (said,))
        assert sorted(texts(list_items(store))) == ["A fact.", SAID.replace("I like tea", FORGOTTEN)]
        assert add_one(store, derived("In sum.", Citation(said), kind="summary")).status == "kept_out"

    def test_the_spans_of_what_was_derived_are_cut_as_well(self, store: ItemStore) -> None:
        first, second = add(store, message("I live in Lima."), message(SAID))
        add(store, derived("Ana lives in Lima.", Citation(first), cite(second, "I live in Lima")))
        assert forget(store, first).marked == (second,)
        assert texts(list_items(store)) == [SAID.replace("I live in Lima", FORGOTTEN)]

    def test_overlapping_and_touching_spans_leave_one_mark(self, store: ItemStore) -> None:
        text = "abcdefghij"
        (said,) = add(store, message(text))
        cites = (Citation(said, 1, 4), Citation(said, 3, 6), Citation(said, 6, 7), Citation(said, 8, 9))
        (made,) = add(store, derived("Made.", *cites))
        forget(store, made)
        assert get_item(store, said).text == f"a{FORGOTTEN}h{FORGOTTEN}j"

    def test_spans_are_counted_in_characters(self, store: ItemStore) -> None:
        text = "😀 é 東京 secret e\u0301 👩‍👩‍👧"
        (said,) = add(store, message(text))
        (made,) = add(store, derived("Made.", cite(said, "secret", text)))
        forget(store, made)
        assert get_item(store, said).text == text.replace("secret", FORGOTTEN)

    def test_other_cites_move_with_their_text(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        parts = ("My name", "Ana", " and", "I like tea", "tea.")
        others = add(store, *(derived(f"Made {n}.", cite(said, part)) for n, part in enumerate(parts)))
        (rest,) = add(store, derived("Rest.", Citation(said, SAID.index(" and"), None)))
        (made,) = add(store, derived("Lives in Lima.", cite(said, "I live in Lima")))
        assert forget(store, made).others == ()
        text = get_item(store, said).text
        cited = [get_item(store, id).sources[0].cites[0] for id in others]
        assert tuple(text[span.start : span.end] for span in cited) == parts
        assert get_item(store, rest).sources[0].cites == (Citation(said, text.index(" and"), None),)
        assert {citation.cite for citation in store.lineage(ANA, [others[1]])} == {cite(said, "Ana")}
        forget(store, others[1])
        assert get_item(store, said).text == SAID.replace("I live in Lima", FORGOTTEN).replace("Ana", FORGOTTEN)

    # What rests on words that are cut

    def test_what_rests_on_words_that_are_cut_goes_with_them(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        overlapping = ("Lima", "live in Lima and I like", "Ana, I", "a, I live in Lima and I like tea")
        gone = add(store, *(derived(f"Made {n}.", cite(said, part)) for n, part in enumerate(overlapping)))
        gone += add(
            store,
            derived("All of it.", Citation(said)),
            derived("From there on.", Citation(said, SAID.index("Lima"), None)),
            derived("Up to there.", Citation(said, None, SAID.index("live"))),
            derived("In sum.", Citation(said), kind="summary"),
            derived("It happened.", Citation(said), kind="episode"),
        )
        beside = add(store, *(derived(f"Beside {n}.", cite(said, part)) for n, part in enumerate(("Ana, ", " and I"))))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima")))
        outcome = forget(store, made)
        assert (set(outcome.others), outcome.marked) == (set(gone), (said,))
        assert {item.id for item in list_items(store, history=True)} == {said, *beside}

    def test_what_cites_or_was_corrected_into_it_goes_along(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        (old,) = add(store, fact("Ana is from Lime."))
        new = correct(store, old, derived("Ana is from Lima.", Citation(said))).id or ""
        (more,) = add(store, derived("Ana is from Peru.", Citation(new)))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima")))
        assert set(forget(store, made).others) == {old, new, more}
        assert [item.id for item in list_items(store, history=True)] == [said]

    def test_closed_and_corrected_versions_that_rest_on_it_go_too(self, store: ItemStore, clock: SetClock) -> None:
        (said,) = add(store, message(SAID))
        (closed,) = add(store, derived("Lima", cite(said, "Lima"), slot="city"))
        (wrong,) = add(store, derived("Lives in Lime.", Citation(said)))
        correct(store, wrong, fact("Lives by the sea."))
        clock.advance()
        add(store, fact("Quito", slot="city"))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima")))
        assert set(forget(store, made).others) == {closed, wrong}
        assert sorted(texts(list_items(store))) == [
            "Lives by the sea.",
            SAID.replace("I live in Lima", FORGOTTEN),
            "Quito",
        ]

    def test_what_only_they_cite_is_not_cut(self, store: ItemStore) -> None:
        said, other, more = add(store, message(SAID), message("Lima is in Peru."), fact("Peru is large."))
        gone = add(
            store,
            derived("From Peru.", cite(said, "Lima"), Citation(other, 0, 4), Citation(more)),
            derived("In sum.", Citation(said), Citation(other), kind="summary"),
        )
        gone += add(store, derived("Far away.", Citation(gone[0]), Citation(more, 0, 4)))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima")))
        outcome = forget(store, made)
        assert (set(outcome.others), outcome.marked) == (set(gone), (said,))
        assert texts(store.get_many(ANA, [other, more])) == ["Lima is in Peru.", "Peru is large."]

    def test_the_same_words_elsewhere_stay_unless_the_item_cites_them(self, store: ItemStore) -> None:
        first, second, third = add(store, message(SAID), message(SAID), message(SAID))
        cites = (cite(first, "I live in Lima"), cite(second, "I live in Lima"))
        (made,) = add(store, derived("I live in Lima", *cites))
        (gone, kept) = add(store, derived("Of two.", Citation(second)), derived("Of three.", Citation(third)))
        outcome = forget(store, made)
        assert (outcome.others, set(outcome.marked)) == ((gone,), {first, second})
        assert (get_item(store, third).text, get_item(store, kept).text) == (SAID, "Of three.")

    def test_what_would_be_cut_goes_if_it_rests_on_words_that_are(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        (note,) = add(store, derived("Lima is where Ana lives.", Citation(said)))
        (made,) = add(store, derived("Lives there.", cite(said, "I live in Lima"), Citation(note, 0, 4)))
        outcome = forget(store, made)
        assert (outcome.others, outcome.marked) == ((note,), (said,))

    def test_with_the_source_kept_nothing_that_rests_on_it_goes(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        (beside,) = add(store, derived("All of it.", Citation(said)))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima")))
        assert forget(store, made, keep_source=True).others == ()
        assert {item.id for item in list_items(store)} == {said, beside}

    def test_what_went_along_is_not_derived_again_but_may_be_summed_up(self, store: ItemStore) -> None:
        first, second = add(store, message(SAID), message("Hello."))
        drafts = (
            derived("All of it.", Citation(first)),
            derived("In sum.", Citation(first), Citation(second), kind="summary"),
        )
        add(store, *drafts)
        (made,) = add(store, derived("Ana lives in Lima.", cite(first, "I live in Lima")))
        forget(store, made)
        assert [add_one(store, draft).status for draft in drafts] == ["kept_out", "added"]
        forget(store, second)
        assert add_one(store, derived("In sum.", Citation(first), kind="summary")).status == "added"

    def test_a_corrected_version_takes_the_whole_text_that_it_cites(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        (wrong,) = add(store, derived("Ana lives in Lime.", Citation(said), kind="episode"))
        right = correct(store, wrong, fact("Ana lives in Lima.")).id or ""
        outcome = forget(store, right)
        assert (outcome.others, outcome.marked) == ((wrong,), (said,))
        assert get_item(store, said).text == FORGOTTEN

    def test_a_kept_source_is_not_cut(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima"), Citation(said)))
        outcome = forget(store, made, keep_source=True)
        assert (outcome.status, outcome.marked) == ("forgotten", ())
        assert get_item(store, said).text == SAID
        assert add_one(store, derived("Ana lives in Lima.", Citation(said))).status == "kept_out"
        assert add_one(store, derived("I live in Lima", Citation(said))).status == "added"

    def test_what_is_left_of_a_text_is_found_by_its_words(self, store: ItemStore, words: Any) -> None:
        (said,) = add(store, message(SAID, speaker="Zoe"))
        (made,) = add(store, derived("Made.", cite(said, "I live in Lima")))
        forget(store, made)
        assert words.best(word_query("Lima")).hits == []
        assert [[hit.id for hit in words.best(word_query(term)).hits] for term in ("tea", "Zoe")] == [[said], [said]]

    def test_the_vectors_of_a_cut_text_are_dropped(self, store: ItemStore, vectors: Any, feed: Any) -> None:
        (said,) = add(store, message(SAID))
        (made,) = add(store, derived("Made.", cite(said, "I live in Lima")))
        forget(store, made)
        feed()
        assert vectors.nearest(vector_query(SAID)).ids == []
        assert [(pending.id, pending.text) for pending in store.unembedded(MODEL, 9)] == [
            (said, get_item(store, said).text)
        ]

    # Tombstones

    def test_a_forgotten_text_is_not_derived_again(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        (made,) = add(store, derived("Ana lives in Lima.", cite(said, "I live in Lima")))
        (more,) = add(store, derived("Ana lives in Peru.", Citation(made)))
        assert forget(store, made).others == (more,)
        for text in ("Ana lives in Lima.", "Ana lives in Peru.", "I live in Lima", SAID):
            for draft in (
                derived(text),
                derived(text, slot="s"),
                message(text, derived=True),
                derived(text, Citation(said)),
            ):
                outcome = add_one(store, draft)
                assert (outcome.id, outcome.status, outcome.place) == (None, "kept_out", None)
        assert len(list_items(store, history=True)) == 1
        assert add_one(store, message("Next.")).place == 1
        assert add_one(store, derived("Ana lives in Cusco.", Citation(said))).status == "added"

    def test_a_replayed_message_does_not_bring_back_what_was_cut(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID, number=0))
        (made,) = add(store, derived("Made.", cite(said, "Lima")))
        forget(store, made)
        assert add_one(store, message(SAID, number=0, derived=True)).status == "kept_out"
        assert FORGOTTEN in get_item(store, said).text

    def test_what_it_corrected_goes_too(self, store: ItemStore) -> None:
        (first,) = add(store, fact("The code is 1111."))
        (rested,) = add(store, derived("A code was given.", Citation(first)))
        second = correct(store, first, fact("The code is 2222.")).id or ""
        third = correct(store, second, fact("The code is 3333.")).id or ""
        assert [item.id for item in store.corrected(ANA, third)] == [second, first]
        assert store.corrected(ANA, first) == store.corrected(BEN, third) == []
        outcome = store.apply(Plan(ANA, (Forget(third),))).outcomes[0]
        assert set(outcome.others) == {first, second, rested}
        assert list_items(store, history=True) == []
        assert add_one(store, derived("The code is 1111.")).status == "kept_out"

    def test_a_cut_takes_the_relation_along(self, store: ItemStore) -> None:
        (held,) = add(store, fact("Bob hides gold", kind="relation", relation=Relation("Bob", "hides", "gold")))
        (made,) = add(store, derived("Gold is hidden.", Citation(held, 4, 14)))
        forget(store, made)
        assert (get_item(store, held).text, get_item(store, held).relation) == (f"Bob {FORGOTTEN}", None)
        assert store.about(ANA, "gold", None) == store.about(ANA, "Bob", None) == []

    def test_saying_it_again_makes_a_new_item(self, store: ItemStore) -> None:
        (id,) = add(store, fact("Secret."))
        forget(store, id)
        again = add_one(store, fact("Secret."))
        assert again.status == "added"
        assert again.id != id
        assert add_one(store, derived("Secret.")).status == "kept_out"

    def test_a_tombstone_holds_in_its_scope_alone(self, store: ItemStore) -> None:
        (id,) = add(store, fact("Secret."))
        forget(store, id)
        assert add_one(store, derived("Secret."), scope=BEN).status == "added"

    def test_a_tombstone_holds_off_a_derived_correction(self, store: ItemStore) -> None:
        gone, kept = add(store, fact("Secret."), fact("Kept."))
        forget(store, gone)
        outcome = correct(store, kept, derived("Secret."))
        assert (outcome.id, outcome.status) == (None, "kept_out")
        assert texts(list_items(store)) == ["Kept."]
        assert correct(store, kept, fact("Secret.")).status == "replaced"

    def test_a_request_is_not_replayed_after_forgetting(self, store: ItemStore) -> None:
        plan = Plan(ANA, (Add(fact("Secret.")),), request_id="r")
        (outcome,) = store.apply(plan).outcomes
        forget(store, outcome.id or "")
        assert store.apply(plan).repeated
        assert list_items(store) == []

    def test_forgetting_many_in_one_plan(self, store: ItemStore) -> None:
        (said,) = add(store, message(SAID))
        one, two = add(store, derived("Name.", cite(said, "Ana")), derived("Town.", cite(said, "Lima")))
        outcomes = store.apply(Plan(ANA, (Forget(one), Forget(two)))).outcomes
        assert [each.marked for each in outcomes] == [(said,), (said,)]
        assert get_item(store, said).text == SAID.replace("Ana", FORGOTTEN).replace("Lima", FORGOTTEN)

    def test_what_was_changed_or_cited_since_is_not_forgotten(self, store: ItemStore) -> None:
        pinned, cited, alone = add(store, fact("Pinned."), fact("Cited."), fact("Alone."))
        (known,) = add(store, derived("Rests on one.", Citation(alone)))
        newest = store.newest(ANA)
        store.apply(Plan(ANA, (Change(pinned, pinned=True),)))
        (rests,) = add(store, derived("Rests on the other.", Citation(cited)))
        seen = [get_item(store, id) for id in (pinned, cited, rests)]
        steps = tuple(Forget(id, keep_source=True, unchanged_since=newest) for id in (pinned, cited, alone, "nothing"))
        outcomes = store.apply(Plan(ANA, steps)).outcomes
        assert [outcome.status for outcome in outcomes] == ["stale", "stale", "forgotten", "missing"]
        assert outcomes[2].others == (known,)
        assert [get_item(store, id) for id in (pinned, cited, rests)] == seen
        assert add_one(store, derived("Pinned.")).status == "repeated", "and no tombstone was left of it"
        assert store.apply(Plan(ANA, (Forget(cited, unchanged_since=store.newest(ANA)),))).outcomes[0].others == (
            rests,
        )

    @pytest.mark.parametrize("n", [2, 40])
    def test_the_bytes_of_what_was_forgotten_are_purged(self, store: ItemStore, n: int) -> None:
        ids = add(store, *(fact(f"Secret number {each}.") for each in range(n)))
        store.apply(Plan(ANA, tuple(Forget(id) for id in ids)))
        assert store.purge()
        assert store.purge()
        assert not store.status().purge_pending
