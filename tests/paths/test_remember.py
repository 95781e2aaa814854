"""What remember, correct, slots and relations promise."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from pydantic import BaseModel

from engrain import Citation, Conflict, DiskFull, InvalidInput, Memory, Note, NotFound, SessionPosition, Source
from engrain.core.model.plans import Applied, Plan
from engrain.core.model.queries import EmbedKind

DAY = timedelta(days=1)


def test_a_text_is_kept_word_for_word(memory: Memory) -> None:
    text = "  Ana said: “tabs,\tnever spaces” \n — naïve? 東京 🙂 "
    assert memory.get(memory.remember(text)).text == text


class Word(str, Enum):  # noqa: UP042
    """A str whose `str()` is another text, as programs give it for a name. Messages of LangChain have other ones."""

    ROLE = "user"
    SLOT = "user.tea"
    NAME = "Ana"
    TEXT = "Ana likes tea."


def test_a_subclass_of_str_is_kept_as_its_text(memory: Memory) -> None:
    memory.remember(Word.TEXT, slot=Word.SLOT)
    position = SessionPosition(Word.NAME, speaker=Word.NAME, role=Word.ROLE)
    memory.remember_many([Note(Word.TEXT, source=Source(Word.NAME, "document"), position=position)])
    said = memory.add_message(Word.ROLE, Word.TEXT, speaker=Word.NAME, session=Word.NAME)
    assert memory.slots.get("user.tea").text == memory.get(said.id).text == "Ana likes tea."
    assert [(item.speaker, item.role) for item in memory.list({"session": "Ana"})] == [("Ana", "user")] * 2


def test_a_repeat_returns_the_same_id_and_keeps_the_higher_importance(memory: Memory) -> None:
    first = memory.remember("The build runs on Fridays.", importance=0.4)
    again = memory.remember("The build runs on Fridays.", importance=0.9, source="handbook.md")
    item = memory.get(first)
    assert again == first
    assert item.importance == 0.9
    assert item.source == "handbook.md"
    assert len(memory.list()) == 1


def test_the_same_words_on_two_dates_are_two_items(memory: Memory) -> None:
    for day in (1, 2):
        memory.remember("Ran 5 km.", occurred_at=datetime(2026, 3, day, tzinfo=UTC))
    assert len(memory.list()) == 2


def test_a_request_id_is_applied_once(memory: Memory) -> None:
    first = memory.remember("Order 42 was shipped.", request_id="r-1")
    assert memory.remember("Order 42 was shipped.", request_id="r-1") == first
    others = (
        lambda: memory.remember("Refunded.", request_id="r-1"),
        lambda: memory.correct(first, "x", request_id="r-1"),
    )
    for other in others:
        with pytest.raises(Conflict):
            other()
    assert [item.text for item in memory.list()] == ["Order 42 was shipped."]


def test_a_slot_holds_one_value_and_its_history(memory: Memory, clock: SetClock) -> None:
    for city in ("Lima", "Quito", "Lima"):
        memory.remember(city, slot="user.city")
        clock.advance(DAY.total_seconds())
    start = clock() - 3 * DAY
    assert memory.slots.get("user.city").text == "Lima"
    assert len(memory.list({"slot": "user.city"}, history=True)) == 3
    assert [memory.slots.get("user.city", as_of=start + n * DAY).text for n in range(3)] == ["Lima", "Quito", "Lima"]
    assert memory.slots.get("user.city", as_of=start - DAY) is None


def test_a_late_import_goes_behind_and_closes_nothing(memory: Memory, clock: SetClock) -> None:
    now = clock()
    memory.remember("Quito", slot="user.city", occurred_at=now - DAY)
    memory.remember("Lima", slot="user.city", occurred_at=now - 3 * DAY)
    assert memory.slots.get("user.city").text == "Quito"
    assert memory.slots.get("user.city", as_of=now - 2 * DAY).text == "Lima"


def test_a_correction_was_always_so(memory: Memory, clock: SetClock) -> None:
    memory.remember("Born in Lima", slot="user.birthplace", importance=0.8)
    clock.advance(DAY.total_seconds())
    wrong = memory.slots.get("user.birthplace")
    right = memory.correct(wrong.id, "Born in Cusco")
    assert memory.slots.get("user.birthplace", as_of=clock() - DAY).text == "Born in Cusco"
    assert memory.get(right).importance == 0.8
    assert "Lima" not in str(memory.recall("Where was the user born?", as_of=clock() - DAY, min_relevance=0))
    with pytest.raises(NotFound):
        memory.correct(wrong.id, "Born in Arequipa")


def test_eight_writers_leave_one_open_value(memory: Memory) -> None:
    def write(name: int) -> None:
        for n in range(10):
            memory.remember(f"value {name}-{n}", slot="user.mood")

    threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = memory.list({"slot": "user.mood"}, history=True, limit=1000)
    assert len(history) == 80
    assert sum(item.open for item in history) == 1
    assert len(memory.slots.list("user.")) == 1


def test_turns_take_consecutive_places(memory: Memory) -> None:
    for text in ("Hello.", "Hello.", "Bye."):
        memory.remember(text, position=SessionPosition("monday", speaker="Ana", role="user"))
    turns = memory.list({"session": "monday"})
    assert sorted((turn.place, turn.text) for turn in turns) == [(0, "Hello."), (1, "Hello."), (2, "Bye.")]
    assert {turn.kind for turn in turns} == {"message"}


def test_a_taken_place_is_a_repeat_or_a_conflict(memory: Memory) -> None:
    first = memory.remember("Hello.", position=SessionPosition("monday", 7))
    assert memory.remember("Hello.", position=SessionPosition("monday", 7)) == first
    with pytest.raises(Conflict):
        memory.remember("Goodbye.", position=SessionPosition("monday", 7))


def test_relations_are_found_by_either_side(memory: Memory) -> None:
    memory.relations.add("Ana", "works at", "Acme")
    memory.relations.add("Bruno", "works at", "Acme")
    assert [item.text for item in memory.relations.about("ana")] == ["Ana works at Acme"]
    assert {item.relation.subject for item in memory.relations.about("Acme")} == {"Ana", "Bruno"}


def test_many_notes_are_checked_before_the_first_is_written(memory: Memory) -> None:
    seen: list[tuple[str, int, int | None]] = []
    notes = ["one fact", {"text": "two", "slot": "a.b"}, Note("three")]
    outcomes = memory.remember_many(notes, progress=lambda *told: seen.append(told))
    assert [outcome.status for outcome in outcomes] == ["added", "added", "added"]
    assert seen[-1] == ("notes", 3, 3)
    with pytest.raises(ValueError, match="importance"):
        memory.remember_many(["four", Note("five", importance=7)])
    assert len(memory.list()) == 3


def test_a_bulk_call_that_was_cut_off_can_be_repeated(memory: Memory) -> None:
    notes = [Note(f"turn {n}", position=SessionPosition("s", n)) for n in range(600)]
    memory.remember_many(notes[:256], request_id="import-1")
    memory.remember_many(notes, request_id="import-1")
    assert len(memory.list(limit=1000)) == 600


def test_a_repeated_request_is_answered_before_anything_is_embedded(tmp_path: Path) -> None:
    class Counting(HashEmbedder):
        texts = 0

        def embed(self, texts: Sequence[str], kind: EmbedKind) -> npt.NDArray[np.float32]:
            self.texts += len(texts)
            return super().embed(texts, kind)

    embedder, notes = Counting(), [Note(f"turn {n}", position=SessionPosition("s", n)) for n in range(300)]
    lines = "\n".join(f"Fact {n} of a list." for n in range(20)).encode()
    words = [("user", "I live in Lima and am allergic to nuts."), ("assistant", "Noted."), ("user", "I have a dog.")]
    said = [{"role": role, "content": text} for role, text in words]
    with Memory(tmp_path / "m.db", embedder=embedder, background=False) as memory:
        wrong = memory.remember("Order 41 was shipped.")

        def write_all() -> list[object]:
            return [
                memory.remember("Order 42 was shipped.", request_id="one"),
                memory.remember_many(notes, request_id="many"),
                memory.correct(wrong, "Order 43 was shipped.", request_id="correct"),
                memory.add_message("user", "I moved to Quito.", session="a", request_id="message"),
                memory.add_messages(said, session="b", request_id="messages"),
                memory.load(io.BytesIO(lines), format="text").read,
            ]

        first, embedded = write_all(), embedder.texts
        assert embedded > 300
        again = write_all()
        assert embedder.texts == embedded
        assert again == first
        with pytest.raises(Conflict):
            memory.add_message("user", "I moved to Lima.", session="a", request_id="message")
        with pytest.raises(Conflict):
            memory.remember_many(notes[1:], request_id="many")


def test_why_tells_source_trust_and_versions(memory: Memory) -> None:
    page = memory.remember("The API limit is 100 calls.", source=Source("https://example.org/limits", "web"))
    fact = memory.remember(
        "Limit: 100 calls", slot="api.limit", source=Source(None, "agent", (Citation(page, 17, 26),))
    )
    memory.remember("Limit: 200 calls", slot="api.limit")
    why = memory.explain(fact)
    assert [cited.id for cited in why.cites] == [page]
    assert why.item.trust == 0.3
    assert len(why.versions) == 2
    for part in ("https://example.org/limits", "trust 0.3"):
        assert part in str(memory.explain(page))
    assert "rests on" in str(why)
    assert "gave rise to" in str(memory.explain(page))


def test_importance_and_pin_change_in_place(memory: Memory) -> None:
    item = memory.remember("The office closes at six.")
    memory.update(item, importance=0.9)
    memory.update(item, pinned=True)
    changed = memory.get(item)
    assert (changed.importance, changed.pinned) == (0.9, True)
    memory.update(item, pinned=False)
    assert not memory.get(item).pinned
    with pytest.raises(NotFound):
        memory.update("0" * 26, pinned=True)


@pytest.mark.meaning
def test_a_use_is_counted(memory: Memory) -> None:
    item = memory.remember("Ana prefers Python over JavaScript.")
    for _ in range(3):
        memory.recall("Which language does Ana prefer?")
    assert memory.get(item).access_count == 3
    assert memory.get(item).last_accessed is not None


def test_as_of_a_date_is_its_end(memory: Memory, clock: SetClock) -> None:
    memory.remember("Lima", slot="user.city")
    today = clock().date()
    assert memory.slots.get("user.city", as_of=today).text == "Lima"
    assert memory.slots.get("user.city", as_of=today.isoformat()).text == "Lima"
    assert memory.slots.get("user.city", as_of=today - DAY) is None


def test_a_corrected_item_says_what_stands_in_its_place(memory: Memory) -> None:
    old = memory.remember("The limit is 100.", source="page.html")
    new = memory.correct(old, "The limit is 200.", source="call with support")
    for act in (lambda: memory.correct(old, "300"), lambda: memory.update(old, pinned=True)):
        with pytest.raises(NotFound, match=new):
            act()
    assert memory.get(new).source == "call with support"
    assert [one.id for one in memory.explain(new).versions] == [old]
    assert "The limit is 100." in str(memory.explain(new))


def test_status_counts_this_memory(memory: Memory) -> None:
    memory.remember_many(["one", "two"])
    assert memory.store.status(memory.scope).items == 2


def test_a_turn_from_a_clock_that_runs_ahead_is_found_at_once(memory: Memory, clock: SetClock) -> None:
    item = memory.remember("The parcel is in Lisbon.", occurred_at=clock() + timedelta(hours=1))
    assert [hit.item.id for hit in memory.recall("Where is the parcel?").hits] == [item]
    assert memory.get(item).occurred_at == clock() + timedelta(hours=1)


def test_a_batch_that_fails_stops_the_ones_after_it(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory()
    plain, calls = memory.store.services.items.apply, []

    def failing(plan: Plan) -> Applied:
        calls.append(plan)
        if len(calls) == 2:
            raise DiskFull("no space")
        return plain(plan)

    notes = [Note(f"turn {n}", position=SessionPosition("s")) for n in range(700)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory.store.services.items, "apply", failing)
        with pytest.raises(DiskFull):
            memory.remember_many(notes, request_id="import")
    memory.remember_many(notes, request_id="import")
    turns = sorted(memory.list(limit=1000), key=lambda turn: turn.place)
    assert [turn.text for turn in turns] == [note.text for note in notes]


def test_a_relation_is_not_corrected_into_a_mere_text(memory: Memory) -> None:
    item = memory.relations.add("Ana", "works at", "Acme")
    with pytest.raises(InvalidInput, match="is a relation"):
        memory.correct(item, "Ana works at Zenith")
    assert [one.id for one in memory.relations.about("Ana")] == [item]


def test_a_corrected_turn_is_still_found_by_who_said_it(memory: Memory) -> None:
    old = memory.remember("The parcel is in Lisbon.", position=SessionPosition("monday", speaker="Greta", role="user"))
    new = memory.correct(old, "It is in Porto.")
    turn = memory.get(new)
    assert (turn.session, turn.place, turn.speaker, turn.kind) == ("monday", 0, "Greta", "message")
    assert [hit.item.id for hit in memory.recall("Greta", min_relevance=0).hits] == [new]


def test_a_value_that_was_replaced_is_marked_even_if_the_clock_runs_back(memory: Memory, clock: SetClock) -> None:
    said = memory.remember("I live in Lima these days.", position=SessionPosition("monday", role="user"))
    lives = Source(None, "agent", (Citation(said, 0, 14),))
    memory.remember("Lives in Lima", slot="user.city", source=lives)
    clock.advance(60)
    memory.remember("Lives in Quito", slot="user.city")
    clock.advance(-3600)
    shown = str(memory.recall("Where do I live these days?", n=10, min_relevance=0))
    assert "these days" in shown
    assert 'now "Lives in Quito"' in shown


class Text(BaseModel):
    type: str = "text"
    text: str


class Reply(BaseModel):
    role: str = "assistant"
    content: list[Text]
    usage: dict[str, int] | None = None


def test_objects_of_a_chat_service_are_kept_like_their_dicts(memory: Memory) -> None:
    hello = Text(text="Hello, Ana.")
    memory.add_messages([Reply(content=[hello]), {"role": "assistant", "content": [hello]}], session="s")
    assert [item.text for item in memory.list({"session": "s", "kind": "message"})] == ["Hello, Ana."] * 2
