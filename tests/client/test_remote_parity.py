"""Every verb through a server answers as it does in the process that has the store."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from server_kit import run_server

from engrain import Citation, Memory, Note, Scope, Source
from engrain.core.errors import EngrainError
from engrain.core.http_routes import NOT_SERVED, ROUTES, SAME_AS
from engrain.core.model.plans import Change
from engrain.memory.http_verbs import PARTS
from engrain.memory.remote import RemoteMemory
from engrain.server.access import OpenAccess
from engrain.transfer.load import LoadResult

# Ids, hashes and the names of workers.
IDS = re.compile(r"[0-9a-f]{32}|[0-9a-hjkmnp-tv-zA-HJKMNP-TV-Z]{26}|(?<=worker=')[^']+")
START = datetime(2026, 3, 1, tzinfo=UTC)
STATE = {"n": 1, "list": [1, 2.5, None, "x"]}
MESSAGES = [{"role": "user", "content": "My city is Lima."}, {"role": "assistant", "content": "Noted."}]

Script = Callable[[Memory, Path], Iterator[tuple[str, Any]]]


def knowledge(m: Memory, _: Path) -> Iterator[tuple[str, Any]]:
    tea = m.remember("Ana likes green tea.", importance=0.7, metadata={"a": [1, {"b": None}]}, request_id="r1")
    city = m.remember("Lima", slot="user.city", source=Source("page", "web", (Citation(tea, 0, 3),)))
    yield "remember", (tea, city, m.remember("Ana likes green tea.", importance=0.7, request_id="r1"))
    yield "remember", m.remember("Gone soon.", ttl=timedelta(hours=1), occurred_at=START)
    yield "remember_many", m.remember_many(["One.", {"text": "Two.", "slot": "a.b"}, Note("Three.", 0.9)])
    yield "remember_many", m.remember_many(f"Note {n}." for n in range(3))
    yield "recall", m.recall("green tea", n=2, where={"kind": "fact"}, min_relevance=0.0)
    yield "recall", str(m.recall("Which city?", budget=200, as_of=datetime.now(UTC)))
    yield "prompt", m.prompt("Which tea?", budget=500)
    yield "list", m.list({"importance": {">=": 0.5}}, limit=2)
    yield "list", [item.text for item in m.list(history=True)]
    yield "get", (m.get(tea), m.get("0" * 26))
    yield "update", m.update(tea, pinned=True, importance=0.9, expires_at=START + timedelta(days=900))
    yield "correct", m.correct(tea, "Ana likes black tea.", source="Ana")
    yield "explain", m.explain(city)
    yield "explain", str(m.explain(city))
    yield "slots.list", m.slots.list()
    yield "slots.get", (m.slots.get("user.city"), m.slots.get("no.such"))
    yield "slots.history", m.slots.history("user.city")
    yield "relations.add", m.relations.add("Ana", "works at", "Acme", importance=0.4)
    yield "relations.list", m.relations.list(limit=5)
    yield "relations.about", m.relations.about("Ana")
    yield "semantic.learn", m.semantic.learn("The build takes 4 minutes.", 0.6)
    yield "semantic.consolidate", m.semantic.consolidate(dry_run=True)
    yield "semantic.all_valid", (m.semantic.all_valid([city]), m.semantic.all_valid([tea]))
    yield "semantic.change_number", m.semantic.change_number() > 0
    yield "semantic.remember", m.semantic.remember(Note("A note of its own.", 0.3), "r2")
    yield "semantic.remember_many", m.semantic.remember_many(["Four."])
    yield "semantic.get", m.semantic.get(city)
    yield "semantic.list", m.semantic.list({"slot": "user.city"})
    yield "semantic.correct", m.semantic.correct(city, Note("Quito"))
    yield "semantic.change", m.semantic.change(Change(m.slots.get("user.city").id, importance=0.1))
    yield "semantic.explain", m.semantic.explain(m.slots.get("user.city").id)
    yield "semantic.forget", m.semantic.forget({"text": "Four."})
    yield "forget", m.forget(m.remember("Forget this."), keep_source=True)


def sessions(m: Memory, _: Path) -> Iterator[tuple[str, Any]]:
    yield "server.current_session", m.current_session
    yield "start_session", m.start_session("monday")
    yield "server.current_session", m.current_session
    yield "add_message", m.add_message("user", "I live in Lima.", metadata={"k": 1}, expect=0)
    yield "add_messages", m.add_messages(MESSAGES, session="monday", request_id="m1")
    yield "server.begin_conversation", m.conversation.session
    yield "sessions.list", m.sessions.list()
    yield "sessions.start", m.sessions.start("tuesday")
    yield "sessions.messages", m.sessions.messages("monday", 2)
    yield "sessions.collect_profile", m.sessions.collect_profile()
    talk = m.session("tuesday").conversation
    yield "conversation.add", talk.add("user", "Hello on Tuesday.", speaker="Ana")
    yield "conversation.add_many", talk.add_many([{"role": "assistant", "content": "Hello."}], expect=1)
    yield "conversation.__len__", len(talk)
    yield "conversation.window", talk.window()
    yield "conversation.messages_for_llm", talk.messages_for_llm("openai")
    yield "conversation.system_for_llm", talk.system_for_llm()
    yield "conversation.search", talk.search("Tuesday")
    yield "conversation.summarize", talk.summarize()
    yield "conversation.summary", talk.summary
    yield "conversation.last", talk.last(1)
    yield "conversation.export", talk.export()
    yield "conversation.export_json", json.loads(talk.export_json())
    exported = talk.export()
    yield "conversation.clear", talk.clear()
    yield "conversation.load", m.session("copy").conversation.load(exported)
    session = m.session("wednesday")
    yield "session", (session.start, session.add_message("user", "My dog is Rex."), session.messages())
    yield "sessions.end", m.sessions.end("wednesday")
    yield "end_session", (m.end_session(), m.end_session())


def working(m: Memory, _: Path) -> Iterator[tuple[str, Any]]:
    m.procedural.learn("deploy", ["build", "push"])
    yield "working.start", len(m.working.start("Deploy it", goal="a release", procedure="deploy"))
    yield "working.version_of", m.working.version_of("deploy")
    yield "working.step", m.working.step("think", "build", {"ok": True})
    yield "working.set_goal", m.working.set_goal("a tested release")
    yield "working.push_subgoal", m.working.push_subgoal("tests")
    yield "working.add_thought", m.working.add_thought("slow today")
    yield "working.add", m.working.add({"role": "user", "content": "Be quick."})
    yield "working.add_result", m.working.add_result("key", STATE)
    yield "working.get_result", (m.working.get_result("key"), m.working.get_result("none"))
    yield "working.set_variable", m.working.set_variable("v", [1])
    yield "working.get_variable", (m.working.get_variable("v"), m.working.get_variable("w", 7))
    names = ("task", "goal", "subgoals", "results", "scratchpad", "variables", "items", "summary")
    yield "working.snapshot", [getattr(m.working, name) for name in names]
    snapshot = m.working.snapshot()
    yield "working.context", m.working.context(200)
    yield "working.current_work", m.working.current_work()
    yield "working.current_tokens", m.working.current_tokens
    yield "working.compress", m.working.compress()
    yield "working.pop_subgoal", m.working.pop_subgoal()
    yield "working.finish", m.working.finish(True, "It is live.")
    yield "working.set_task", len(m.working.set_task("Water plants"))
    yield "working.clear", m.working.clear()
    yield "working.load", (m.working.load(snapshot), m.working.goal)
    yield "working.resume_session", m.working.resume_session("monday")


def events(m: Memory, _: Path) -> Iterator[tuple[str, Any]]:
    m.start_session("monday")
    yield "episodic.record", m.episodic.record("The server came up.")
    yield "episodic.record_tool_call", m.episodic.record_tool_call("fetch", {"url": "x"}, "42")
    yield "episodic.record_decision", m.episodic.record_decision("Use SQLite.", "one file")
    error = m.episodic.record_error("disk full", tool="build")
    yield "episodic.record_error", error
    yield "episodic.record_resolution", m.episodic.record_resolution(error, "Cleaned it.")
    yield "episodic.recent", m.episodic.recent(3)
    yield "episodic.important", m.episodic.important(2, since=START)
    yield "episodic.raw", (m.episodic.raw(error), m.episodic.raw("0" * 26))
    yield "episodic.explain", m.episodic.explain(error)
    yield "episodic.remove", m.episodic.remove([error])
    deploy = m.procedural.learn("deploy", ["build", "push"], when="on Friday")
    yield "procedural.learn", deploy
    yield "procedural.names", m.procedural.names()
    yield "procedural.find", m.procedural.find("deploy")
    yield "procedural.used", m.procedural.used(deploy, "t-1", False, "it failed")
    yield "procedural.used", fails(lambda: m.procedural.used(deploy, "t-1", True))
    yield "procedural.get", (m.procedural.get("deploy"), m.procedural.get("nothing"))
    yield "procedural.require", m.procedural.require("deploy")
    yield "procedural.versions", m.procedural.versions("deploy")
    yield "procedural.best", m.procedural.best("deploy")
    yield "procedural.trials", m.procedural.trials("deploy")


def tasks(m: Memory, _: Path) -> Iterator[tuple[str, Any]]:
    yield "tasks.checkpoint", m.tasks.checkpoint("t1", STATE)
    yield "tasks.load_checkpoint", (m.tasks.load_checkpoint("t1"), m.tasks.load_checkpoint("t9"))
    yield "tasks.list", m.tasks.list(limit=5)
    yield "tasks.get", (m.tasks.get("t1"), m.tasks.get("t9"))
    yield "tasks.timeline", m.tasks.timeline("t1")
    yield "tasks.park", m.tasks.park("t1", "later")
    yield "tasks.resume", m.tasks.resume("t1")
    yield "tasks.signal", m.tasks.signal("t1", "paid", {"sum": 3})
    yield "tasks.resolve", fails(lambda: m.tasks.resolve("t1", "no step", "done"))
    yield "tasks.cancel", m.tasks.cancel("t1")
    yield "tasks.remove", m.tasks.remove("t1")
    yield "tasks.prune", m.tasks.prune()


def owner(m: Memory, folder: Path) -> Iterator[tuple[str, Any]]:
    m.remember("Ana likes tea.", source="page")
    m.remember("Ana likes rum.")
    yield "server.scope", m.scope
    exported = m.export(folder / "out.jsonl")
    yield "export", exported.rows
    yield "export", fails(lambda: m.export(folder / "out.jsonl"))
    yield "load", counts(m.load(folder / "out.jsonl"))
    yield "load", fails(lambda: m.load(io.BytesIO(b'{"text": ""}\n{"nothing": 1}\n')))
    yield "load", counts(m.load(io.BytesIO(b'{"text": "A loaded note."}\n'), dry_run=True))
    yield "store.undo", m.store.undo("page", user="ana", dry_run=True)
    yield "store.undo", bool(m.store.undo("page", user="ana").done)
    yield "server.memories", m.store.memories()
    yield "store.hold", m.store.hold("ana", reason="case-1")
    yield "store.holds", (len(m.store.holds()), m.store.holds(user="ana")[0].reasons, m.store.holds(user="bo"))
    yield "erase", fails(lambda: m.erase())
    yield "store.release", m.store.release("ana", reason=["case-1"])
    yield "store.status", (m.store.status().items, m.store.status(Scope(user="ana")).items)
    yield "store.doctor", [(check.number, check.name) for check in m.store.doctor(Scope(user="ana"))]
    yield "store.maintain", m.store.maintain(dry_run=True).dry_run
    yield "store.rebuild", m.store.rebuild()
    yield "erase", fails(lambda: m.erase(session="nothing", dry_run=True))
    yield "erase", m.erase(dry_run=True).counts
    erased = m.store.erase(user="ana")
    yield "erase", erased.counts
    yield "store.verify_erasure", bool(m.store.verify_erasure(erased.receipt, texts=["Ana likes rum."]))
    yield "store.resume_erasures", m.store.resume_erasures()
    yield "store.audit", [entry.what for entry in m.store.audit()]
    yield "store.audit", [entry.what for entry in m.store.audit(user="ana")]
    yield "store.verify_audit", m.store.verify_audit().entries


SCRIPTS: dict[str, Script] = {one.__name__: one for one in (knowledge, sessions, working, events, tasks, owner)}
# Routes that the client does not use: another one gives the same, or a browser or an operator uses it.
UNUSED = {"server.status", "server.events", "store.memories"}


def counts(loaded: LoadResult) -> tuple[LoadResult, dict[str, int]]:
    return replace(loaded, rows={}), dict(loaded.rows)


def fails(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(EngrainError) as caught:
        call()
    return type(caught.value).__name__, re.sub(r"/\S+/", "", str(caught.value))


def normalize(found: object) -> str:
    """Replace each id by its number, in the order in which they come up."""
    known: dict[str, str] = {}
    return IDS.sub(lambda id: known.setdefault(id[0], f"#{len(known)}"), repr(found))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_served_memory_answers_as_a_local_one(name: str, tmp_path: Path) -> None:
    answers = []
    for kind in ("local", "served"):
        folder = tmp_path / kind
        folder.mkdir()
        with ExitStack() as stack:
            options: dict[str, Any] = {"clock": SetClock(), "embedder": HashEmbedder(), "background": False}
            if kind == "local":
                memory = stack.enter_context(Memory(folder / "store.db", user="ana", **options))
            else:
                running = stack.enter_context(run_server(folder, open_access=OpenAccess(), unix=True, **options))
                memory = stack.enter_context(Memory(running.url, user="ana"))
                assert isinstance(memory, RemoteMemory)
            answers.append([(verb, normalize(found)) for verb, found in SCRIPTS[name](memory, folder)])
    for local, served in zip(*answers, strict=True):
        assert served == local


def test_the_scripts_use_every_verb_that_is_served() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    used = set(re.findall(r'yield "([\w.]+)"', source))
    assert {route.verb for route in ROUTES} - used == UNUSED
    assert set(SAME_AS) - used == {"store.memory", "store.erase", "conversation.export_yaml"}


def test_every_part_refuses_what_is_not_served(tmp_path: Path) -> None:
    memory = Memory(f"unix://{tmp_path}/none.sock", user="ana")
    for verb in NOT_SERVED:
        part, _, name = verb.rpartition(".")
        assert part in ("", *PARTS)
        owner = memory.store if part == "store" else getattr(memory, part) if part else memory
        if name != "close":
            with pytest.raises(EngrainError, match="does not work over HTTP"):
                getattr(owner, name)()
    with pytest.raises(EngrainError, match="opened store"):
        _ = memory.store.services
    memory.close()
