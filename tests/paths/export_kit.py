"""A memory with a little of everything, and its export as bytes."""

from __future__ import annotations

import io
from contextlib import nullcontext, suppress
from datetime import timedelta

from engrain_conformance.clock import START, SetClock

from engrain import Memory, Note, RecordDraft
from engrain.core.model.items import Citation, Source
from engrain.core.model.queries import Summary
from engrain.memory.transfer import export_scope

SOON = START + timedelta(days=90)


def filled(memory: Memory, clock: SetClock) -> Memory:
    memory.remember("Ana likes tea.", importance=0.8, metadata={"k": [1, None, 0.5, "ü"], "n": 2**62})
    for city in ("Lima", "Quito", "Lima"):
        memory.remember(city, slot="user.city")
        clock.advance(60)
    memory.update(memory.correct(memory.remember("Ana is tall."), "Ana is small."), pinned=True)
    memory.relations.add("Ana", "knows", "Ben")
    memory.remember("It happened.", occurred_at="2020-02-02", source="diary")
    memory.start_session("monday")
    said = memory.add_message("user", "I prefer short answers. The secret word is xyzzy.", speaker="Ana").id
    memory.add_message("assistant", "日本語 \u2028 fine.")
    memory.episodic.record_tool_call("grep", {"x": 1}, "result " * 2_000)
    memory.episodic.record_error("It broke.")
    memory.episodic.record_decision("Use SQLite.")
    memory.remember_many([Note("xyzzy", source=Source(None, "user", (Citation(said, 43, 48),)))])
    memory.end_session()
    memory.start_session("tuesday")
    memory.add_message("user", "My city is Cusco.")
    memory.semantic.learn("The sea is near.", 0.6)
    memory.procedural.learn("deploy", ["test", "push"], when="on Friday")
    with memory.task("order", goal="ship", procedure="deploy", max_age=timedelta(days=9)) as run:
        run.step("plan", lambda: {"x": "y" * 9_000})
        run.remember_step("note", "Order 42 was planned.")
        run.outcome = "shipped"
    with suppress(KeyError), memory.task("half") as run:
        run.step("one", lambda: 1)
        raise KeyError
    memory.tasks.signal("later", "paid", {"yes": 1})
    memory.records.write("graph", [RecordDraft(("t", name), name.encode()) for name in ("b", "a", "")])
    memory.records.write("graph", [RecordDraft(("t", "b"), b"\x00\xff"), RecordDraft(("soon",), b"1", expires_at=SOON)])
    log = memory.store.services.log
    log.summarize(memory.scope, "tuesday", Summary("They greeted.", 1, 1, "digest"))
    log.advance(memory.scope, "tuesday", "extract", 1)
    memory.forget(memory.remember("Nobody must know."))
    memory.recall("What does Ana drink?")
    return memory


def exported(memory: Memory, *, vectors: bool = False) -> bytes:
    out = io.BytesIO()
    export_scope(memory.store.services, memory.scope, nullcontext(out), "jsonl", vectors, None)
    return out.getvalue()


def body(raw: bytes) -> bytes:
    """The lines without the manifest, which names the scope."""
    return raw.partition(b"\n")[2]
