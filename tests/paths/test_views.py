"""Store and its views: many scopes in one process, each behind its wall."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder

from engrain import AsyncStore, InvalidInput, Memory, Scope, Store, StoreClosed

VIEWS = 10_000
THREADS = 50


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as opened:
        yield opened


def thread_ids() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def open_files(folder: Path) -> list[str]:
    """The files of this store that are open. Counting all descriptors would also count those of earlier tests."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, such as that of the listing
            found.append(os.readlink(entry))
    return sorted(file for file in found if file.startswith(str(folder)))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="threads and descriptors are counted in /proc")
def test_ten_thousand_views_cost_no_thread_and_no_descriptor(store: Store, tmp_path: Path) -> None:
    store.memory(user="first").remember("One.")
    threads, files = thread_ids(), open_files(tmp_path)
    assert files
    began = time.thread_time()
    views = [store.memory(user=f"user-{n}") for n in range(VIEWS)]
    each = (time.thread_time() - began) / VIEWS
    # Threads of earlier tests, such as one that extended a lease, may end meanwhile.
    assert (thread_ids() - threads, open_files(tmp_path)) == (set(), files)
    assert each < 0.0005, "a view is made without any input or output"
    for view in views[::1000]:
        view.remember("It works.")
    assert len(store.memories()) == 11
    assert (thread_ids() - threads, open_files(tmp_path)) == (set(), files)


def test_fifty_threads_write_to_fifty_views(store: Store) -> None:
    def write(number: int) -> list[str]:
        memory = store.memory(user=f"user-{number}")
        return [memory.remember(f"Note {n} of {number}.") for n in range(4)]

    with ThreadPoolExecutor(THREADS) as pool:
        ids = list(pool.map(write, range(THREADS)))
    assert [one.items for one in store.memories()] == [4] * THREADS
    assert all(store.memory(user=f"user-{n}").get(id) for n, some in enumerate(ids) for id in some)


def test_a_view_sees_its_own_scope_alone(store: Store) -> None:
    ana, eve = store.memory(user="ana"), store.memory(user="eve", tenant="acme")
    ana.remember("The code is 4711.")
    assert (eve.list(), list(eve.recall("What is the code?"))) == ([], [])
    assert ana.scope == Scope(user="ana")


def test_a_view_has_none_of_the_operators_verbs(store: Store) -> None:
    view = store.memory(user="ana", tenant="acme")
    store.memory(user="ben", tenant="other").remember("A secret.")
    for verb in ("memories", "backup", "status", "maintain", "doctor", "copy", "hold", "audit", "rebuild", "undo"):
        assert not hasattr(view, verb), verb
    with pytest.raises(InvalidInput, match="the Store that made it"):
        _ = view.store


def test_a_view_has_nothing_to_close(store: Store) -> None:
    view = store.memory(user="ana")
    with view:
        view.remember("Ana likes tea.")
    view.close()
    assert len(view.list()) == 1


def test_a_view_of_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "agent.db", embedder=HashEmbedder())
    view = store.memory(user="ana")
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        view.remember("Too late.")


def test_a_memory_owns_the_store_that_it_opened(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as memory:
        memory.remember("Ana likes tea.")
        other = memory.store.memory(user="ben", reads=[memory.scope])
        assert [hit.item.text for hit in other.recall("Who likes tea?")] == ["Ana likes tea."]
    with pytest.raises(StoreClosed):
        other.list()


def test_the_workers_of_a_store_are_the_same_however_many_views_it_has(store: Store) -> None:
    for n in range(20):
        store.memory(user=f"user-{n}").add_message("user", "I prefer tea.")
    names = [one.name for one in threading.enumerate() if one.name.startswith("engrain")]
    assert len(names) == len(set(names))


# Sessions


def test_several_sessions_are_open_at_once(store: Store) -> None:
    memory = store.memory(user="ana")
    monday, other = memory.session("monday"), memory.session()
    monday.add_message("user", "The wedding is in Lisbon.")
    other.add_message("user", "The cat is called Miso.")
    monday.add_messages([{"role": "assistant", "content": "How nice!"}])
    assert [one.text for one in monday.messages()] == ["The wedding is in Lisbon.", "How nice!"]
    assert [one.text for one in other.messages()] == ["The cat is called Miso."]
    assert memory.current_session is None, "none of them is the default"
    end = monday.end()
    assert end.summary is not None
    assert "Lisbon" in str(memory.session("tuesday").start)
    assert {one.session for one in memory.sessions.list()} == {"monday", other.id}
    assert [one.text for one in memory.sessions.messages(other.id)] == ["The cat is called Miso."]


def test_a_default_session_belongs_to_one_view(store: Store) -> None:
    one, two = store.memory(user="ana"), store.memory(user="ana")
    one.start_session("monday")
    one.add_message("user", "Hello from one.")
    two.add_message("user", "Hello from two.")
    assert one.current_session == "monday"
    assert two.current_session not in (None, "monday")
    assert [message.text for message in one.conversation.last(9)] == ["Hello from one."]
    assert two.end_session() is not None
    assert one.current_session == "monday"


def test_work_in_progress_belongs_to_one_view(store: Store) -> None:
    one, two = store.memory(user="ana"), store.memory(user="ana")
    one.working.start("Ship it")
    assert (one.working.task, two.working.task) == ("Ship it", "")


# What is remembered for a time


@pytest.mark.parametrize("ttl", [3600, timedelta(hours=1)])
def test_what_has_expired_is_not_found(tmp_path: Path, ttl: float | timedelta) -> None:
    clock = SetClock()
    with Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder(), clock=clock, background=False) as memory:
        short = memory.remember("The code of today is 4711.", ttl=ttl)
        late = memory.remember("The door is green.", expires_at=clock() + timedelta(hours=3))
        assert memory.get(short).expires_at == clock() + timedelta(hours=1)  # type: ignore[union-attr]
        clock.advance(2 * 3600)
        assert [item.id for item in memory.list()] == [late]
        assert "4711" not in str(memory.recall("What is the code of today?", min_relevance=0))
        with pytest.raises(InvalidInput, match="not both"):
            memory.remember("Both.", ttl=1, expires_at=clock())


def test_an_answer_is_iterable_and_plain(store: Store) -> None:
    memory = store.memory(user="ana")
    id = memory.remember("Ana likes tea.", metadata={"a": [1]})
    found = memory.recall("Who likes tea?")
    assert (len(found), [hit.item.id for hit in found]) == (1, [id])
    told = found.to_dict()
    assert told["hits"][0]["item"] == found.hits[0].item.to_dict()
    assert told["hits"][0]["item"]["recorded_at"].startswith("20")
    assert set(told) == {"hits", "tokens", "omitted", "context", "degraded", "confidence"}


def test_an_update_changes_what_is_given_and_nothing_else(store: Store) -> None:
    memory = store.memory(user="ana")
    id = memory.remember("Ana likes tea.", importance=0.4)
    memory.update(id, pinned=True)
    memory.update(id, metadata={"by": "hand"})
    memory.update(id, expires_at="2999-01-01T00:00:00Z")
    item = memory.get(id)
    assert item is not None
    assert (item.importance, item.pinned, item.metadata) == (0.4, True, {"by": "hand"})
    assert item.expires_at is not None
    assert item.expires_at.year == 2999
    memory.update(id, expires_at="2001-01-01T00:00:00Z")
    assert memory.list() == []
    with pytest.raises(InvalidInput, match="at least one"):
        memory.update(id)


async def _awaited(path: Path) -> None:
    async with AsyncStore(path, embedder=HashEmbedder()) as store:
        ana, ben = store.memory(user="ana"), store.memory(user="ben")
        await ana.remember("Ana likes tea.")
        session = ben.session("monday")
        await session.add_message("user", "Hello.")
        assert [one.text for one in await session.messages()] == ["Hello."]
        assert (await session.start()).session == "monday"
        assert [(one.user, one.items) for one in await store.memories()] == [("ana", 1), ("ben", 1)]
        assert await ben.slots.get("user.city") is None
        with pytest.raises(InvalidInput):
            _ = ana.store


def test_the_awaited_store_has_views_too(tmp_path: Path) -> None:
    import asyncio

    asyncio.run(_awaited(tmp_path / "agent.db"))
