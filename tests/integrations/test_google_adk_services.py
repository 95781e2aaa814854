"""EngrainSessionService does what InMemorySessionService does, and EngrainMemoryService remembers sessions."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk.sessions", reason="make test-integrations runs it")

from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from integration_kit import REFUSED, Figures, open_store

from engrain import NotFound, Store
from engrain.integrations.google_adk import EngrainMemoryService, EngrainSessionService

APP = "app"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(request.param, tmp_path) as opened:
        yield opened


def say(author: str, text: str, **delta: Any) -> Event:
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author=author, content=content, actions=EventActions(state_delta=delta))


async def answer(do: Any) -> Any:
    try:
        return await do
    except (AlreadyExistsError, SessionNotFoundError) as exc:
        return type(exc).__name__


def plain(found: Any) -> Any:
    """Without times, which each service takes itself."""
    if hasattr(found, "sessions"):
        return sorted((one.user_id, one.id, str(sorted(one.state.items())), len(one.events)) for one in found.sessions)
    if hasattr(found, "events"):
        return found.user_id, found.id, found.state, found.events
    return found


def random_state(chance: random.Random) -> dict[str, Any]:
    names = chance.sample(["x", "y", "user:u", "user:v", "app:a", "temp:t"], k=chance.randint(0, 3))
    return {name: chance.choice([1, "ü", None, [1, {"k": True}]]) for name in names}


async def random_step(chance: random.Random, services: Any, held: dict[Any, list[Any]]) -> None:
    user, id = chance.choice(["ana", "ben"]), chance.choice(["s", "t"])
    named: dict[str, Any] = {"app_name": APP, "user_id": user}
    acts = {"create": 3, "get": 5, "append": 8, "again": 1, "list": 2, "all": 1, "delete": 1, "state": 2}
    act = chance.choices(list(acts), list(acts.values()))[0]
    state, answers = random_state(chance), list[Any]()
    event = say(chance.choice(["user", "helper"]), f"text {chance.randint(0, 99)}", **state)
    config = chance.choice([None, GetSessionConfig(num_recent_events=chance.randint(0, 3))])
    for n, service in enumerate(services):
        mine = held.get((user, id), [None] * len(services))[n]
        if act == "create":
            answers.append(await answer(service.create_session(**named, session_id=id, state=dict(state))))
        elif act == "get":
            answers.append(await answer(service.get_session(**named, session_id=id, config=config)))
        elif act in ("append", "again") and mine is not None:
            given = event if act == "append" or not mine.events else mine.events[-1]
            answers.append(await answer(service.append_event(mine, given.model_copy(deep=True))))
        elif act == "list":
            answers.append(await service.list_sessions(**named))
        elif act == "all":
            answers.append(await service.list_sessions(app_name=APP))
        elif act == "delete":
            answers.append(await service.delete_session(**named, session_id=id))
        else:
            answers.append(await service.get_user_state(**named))
    assert plain(answers[0]) == plain(answers[1]), act
    if act in ("create", "get") and config is None and hasattr(answers[0], "events"):
        held[user, id] = answers


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 1_000), ("postgres", 500)])
def test_random_calls_do_what_they_do_to_the_service_in_memory(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    async def use(opened: Store) -> None:
        services = (EngrainSessionService(opened), InMemorySessionService())
        chance, held = random.Random(17), dict[Any, list[Any]]()
        for _ in range(steps):
            await random_step(chance, services, held)

    with open_store(backend, tmp_path) as opened:
        asyncio.run(use(opened))
    figures.show("random calls equal to `InMemorySessionService`", backend, steps)
    figures.name_packages("google-adk")


def test_events_that_are_appended_at_once_are_all_kept(store: Store) -> None:
    async def use() -> Any:
        services = [EngrainSessionService(store) for _ in range(3)]
        named: dict[str, Any] = {"app_name": APP, "user_id": "ana", "session_id": "s"}
        await services[0].create_session(**named)
        held = [await service.get_session(**named) for service in services]
        pairs = [(services[n % 3], held[n % 3], say("user", f"text {n}", **{f"k{n}": n})) for n in range(15)]
        await asyncio.gather(*(service.append_event(one, event) for service, one, event in pairs))
        return await services[0].get_session(**named)

    found = asyncio.run(use())
    assert len(found.events) == 15
    assert found.state == {f"k{n}": n for n in range(15)}


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        text = f"I saw {len(llm_request.contents)} messages."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


def test_a_runner_remembers_across_sessions(store: Store, request: pytest.FixtureRequest, figures: Figures) -> None:
    async def use() -> Any:
        sessions, memories = EngrainSessionService(store), EngrainMemoryService(store)
        agent = LlmAgent(name="helper", model=Scripted(model="scripted"))
        runner = Runner(app_name=APP, agent=agent, session_service=sessions, memory_service=memories)
        named: dict[str, Any] = {"app_name": APP, "user_id": "ana"}
        await sessions.create_session(**named, session_id="monday")
        said = types.Content(role="user", parts=[types.Part(text="My favourite tea is oolong.")])
        events = [one async for one in runner.run_async(user_id="ana", session_id="monday", new_message=said)]
        session = await sessions.get_session(**named, session_id="monday")
        for _ in range(2):
            await memories.add_session_to_memory(session)
        return events, await memories.search_memory(**named, query="Which tea does she like?"), memories, named

    events, found, memories, named = asyncio.run(use())
    assert events[-1].content.parts[0].text == "I saw 1 messages."
    assert any("oolong" in one.content.parts[0].text for one in found.memories)
    memory = store.memory(user="ana", agent=APP)
    assert len(memory.list({"kind": "message"})) == 2  # each event once
    for one in found.memories:
        if memory.get(one.id):
            asyncio.run(memories.delete_memory(**named, memory_id=one.id))
    again = asyncio.run(memories.search_memory(**named, query="Which tea does she like?"))
    assert not any("oolong" in one.content.parts[0].text for one in again.memories)
    with pytest.raises(NotFound):
        asyncio.run(memories.delete_memory(**named, memory_id="none"))
    figures.show("a `Runner` with a scripted model, session and memory", request.node.callspec.params["store"], "yes")


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_the_log_refuses_does_not_stop_those_after_it(store: Store, text: str) -> None:
    named: dict[str, Any] = {"app_name": APP, "user_id": "ana"}
    events = [say("user", text), say("helper", "Noted.")]
    memories = EngrainMemoryService(store)
    asyncio.run(memories.add_events_to_memory(**named, events=events))
    assert [item.text for item in store.memory(user="ana", agent=APP).list({"kind": "message"})] == ["Noted."]
    asyncio.run(memories.search_memory(**named, query=text))


KILLED = """
import asyncio, os, signal, sys
from engrain import Store
from engrain.integrations.google_adk import EngrainSessionService
from engrain.stores.relational.records import Records
from engrain_conformance.embedder import HashEmbedder
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions

def die_after(do):
    def call(*given):
        do(*given)
        os.kill(os.getpid(), signal.SIGKILL)
    return call

async def use(service, act):
    named = {"app_name": "app", "user_id": "ana", "session_id": "s"}
    session = await service.create_session(**named)
    await service.append_event(session, Event(author="user"))
    Records.write, Records.drop = die_after(Records.write), die_after(Records.drop)
    if act == "delete":
        await service.delete_session(**named)
    await service.append_event(session, Event(author="user", actions=EventActions(state_delta={"user:tea": "oolong"})))

with Store(sys.argv[1], embedder=HashEmbedder()) as store:
    asyncio.run(use(EngrainSessionService(store), sys.argv[2]))
"""


@pytest.mark.parametrize("act", ["append", "delete"])
def test_a_kill_leaves_no_half_of_an_event_or_a_session(tmp_path: Path, act: str) -> None:
    call = [sys.executable, "-c", KILLED, str(tmp_path / "agent.db"), act]
    assert subprocess.run(call, check=False).returncode == -signal.SIGKILL
    named: dict[str, Any] = {"app_name": APP, "user_id": "ana", "session_id": "s"}
    with open_store("sqlite", tmp_path) as opened:
        service = EngrainSessionService(opened)
        if act == "append":
            found = asyncio.run(service.get_session(**named))
            assert found is not None
            assert (len(found.events), found.state) == (2, {"user:tea": "oolong"})
        else:
            assert asyncio.run(service.create_session(**named)).events == []
