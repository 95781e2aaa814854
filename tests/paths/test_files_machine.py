"""Whatever people do to the files and programs to the memory, in any order: no text is lost, and both sides agree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engrain import Memory
from engrain.core.markdown.page import Entry, read_page, write_entry

LINES = 25
PLACES = ("Lima", "Quito", "Bonn", "Rome")
SLOTS = st.sampled_from(["user.city", "user.team"])
TEXTS = st.sampled_from([
    "Ana likes tea.", "Ana likes green tea.", "Bob has a dog.", "Bob has a big dog.", "The backup runs at 3.",
    "- not a\n- list", "two\n\nparagraphs", "**user.city**: not a slot", "  spaces  ", "ends with <br>",
])  # fmt: skip


class Files(RuleBasedStateMachine):
    """`typed` is what people wrote since the last sync; `forgotten` what a program had forgotten, and nobody said
    again since; `before` what stood in the page after the last sync, or waits for a decision, and `shown` what did at
    any time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="engrain-files-"))
        self.clock = SetClock()
        self.memory = Memory("reference://", user="ana", embedder=HashEmbedder(), clock=self.clock, background=False)
        self.mirror = self.memory.mirror(self.folder, max_lines=LINES)
        self.typed: set[Entry] = set()
        self.forgotten: set[str] = set()
        self.shown: set[str] = set()
        self.before: set[Entry] = set()

    def teardown(self) -> None:
        self.memory.close()
        shutil.rmtree(self.folder)

    # The memory

    @initialize()
    def begin(self) -> None:
        self.mirror.sync()

    @rule(text=TEXTS, importance=st.sampled_from([0.2, 0.5, 0.9]))
    def remember(self, text: str, importance: float) -> None:
        self.memory.remember(text, importance=importance)
        self.forgotten.discard(text)

    @rule(slot=SLOTS, value=st.sampled_from(PLACES))
    def set_slot(self, slot: str, value: str) -> None:
        self.clock.advance()
        self.memory.remember(value, slot=slot)

    @rule(pick=st.randoms(use_true_random=False), text=TEXTS)
    def correct(self, pick: object, text: str) -> None:
        items = [item for item in self.memory.list() if item.slot is None]
        if items:
            old = pick.choice(items)  # type: ignore[attr-defined]
            self.memory.correct(old.id, text)
            self.forgotten.discard(text)

    @rule(pick=st.randoms(use_true_random=False))
    def forget(self, pick: object) -> None:
        items = self.memory.list()
        if items:
            item = pick.choice(items)  # type: ignore[attr-defined]
            # With the versions that corrections took away. What was just typed is the user's word, and no old copy.
            going = {one.text for one in (item, *self.memory.explain(item.id).versions) if item.slot is None}
            self.memory.forget(item.id)
            self.forgotten |= going - {entry.text for entry in self.typed} - {one.text for one in self.memory.list()}

    # The file

    @property
    def page(self) -> Path:
        return self.folder / "MEMORY.md"

    def lines(self) -> list[Entry]:
        return [block.entry for block in read_page(self.page.read_text()) if block.entry]

    def said(self, text: str) -> None:
        """A person wrote it: it is new, unless it stood there, or did until a program had it forgotten."""
        if Entry(text) not in self.before and not (text in self.forgotten and text in self.shown):
            self.typed.add(Entry(text))
            self.forgotten.discard(text)

    def unsaid(self) -> None:
        self.typed &= set(self.lines())

    @rule(text=TEXTS)
    def type_a_line(self, text: str) -> None:
        self.said(text)
        self.write(Entry(text))

    def write(self, entry: Entry) -> None:
        text = self.page.read_text()
        self.page.write_text(text + "\n" * (text[-1:] != "\n") + write_entry(entry))

    @rule(slot=SLOTS, value=st.sampled_from(PLACES))
    def type_a_slot(self, slot: str, value: str) -> None:
        self.clock.advance()
        self.write(Entry(value, slot))

    @precondition(lambda self: self.page.exists() and self.lines())
    @rule(pick=st.randoms(use_true_random=False), text=TEXTS)
    def edit_a_line(self, pick: object, text: str) -> None:
        blocks = read_page(self.page.read_text())
        entries = [n for n, block in enumerate(blocks) if block.entry and block.entry.slot is None]
        if entries:
            n = pick.choice(entries)  # type: ignore[attr-defined]
            self.said(text)
            self.page.write_text(
                "".join(write_entry(Entry(text)) if at == n else one.raw for at, one in enumerate(blocks))
            )
            self.unsaid()

    @precondition(lambda self: self.page.exists() and self.lines())
    @rule(pick=st.randoms(use_true_random=False))
    def delete_a_line(self, pick: object) -> None:
        blocks = read_page(self.page.read_text())
        n = pick.choice([n for n, block in enumerate(blocks) if block.entry])  # type: ignore[attr-defined]
        self.page.write_text("".join(one.raw for at, one in enumerate(blocks) if at != n))
        self.unsaid()

    @rule(share=st.sampled_from([0.0, 0.3, 0.7]))
    def lose_the_end_of_the_page(self, share: float) -> None:
        text = self.page.read_text()
        self.page.write_text(text[: int(len(text) * share)])
        self.typed &= set(self.lines())

    @rule()
    def turn_the_page_upside_down(self) -> None:
        entries = self.lines()
        self.page.write_text("".join(write_entry(one) for one in reversed(entries)))

    # Both

    @rule(deletions=st.sampled_from(["", "accept", "restore"]))
    def sync(self, deletions: str) -> None:
        done = self.mirror.sync(accept_deletions=deletions == "accept", restore_deletions=deletions == "restore")
        again = self.mirror.sync()
        assert (again.written, again.taken, again.conflicts) == ((), (), ())
        self.agree({one.id for one in done.pending_deletions})
        self.typed.clear()
        self.before = {*self.lines(), *(Entry(one.text) for one in again.pending_deletions)}

    def agree(self, held: set[str]) -> None:
        shown = [entry for name in ("MEMORY.md", "memory/overflow.md") for entry in self.entries(name)]
        items = {item.id: Entry(item.text, item.slot) for item in self.memory.list()}
        # What stands in the files is what the memory holds, but for what waits for a decision.
        assert sorted(map(repr, shown)) == sorted(repr(entry) for id, entry in items.items() if id not in held)
        # What was typed and not taken back is in the memory, or told as a conflict.
        told = self.text("memory/conflicts.md")
        for entry in self.typed:
            assert entry in items.values() or write_entry(Entry(f"x, {entry.text}"))[5:].strip() in told, entry
        # What was forgotten stands nowhere.
        self.shown |= {entry.text for entry in shown}
        for entry in shown:
            assert entry.slot is not None or entry.text not in self.forgotten, entry
        assert len(self.page.read_text().splitlines()) <= LINES

    def entries(self, name: str) -> list[Entry]:
        return [block.entry for block in read_page(self.text(name)) if block.entry]

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    @invariant()
    def nothing_temporary_is_left(self) -> None:
        assert not list(self.folder.glob(".engrain/*.tmp"))


@pytest.mark.parametrize("examples", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_both_sides_agree_whatever_happens(examples: int) -> None:
    run_state_machine_as_test(
        Files,
        settings=settings(
            max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
