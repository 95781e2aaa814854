"""Forgetting reaches everything that a text left behind, and it does not come back."""

from __future__ import annotations

import pytest

from engrain import Citation, Memory, Note, NotFound, SessionPosition, Source, StoreBusy
from engrain.core.model.items import FORGOTTEN


def extracted(memory: Memory) -> tuple[str, str, str]:
    turn = memory.remember(
        "By the way, my badge number is 4711, and I like tea.", position=SessionPosition("monday", role="user")
    )
    start = "By the way, my badge number is 4711, and I like tea.".index("my badge")
    span = Citation(turn, start, start + len("my badge number is 4711"))
    fact = memory.remember("Badge number: 4711", slot="user.badge", source=Source(None, "agent", (span,)))
    child = memory.remember("The user has a badge.", source=Source(None, "agent", (Citation(fact),)))
    return turn, fact, child


def test_forget_takes_what_was_derived_and_the_cited_span(memory: Memory) -> None:
    turn, fact, child = extracted(memory)
    forgotten = memory.forget(fact)
    assert set(forgotten.ids) == {fact, child}
    assert forgotten.marked == (turn,)
    assert memory.get(turn).text == f"By the way, {FORGOTTEN}, and I like tea."
    assert "4711" not in str(memory.recall("What is the badge number 4711?", min_relevance=0))
    assert memory.recall("Does the user like tea?", min_relevance=0).hits[0].item.id == turn


def test_forget_by_source_takes_what_else_rests_on_its_words(memory: Memory) -> None:
    text = "By the way, my badge number is 4711, and I like tea."
    turn = memory.remember(text, position=SessionPosition("monday", role="user"))
    badge, tea = (
        Citation(turn, text.index(part), text.index(part) + len(part)) for part in ("my badge number", "I like")
    )
    rest = Citation(turn, badge.start, len(text))
    kept = memory.remember("Likes something.", source=Source("good", "agent", (tea,)))
    bad = [memory.remember(f"Claim {n}.", source=Source("bad", "agent", (badge,))) for n in range(3)]
    also = [memory.remember("4711, tea.", source=Source(None, "agent", (rest,)))]
    also.append(memory.remember("A badge and tea.", source=Source("good", "agent", (Citation(turn),))))
    assert memory.forget({"source": "nobody"}).ids == ()
    forgotten = memory.forget({"source": "bad"})
    assert set(forgotten.ids) == {*bad, *also}
    assert forgotten.marked == (turn,)
    assert {item.id for item in memory.list(history=True)} == {turn, kept}


def test_keep_source_leaves_the_log(memory: Memory) -> None:
    turn, fact, child = extracted(memory)
    beside = memory.remember("All of it.", source=Source(None, "agent", (Citation(turn),)))
    forgotten = memory.forget(fact, keep_source=True)
    assert (set(forgotten.ids), forgotten.marked) == ({fact, child}, ())
    assert "4711" in memory.get(turn).text
    assert memory.get(beside) is not None


def test_a_derived_note_cannot_bring_it_back_but_a_person_can(memory: Memory) -> None:
    _, fact, _ = extracted(memory)
    memory.forget(fact)
    for text in ("Badge number: 4711", "my badge number is 4711"):
        outcome = memory.remember_many([Note(text, derived=True)])[0]
        assert (outcome.id, outcome.status) == (None, "kept_out")
    assert memory.slots.get("user.badge") is None
    again = memory.remember("Badge number: 4711", slot="user.badge")
    assert memory.slots.get("user.badge").id == again != fact


def test_a_repeated_request_does_not_bring_it_back(memory: Memory) -> None:
    item = memory.remember("The password is swordfish.", request_id="r1")
    memory.forget(item)
    assert memory.remember("The password is swordfish.", request_id="r1") == item
    assert memory.list(history=True) == []


def test_forget_by_filter_takes_all_that_match(memory: Memory) -> None:
    memory.remember_many([Note(f"claim {n}", source="bad-page") for n in range(1200)])
    kept = memory.remember("A good fact.", source="good-page")
    assert len(memory.forget({"source": "bad-page"}).ids) == 1200
    assert [item.id for item in memory.list(history=True)] == [kept]
    assert not memory.forget({"source": "bad-page"})


def test_old_versions_can_be_forgotten(memory: Memory) -> None:
    old = memory.remember("Lima", slot="user.city")
    memory.remember("Quito", slot="user.city")
    memory.forget(old)
    assert [item.text for item in memory.list({"slot": "user.city"}, history=True)] == ["Quito"]


def test_what_was_corrected_is_forgotten_with_it(memory: Memory) -> None:
    old = memory.remember("The door code is 1111.")
    new = memory.correct(old, "The door code is 2222.")
    assert set(memory.forget(new).ids) == {old, new}
    assert memory.list(history=True) == []


def test_a_purge_that_cannot_run_is_pending_and_no_error(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy() -> bool:
        raise StoreBusy("another process holds the store")

    item = memory.remember("A secret.")
    monkeypatch.setattr(memory.store.services.items, "purge", busy)
    forgotten = memory.forget(item)
    assert forgotten.pending
    assert memory.get(item) is None


def test_a_repeated_forget_with_a_request_id_answers_as_the_first(memory: Memory) -> None:
    item = memory.remember("A secret.")
    first = memory.forget(item, request_id="f-1")
    assert memory.forget(item, request_id="f-1").ids == first.ids == (item,)
    with pytest.raises(NotFound):
        memory.forget(item)
