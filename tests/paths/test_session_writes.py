"""What happens in a session is written once, together with all that follows from it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from episodic_kit import ANA, opened
from examples import REFERENCE, up_to
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain import Memory
from engrain.core.chat.parse import parse_messages
from engrain.core.errors import Conflict, EmbedderFailed, EmptyText, StoreUnavailable
from engrain.core.model.erasure import find_owner
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import FORGOTTEN, TRUST, Citation, Draft, ForgetRequest, Item, Source, Statement
from engrain.core.model.messages import Message, ToolCall, item_to_message
from engrain.core.model.plans import Add, Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.model.recall import Hit, Recall
from engrain.ingest import gate, write, write_messages
from engrain.ingest.extraction import extract_facts
from engrain.ingest.tool_output import MAX_SHOWN_CHARACTERS
from engrain.ingest.write_messages import RecordOptions, RecordResult, record_messages
from engrain.ports import Services


@pytest.fixture(params=["sqlite", REFERENCE, "apart"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Iterator[Services]:
    made = opened(request.param, tmp_path, clock)
    yield made
    made.items.close()


Say = Callable[..., RecordResult]


@pytest.fixture
def say(kit: Services, clock: SetClock) -> Say:
    """Add one message of the user to a session, a second after the last."""

    def said(text: str, role: str = "user", session: str = "monday", **values: Any) -> RecordResult:
        clock.advance()
        return record_messages(parse_messages([Message(role, text)]), session, ANA, kit, RecordOptions(**values))

    return said


def items(kit: Services, kind: str = "fact", **values: Any) -> list[Item]:
    return kit.items.page(ListQuery(ANA, parse_filter({"kind": kind}), **values))


def texts(kit: Services, kind: str = "fact") -> list[str]:
    return [item.text for item in items(kit, kind)]


def log(kit: Services, session: str = "monday") -> list[str]:
    return [item.text for item in kit.log.read(ANA, session, 0, 1_000)]


def everything(kit: Services) -> str:
    """Every word that the store still has, in items of any kind and in summaries."""
    kept = kit.items.page(ListQuery(ANA, history=True, limit=10_000))
    summaries = [kit.log.summary(ANA, session) for session in kit.log.sessions(ANA, 100)]
    return repr(kept) + repr(summaries)


def gated(monkeypatch: pytest.MonkeyPatch, *rules: tuple[str, Statement | ForgetRequest]) -> None:
    """A gate that finds these and nothing else: by the words of the message."""

    def found(
        text: str, before: Sequence[tuple[str, str]] = (), judge: object = None, whose: object = None
    ) -> list[Statement | ForgetRequest]:
        return [one for words, one in rules if words in text]

    monkeypatch.setattr(gate, "find_statements", found)


def test_messages_take_the_next_places_in_order(kit: Services, say: Say) -> None:
    assert say("One.").places == (0,)
    several = record_messages(
        parse_messages([Message("assistant", "Two."), Message("user", "Three.")]), "monday", ANA, kit
    )
    assert several.places == (1, 2)
    assert log(kit) == ["One.", "Two.", "Three."]
    assert [item.id for item in kit.log.read(ANA, "monday", 1, 2)] == list(several.ids)


def test_a_fact_is_the_users_words_and_cites_them(kit: Services, say: Say) -> None:
    text = "Hello! I live in Lima. What is the weather?"
    recorded = say(text)
    (fact,) = items(kit)
    assert fact.text == "I live in Lima"
    assert fact.slot == "user.city"
    assert fact.id in recorded.facts
    assert fact.metadata == {"by": "gate"}
    start = text.index("I live")
    assert fact.sources[0].cites == (Citation(recorded.ids[0], start, start + len(fact.text)),)
    assert fact.trust == 1.0


def test_a_secret_becomes_nothing_that_lasts_and_stands_in_the_log_alone(kit: Services, say: Say) -> None:
    said = say("Remember that my password is hunter2. I live in Lima.")
    assert said.facts
    assert texts(kit) == ["I live in Lima"]
    assert texts(kit, "episode") == []
    assert log(kit) == ["Remember that my password is hunter2. I live in Lima."]


def test_nobody_but_the_user_is_taken_at_his_word(kit: Services, say: Say) -> None:
    say("I live in Lima.")
    for role in ("assistant", "system", "tool"):
        say("I live in Quito. Remember that I live in Quito. My name is Bo.", role)
        say("Forget my city. Forget that I live in Lima.", role)
    assert texts(kit) == ["I live in Lima"]
    assert FORGOTTEN not in "".join(log(kit))


def test_an_answer_after_a_tools_result_cites_it_and_is_trusted_no_further(kit: Services, say: Say) -> None:
    say("Where is the shop?")
    (before,) = kit.items.get_many(ANA, say("Let me look.", "assistant").ids)
    assert before.trust == TRUST["agent"]
    result = say("The shop has moved to Minsk.", "tool").ids[0]
    (row,) = kit.items.get_many(ANA, say("I decided to trust the page: the shop is in Minsk.", "assistant").ids)
    assert row.trust == TRUST["tool"]
    assert row.sources[0].cites == (Citation(result, 0, 0),)
    say("Thanks!")
    (later,) = kit.items.get_many(ANA, say("You're welcome.", "assistant").ids)
    assert later.trust == TRUST["agent"]


def test_an_answer_in_one_call_with_its_result_cites_it(kit: Services) -> None:
    told = [Message("user", "Where?"), Message("tool", "In Minsk."), Message("assistant", "In Minsk.")]
    _, result, answer = record_messages(parse_messages(told), "monday", ANA, kit).ids
    (row,) = kit.items.get_many(ANA, [answer])
    assert row.sources[0].cites == (Citation(result, 0, 0),)
    kit.items.apply(Plan(ANA, (Forget(result),)))
    assert "Minsk" not in "".join(log(kit))


def test_a_message_may_forget_a_value_and_give_another(kit: Services, say: Say) -> None:
    say("I live in Lima.")
    say("Forget that I live in Lima.\n\nI live in Cusco.")
    assert texts(kit) == ["I live in Cusco"]
    (row,) = [text for text in log(kit) if "Cusco" in text]
    (cite,) = items(kit)[0].sources[0].cites
    assert row[cite.start : cite.end] == "I live in Cusco"
    assert "Lima" not in everything(kit)


def test_a_newer_value_of_a_slot_closes_the_older_one(kit: Services, say: Say, clock: SetClock) -> None:
    say("I live in Lima.")
    before = clock()
    say("I live in Quito now.")
    assert texts(kit) == ["I live in Quito now"]
    assert [item.text for item in items(kit, at=before)] == ["I live in Lima"]


def test_somebody_of_another_name_fills_no_slot(kit: Services, say: Say) -> None:
    say("My name is Ana.")
    say("I'm Dave. I live in Lima. I work at Bosch.")
    assert [item.slot for item in items(kit) if item.slot] == ["user.name"]
    assert {item.text: item.trust < 1 for item in items(kit)} == {
        "My name is Ana": False,
        "I'm Dave": True,
        "I live in Lima": True,
        "I work at Bosch": True,
    }


@pytest.mark.parametrize(
    "text", ["My name is Bea.", "My name is Bea now. I live in Lima.", "Ana was wrong. My name is Bea."]
)
def test_a_user_may_take_another_name(kit: Services, say: Say, text: str) -> None:
    say("My name is Ana.")
    say(text)
    named = kit.items.slot(ANA, "user.name", None)
    assert named is not None
    assert "Bea" in named.text


def test_what_was_said_long_ago_does_not_overtake_what_was_said_since(kit: Services, say: Say, clock: SetClock) -> None:
    say("I live in Quito.")
    told = Message("user", "I live in Lima.", occurred_at="2019-03-01")
    record_messages(parse_messages([told]), "import", ANA, kit)
    assert texts(kit) == ["I live in Quito"]
    assert [item.text for item in items(kit, at=clock().replace(year=2020))] == ["I live in Lima"]


def test_a_statement_without_a_slot_can_take_the_place_of_one(
    kit: Services, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated(
        monkeypatch,
        ("prefer coffee", Statement(0, 15)),
        ("prefer milk", Statement(0, 13)),
        ("prefer tea", Statement(0, 31, replaces="coffee")),
    )
    say("I prefer coffee.")
    say("I prefer milk.")
    say("I prefer tea instead of coffee.")
    assert sorted(texts(kit)) == ["I prefer milk", "I prefer tea instead of coffee."]


def test_nothing_is_replaced_if_it_may_be_another(kit: Services, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    gated(
        monkeypatch,
        ("prefer coffee", Statement(0, 20)),
        ("prefer tea", Statement(0, 31, replaces="coffee")),
    )
    say("I prefer coffee at 8.")
    say("I prefer coffee at 9.")
    say("I prefer tea instead of coffee.")
    assert len(texts(kit)) == 3


# Rule 13, through messages alone


def test_said_changed_forgotten_and_said_again_by_replay_it_stays_gone(kit: Services, clock: SetClock) -> None:
    said = ["My name is Teo.", "I live in Lima.", "I live in Quito now.", "Forget my city.", "What is my name?"]

    def run() -> None:
        for number, text in enumerate(said):
            clock.advance()
            record_messages(
                parse_messages([Message("user", text)]), "monday", ANA, kit, RecordOptions(f"line {number}")
            )

    run()
    assert texts(kit) == ["My name is Teo"]
    run()
    record_messages(parse_messages([Message("user", text) for text in said[:3]]), "tuesday", ANA, kit)
    rows = kit.log.read(ANA, "monday", 0, 10)
    assert texts(kit) == ["My name is Teo"]
    assert [row.text for row in rows] == [
        "My name is Teo.", f"{FORGOTTEN}.", f"{FORGOTTEN}.", f"Forget {FORGOTTEN}.", "What is my name?",
    ]  # fmt: skip


@pytest.mark.parametrize("words", ["I live in Quito now.", "I moved to Quito."])
def test_forgetting_leaves_the_words_nowhere(kit: Services, say: Say, words: str) -> None:
    say("I live in Lima.")
    say("Noted: you live somewhere.", "assistant")
    told = say(words)
    recorded = say("Please forget that I live in Quito.")
    assert set(recorded.forgotten) == set(told.facts)
    assert set(recorded.marked) == {told.ids[0], recorded.ids[0]}
    assert "Quito" not in everything(kit)
    assert "Lima" in everything(kit), "what was not meant stays"
    assert texts(kit) == [], "and is not brought back"


def test_forgetting_by_a_message_takes_what_else_rests_on_the_words(kit: Services, say: Say, clock: SetClock) -> None:
    assert kit.episodes is not None
    other = say("Hello, I am allergic to nuts.")
    told = say("Hi! I live in Quito. I like tea.")
    row = told.ids[0]
    over = [Draft("Somebody in Quito.", "episode", source=Source(cites=(Citation(row),)), derived=True)]
    over.append(
        Draft(
            "Quito, they said.", "summary", source=Source(cites=(Citation(row), Citation(other.ids[0]))), derived=True
        )
    )
    made = kit.items.apply(Plan(ANA, tuple(map(Add, over)))).outcomes
    recorded = say("Please forget that I live in Quito.")
    city = next(id for id in told.facts if id in recorded.forgotten)
    assert set(recorded.forgotten) == {city, *(one.id for one in made)}
    assert set(recorded.marked) == {row, recorded.ids[0]}
    assert "Quito" not in everything(kit)
    assert set(texts(kit)) == {"I am allergic to nuts", "I like tea"}
    assert row not in {one.item for one in kit.episodes.recent(ANA, None, 10, clock())}


def test_forgetting_by_a_message_reaches_the_summaries_of_sessions(memory: Memory, clock: SetClock) -> None:
    memory.start_session("one")
    memory.add_message("user", "Hi! I live in Lima. Can you help me with flights?")
    memory.start_session("two")
    assert "Lima" in str(memory.recall("Where does the user live?"))
    clock.advance()
    memory.add_message("user", "By the way, I live in Quito now.")
    memory.start_session("three")
    memory.add_message("user", "Please forget my city.")
    memory.start_session("four")
    left = str(memory.recall("Where does the user live? Lima or Quito?", n=20, min_relevance=0))
    assert "Can you help me with flights?" in left
    assert "Lima" not in left
    assert "Quito" not in left
    assert not [item for item in memory.list(history=True, limit=1_000) if "Lima" in item.text or "Quito" in item.text]


def test_a_slot_is_forgotten_with_all_that_it_ever_held(kit: Services, say: Say) -> None:
    say("I live in Lima.")
    say("I live in Quito now.")
    say("Forget my city.")
    assert texts(kit) == []
    assert "Lima" not in everything(kit)
    assert "Quito" not in everything(kit)


def test_a_statement_without_a_slot_is_forgotten_by_its_words(kit: Services, say: Say) -> None:
    told = say("Well, I am allergic to nuts.")
    assert texts(kit) == ["I am allergic to nuts"]
    recorded = say("Please forget that I am allergic to nuts.")
    assert recorded.forgotten == told.facts
    assert recorded.facts == ()
    assert "nuts" not in everything(kit)


@pytest.mark.parametrize("unsaid", ["Forget that I live in Lima.", "Forget that I am allergic to nuts."])
def test_a_legal_hold_keeps_what_is_said_and_forgets_nothing(
    kit: Services, say: Say, unsaid: str, caplog: pytest.LogCaptureFixture
) -> None:
    say("I live in Lima.")
    kit.items.erasing.hold(find_owner(ANA), "case-7")  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, "engrain"):
        recorded = say(f"My name is Teo. {unsaid}", request_id="a")
    assert log(kit) == ["I live in Lima.", f"My name is Teo. {unsaid}"]
    assert sorted(texts(kit)) == ["I live in Lima", "My name is Teo"]
    assert (recorded.forgotten, recorded.marked) == ((), ())
    assert "legal hold" in (recorded.refused or "")
    assert "legal hold" in caplog.text
    assert say(f"My name is Teo. {unsaid}", request_id="a").ids == recorded.ids


@pytest.mark.parametrize("unsaid", ["Forget that I live in Lima.", "Please forget my city."])
@pytest.mark.parametrize("together", [True, False])
def test_what_is_said_and_taken_back_in_one_write_is_not_kept(kit: Services, unsaid: str, together: bool) -> None:
    said = ["My name is Teo. I live in Lima.", unsaid]
    lines = [" ".join(said)] if together else said
    record_messages(parse_messages([Message("user", text) for text in lines]), "monday", ANA, kit)
    assert texts(kit) == ["My name is Teo"]
    assert "Lima" not in everything(kit)


def test_the_end_of_what_was_said_in_the_same_write_is_seen(kit: Services) -> None:
    said = ["I live in Lima.", "My name is Ana.", "I don't live in Lima any more.", "My name isn't Tom."]
    record_messages(parse_messages([Message("user", text) for text in said]), "monday", ANA, kit)
    held = {item.slot: item.text for item in items(kit) if item.slot}
    assert held == {"user.city": "I don't live in Lima any more", "user.name": "My name is Ana"}


def test_words_that_nobody_had_taken_in_yet_are_kept_out_from_now_on(
    kit: Services, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated(monkeypatch, ("Forget that", ForgetRequest(12, 33)), ("Well, I am", Statement(6, 27)))
    recorded = say("Forget that I am allergic to nuts.")
    assert recorded.facts == recorded.forgotten == ()
    assert log(kit) == [f"Forget that {FORGOTTEN}."]
    assert texts(kit) == []
    earlier = Message("user", "Well, I am allergic to nuts.", occurred_at="2025-12-01")
    assert record_messages(parse_messages([earlier]), "monday", ANA, kit).facts == ()
    assert texts(kit) == []


def test_words_that_are_to_be_forgotten_are_never_in_the_log_alone(
    kit: Services, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, plans = kit.items.apply, []

    def once(plan: Plan) -> Any:
        plans.append(plan)
        if len(plans) > 1:
            raise StoreUnavailable("the process ends here.")
        return apply(plan)

    monkeypatch.setattr(kit.items, "apply", once)
    recorded = say("Forget that I am allergic to nuts.", request_id="a")
    assert log(kit) == [f"Forget that {FORGOTTEN}."]
    assert recorded.marked == recorded.ids
    assert recorded.facts == recorded.forgotten == ()
    monkeypatch.undo()
    assert say("Forget that I am allergic to nuts.", request_id="a").repeated


@pytest.mark.parametrize("words", ["I live in Lima.", "Remember that I live in Lima.", "I am allergic to nuts."])
def test_what_is_said_again_now_is_kept_and_what_was_said_before_is_not(kit: Services, say: Say, words: str) -> None:
    kept = say(words).facts
    say(f"Forget that {words.removeprefix('Remember that ')}")
    assert texts(kit) == []
    before = "2025-12-01T12:00:00Z"
    answer = Message("assistant", "I see.")
    for old in (
        [Message("user", words, occurred_at=before)],
        [Message("user", "Hello."), answer, Message("user", words), answer],
        [{"role": "user", "content": words}, {"role": "user", "content": words}],
    ):
        record_messages(parse_messages(old), "brought along", ANA, kit)
        assert texts(kit) == [], "a transcript is not said now"
    again = say(words)
    assert len(again.facts) == 1
    assert again.facts != kept
    assert words.removeprefix("Remember that ") == texts(kit)[0] + "."


@given(st.lists(st.sampled_from(["say", "forget", "replay", "extract"]), min_size=1, max_size=8))
@settings(max_examples=up_to(30), deadline=None)
def test_only_the_users_own_word_of_now_undoes_a_forgetting(acts: list[str]) -> None:
    """After any course of events the fact is there if, and only if, the user said it since it was last forgotten, or
    it was never forgotten and came in by whatever way."""
    clock = SetClock()
    kit = opened("reference", Path(), clock)
    there = forgotten = False
    for act in acts:
        clock.advance()
        if act == "say":
            record_messages(parse_messages([Message("user", "I live in Lima.")]), "monday", ANA, kit)
            there = True
        elif act == "forget":
            record_messages(parse_messages([Message("user", "Forget that I live in Lima.")]), "monday", ANA, kit)
            there, forgotten = False, True
        elif act == "replay":
            told = Message("user", "I live in Lima.", occurred_at="2025-12-01")
            record_messages(parse_messages([told]), "monday", ANA, kit)
            there = there or not forgotten
        else:
            rows = [row for row in kit.log.read(ANA, "monday", 0, 100) if "I live in Lima" in row.text]
            quotes = [{"message": n, "quote": "I live in Lima"} for n in range(1, len(rows) + 1)]
            found = extract_facts(json.dumps(quotes), rows, lambda text: [(0, len(text))])
            write.commit_notes(found.notes, ANA, kit)
            there = there or (bool(rows) and not forgotten)
        assert ("I live in Lima" in texts(kit)) is there, act


@pytest.mark.parametrize("wrapped", ["{}", "You told me:\n{}\nIs that so?", "> {}", "    {}", "Is {} right?"])
def test_text_that_came_from_recall_is_never_taken_in(kit: Services, say: Say, wrapped: str) -> None:
    say("I live in Lima. Remember that my dog is called Rex.")
    found = items(kit)
    assert len(found) == 2
    hits = [Hit(item, item.text, (0, len(item.text)), 1.0, 1.0) for item in found]
    block = str(Recall(tuple(hits)))
    for item in found:
        kit.items.apply(Plan(ANA, (Forget(item.id),)))
    quoted = "\n".join(wrapped.format(line) if "\n" not in wrapped else line for line in block.splitlines())
    recorded = say(wrapped.format(quoted) if "\n" in wrapped else quoted)
    assert recorded.facts == ()
    assert recorded.forgotten == ()
    assert texts(kit) == []
    assert say(f"{block}\n\nMy name is Teo.").facts != ()
    assert texts(kit) == ["My name is Teo"]


def test_whatever_the_gate_finds_it_is_not_shown_what_recall_gave(
    kit: Services, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(
        text: str, before: Sequence[tuple[str, str]] = (), judge: object = None, whose: object = None
    ) -> list[Statement | ForgetRequest]:
        return [Statement(*found.span()) for found in re.finditer(r"I live in \w+", text)]

    monkeypatch.setattr(gate, "find_statements", greedy)
    recalled = '- user.city: "I live in Lima" (2026-11-15, said by the user)'
    padding = "x " * write_messages.MAX_GATE_CHARACTERS
    say(f"{recalled}\n{padding}I live in Oslo{padding}\n> {recalled} I live in Quito.")
    assert texts(kit) == ["I live in Quito"]
    (fact,) = items(kit)
    cite = fact.sources[0].cites[0]
    assert log(kit)[0][cite.start : cite.end] == "I live in Quito"


# Requests and positions


def test_a_repeated_request_changes_nothing(kit: Services, say: Say) -> None:
    first = say("I live in Lima.", request_id="a")
    forgotten = say("Forget my city.", request_id="b")
    say("Remember that I live in Quito.", request_id="c")
    before = (log(kit), texts(kit), kit.items.status().items)
    again = [say("I live in Lima.", request_id="a"), say("Forget my city.", request_id="b")]
    assert [one.repeated for one in again] == [True, True]
    assert [(one.ids, one.places) for one in again] == [(one.ids, one.places) for one in (first, forgotten)]
    assert again[1].forgotten == forgotten.forgotten
    assert (log(kit), texts(kit), kit.items.status().items) == before
    assert texts(kit) == ["I live in Quito"]


def test_a_repeated_request_counts_no_episode_twice(kit: Services, say: Say, clock: SetClock) -> None:
    assert kit.episodes is not None
    for _ in range(2):
        say("Hello.", request_id="a")
    (one,) = kit.episodes.recent(ANA, "monday", 10, clock())
    assert one.count == 1


def test_a_request_id_that_was_used_for_other_words_is_refused(kit: Services, say: Say) -> None:
    say("I live in Lima.", request_id="a")
    say("Forget my city.", request_id="b")
    for request in ("a", "b"):
        with pytest.raises(Conflict):
            say("Something else.", request_id=request)
    assert len(log(kit)) == 2


def test_with_expect_the_session_must_be_as_long(kit: Services, say: Say) -> None:
    say("One.", expect=0)
    with pytest.raises(Conflict):
        say("Two.", expect=0)
    with pytest.raises(Conflict):
        say("Two.", expect=0, request_id="two")
    assert say("Two.", expect=1, request_id="two").places == (1,)
    assert say("Two.", expect=1, request_id="two").repeated
    assert log(kit) == ["One.", "Two."]


def test_a_bad_message_among_good_ones_writes_nothing(kit: Services) -> None:
    with pytest.raises(EmptyText):
        record_messages(parse_messages([Message("user", "I live in Lima."), Message("user", " ")]), "monday", ANA, kit)
    assert log(kit) == texts(kit) == []


def test_an_embedder_that_fails_loses_nothing(kit: Services, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(HashEmbedder):
        def embed(self, texts: Sequence[str], kind: Any) -> Any:
            raise EmbedderFailed("no answer")

    broken = replace(kit, embedder=Broken())
    with caplog.at_level(logging.CRITICAL):
        record_messages(parse_messages([Message("user", "I live in Lima.")]), "monday", ANA, broken)
        record_messages(parse_messages([Message("user", "Forget my city.")]), "monday", ANA, broken)
    assert log(kit) == [f"{FORGOTTEN}.", f"Forget {FORGOTTEN}."]


# Episodes


def test_every_turn_and_tool_call_is_an_episode_over_its_row(kit: Services, clock: SetClock) -> None:
    assert kit.episodes is not None
    call = ToolCall("c1", "search", {"q": "flights"})
    happened = [
        Message("system", "Be brief."),
        Message("user", "To Quito."),
        Message("assistant", calls=(call,)),
        Message("tool", "No route.", answers="c1", failed=True),
    ]
    recorded = record_messages(parse_messages(happened), "monday", ANA, kit)
    found = {one.item: one for one in kit.episodes.recent(ANA, "monday", 10, clock())}
    assert set(found) == set(recorded.ids[1:])
    failed = found[recorded.ids[3]]
    assert (failed.kind, failed.text, failed.id) == ("tool", "", recorded.ids[3])
    assert failed.importance > found[recorded.ids[1]].importance


def test_a_decision_lasts_as_an_item_that_cites_its_row(kit: Services) -> None:
    decision = Message("assistant", "We use Postgres for the log.", event="decision")
    recorded = record_messages(parse_messages([decision]), "monday", ANA, kit)
    (item,) = items(kit, "episode")
    assert (item.text, item.id) == (decision.text, recorded.facts[0])
    assert item.sources[0].cites == (Citation(recorded.ids[0]),)


def test_forgetting_one_of_two_rows_of_a_lasting_episode_leaves_the_other(kit: Services) -> None:
    decision = Message("assistant", "We use Postgres for the log.", event="decision")
    first, second = record_messages(parse_messages([decision, decision]), "monday", ANA, kit).ids
    (item,) = items(kit, "episode")
    assert {cite.item for source in item.sources for cite in source.cites} == {first, second}
    kit.items.apply(Plan(ANA, (Forget(first),)))
    assert items(kit, "episode") == []
    assert log(kit) == [decision.text]


def test_what_happened_long_ago_makes_no_episode(kit: Services, clock: SetClock) -> None:
    assert kit.episodes is not None
    record_messages(parse_messages([Message("user", "Hello.", occurred_at="2019-03-01")]), "monday", ANA, kit)
    assert kit.episodes.recent(ANA, None, 10, clock()) == []


def test_a_long_output_is_shown_as_its_insight_and_kept_raw(kit: Services, clock: SetClock) -> None:
    assert kit.episodes is not None
    output = "\n".join(f"line {n}: all is well" for n in range(5_000)) + "\nERROR: disk full"
    call = ToolCall("c1", "build", {})
    happened = [Message("assistant", calls=(call,)), Message("tool", output, answers="c1", tool="build")]
    recorded = record_messages(parse_messages(happened), "monday", ANA, kit)
    shown = item_to_message(kit.log.read(ANA, "monday", 1, 1)[0])
    assert len(shown.text) <= MAX_SHOWN_CHARACTERS
    assert "disk full" in shown.text
    assert (shown.answers, shown.tool) == ("c1", "build")
    assert kit.episodes.raw(ANA, recorded.ids[1], clock()) == output


def test_an_output_that_no_store_can_keep_is_mended_and_kept(kit: Services) -> None:
    record_messages(parse_messages([Message("tool", "a\x00b\ud800", answers="x")]), "monday", ANA, kit)
    (text,) = log(kit)
    assert text.encode()
    assert text.startswith("a\ufffdb")


def test_without_a_store_for_episodes_all_else_is_written(kit: Services) -> None:
    bare = replace(kit, episodes=None)
    record_messages(parse_messages([Message("user", "I live in Lima.")]), "monday", ANA, bare)
    assert texts(kit) == ["I live in Lima"]


@pytest.mark.parametrize(
    ("told", "now"),
    [("I like tea.", "I no longer like tea."), ("I live in Lima.", "Forget that I live in Lima.")],
)
def test_what_is_said_is_kept_though_another_process_forgets_what_it_speaks_of_meanwhile(
    kit: Services, say: Say, monkeypatch: pytest.MonkeyPatch, told: str, now: str
) -> None:
    say(told)
    (fact,) = items(kit)
    apply = kit.items.apply

    def late(plan: Plan) -> Any:
        monkeypatch.undo()
        apply(Plan(ANA, (Forget(fact.id),)))
        return apply(plan)

    monkeypatch.setattr(kit.items, "apply", late)
    say(now)
    assert len(kit.log.read(ANA, "monday", 0, 10)) == 2
    assert told not in texts(kit)


@pytest.mark.parametrize(
    ("told", "taken_back"),
    [
        ("Remember that the gizmo is in Rack 4.", "Forget that the gizmo is in Rack 4."),
        ("Remember that the gizmo is in Rack 4.", "please forget the Gizmo is in rack 4!"),
        ("I live in Lima.", "Forget I live in Lima."),
        ("I live in Lima.", "Forget where I live."),
        ("My favourite colour is teal.", "Forget my favourite colour."),
        ("Remember that I'm vegan and my wife is coeliac.", "Forget that I'm vegan and my wife is coeliac."),
    ],
)
def test_what_was_to_be_remembered_can_be_taken_back(kit: Services, say: Say, told: str, taken_back: str) -> None:
    say("I love jazz.")
    say(told)
    assert len(texts(kit)) > 1
    say(taken_back)
    assert texts(kit) == ["I love jazz"]


@pytest.mark.parametrize(
    ("told", "ended"),
    [
        ("I live in Lima.", "I don't live in Lima any more"),
        ("I'm vegetarian.", "I'm not vegetarian any more"),
        ("I work at Acme.", "I quit my job at Acme"),
        ("I work at Acme.", "I quit my job"),
        ("I work as a barista.", "I quit my job"),
        ("I'm a nurse.", "I'm not a nurse any more"),
        ("I work as a nurse.", "I don't work as a nurse any more"),
        ("My name is Tom.", "My name isn't Tom"),
        ("I'm Tom.", "I'm not Tom"),
        ("My wife's name is Maria.", "My wife's name isn't Maria"),
        ("My girlfriend is Maria.", "I broke up with Maria"),
        ("Ich wohne in Köln.", "Ich wohne nicht mehr in Köln"),
        ("Je suis infirmière.", "Je ne suis plus infirmière"),
        ("Me llamo Tom.", "No me llamo Tom"),
        ("I like tea.", "I no longer like tea"),
    ],
)
def test_what_has_ended_does_not_stand(kit: Services, say: Say, told: str, ended: str) -> None:
    say(told)
    say(ended)
    assert texts(kit) == [ended]


def test_the_end_of_one_value_leaves_another_standing(kit: Services, say: Say) -> None:
    say("I live in Quito.")
    say("I don't live in Lima any more.")
    assert "I live in Quito" in texts(kit)
    say("My name is Ana.")
    say("My name isn't Tom.")
    say("I'm an architect.")
    say("I'm not a nurse any more.")
    held = {item.slot: item.text for item in items(kit) if item.slot}
    assert held == {"user.city": "I live in Quito", "user.name": "My name is Ana", "user.job": "I'm an architect"}


def test_a_denial_of_what_nobody_said_fills_no_slot(kit: Services, say: Say) -> None:
    say("My name isn't Tom.")
    say("I'm not a nurse any more.")
    assert {item.slot for item in items(kit)} == {None}


# Several speakers


def spoke(kit: Services, clock: SetClock, speaker: str, text: str) -> RecordResult:
    clock.advance()
    return record_messages(parse_messages([Message("user", text, speaker)]), "monday", ANA, kit)


def test_another_speaker_leaves_the_users_slots_alone(kit: Services, clock: SetClock) -> None:
    spoke(kit, clock, "Ana", "I live in Lima. I like tea.")
    spoke(kit, clock, "Bob Smith", "I live in Quito. I like tea.")
    spoke(kit, clock, "Bob Smith", "I no longer like tea.")
    held = {item.slot: item.text for item in items(kit) if item.slot}
    assert held == {"user.city": "I live in Lima", "bob_smith.city": "I live in Quito"}
    assert "I like tea" in texts(kit), "it was Bob who changed his mind"
    theirs = [item for item in items(kit) if item.source == "Bob Smith"]
    assert {item.text for item in theirs} >= {"I live in Quito", "I no longer like tea"}
    assert all(item.metadata["speaker"] == "Bob Smith" for item in theirs)


def test_another_speaker_makes_nobody_forget_what_the_user_said(kit: Services, clock: SetClock) -> None:
    spoke(kit, clock, "Ana", "I live in Lima. I like tea.")
    spoke(kit, clock, "Bob", "I live in Lima. I like tea.")
    spoke(kit, clock, "Bob", "Forget my city.")
    spoke(kit, clock, "Bob", "Forget that I like tea.")
    assert sorted(texts(kit)) == ["I like tea", "I live in Lima"]
    assert {item.source for item in items(kit)} == {None}
    spoke(kit, clock, "ana", "Forget my city.")
    assert texts(kit) == ["I like tea"]


def test_the_user_is_known_by_the_name_that_the_memory_has(kit: Services, clock: SetClock) -> None:
    kit.items.apply(Plan(ANA, (Add(Draft("Anna-Maria Silva", slot="user.name")),)))
    spoke(kit, clock, "Silva", "I live in Lima.")
    assert "user.city" in {item.slot for item in items(kit)}


def test_a_speaker_who_calls_himself_user_takes_no_slot(kit: Services, clock: SetClock) -> None:
    spoke(kit, clock, "Agent", "I live in Lima.")
    spoke(kit, clock, "we", "I live in Quito.")
    assert {item.slot for item in items(kit)} == {None}
