"""A write that was under way when its user was erased does not come in afterwards, by whatever verb."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from agent_kit import Scripted, says
from engrain_conformance.embedder import HashEmbedder
from erasing_kit import WORD, erase_from, found, opened
from redis_server import redis_server
from schemas import empty_store

from engrain import AgentWithMemory, AsyncMemory, Memory
from engrain.core.errors import BeingErased, LeaseLost, ModelFailed
from engrain.core.model.messages import ChatReply, ChatRequest
from engrain.core.model.queries import EmbedKind
from engrain.core.model.sessions import Episode
from engrain.stores.redis.episodes import RedisEpisodes

LATE = f"I live in {WORD} since May."
PATIENCE = 60.0


class Far(HashEmbedder):
    """Over a network that has a text of ours until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_it, self.go_on = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> npt.NDArray[np.float32]:
        if any(WORD in text for text in texts):
            self.has_it.set()
            assert self.go_on.wait(PATIENCE)
        return super().embed(texts, kind)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "agent.db"


@pytest.fixture
def far() -> Far:
    return Far()


def erase(store: Path) -> None:
    """By another store on the same file."""
    with opened(store, background=False) as other:
        assert other.store.erase(user="ana").receipt


def erase_elsewhere(store: Path) -> None:
    """As another process does."""
    code = (
        "import sys; from erasing_kit import opened; m = opened(sys.argv[1]); assert m.store.erase(user='ana').receipt"
    )
    command = [sys.executable, "-c", code, str(store)]
    subprocess.run(command, check=True, cwd=Path(__file__).parent, timeout=PATIENCE)


def nothing_left(store: Path) -> None:
    with opened(store, user="ben", background=False) as memory:
        assert [one for one in memory.store.memories() if one.user == "ana"] == []
    assert found(store.parent) == {}


@contextmanager
def under_way(far: Far, act: Callable[[], Any]) -> Iterator[Any]:
    """While the embedder has its text; the call is awaited at the end."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(act)
        try:
            assert far.has_it.wait(PATIENCE)
            yield call
        finally:
            far.go_on.set()


def chats(folder: Path) -> Path:
    said = [{"uuid": "1", "sender": "human", "text": LATE, "created_at": "2025-01-01T00:00:00Z", "content": []}]
    file = folder / "conversations.json"
    file.write_text(json.dumps([{"uuid": "u1", "name": "Home", "chat_messages": said}]))
    return file


def notes(folder: Path) -> Path:
    file = folder / "notes.jsonl"
    file.write_text("".join(json.dumps({"text": f"{LATE} {n}"}) + "\n" for n in range(600)))
    return file


WAYS: dict[str, Callable[[Memory, Path], Any]] = {
    "remember": lambda memory, _: memory.remember(LATE),
    "remember a slot": lambda memory, _: memory.remember(LATE, slot="user.city"),
    "many": lambda memory, _: memory.remember_many([f"{LATE} {n}" for n in range(600)]),
    "relate": lambda memory, _: memory.relations.add("Ana", "lives in", WORD),
    "a message": lambda memory, _: memory.add_message("user", LATE, session="monday"),
    "a tool's answer": lambda memory, _: memory.episodic.record_tool_call("read", {}, LATE, session="monday"),
    "a decision": lambda memory, _: memory.episodic.record_decision(LATE, session="monday"),
    "an error": lambda memory, _: memory.episodic.record_error(LATE, session="monday"),
    "a procedure": lambda memory, _: memory.procedural.learn("move", [LATE]),
    "notes": lambda memory, folder: memory.load(notes(folder)),
    "chats": lambda memory, folder: memory.load(chats(folder)),
    "chats with facts": lambda memory, folder: memory.load(chats(folder), facts=True),
    "a step of a task": lambda memory, _: step(memory),
    "a line of a file": lambda memory, folder: sync(memory, folder / "files"),
    "a round of care": lambda memory, _: promote(memory),
}


# A task is gone with its lease, and care tells of what it could not do.
_OTHERWISE: dict[str, type] = {"a step of a task": LeaseLost, "a round of care": type(None)}


def step(memory: Memory) -> None:
    with memory.task("move") as run:
        run.remember_step("note", LATE)


def sync(memory: Memory, folder: Path) -> None:
    folder.mkdir()
    (folder / "MEMORY.md").write_text(f"# Memory\n\n- {LATE}\n")
    memory.mirror(folder).sync()


def promote(memory: Memory) -> None:
    """An important entry that came with an end."""
    now = memory.store.services.clock()
    entry = Episode("e1", "monday", "decision", LATE, 0.9, now, now + timedelta(days=1))
    episodes = memory.store.services.episodes
    assert episodes is not None
    episodes.add(memory.scope, entry)
    memory.store.maintain(memory.scope)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("back", [False, True])
def test_what_an_embedder_still_had_does_not_come_in(
    store: Path, tmp_path: Path, far: Far, way: str, back: bool
) -> None:
    with opened(store, embedder=far, background=False) as memory:
        memory.remember("Ana likes tea.")
        with under_way(far, lambda: WAYS[way](memory, tmp_path)) as call:
            with opened(store, user="ben", background=False) as other:
                assert other.store.erase(user="ana").receipt
            if back:
                memory.remember("Ana is back.")
        refused = _OTHERWISE.get(way, BeingErased)
        assert isinstance(call.exception(), refused), call.exception()
        assert [item.text for item in memory.list()] == ["Ana is back."] * back
        assert memory.episodic.recent(10) == []
        memory.remember("Now it is hers again.")
        memory.store.erase(user="ana")
    nothing_left(store)


def test_it_is_refused_after_an_erasure_by_another_process(store: Path, far: Far) -> None:
    with opened(store, embedder=far, background=False) as memory:
        memory.remember("Ana likes tea.")
        with under_way(far, lambda: memory.remember(LATE)) as call:
            erase_elsewhere(store)
        assert isinstance(call.exception(), BeingErased)
    nothing_left(store)


def test_it_is_refused_by_the_asynchronous_face_too(store: Path, far: Far) -> None:
    async def scene() -> None:
        async with AsyncMemory(store, user="ana", embedder=far, background=False) as memory:
            await memory.remember("Ana likes tea.")
            late = asyncio.create_task(memory.remember(LATE))
            assert await asyncio.to_thread(far.has_it.wait, PATIENCE)
            assert (await memory.store.erase(user="ana")).receipt
            far.go_on.set()
            with pytest.raises(BeingErased):
                await late

    asyncio.run(scene())
    nothing_left(store)


@pytest.mark.parametrize("part", [{"session": "monday"}, {"source": "https://bad.example"}])
def test_so_it_is_with_a_session_and_a_source(store: Path, far: Far, part: dict[str, str]) -> None:
    with opened(store, embedder=far, background=False) as memory:
        memory.add_message("user", "Hello.", session="monday")
        memory.remember("Tea is green.", source="https://bad.example")
        late = (
            (lambda: memory.add_message("user", LATE, session="monday"))
            if "session" in part
            else (lambda: memory.remember(LATE, source="https://bad.example"))
        )
        with under_way(far, late) as call:
            assert erase_from(memory, **part).receipt  # type: ignore[arg-type]
        assert isinstance(call.exception(), BeingErased)
        assert not [item for item in memory.list() if WORD in item.text]
    assert found(store.parent) == {}


@pytest.mark.parametrize("line", [f"You live in {WORD}.", says("", ("look_up", {"what": WORD}))])
def test_the_turn_of_an_agent_ends_with_its_user(store: Path, line: str | ChatReply) -> None:
    def meanwhile(_: ChatRequest) -> str | ChatReply:
        erase(store)
        return line

    def look_up(what: str) -> str:
        """Look it up."""
        return f"{what} is far away."

    with opened(store, background=False) as memory:
        memory.remember("Ana likes tea.")
        with pytest.raises(BeingErased):
            AgentWithMemory(memory, Scripted(meanwhile), [look_up]).run(LATE)
        assert memory.list() == []
        assert memory.working.task == ""
    nothing_left(store)


def test_a_model_that_fails_tells_nothing_of_who_was_erased_meanwhile(store: Path) -> None:
    def meanwhile(_: ChatRequest) -> str | ChatReply:
        erase(store)
        raise ModelFailed(f"the model knows nothing of {WORD}")

    with opened(store, background=False) as memory, pytest.raises(ModelFailed):
        AgentWithMemory(memory, Scripted(meanwhile)).run(LATE)
    nothing_left(store)


def test_others_write_on_while_somebody_is_erased(store: Path, far: Far) -> None:
    with opened(store, user="ben", embedder=far, background=False) as memory:
        memory.remember("Ben likes tea.")
        with opened(store, background=False) as ana:
            ana.remember("Ana likes tea.")
        with under_way(far, lambda: memory.remember(LATE)) as call:
            erase(store)
        assert call.result() in {item.id for item in memory.list()}


def test_vectors_that_come_late_bring_no_name_back(store: Path, far: Far) -> None:
    with opened(store, background=False) as memory:
        memory.remember(LATE)
    with opened(store, user="ben", embedder=Renamed(far), background=False) as memory:
        with under_way(far, lambda: memory.store.maintain(memory.scope, reembed=True)) as call:
            erase(store)
        call.result()
    nothing_left(store)


class Renamed(Far):
    """The same as another model."""

    def __init__(self, far: Far) -> None:
        HashEmbedder.__init__(self, "another")
        self.has_it, self.go_on = far.has_it, far.go_on


def beside(folder: Path, store: Path, **stores: str) -> Path:
    server = redis_server()
    server.client.flushall()
    file = folder / "agent.toml"
    lines = [f'{name} = "{server.url}/{number}"' for name, number in stores.items()]
    file.write_text("\n".join(["[stores]", f'default = "{store}"', *lines]))
    return file


def words_in_redis() -> list[str]:
    """The keys that have the word in them or in their values."""
    client = redis_server().client
    return [key for key in client.keys("*") if WORD.encode() in client.dump(key) or WORD in key]


def test_what_a_process_still_has_in_hand_goes_to_no_redis_after_its_user(tmp_path: Path, store: Path) -> None:
    file = beside(tmp_path, store, sessions="0")
    with opened(file, background=False) as memory, opened(file, user="ben", background=False) as ben:
        memory.remember("Ana likes tea.")
        memory.start_session("monday")
        memory.working.start(f"Find {WORD}.")
        memory.working.add_thought(f"It may be in {WORD}.")
        assert ben.store.erase(user="ana").receipt
        memory.working.add_thought("Where was I?")
        memory.working.add_thought("Ana is back.")
        assert WORD not in json.dumps(memory.working.snapshot())
        assert memory.store.services.state is not None
        assert WORD not in (memory.store.services.state.load(memory.scope, "monday") or "")


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("session", [None, "monday", "tuesday"])
def test_who_comes_back_after_an_erasure_keeps_the_new_task(
    tmp_path: Path, store: Path, elsewhere: bool, session: str | None
) -> None:
    file = beside(tmp_path, store, sessions="0")
    with opened(file, background=False) as memory, opened(file, user="ben", background=False) as ben:
        memory.remember("Ana likes tea.")
        memory.start_session("monday")
        memory.working.start(f"Find {WORD}.")
        memory.working.add(f"It may be in {WORD}.")
        assert (ben if elsewhere else memory).store.erase(user="ana").receipt
        if session:
            memory.start_session(session)
        memory.working.start("Book a flight.")
        memory.working.step("By day.", "search", "found")
        assert (memory.working.task, memory.working.results) == ("Book a flight.", {"search": "found"})
        assert WORD not in json.dumps(memory.working.snapshot())
        assert words_in_redis() == []
        with opened(file, background=False) as another:
            another.start_session(session or "monday")
            assert another.working.task == "Book a flight."


def test_what_is_said_first_after_an_erasure_stays_at_hand(tmp_path: Path, store: Path) -> None:
    file = beside(tmp_path, store, sessions="0")
    with opened(file, background=False) as memory, opened(file, user="ben", background=False) as ben:
        memory.remember("Ana likes tea.")
        memory.start_session("monday")
        memory.working.add_thought(f"It may be in {WORD}.")
        left = memory.working.snapshot()
        assert ben.store.erase(user="ana").receipt
        memory.working.load(left)
        assert memory.working.scratchpad == (), "a snapshot of before goes too"
        assert ben.store.erase(user="ana").receipt
        memory.working.add_thought("Ana is back.")
        assert memory.working.scratchpad == ("Ana is back.",)
        assert words_in_redis() == []


def test_an_entry_that_came_to_redis_too_late_is_taken_back(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = beside(tmp_path, store, episodic="0")
    with opened(file, background=False) as memory, opened(file, user="ben", background=False) as ben:
        memory.remember("Ana likes tea.")
        add = RedisEpisodes.add

        def hangs(*args: Any) -> Any:
            assert ben.store.erase(user="ana").receipt
            return add(*args)

        monkeypatch.setattr(RedisEpisodes, "add", hangs)
        with pytest.raises(BeingErased):
            memory.episodic.record_decision(LATE, session="monday")
        monkeypatch.undo()
        assert memory.episodic.recent(9) == []
        assert words_in_redis() == []


@pytest.mark.parametrize("way", ["remember", "many", "a message"])
def test_it_is_refused_on_postgres_too(tmp_path: Path, far: Far, way: str) -> None:
    with (
        empty_store() as url,
        opened(url, embedder=far, background=False) as memory,
        opened(url, user="ben", background=False) as ben,
    ):
        memory.remember("Ana likes tea.")
        with under_way(far, lambda: WAYS[way](memory, tmp_path)) as call:
            assert ben.store.erase(user="ana").receipt
            memory.remember("Ana is back.")
        assert isinstance(call.exception(), BeingErased), call.exception()
        assert [item.text for item in memory.list()] == ["Ana is back."]
