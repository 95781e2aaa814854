"""Ranking weighs what the arms say; what does not apply to an item is neutral."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from examples import for_each

from engrain import Memory
from engrain.core.model.queries import EmbeddingModel, Sketch, WordHit, WordMatches
from engrain.core.rules.statements import CONDITION, INSTRUCTION, IS_QUESTION, NUMBER_OR_TIME, PREFERENCE
from engrain.core.text.tokenizer import extract_terms
from engrain.retrieval.candidates import make_candidates
from engrain.retrieval.query import PartialDate, Question, TimeSpan, parse_query
from engrain.retrieval.ranking import CandidateTable, Collected, Ranking, fuse, rank, score_dates
from engrain.retrieval.selection import list_candidates

NOW = datetime(2026, 11, 15, tzinfo=UTC)
MODEL = EmbeddingModel("test", "0", 4, floor=0.2, mean=0.05, deviation=0.085)
FACT = Sketch("a", "fact", None, None, None, None, NOW.timestamp(), 0, 1, 0.5, False, 1.0, None)


def turn(id: str, place: int, session: str = "s", **changes: object) -> Sketch:
    return FACT._replace(id=id, kind="message", session=session, place=place, **changes)  # type: ignore[arg-type]


def ranked(question: Question, sketches: list[Sketch], cosines: dict[str, float], texts: dict[str, str]) -> Ranking:
    return rank(fuse(gathered(question, sketches, cosines, texts), question, MODEL), question, NOW.timestamp())


def fused(question: Question, sketches: list[Sketch], texts: dict[str, str]) -> CandidateTable:
    return fuse(gathered(question, sketches, {}, texts), question, MODEL)


def gathered(question: Question, sketches: list[Sketch], cosines: dict[str, float], texts: dict[str, str]) -> Collected:
    hits = {}
    for id, text in texts.items():
        words = extract_terms(text)
        counts = tuple(words.count(one) for one in question.terms)
        if any(counts):
            hits[id] = WordHit(id, 0, len(words), counts)
    frequency = tuple(sum(hit.counts[n] > 0 for hit in hits.values()) for n in range(len(question.terms)))
    return collected(sketches, cosines, max(len(sketches), 1), frequency, hits)


def collected(
    sketches: list[Sketch],
    cosines: dict[str, float],
    passages: int,
    frequency: tuple[int, ...],
    hits: dict[str, WordHit] | None = None,
) -> Collected:
    matches = WordMatches([], passages, 5.0, frequency)
    return Collected(make_candidates(sketches, cosines, hits or {}, {}, matches))


def asked(query: str, *speakers: str) -> Question:
    return parse_query(query, speakers, NOW)


def test_nothing_gathered_is_nothing_ranked() -> None:
    assert len(ranked(asked("tea"), [], {}, {}).score) == 0


def test_meaning_and_words_each_lift() -> None:
    sketches = [FACT._replace(id=id) for id in "abc"]
    found = ranked(asked("green tea"), sketches, {"a": 0.1, "b": 0.5, "c": 0.1}, {"c": "green tea"})
    none, meaning, words = found.score
    assert none < meaning
    assert none < words
    assert found.relevance[0] < min(found.relevance[1:])


def test_an_item_without_a_vector_is_found_by_its_words() -> None:
    found = ranked(asked("invoice 90210"), [FACT], {}, {"a": "The invoice number is 90210."})
    assert found.relevance[0] > 0.5


def test_importance_pin_and_recency_order_equals_but_never_beat_relevance() -> None:
    old = FACT._replace(id="a", importance=0.1, occurred_at=0.0)
    new = FACT._replace(id="b", importance=1.0, pinned=True)
    equal = ranked(asked("tea"), [old, new], {"a": 0.4, "b": 0.4}, {})
    assert equal.score[0] < equal.score[1]
    better = ranked(asked("tea"), [old, new], {"a": 0.45, "b": 0.4}, {})
    assert better.score[0] > better.score[1]


def test_an_answer_inherits_the_match_of_its_question() -> None:
    sketches = [turn("a", 1, traits=IS_QUESTION), turn("b", 2), turn("c", 9)]
    found = ranked(asked("Which cake is best?"), sketches, dict.fromkeys("abc", 0.3), {"a": "Which cake is best?"})
    assert found.score[1] > found.score[2]


def test_a_neighbour_in_another_session_lends_nothing() -> None:
    near = [turn("a", 1), turn("b", 2)]
    far = [turn("a", 1), turn("b", 2, session="t")]
    scores = [ranked(asked("cake"), some, {}, {"a": "cake"}).parts for some in (near, far)]
    place = ranked(asked("cake"), near, {}, {}).names.index("words before")
    assert scores[0][1][place] > 0 == scores[1][1][place]


def test_who_is_named_goes_before_another_and_a_fact_loses_nothing() -> None:
    question = asked("What does Ana eat?", "Ana", "Ben")
    sketches = [turn("a", 1, speaker="Ana"), turn("b", 9, speaker="Ben"), FACT._replace(id="c")]
    found = ranked(question, sketches, dict.fromkeys("abc", 0.3), {})
    place = found.names.index("another speaker")
    assert list(found.parts[:, place] < 0) == [False, True, False]


def test_a_fact_has_no_session_to_stay_behind() -> None:
    sketches = [turn("a", 1), turn("b", 1, session="t"), FACT._replace(id="c")]
    found = ranked(asked("tea"), sketches, {"a": 0.9, "b": 0.1, "c": 0.1}, {})
    parts = found.parts[:, found.names.index("session")]
    assert parts[0] == parts[2] == 0 > parts[1]
    assert not ranked(asked("tea"), [FACT], {"a": 0.1}, {}).parts[0, found.names.index("session")]


def test_a_speaker_s_name_in_front_is_no_word_of_the_turn() -> None:
    question = asked("What is Greta's job?", "Greta", "Tom")
    sketches = [turn("a", 1, speaker="Greta"), turn("b", 5, speaker="Tom")]
    texts = {"a": "Greta Yes.", "b": "Tom Greta told me."}
    found = ranked(question, sketches, {"a": 0.1, "b": 0.1}, texts)
    words = found.parts[:, found.names.index("words")]
    assert words[0] == 0 < words[1]
    assert found.parts[0, found.names.index("cover")] == 0


def test_who_is_named_needs_less_to_be_relevant() -> None:
    sketches = [turn("a", 1, speaker="Greta"), turn("b", 5, speaker="Tom")]
    found = ranked(asked("What is Greta's job?", "Greta", "Tom"), sketches, {"a": 0.3, "b": 0.3}, {})
    assert found.relevance[0] > found.relevance[1]


def test_pairs_of_characters_cover_a_question_and_single_ones_hardly() -> None:
    sketches = [FACT._replace(id="a"), FACT._replace(id="b")]
    found = fused(asked("花生过敏"), sketches, {"a": "花生过敏", "b": "过花敏生"})
    assert found.cover[0] == 1
    assert 0 < found.cover[1] < 0.2


def test_a_word_with_an_umlaut_counts_once() -> None:
    sketches = [FACT._replace(id=id) for id in "abcd"]
    texts = {"a": "Kaethe Bonn", "b": "Käthe Bonn", "c": "Bonn", "d": "Käthe"}
    assert fused(asked("Käthe Bonn"), sketches, texts).cover.tolist() == pytest.approx([1, 1, 0.5, 0.5])


def test_a_background_lowers_relevance_and_leaves_the_order() -> None:
    question = asked("Wie wird das Wetter?")
    sketches = [FACT._replace(id="a"), FACT._replace(id="b")]
    plain = collected(sketches, {"a": 0.5, "b": 0.45}, 9, (0,) * len(question.terms))
    values = [
        rank(fuse(replace(plain, background=height), question, MODEL), question, 0.0) for height in (0.0, 0.15, 0.4)
    ]
    assert (values[0].relevance == values[1].relevance).all()
    assert values[0].relevance[0] > 0.5
    assert values[2].relevance[0] < 0.2
    assert all((one.score == values[0].score).all() for one in values)


def test_a_standing_order_comes_up_for_a_request_that_it_fits() -> None:
    sketches = [FACT._replace(id="a", traits=INSTRUCTION), FACT._replace(id="b", traits=INSTRUCTION)]
    found = ranked(asked("Can you suggest a wine?"), sketches, {"a": 0.4, "b": 0.0}, {})
    place = found.names.index("instruction")
    assert found.parts[0][place] > 0 == found.parts[1][place]
    other = ranked(asked("Where does Ana live?"), sketches, {"a": 0.4, "b": 0.0}, {})
    assert not other.parts[:, place].any()


def test_what_the_user_said_goes_before_what_the_assistant_said_about_me() -> None:
    sketches = [turn("a", 1, role="user"), turn("b", 5, role="assistant")]
    found = ranked(asked("What is my budget?"), sketches, {"a": 0.3, "b": 0.3}, {})
    assert found.score[0] > found.score[1]


def test_the_same_match_counts_less_in_a_large_memory() -> None:
    question = asked("tea")
    sized = [collected([FACT], {"a": 0.3}, passages, (0,)) for passages in (5, 900)]
    values = [rank(fuse(one, question, MODEL), question, 0.0).relevance[0] for one in sized]
    assert values[0] > values[1]


def test_relevance_is_a_share_whatever_comes_in() -> None:
    found = ranked(asked("tea"), [FACT, FACT._replace(id="b")], {"a": 1.0, "b": -1.0}, {"a": "tea " * 99})
    assert ((found.relevance >= 0) & (found.relevance <= 1)).all()
    assert np.isfinite(found.score).all()


@for_each(
    ("day", "moment", "value"),
    [
        (PartialDate(2023, 5), datetime(2023, 5, 20, tzinfo=UTC), 1.3),
        (PartialDate(2023, 5), datetime(2023, 6, 2, tzinfo=UTC), 0.6),
        (PartialDate(2023, 5), datetime(2024, 5, 2, tzinfo=UTC), 0.0),
        (PartialDate(0, 5), datetime(2024, 5, 2, tzinfo=UTC), 1.0),
        (PartialDate(0, 12), datetime(2024, 1, 2, tzinfo=UTC), 0.3),
        (PartialDate(2023, 5, 8), datetime(2023, 5, 10, tzinfo=UTC), 2.0),
        (PartialDate(2023, 5, 8), datetime(2023, 5, 8, tzinfo=UTC), 2.0),
        (PartialDate(2023, 5, 8), datetime(2023, 5, 15, tzinfo=UTC), 2.0),
        (PartialDate(2023, 5, 8), datetime(2023, 5, 16, tzinfo=UTC), 1.3),
        (PartialDate(2023, 5, 8), datetime(2023, 5, 7, tzinfo=UTC), 1.3),
        (PartialDate(0, 5, 8), datetime(2024, 5, 9, tzinfo=UTC), 1.7),
        (PartialDate(2023), datetime(2023, 1, 1, tzinfo=UTC), 0.3),
        (PartialDate(), datetime(2023, 1, 1, tzinfo=UTC), 0.0),
    ],
)
def test_date_match(day: PartialDate, moment: datetime, value: float) -> None:
    assert score_dates((day,), (), np.array([moment.timestamp()])) == pytest.approx(value)


def test_a_span_of_time_matches_what_lies_in_it() -> None:
    assert list(score_dates((), (TimeSpan(10, 20),), np.array([9.0, 10.0, 19.0, 20.0]))) == [0, 1, 1, 0]


def test_without_a_date_in_the_question_no_moment_is_better() -> None:
    assert list(score_dates((), (), np.array([0.0, 1e9]))) == [0, 0]


def part(found: Ranking, name: str) -> list[float]:
    return [round(float(one), 6) for one in found.parts[:, found.names.index(name)]]


def test_turns_next_to_a_match_inherit_its_words_from_both_sides() -> None:
    sketches = [turn("a", 0), turn("b", 1), turn("c", 2), turn("d", 4)]
    found = ranked(asked("cake"), sketches, {}, {"b": "cake"})
    assert part(found, "words after") == [1.1, 0, 0, 0]
    assert part(found, "words before") == [0, 0, 0.4, 0]


def test_a_reply_inherits_the_words_that_only_the_turn_before_has() -> None:
    sketches = [turn("a", 0, role="assistant"), turn("b", 1, role="user"), turn("c", 2, role="user")]
    found = ranked(asked("green cake"), sketches, {}, {"a": "green cake", "b": "cake"})
    assert found.table.replies_to.tolist() == [-1, 0, -1], "one's own next turn is no reply"
    before = part(found, "cover before")
    assert before[1] > 0
    assert before[0] == before[2] == 0
    assert part(found, "words before")[2] == 0


def test_a_standing_order_with_a_condition_applies_to_questions_that_do_not_look_back() -> None:
    order = turn("a", 0, role="user", traits=INSTRUCTION | CONDITION)
    plain = turn("b", 5, role="user", traits=INSTRUCTION)
    pasted = turn("c", 9, role="user", traits=INSTRUCTION | CONDITION, trust=0.3)
    near = dict.fromkeys("abc", 0.6)

    def weigh(query: str, cosines: dict[str, float]) -> list[float]:
        return part(ranked(asked(query), [order, plain, pasted], cosines, {}), "instruction")

    assert weigh("When is the parcel due?", near) == [4.3, 0, 0]
    assert weigh("When is the parcel due?", dict.fromkeys("abc", 0.2)) == [0, 0, 0], "another subject"
    assert weigh("When did I say the parcel is due?", near) == [0, 0, 0]
    assert weigh("Can you recommend a parcel service?", near) == [4.3, 4.3, 0]


@pytest.mark.parametrize(
    ("orders", "question"),
    [
        (
            (
                "Wenn ich nach Rechnungen frage, nenne immer das Datum.",
                "Wenn ich nach Rezepten frage, gib immer Gramm an.",
            ),
            "Welche Rechnungen sind noch offen?",
        ),
        (
            ("Cuando pregunte por facturas, añade siempre la fecha.", "Si te pido recetas, usa siempre gramos."),
            "¿Qué facturas quedan pendientes?",
        ),
        (
            (
                "Quand je parle de factures, ajoute toujours la date.",
                "Si je te demande des recettes, mets toujours des grammes.",
            ),
            "Quelles factures restent à payer ?",
        ),
    ],
)
def test_a_standing_order_in_another_language_applies_to_its_subject_alone(
    orders: tuple[str, str], question: str
) -> None:
    with Memory(":memory:", user="ana") as memory:
        for order in orders:
            memory.remember(order)
        found = {hit.item.text: hit for hit in memory.recall(question, min_relevance=0)}
        assert found[orders[0]].score_parts["instruction"] > 2
        assert "instruction" not in found[orders[1]].score_parts


def test_a_summary_takes_each_turn_with_its_reply() -> None:
    sketches = [turn("a", 0, role="user"), turn("b", 1, role="assistant"), turn("c", 5, role="user")]
    found = replace(ranked(asked("cake"), sketches, {}, {}), score=np.array([1.0, 0.1, 0.9]))
    assert [one.id for one in list_candidates(found, 0, asked("cake"))] == list("acb")
    assert [one.id for one in list_candidates(found, 0, asked("Can you sum up the cake plans?"))] == list("abc")


def test_facts_without_a_session_are_nobodys_neighbours() -> None:
    sketches = [FACT._replace(id="a", place=1), FACT._replace(id="b", place=2), turn("c", 3)]
    found = fused(asked("cake"), sketches, {"a": "cake"})
    assert found.previous.tolist() == found.next.tolist() == [-1, -1, -1]
    assert found.items.session.tolist() == [-1, -1, 0]


def test_turns_without_a_number_are_nobodys_neighbours() -> None:
    sketches = [turn("a", 0)._replace(place=None), turn("b", 0)]
    assert fused(asked("cake"), sketches, {"a": "cake"}).previous.tolist() == [-1, -1]


def test_a_session_is_as_strong_as_the_mean_of_its_three_best_turns() -> None:
    places = [turn(id, 2 * number) for number, id in enumerate("abcd")] + [turn("e", 1, session="t")]
    cosines = {"a": 0.9, "b": 0.8, "c": 0.7, "d": -0.5, "e": 0.8}
    assert part(ranked(asked("tea"), places, cosines, {}), "session") == [0, 0, 0, 0, 0]
    weaker = part(ranked(asked("tea"), places, {**cosines, "e": 0.7}, {}), "session")
    # A tenth of a cosine, in the model's deviations and in steps of meaning; half of it counts.
    assert weaker == pytest.approx([0, 0, 0, 0, -0.95 * 0.1 / 0.085 / 1.4 / 2], abs=1e-5)


def test_each_feature_counts_for_the_items_that_have_it() -> None:
    sketches = [
        FACT._replace(id="a", importance=0.9, trust=0.4, occurred_at=NOW.timestamp() - 30 * 86_400),
        FACT._replace(id="b", pinned=True),
        turn("c", 1, importance=0.9, trust=0.4, pinned=True),
    ]
    found = ranked(asked("tea"), sketches, {}, {})
    assert part(found, "importance") == pytest.approx([0.12 * 0.4, 0, 0])
    assert part(found, "pinned") == pytest.approx([0, 0.06, 0])
    assert part(found, "trust") == pytest.approx([-0.12 * 0.6, 0, -0.12 * 0.6])
    assert part(found, "recency") == pytest.approx([0.03 / np.e, 0.03, 0], abs=1e-6)


def test_numbers_count_only_for_a_question_that_asks_for_one() -> None:
    sketches = [FACT._replace(id="a", traits=NUMBER_OR_TIME), FACT._replace(id="b", traits=PREFERENCE)]
    assert part(ranked(asked("How many cakes?"), sketches, {}, {}), "number or time") == [1.4, 0]
    assert part(ranked(asked("Which cake?"), sketches, {}, {}), "number or time") == [0, 0]


def test_a_preference_counts_by_its_topic_for_a_wish_for_advice() -> None:
    sketches = [FACT._replace(id="a", traits=PREFERENCE), FACT._replace(id="b", traits=PREFERENCE), FACT]
    cosines = {"a": 0.9, "b": 0.05 + 0.085 * (1.2 + 1.4 * 0.75)}  # far beyond a full topic, and half of one
    found = ranked(asked("Can you suggest a wine?"), [*sketches[:2], FACT._replace(id="c")], cosines, {})
    assert part(found, "preference") == pytest.approx([2.8, 1.4, 0])


def test_an_answer_counts_by_the_words_and_the_meaning_of_its_question() -> None:
    sketches = [turn("a", 1, traits=IS_QUESTION), turn("b", 2), turn("c", 5), turn("d", 6)]
    cosines = {"a": 0.05 + 0.085 * (1.2 + 1.4 * 2), "b": 0.1, "c": 0.5, "d": 0.1}
    found = ranked(asked("cake"), sketches, cosines, {"a": "cake"})
    assert part(found, "only asks") == [-1.3, 0, 0, 0]
    assert part(found, "answers, by words") == [0, 1.75, 0, 0]
    assert part(found, "answers, by meaning") == pytest.approx([0, 0.8, 0, 0])
    far = ranked(asked("cake"), sketches, {**cosines, "a": -0.5}, {})
    assert not any(part(far, "answers, by meaning"))


def test_the_assistants_words_count_for_a_question_about_them() -> None:
    sketches = [turn("a", 1, role="user"), turn("b", 5, role="assistant"), turn("c", 9, role="tool")]
    mine = ranked(asked("What is my budget?"), sketches, {}, {})
    assert part(mine, "about me, assistant's") == [0, -2.2, -2.2]
    assert not any(part(mine, "about you, assistant's"))
    yours = ranked(asked("What did you recommend?"), sketches, {}, {})
    assert part(yours, "about you, assistant's") == [0, 0.9, 0.9]


def test_a_fact_of_another_speaker_loses_more_than_a_turn_of_his() -> None:
    sketches = [turn("a", 1, speaker="Ben"), FACT._replace(id="b", speaker="Ben"), FACT._replace(id="c", speaker="Ana")]
    found = ranked(asked("What does Ana eat?", "Ana", "Ben"), sketches, {}, {})
    assert part(found, "another speaker") == pytest.approx([-1.1, -1.1 * 2.8, 0])
    assert not any(part(ranked(asked("What to eat?", "Ana", "Ben"), sketches, {}, {}), "another speaker"))


def test_the_best_match_by_words_has_one_and_another_less() -> None:
    sketches = [FACT._replace(id=id) for id in "abc"]
    found = fused(asked("green tea"), sketches, {"a": "green tea", "b": "green leaves of some old tree"})
    assert found.words[0] == 1
    assert 0 < found.words[1] < 1
    assert found.words[2] == found.cover[2] == 0
    assert found.meaning.tolist() == pytest.approx((3 * found.cover).tolist())


def test_relevance_follows_the_own_match_and_shrinks_with_the_memory() -> None:
    question = asked("tea")
    sketches = [FACT, FACT._replace(id="b"), turn("c", 1)]
    cosines = {id: 0.05 + 0.085 * (1.2 + 1.4 * meaning) for id, meaning in (("a", 1.0), ("b", -1.0), ("c", 0.0))}
    before = np.ones(3)
    for passages in (1, 20, 90, 2_000, 9_000):
        sized = collected(sketches, cosines, passages, (0,))
        good, bad, turn_between = relevance = rank(fuse(sized, question, MODEL), question, 0.0).relevance
        assert bad < min(good, turn_between)
        assert (relevance <= before).all()
        before = relevance
    assert before[0] < 0.2  # in a large memory this match is likely chance


def test_a_list_takes_from_every_session_the_first_one_too() -> None:
    sketches = [turn("a", 1), turn("b", 5), turn("c", 1, session="t"), turn("d", 5, session="t"), FACT._replace(id="e")]
    found = ranked(asked("cake"), sketches, {}, {})
    found = replace(found, score=np.array([1.0, 0.9, 0.8, 0.75, 0.1]))
    assert [one.id for one in list_candidates(found, 0, asked("cake"))] == list("abcde")
    assert [one.id for one in list_candidates(found, 0, asked("Which cakes are there, in total?"))] == list("acbde")
    second_first = replace(found, score=np.array([0.8, 0.75, 1.0, 0.9, 0.1]))
    assert [one.id for one in list_candidates(second_first, 0, asked("Which cakes are there, in total?"))] == list(
        "cadbe"
    )


def test_a_list_spreads_no_facts_and_nothing_beyond_its_pool() -> None:
    facts = [FACT._replace(id=f"{number:03}") for number in range(70)]
    found = replace(ranked(asked("cake"), facts, {}, {}), score=-np.arange(70) / 100)
    assert [one.row for one in list_candidates(found, 0, asked("Which cakes are there, in total?"))] == list(range(70))
    turns = [turn(f"{number:03}", 2 * number) for number in range(61)] + [turn("x", 1, session="t")]
    found = replace(ranked(asked("cake"), turns, {}, {}), score=-np.arange(62) / 100)
    assert [one.row for one in list_candidates(found, 0, asked("Which cakes are there, in total?"))] == list(range(62))


def test_a_newer_id_wins_a_tie() -> None:
    found = ranked(asked("cake"), [FACT, FACT._replace(id="c"), FACT._replace(id="b")], {}, {})
    assert [one.id for one in list_candidates(found, 3, asked("cake"))] == ["c", "b", "a"]
    assert {one.scope for one in list_candidates(found, 3, asked("cake"))} == {3}
