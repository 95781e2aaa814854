"""Whatever happened before: a dry run of an erasure counts what then goes, and nobody else loses anything."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from engrain_conformance.drafts import derived
from erasing_kit import erase_from, opened
from examples import up_to
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain import Memory, Source
from engrain.core.model.items import Citation
from engrain.core.model.plans import Add, Plan

SESSIONS, SOURCES = ("monday", "tuesday"), ("https://page.example/one", "https://page.example/two")
STEPS = ("fact", "slot", "again", "correct", "say", "reply", "call", "derive", "summarise", "task", "forget", "request")
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1), st.integers(0, 9)), min_size=1, max_size=14)
asked = st.sampled_from(
    [("user", 0), ("session", 0), ("session", 1), ("source", 0), ("source", 1), ("id", 0), ("id", 1)]
)


def play(memory: Memory, step: str, which: int, number: int) -> None:
    source, session = Source(SOURCES[which], "web"), SESSIONS[which]
    ids = [item.id for item in memory.list(history=True, limit=100)]
    one = ids[number % len(ids)] if ids else None
    if step in ("fact", "request"):
        memory.remember(
            f"What is known of {number}.", source=source, request_id=f"{number}" if step == "request" else None
        )
    elif step == "slot":
        memory.remember(f"The value of it is {number}.", slot=f"slot.{which}", source=source)
    elif step == "again":
        memory.remember(f"What is known of {number}.")
    elif step == "say":
        memory.add_message("user", f"It was said, {number} times over.", session=session)
    elif step == "reply":
        memory.add_message("assistant", f"It was answered, {number} times over.", session=session)
    elif step == "call":
        called = {"n": number, "urls": [SOURCES[number % 2]]}
        memory.episodic.record_tool_call("read", called, "a line\n" * 400, session=session)
    elif step == "summarise":
        memory.session(session).conversation.summarize()
    elif step == "task":
        with memory.task(f"task-{number}", goal="to be done") as run:
            run.remember_step("note", f"Task {number} was noted.")
    elif one and step == "correct" and memory.get(one) and not memory.get(one).retracted_at:  # type: ignore[union-attr]
        memory.correct(one, f"It is {number}, rather.", source=source)
    elif one and step == "derive":
        cites = (Citation(one), Citation(ids[(number + 1) % len(ids)]))
        memory.store.services.items.apply(
            Plan(memory.scope, (Add(derived(f"It follows {number}.", *cites[: which + 1])),))
        )
    elif one and step == "forget":
        memory.forget(one)


def subject(memory: Memory, by: str, which: int) -> dict[str, str]:
    ids = [item.id for item in memory.list(history=True, limit=100)]
    names: dict[str, Any] = {"user": "ana", "session": SESSIONS[which], "source": SOURCES[which]}
    return {by: names[by] if by != "id" else ids[which * (len(ids) - 1)] if ids else "none"}


@given(steps, asked)
@settings(max_examples=up_to(60))
def test_a_dry_run_counts_what_then_goes(history: list[tuple[str, int, int]], asked: tuple[str, int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "files"
        files.mkdir()
        store = Path(folder) / "agent.db"
        with opened(store, background=False) as memory, opened(store, user="ben", background=False) as ben:
            for step, which, number in history:
                play(memory, step, which, number)
                play(ben, step, which, number)
            memory.mirror(files).sync()
            before = ben.list(history=True, limit=100)
            chosen = subject(memory, *asked)
            told = erase_from(memory, **chosen, folders=[files], dry_run=True)  # type: ignore[arg-type]
            assert erase_from(memory, **chosen, folders=[files], dry_run=True) == told, "it changed something"  # type: ignore[arg-type]
            done = erase_from(memory, **chosen, folders=[files])  # type: ignore[arg-type]
            assert done.receipt, done.why
            counts = done.receipt.values["counts"]
            assert {kind: count for kind, count in counts.items() if kind != "other_servers"} == told.counts
            assert ben.list(history=True, limit=100) == before
            assert not any(erase_from(memory, **chosen, dry_run=True).counts.values())  # type: ignore[arg-type]
