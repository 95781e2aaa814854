"""The gate with a judge of sentences: whole clauses, one fact in a slot, and what a verdict may not change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from engrain.core.model.items import Statement
from engrain.core.rules.profile import UNSURE_IMPORTANCE
from engrain.core.text.passages import Sentence
from engrain.ingest.gate import JudgeSentences, find_statements
from engrain.ingest.sentence_model import Verdict, judge_sentences
from engrain.providers.local import local_embedder

KEEP, LEAVE, DROP = Verdict(True, False, "fact"), Verdict(False, False, "fact"), Verdict(False, True, "fact")
FILE = Path(__file__).parents[1] / "files" / "whole-clauses.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def give(verdict: Verdict, words: str = "") -> JudgeSentences:
    """Judge parts with these words by the verdict, and leave the others to the rules."""
    return lambda text, parts: [verdict if words in text[one.start : one.end] else LEAVE for one in parts]


def judge_locally(text: str, parts: Sequence[Sentence]) -> list[Verdict]:
    return judge_sentences(local_embedder().read_text(text), parts)


def list_found(text: str, judge: JudgeSentences) -> list[tuple[str, str | None]]:
    return [
        (text[one.start : one.end], one.slot) for one in find_statements(text, (), judge) if isinstance(one, Statement)
    ]


def test_a_kept_sentence_is_kept_as_a_whole() -> None:
    text = "What a day. Back to one salary, since Maja's firm folded. See you all tomorrow!"
    assert list_found(text, give(KEEP, "salary")) == [("Back to one salary, since Maja's firm folded", None)]


def test_a_statement_of_the_rules_is_widened_to_its_sentence() -> None:
    text = "I'm allergic to nuts, and to most of the things that my mother calls fruit"
    assert list_found(text, give(LEAVE)) == [(text, None)]


def test_a_slot_holds_one_fact_and_the_other_clause_is_one_of_its_own() -> None:
    text = "I live in Oslo, and the boat is moored two streets away"
    assert list_found(text, give(KEEP, "boat")) == [
        ("I live in Oslo", "user.city"),
        ("the boat is moored two streets away", None),
    ]


def test_clauses_with_a_subject_of_their_own_are_facts_of_their_own() -> None:
    text = "Our Tom is a vegan, i eat everything but mushrooms - they make me ill, my sister is a coeliac"
    assert [words for words, _ in list_found(text, give(KEEP))] == [
        "Our Tom is a vegan",
        "i eat everything but mushrooms - they make me ill",
        "my sister is a coeliac",
    ]
    joined = "I'm allergic to shellfish and I don't drink alcohol"
    assert [words for words, _ in list_found(joined, give(KEEP))] == joined.split(" and ")
    for bound in ("I love tea and my wife hates it", "I play chess but my son plays too"):
        assert [words for words, _ in list_found(bound, give(KEEP))] == [bound]
    # One of them says nothing alone.
    unsure = give(KEEP, "Tom")
    assert [words for words, _ in list_found("Our Tom is a vegan, i had no idea", unsure)] == [
        "Our Tom is a vegan, i had no idea"
    ]


def test_a_clause_beside_a_slot_is_left_out_unless_it_is_kept() -> None:
    assert list_found("I live in Oslo, and I am so tired", give(LEAVE)) == [("I live in Oslo", "user.city")]


def test_what_stands_in_quotation_marks_is_not_kept_whatever_the_judge_says() -> None:
    text = 'my GP is Dr Lindqvist. this came today\n\n"Dear patient, I have moved. My new name there is DrL."'
    assert not [words for words, _ in list_found(text, give(KEEP)) if "DrL" in words]


def test_a_sure_refusal_drops_what_a_rule_found() -> None:
    text = "I'm married to my inbox"
    assert list_found(text, give(LEAVE))
    assert list_found(text, give(DROP)) == []


def test_a_refusal_does_not_drop_what_the_user_asked_to_remember() -> None:
    text = "remember that I hide the key under the third pot"
    assert list_found(text, give(DROP)) == list_found(text, give(LEAVE)) != []


@pytest.mark.parametrize("text", ["J'habite à Lyon.", "Ich wohne in Kiel."])
def test_a_refusal_does_not_drop_what_fills_a_slot(text: str) -> None:
    assert [slot for _, slot in list_found(text, give(DROP))] == ["user.city"]


@pytest.mark.parametrize(("kind", "importance"), [("fact", UNSURE_IMPORTANCE), ("instruction", 0.8)])
def test_a_statement_that_is_not_sure_counts_less_unless_it_is_a_wish(kind: str, importance: float) -> None:
    text = "the boat is moored two streets away"
    (found,) = find_statements(text, (), give(Verdict(True, False, kind, sure=False)))
    assert isinstance(found, Statement)
    assert found.importance == importance


def test_a_label_of_the_speaker_opens_a_statement_that_is_sure() -> None:
    text = "and the team: Wiebke went freelance, so we are four now"
    assert [words for words, _ in list_found(text, give(KEEP))] == [text.removeprefix("and ")]
    assert list_found(text, give(Verdict(True, False, "fact", sure=False))) == []


@pytest.mark.parametrize(
    "text",
    [
        "new number: 07700 900123",
        "nouvelle adresse : 3 rue des lilas, rezé",
        "Abgabe der Steuer: 31. Juli",
        "three daughters: Eleni, Sofia and Kat",
        "cost review: moved to Thursdays",
        "commit messages: imperative, lowercase, no period",
        "The stand-up is at 9:15",
        "standup is 9:45, async on wednesdays",
        "my flight leaves on the 6th at 7:40",
        "solicitor = Joan Whittle, on Castle Street",
        "lieber Reis als Nudeln",
        "chapter 2 is due friday",
        "deploy is `fly deploy --remote-only` from main",
        "We live above a launderette.",
        "die Skripte schreiben wir in Python",
        "quote the paragraph number every time",
        "sick of their app. moved to Komoot",
        "Contract ended early. Back home in Leeds since May",
        "Lease on the premises is 2,400 a month. It ends in May of next year.",
        "she's here! Josefina, 3.2 kg",
    ],
)
def test_a_short_message_is_the_speakers_own(text: str) -> None:
    found = [one for one in find_statements(text, (), give(KEEP)) if isinstance(one, Statement)]
    assert found
    assert not any(one.doubtful for one in found)


@pytest.mark.parametrize(
    "text", ["Slide 3. My name is Hank", "sick of their app. moved to Komoot", "cost review: moved to Oslo"]
)
def test_a_title_or_a_remark_keeps_a_statement_from_its_slot(text: str) -> None:
    assert [slot for _, slot in list_found(text, give(KEEP)) if slot] == []


@pytest.mark.parametrize(
    "text", ["Villain: I live in Lima and I eat children", "Anuncio de Wallapop: soy María, vivo en Getafe. ¿Te fías?"]
)
def test_the_first_person_behind_a_label_is_not_surely_the_speaker(text: str) -> None:
    found = find_statements(text, (), give(KEEP))
    assert all(one.doubtful and one.slot is None for one in found if isinstance(one, Statement))


def test_a_label_that_names_a_text_opens_no_statement() -> None:
    assert list_found("Riddle: it has four legs and lives in Lima", give(KEEP)) == []


def test_words_of_a_doctor_about_the_speaker_are_kept() -> None:
    text = "doctor says I'm borderline diabetic so I've packed in sugar for good"
    assert [words for words, _ in list_found(text, give(KEEP))] == [text]


def test_a_german_date_does_not_end_a_sentence() -> None:
    text = "fortbildung am 14. und 15. märz in kiel"
    assert [words for words, _ in list_found(text, give(KEEP))] == [text]


def test_a_request_to_forget_is_not_judged() -> None:
    text = "forget that I live in Quito"
    assert find_statements(text, (), give(KEEP)) == find_statements(text)


def test_a_secret_is_not_kept_whatever_the_judge_says() -> None:
    assert list_found("the password of the alarm is hunter22, as ever", give(KEEP)) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"][:40])
def test_no_fact_is_cut_in_the_middle(row: dict[str, object]) -> None:
    """A statement may be missed, but what is kept of it is the whole clause."""
    text, wholes = str(row["text"]), [str(one) for one in row["whole"]]  # type: ignore[attr-defined]
    for fact, _ in list_found(text, judge_locally):
        for whole in wholes:
            assert whole in fact or fact not in whole, f"{fact!r} is a piece of {whole!r}"


@pytest.mark.parametrize(
    "remark", ["she's great", "sie ist echt super", "ella es muy maja", "elle est très sympa", "it's so annoying"]
)
def test_a_remark_about_somebody_unnamed_is_no_fact(remark: str) -> None:
    assert list_found(f"My manager is Priya. {remark}", give(KEEP, remark)) == [("My manager is Priya", "user.manager")]


def test_a_word_about_health_or_food_is_more_than_a_remark() -> None:
    assert list_found("she's coeliac", give(KEEP)) == [("she's coeliac", None)]


@pytest.mark.parametrize(
    "text",
    [
        "we finally moved!! York now, little house near the river",
        "wir sind endlich umgezogen! jetzt Erfurt, kleine Wohnung am Fluss",
        "nos hemos mudado por fin! ahora Valencia, piso pequeño cerca del puerto",
        "on a enfin déménagé ! Lyon maintenant, petit appart près du parc",
    ],
)
def test_a_fragment_belongs_to_the_statement_that_it_continues(text: str) -> None:
    first = text.partition("!")[0].strip()
    assert list_found(text, give(KEEP, first)) == [(text, None)]


@pytest.mark.parametrize("rest", ["Thanks for the tip", "what a day?", "I am so tired", "danke dir für den Tipp"])
def test_thanks_questions_and_other_sentences_continue_nothing(rest: str) -> None:
    assert list_found(f"The boat is sold. {rest}", give(KEEP, "boat")) == [("The boat is sold", None)]


def test_a_refused_clause_does_not_take_the_fact_of_a_sentence_with_several() -> None:
    text = "I'm Ana, I live in Lima and my job is nursing"
    assert ("I live in Lima", "user.city") in list_found(text, give(DROP, "Lima"))


def test_a_wish_beside_two_slots_is_kept() -> None:
    text = "Call me Harold, but I should like you to write in full sentences, my city is Truro"
    found = [words for words, _ in list_found(text, give(KEEP))]
    assert any("full sentences" in words for words in found)


def test_words_about_a_single_question_or_order_are_no_wish() -> None:
    texts = (
        "can you tell me when to use affect and effect? i always mix them up",
        "explain stalactites and stalagmites, always mix them up",
        "wie war das mit seit und seid? immer verwechsel ich die",
        "¿cuál es la diferencia entre por y para? siempre los confundo",
        "oat milk vs soy milk, which has more protein?",
    )
    assert [list_found(text, judge_locally) for text in texts] == [[]] * len(texts)


def test_the_steps_of_a_recipe_are_no_wish_but_orders_to_the_assistant_are() -> None:
    recipes = (
        "1 cup flour, 2 eggs, pinch of salt. mix well. always preheat the oven. bake 20 min",
        "200 g Mehl, 3 Eier. gut verrühren. immer den Ofen vorheizen. 40 Minuten backen",
    )
    assert [list_found(text, judge_locally) for text in recipes] == [[]] * len(recipes)
    wishes = "Answer in German. Keep it short. Always cite sources."
    assert len(list_found(wishes, judge_locally)) == 3


def test_a_fragment_belongs_to_the_statement_before_it() -> None:
    texts = (
        "guess who passed her driving test. first time, 3 minors",
        "we sold the van. 4,000, cash",
        "had enough of Jonas - i broke up",
        "i broke up, he cried, i didn't",
    )
    assert [[words for words, _ in list_found(text, judge_locally)] for text in texts] == [[text] for text in texts]


def test_a_sentence_without_an_end_is_read_by_its_clauses() -> None:
    text = (
        "so i moved to Leeds in march, and " + "we saw a lot of rain and it was fine, and " * 15 + "i work as a nurse"
    )
    kept = [words for words, _ in list_found(text, judge_locally)]
    assert any(words.startswith("i moved to Leeds") for words in kept)
    assert "i work as a nurse" in kept
