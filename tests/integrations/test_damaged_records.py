"""A record that is damaged or forged ends in a typed error or is data: no adapter raises what its decoder raised."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import framework_stubs
import pytest
from engrain_conformance.embedder import HashEmbedder
from integration_kit import is_installed

from engrain import EngrainError, Memory, Store, StoreCorrupt
from engrain.core.model.records import Record, RecordDraft, RecordKey
from engrain.integrations.record_decoding import decoding, find_next_number

Verb = Callable[[], Any]


def use_agent_framework(store: Store, memory: Memory) -> list[Verb]:
    from agent_framework import Message

    from engrain.integrations.agent_framework import EngrainHistoryProvider

    history = EngrainHistoryProvider(memory)

    def save(*texts: str) -> None:
        asyncio.run(history.save_messages("monday", [Message("user", [text]) for text in texts]))

    save("Ana likes tea.", "And oolong.")
    return [lambda: asyncio.run(history.get_messages("monday")), lambda: save("And sencha.")]


def use_anthropic(store: Store, memory: Memory) -> list[Verb]:
    from engrain.integrations.anthropic.files import MemoryFiles

    files, path = MemoryFiles(memory), "/memories/ana/tea.md"
    files.create(path, "Ana likes tea.\n")
    files.str_replace(path, "tea", "oolong")
    return [
        lambda: files.view(path),
        lambda: files.view("/memories"),
        lambda: files.list_versions(path),
        lambda: files.insert(path, 0, "Tea:"),
        lambda: (files.rename(path, "/memories/other.md"), files.rename("/memories/other.md", path)),
    ]


def use_google_adk(store: Store, memory: Memory) -> list[Verb]:
    from google.adk.events.event import Event

    from engrain.integrations.google_adk import EngrainSessionService

    sessions, of = EngrainSessionService(store), {"app_name": "tea", "user_id": "ana"}
    state = {"own": 1, "user:name": "Ana", "app:kettle": "blue"}
    session = asyncio.run(sessions.create_session(session_id="monday", state=state, **of))

    def append() -> None:
        asyncio.run(sessions.append_event(session, Event(author="user", timestamp=random.random())))

    append()
    return [
        lambda: asyncio.run(sessions.get_session(session_id="monday", **of)),
        lambda: asyncio.run(sessions.list_sessions(app_name="tea")),
        lambda: asyncio.run(sessions.get_user_state(**of)),
        append,
    ]


def use_langchain(store: Store, memory: Memory) -> list[Verb]:
    from langchain_core.outputs import Generation

    from engrain.integrations.langchain import EngrainCache, EngrainVectorStore

    documents, cache = EngrainVectorStore(memory), EngrainCache(memory)
    documents.add_texts(["Ana likes tea."], [{"page": 1}], ids=["one"])
    cache.update("prompt", "model", [Generation(text="tea")])
    return [
        lambda: documents.get_by_ids(["one"]),
        lambda: documents.similarity_search("What does Ana like?", filter={"page": 1}),
        lambda: cache.lookup("prompt", "model"),
    ]


def use_langgraph(store: Store, memory: Memory) -> list[Verb]:
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    from engrain.integrations.langgraph import EngrainSaver, EngrainStore

    builder = StateGraph(TypedDict("state", {"messages": list[str]}))
    builder.add_node("answer", lambda state: {"messages": [*state["messages"], "noted."]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    saver, values = EngrainSaver(memory), EngrainStore(memory)
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "monday"}}
    graph.invoke({"messages": ["Ana likes tea."]}, config)
    values.put(("notes", "ana"), "tea", {"text": "Ana likes tea."}, ttl=60)
    memory.remember("Ana likes green tea.", metadata={"langgraph_under": ['["notes"]']})  # of another program
    return [
        lambda: saver.get_tuple(config),
        lambda: list(saver.list(config, filter={"source": "loop"})),
        lambda: graph.get_state(config),
        lambda: saver.prune(["monday"]),
        lambda: graph.invoke({"messages": ["And oolong."]}, config),
        lambda: values.get(("notes", "ana"), "tea"),
        lambda: values.search(("notes",), query="What does Ana like?", filter={"text": {"$ne": 1}}),
        lambda: values.search(("notes",)),
        lambda: values.list_namespaces(),
        lambda: values.put(("notes", "ana"), "tea", {"text": "Ana likes oolong."}),
    ]


def use_openai_agents(store: Store, memory: Memory) -> list[Verb]:
    from engrain.integrations.openai_agents import EngrainSession

    session = EngrainSession("monday", memory)
    asyncio.run(session.add_items([{"role": "user", "content": "Ana likes tea."}, {"type": "call"}]))
    return [
        lambda: asyncio.run(session.get_items()),
        lambda: asyncio.run(session.get_items(1)),
        lambda: asyncio.run(session.add_items([{"type": "call"}])),
        lambda: asyncio.run(session.pop_item()),
        lambda: asyncio.run(session.clear_session()),
    ]


def use_pydantic_ai(store: Store, memory: Memory) -> list[Verb]:
    from pydantic_ai import Agent
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.models.test import TestModel

    from engrain.integrations.pydantic_ai import EngrainConversationStore

    conversations = EngrainConversationStore(memory)
    agent = Agent(TestModel(custom_output_text="noted."))

    async def save(name: str) -> None:
        result = await agent.run("Ana likes tea.", conversation=Conversation(conversation_id=name))
        await conversations.save(result)

    async def read_all() -> None:
        for record in await conversations.read_records():
            await conversations.read_history(record.head_id)

    async def delete(name: str) -> None:
        if (record := await conversations.read_record(name)) is not None:
            await conversations.delete_record(name, expected_revision=record.revision)

    asyncio.run(save("monday"))
    return [
        lambda: asyncio.run(conversations.read_record("monday")),
        lambda: asyncio.run(read_all()),
        lambda: asyncio.run(save("tuesday")),
        lambda: asyncio.run(delete("tuesday")),
    ]


# Our adapter, the module of its framework, and the spaces of its records.
USED: dict[str, tuple[str, Callable[[Store, Memory], list[Verb]], list[str]]] = {
    "agent_framework": ("agent_framework", use_agent_framework, ["agent framework"]),
    "anthropic": ("anthropic", use_anthropic, ["anthropic memory"]),
    "google_adk": ("google.adk", use_google_adk, ["google adk"]),
    "langchain": ("langchain_core", use_langchain, ["langchain documents", "langchain cache"]),
    "langgraph": ("langgraph", use_langgraph, ["langgraph", "langgraph store"]),
    "openai_agents": ("agents", use_openai_agents, ["openai agents"]),
    "pydantic_ai": ("pydantic_ai", use_pydantic_ai, ["pydantic ai"]),
}
TYPED = (EngrainError, "ToolError", "ConversationConflict", "SessionNotFoundError", "NoSession")
JUNK = [b"", b"\xff\xfe", b"null", b"5", b'"text"', b"[]", b"{}", b"[[]]\n{}", b"[" * 50_000, b"1e999", b"\n\n\n"]
VALUES = [None, 5, 1e308, "text", "", [], [5], {}, {"": None}, True]


@pytest.fixture
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The adapter's name, with stubs for its framework where that is not installed."""
    name = request.param
    stubbed = not is_installed(USED[name][0])
    if stubbed and name not in framework_stubs.STUBS:
        pytest.skip("make test-integrations runs it")
    if stubbed:
        framework_stubs.install(monkeypatch, name)
    yield name
    if stubbed:
        framework_stubs.remove_adapter(name)


@pytest.mark.parametrize("adapter", USED, indirect=True)
def test_a_forged_body_is_data_or_a_typed_error(adapter: str, tmp_path: Path) -> None:
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as store:
        memory = store.memory(user="ana", agent="tea" if adapter == "google_adk" else None)
        verbs = USED[adapter][1](store, memory)
        scopes = [memory, store.memory(agent="tea")]
        failed, tried = set(), 0
        for space in USED[adapter][2]:
            for owner in scopes:
                for record in owner.records.scan(space):
                    for body in forge(record):
                        owner.records.write(space, [RecordDraft(record.key, body)])
                        failed |= {describe(body, exc) for verb in verbs if (exc := find_untyped(verb))}
                        owner.records.write(space, [RecordDraft(record.key, record.body)])
                        tried += 1
    assert tried > 20
    assert not failed, sorted(failed)


@pytest.mark.parametrize("adapter", USED, indirect=True)
def test_a_forged_key_is_data_or_a_typed_error(adapter: str, tmp_path: Path) -> None:
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as store:
        memory = store.memory(user="ana", agent="tea" if adapter == "google_adk" else None)
        verbs = USED[adapter][1](store, memory)
        failed = set()
        for space in USED[adapter][2]:
            for record in memory.records.scan(space):
                for key in forge_keys(record.key):
                    memory.records.write(space, [RecordDraft(key, record.body, keep=True)])
                    failed |= {describe(record.body, exc) for verb in verbs if (exc := find_untyped(verb))}
                    if key != record.key:
                        memory.records.write(space, drops=[key])
                    memory.records.write(space, [RecordDraft(record.key, record.body)])
    assert not failed, sorted(failed)


def forge(record: Record) -> Iterator[bytes]:
    """Yield junk, parts of the body, the body with changed bytes, and its JSON with other values."""
    head, line, rest = record.body.partition(b"\n")
    chance = random.Random(len(record.body))
    yield from JUNK
    for known in {b"", head + line} if line else {b""}:
        yield from (known + junk for junk in JUNK[:-1])
    for _ in range(6):
        at = chance.randrange(len(record.body) or 1)
        yield record.body[:at]
        yield record.body[:at] + bytes([chance.randrange(256)]) + record.body[at + 1 :]
    yield from forge_json(head, lambda changed: changed + line + rest)
    yield from forge_json(rest, lambda changed: head + line + changed)


def forge_json(text: bytes, join: Callable[[bytes], bytes]) -> Iterator[bytes]:
    try:
        parsed = json.loads(text)
    except ValueError:
        return
    entries = enumerate(parsed) if isinstance(parsed, list) else parsed.items() if isinstance(parsed, dict) else ()
    for place, _ in list(entries):
        for value in VALUES:
            changed = parsed.copy()
            changed[place] = value
            yield join(json.dumps(changed).encode())
        changed = parsed.copy()
        del changed[place]
        yield join(json.dumps(changed).encode())


def forge_keys(key: RecordKey) -> Iterator[RecordKey]:
    yield from ((*key[:-1], last) for last in ("", "text", "9" * 12, "9" * 17, "9" * 400, "٣" * 12))
    yield (*key, "more")
    if len(key) > 1:
        yield key[:-1]


def find_untyped(verb: Verb) -> Exception | None:
    """Return what a verb raised, if it is no error of ours or of the framework's own contract."""
    try:
        verb()
    except EngrainError:
        return None
    except Exception as exc:  # noqa: BLE001
        return None if type(exc).__name__ in TYPED else exc
    return None


def describe(body: bytes, error: Exception) -> str:
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""
    return f"{type(error).__name__} at {where} for {body[:60]!r}"


@pytest.mark.parametrize("error", [KeyError("x"), NotImplementedError(), RecursionError(), AssertionError()])
def test_whatever_a_decoder_raises_is_a_corrupt_store(error: Exception) -> None:
    with pytest.raises(StoreCorrupt, match=r"'checkpoint/monday'.*engrain doctor"), decoding(("checkpoint", "monday")):
        raise error


def test_the_last_number_of_a_key_ends_in_an_error_and_not_in_a_loop() -> None:
    assert find_next_number(None, 12) == 0
    assert find_next_number(("monday", "000000000041"), 12) == 42
    with pytest.raises(StoreCorrupt, match="no number follows"):
        find_next_number(("monday", "999999999999"), 12)


def test_a_cycle_of_parents_ends_in_an_error(tmp_path: Path) -> None:
    if not is_installed("pydantic_ai"):
        pytest.skip("make test-integrations runs it")
    from engrain.integrations.pydantic_ai import EngrainConversationStore

    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as store:
        memory = store.memory(user="ana")
        use_pydantic_ai(store, memory)
        entry = memory.records.scan("pydantic ai", ("entry",))[0]
        _, _, message = entry.body.partition(b"\n")
        head = json.dumps({"parent_id": entry.key[1], "kind": "message"}).encode()
        memory.records.write("pydantic ai", [RecordDraft(entry.key, head + b"\n" + message)])
        with pytest.raises(StoreCorrupt, match="follows itself"):
            asyncio.run(EngrainConversationStore(memory).read_history(entry.key[1]))
