"""What was forgotten is in no file of the store, byte for byte."""

from __future__ import annotations

import random
import struct
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from engrain_conformance.drafts import append_messages
from engrain_conformance.embedder import HashEmbedder
from writing import SCOPE, assert_sound, start_reader

from engrain import Memory
from engrain.core.clock import system_clock
from engrain.core.model.items import Citation, Draft, SessionPosition, Source, Vectors
from engrain.core.model.plans import Add, Change, Correct, Forget, Plan, refer_to_step
from engrain.core.model.procedures import Trial
from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput
from engrain.core.text.passages import index_words
from engrain.stores.sqlite import SqliteStore

CANARY = "The vault code of Ana is 7391-PELICAN-0042."
VECTOR = struct.pack("<8f", *(0.1 + n / 30 for n in range(8)))


def draft(text: str, **more: object) -> Draft:
    return Draft(text, words=index_words(text), vectors=Vectors("small/8/0", (VECTOR,)), **more)  # type: ignore[arg-type]


def found(folder: Path, what: bytes) -> list[str]:
    return [one.name for one in folder.iterdir() if one.name.startswith("store.db") and what in contents(one)]


def contents(file: Path) -> bytes:
    # In another process: to open and close the file in this one would drop the locks that SQLite has on it here.
    return subprocess.run(["cat", file], capture_output=True, check=True).stdout


def test_text_vector_slot_and_metadata_are_gone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    secret = draft(CANARY, slot="slot-PELICAN", metadata={"key-PELICAN": "value-PELICAN"})
    done = store.apply(Plan(SCOPE, (Add(secret), Add(draft("harmless"))), request_id="r-1"))
    assert found(tmp_path, b"PELICAN")
    assert found(tmp_path, VECTOR)
    store.apply(Plan(SCOPE, (Forget(done.outcomes[0].id or ""), Forget(done.outcomes[1].id or "")), request_id="r-2"))
    assert store.status().purge_pending
    _until(store.purge)
    assert not store.status().purge_pending
    assert found(tmp_path, b"PELICAN") == []
    assert found(tmp_path, VECTOR) == []
    assert_sound(store)
    store.close()
    assert found(tmp_path, b"PELICAN") == []


def test_the_cited_span_goes_from_the_log_too(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    text = f"Hello. {CANARY} Bye."
    said = (
        append_messages(store, SCOPE, "monday", [draft(text, kind="message", position=SessionPosition("monday"))], None)
        .outcomes[0]
        .id
        or ""
    )
    cite = Citation(said, text.index(CANARY), text.index(CANARY) + len(CANARY))
    fact = draft("Ana has a vault.", source=Source(kind="agent", cites=(cite,)))
    taken = store.apply(Plan(SCOPE, (Add(fact),))).outcomes[0].id or ""
    changed = store.apply(Plan(SCOPE, (Correct(taken, draft("Ana has a safe.", source=fact.source)),))).outcomes[0].id
    store.apply(Plan(SCOPE, (Forget(changed or ""),)))
    _until(store.purge)
    assert found(tmp_path, b"PELICAN") == []
    assert store.get_many(SCOPE, [said])[0].text == "Hello. [forgotten] Bye."
    store.close()


def test_a_reader_in_another_process_holds_the_bytes_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    kept = store.apply(Plan(SCOPE, (Add(draft(CANARY)),))).outcomes[0].id or ""
    reader = start_reader(path)
    try:
        while not (tmp_path / "holding").exists():
            assert reader.poll() is None
            time.sleep(0.01)
        store.apply(Plan(SCOPE, (Forget(kept),)))
        assert not store.purge()
        assert store.status().purge_pending
        assert found(tmp_path, b"PELICAN")
        # Known to the next one who opens the store, too.
        other = SqliteStore(path)
        assert other.status().purge_pending
        other.close()
        (tmp_path / "stop").touch()
        reader.wait(180)
    finally:
        reader.kill()
        reader.wait()
    store.apply(Plan(SCOPE, (Add(draft("later")),)))
    _until(lambda: not _pending_after_commit(store))
    assert found(tmp_path, b"PELICAN") == []
    store.close()


def _pending_after_commit(store: SqliteStore) -> bool:
    store.apply(Plan(SCOPE, (Add(draft(f"later {time.monotonic()}")),)))
    return store.status().purge_pending


def _until(done) -> None:  # type: ignore[no-untyped-def]
    """A purge may have to be repeated: it gives way to whoever tidies the log at that moment."""
    ends = time.monotonic() + 180
    while not done():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_what_is_pending_goes_when_the_store_is_opened_or_closed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    kept = store.apply(Plan(SCOPE, (Add(draft(CANARY)),))).outcomes[0].id or ""
    store.apply(Plan(SCOPE, (Forget(kept),)))
    other = SqliteStore(path)  # opening purges
    assert not other.status().purge_pending
    assert found(tmp_path, b"PELICAN") == []
    again = other.apply(Plan(SCOPE, (Add(draft(CANARY)),))).outcomes[0].id or ""
    other.apply(Plan(SCOPE, (Forget(again),)))
    other.close()  # and so does closing
    assert not store.status().purge_pending
    assert found(tmp_path, b"PELICAN") == []
    store.close()


def test_rows_that_moved_between_pages_leave_nothing_behind(tmp_path: Path) -> None:
    """secure_delete alone leaves the old bytes of a row that SQLite has moved to another page."""
    chance = random.Random(7)
    store = SqliteStore(tmp_path / "store.db")
    live: dict[str, int] = {}
    gone: list[int] = []
    for step in range(900):
        luck = chance.random()
        if luck < 0.5 or len(live) < 5:
            text = f"CANARY{step:05d}X " + "word " * chance.choice([1, 5, 20, 60, 200, 900])
            live[store.apply(Plan(SCOPE, (Add(draft(text)),))).outcomes[0].id or ""] = step
            continue
        one = chance.choice(list(live))
        if luck < 0.8:
            metadata = {"k": f"CANMETA{live[one]:05d}X" * chance.choice([1, 5, 50])}
            store.apply(Plan(SCOPE, (Change(one, metadata=metadata),)))
        else:
            store.apply(Plan(SCOPE, (Forget(one),)))
            gone.append(live.pop(one))
    _until(store.purge)
    files = b"".join(contents(file) for file in tmp_path.iterdir() if file.name.startswith("store.db"))
    left = [n for n in gone for word in (b"CANARY%05dX" % n, b"CANMETA%05dX" % n) if word in files]
    assert len(gone) > 100
    assert left == []
    assert_sound(store)
    store.close()


NOW = system_clock()


def happened(id: str, item: str | None = None, lives: float = 24, **values: object) -> Episode:
    given = {"session": "s", "kind": "turn", "text": "", "importance": 0.5, **values}
    return Episode(id, happened_at=NOW, expires_at=NOW + timedelta(hours=lives), item=item, **given)  # type: ignore[arg-type]


def long(canary: str, times: int) -> RawOutput:
    return RawOutput(f"{canary} " + "output " * times, NOW + timedelta(days=9))


def test_episodes_raw_texts_and_trials_go_with_their_item(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    over = happened("", refer_to_step(0), data={"key-PELICAN": "PELICAN"}, key="PELICAN", text=CANARY)
    plan = Plan(
        SCOPE,
        (Add(draft("Harmless.")),),
        episodes=(EpisodeDraft(over, long(CANARY, 5_000)), EpisodeDraft(happened("kept"))),
    )
    said = store.apply(plan).outcomes[0].id or ""
    store.outcomes.count(SCOPE, Trial(said, "task-PELICAN", True, NOW, CANARY))
    assert found(tmp_path, b"PELICAN")
    store.apply(Plan(SCOPE, (Forget(said),)))
    _until(store.purge)
    assert found(tmp_path, b"PELICAN") == []
    assert [one.id for one in store.episodes.recent(SCOPE, None, 9, NOW)] == ["kept"]
    assert_sound(store)
    store.close()


def test_what_a_cut_message_showed_as_an_episode_goes_too(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    text = f"Hello. {CANARY}"
    steps = (
        Add(draft(text)),
        Add(draft("Ana has a vault.", source=Source(cites=(Citation(refer_to_step(0), 7, len(text)),)))),
    )
    episodes = (EpisodeDraft(happened("", refer_to_step(0), data={"insight": "PELICAN"}), long(CANARY, 900)),)
    _, made = store.apply(Plan(SCOPE, steps, episodes=episodes)).outcomes
    store.apply(Plan(SCOPE, (Forget(made.id or ""),)))
    _until(store.purge)
    assert found(tmp_path, b"PELICAN") == []
    store.close()


def test_removed_episodes_leave_nothing_in_any_page(tmp_path: Path) -> None:
    """Nor do those that were replaced, joined, trimmed or expired before."""
    chance = random.Random(11)
    store = SqliteStore(tmp_path / "store.db")
    live: set[int] = set()
    for step in range(500):
        canary = f"CANARY{step:05d}X"
        values = {"text": canary, "data": {"k": canary * chance.choice([1, 9, 90])}, "lives": chance.choice([-1, 9])}
        kept = long(canary, chance.choice([1, 90, 2_000])) if step % 2 else None
        store.episodes.add(SCOPE, happened(f"{step:05d}", **values), kept)  # type: ignore[arg-type]
        live.add(step)
        if step % 3 == 0:
            gone = chance.sample(sorted(live), min(2, len(live) - 1))
            store.episodes.remove(SCOPE, [f"{one:05d}" for one in gone])
            live -= set(gone)
    store.episodes.expire(NOW)
    store.episodes.trim(SCOPE, "s", 80)
    assert store.status().purge_pending
    _until(store.purge)
    live = {int(one.id) for one in store.episodes.recent(SCOPE, None, 999, NOW)}
    files = b"".join(contents(file) for file in tmp_path.iterdir() if file.name.startswith("store.db"))
    assert {n for n in range(500) if b"CANARY%05dX" % n in files} == live
    assert len(live) == 80
    assert_sound(store)
    store.close()


CITY = "Pelicanville"
SAID = f"Good morning! I live in {CITY}. Can you help me with the garden?"


def told_everywhere(memory: Memory) -> tuple[str, str]:
    """The city in a message, in its fact, in both summaries of the session, in a lasting episode and in a raw text; the
    ids of the message and of the fact."""
    memory.start_session("one")
    said = memory.add_message("user", SAID).id
    (fact,) = memory.list({"slot": "user.city"})
    lasting = draft(f"Moved to {CITY}.", kind="episode", source=Source(cites=(Citation(said),)), derived=True)
    happening = EpisodeDraft(happened(said, said, session="one"), long(CITY, 3_000))
    memory.store.services.items.apply(Plan(memory.scope, (Add(lasting),), episodes=(happening,)))
    for number in range(20):
        memory.add_message("user", f"Bed {number} gets tulips.")
    memory.conversation.summarize()
    assert CITY in memory.conversation.summary
    memory.end_session()
    kinds = [item.kind for item in memory.list(history=True) if CITY in item.text]
    assert sorted(kinds) == ["episode", "fact", "message", "summary"]
    assert CITY in str(memory.episodic.raw(said))
    return said, fact.id


def by_fact(memory: Memory, said: str, fact: str) -> None:
    assert memory.forget(fact).marked == (said,)


def by_message(memory: Memory, said: str, fact: str) -> None:
    assert fact in memory.forget(said).ids


def by_filter(memory: Memory, said: str, fact: str) -> None:
    assert fact in memory.forget({"slot": "user.city"}).ids


def by_word_of_mouth(memory: Memory, said: str, fact: str) -> None:
    memory.add_message("user", f"Please forget that I live in {CITY}.")


@pytest.mark.parametrize("forget", [by_fact, by_message, by_filter, by_word_of_mouth])
def test_nothing_that_was_made_of_the_words_is_left(tmp_path: Path, forget: Callable[[Memory, str, str], None]) -> None:
    with Memory(tmp_path / "store.db", user="ana", embedder=HashEmbedder(), background=False) as memory:
        said, fact = told_everywhere(memory)
        assert left(tmp_path, CITY) != []
        forget(memory, said, fact)
        assert left(tmp_path, CITY) == []
        memory.start_session("two")
        assert any("tulips" in item.text for item in memory.list({"kind": "summary"})), "made anew of what is left"
        assert CITY not in str(memory.recall(f"Who lives in {CITY}?", n=50, min_relevance=0))
    assert left(tmp_path, CITY) == []
    assert left(tmp_path, "tulips") != []


def left(folder: Path, word: str) -> list[str]:
    """In any case: an index has words in lower case."""
    files = [one for one in folder.iterdir() if one.name.startswith("store.db")]
    return [one.name for one in files if word.lower().encode() in contents(one).lower()]


def test_the_same_words_said_to_somebody_else_stay(tmp_path: Path) -> None:
    with Memory(tmp_path / "store.db", user="ana", embedder=HashEmbedder(), background=False) as memory:
        said, fact = told_everywhere(memory)
        memory.start_session("two")
        echo = memory.add_message("assistant", f"So you live in {CITY}.").id
        memory.forget(fact)
        assert [memory.get(id).text for id in (said, echo)] == [  # type: ignore[union-attr]
            SAID.replace(f"I live in {CITY}", "[forgotten]"), f"So you live in {CITY}.",
        ]  # fmt: skip
        assert left(tmp_path, CITY) != []
        memory.forget(echo)
        assert left(tmp_path, CITY) == []
