"""Conversation memory beside a simple list: whatever is said, cleared, summed up or forgotten, and by whomever."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from episodic_kit import ANA, opened
from examples import up_to
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engrain.core.chat.render import NO_RESULT
from engrain.core.errors import Conflict
from engrain.core.model.messages import Message, ToolCall, match_results
from engrain.core.model.plans import Forget, Plan
from engrain.core.model.retention import WindowLimits
from engrain.ingest import summaries
from engrain.tiers.conversation import ConversationMemory

LIMITS = WindowLimits(max_items=8, max_tokens=700, summarize_at=0.8, summarize_from=6, keep_recent=3)
TEXTS = st.sampled_from(["Yes.", "There were 30 blue ones.", "word " * 60, "日本語 " * 40, "line\n" * 300])
ORPHAN = "its call is not recorded"


class Talk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("engrain").setLevel(logging.CRITICAL)  # it is told of failures many times
        self.clock = SetClock()
        self.kit = opened("reference", Path(), self.clock)
        self.worker = self._fresh()
        self.log: list[tuple[int, str, str]] = []  # number, role, text
        self.length = 0
        self.cleared = 0
        self.calls = 0
        self.open: str | None = None
        self.digest = summaries.write_digest

    def _fresh(self) -> ConversationMemory:
        return ConversationMemory(self.kit, ANA, "monday", LIMITS)

    def _add(self, *messages: Message, **values: Any) -> None:
        self.clock.advance()
        self.worker.add_many(messages, **values)
        for message in messages:
            self.log.append((self.length, message.role, message.text))
            self.length += 1

    @initialize(opens=st.booleans())
    def begin(self, opens: bool) -> None:
        if opens:
            self._add(Message("system", "You are a pirate."))

    @precondition(lambda self: self.open is None)
    @rule(role=st.sampled_from(["user", "assistant", "system"]), text=TEXTS, count=st.integers(1, 4))
    def speak(self, role: str, text: str, count: int) -> None:
        self._add(*(Message(role, f"{self.length + n}: {text}") for n in range(count)))

    @precondition(lambda self: self.open is None)
    @rule(count=st.integers(1, 12), text=TEXTS)
    def call_and_answer(self, count: int, text: str) -> None:
        ids = [f"call_{self.calls + n}" for n in range(count)]
        self.calls += count
        calls = tuple(ToolCall(id, "look", {"q": text[:200]}) for id in ids)
        self._add(Message("assistant", calls=calls), *(Message("tool", text, answers=id) for id in ids))

    @precondition(lambda self: self.open is None)
    @rule()
    def call(self) -> None:
        self.open = f"call_{self.calls}"
        self.calls += 1
        self._add(Message("assistant", calls=(ToolCall(self.open, "look", {}),)))

    @precondition(lambda self: self.open is not None)
    @rule(text=TEXTS, between=st.booleans())
    def answer_late(self, text: str, between: bool) -> None:
        if between:
            self._add(Message("user", text))
        self._add(Message("tool", text, answers=self.open))
        self.open = None

    @rule()
    def come_too_late(self) -> None:
        with pytest.raises(Conflict):
            self.worker.add_many([Message("user", "Late.")], expect=self.length + 1)

    @rule()
    def be_somebody_else(self) -> None:
        self.worker = self._fresh()

    @precondition(lambda self: self.open is None)
    @rule()
    def clear(self) -> None:
        self.worker.clear()
        self.cleared = self.length

    @precondition(lambda self: summaries.write_digest is self.digest)
    @rule()
    def sum_up(self) -> None:
        self.worker.summarize()

    @precondition(lambda self: any(role == "user" for _, role, _ in self.log))
    @rule(which=st.integers(0, 1_000))
    def forget(self, which: int) -> None:
        mine = [entry for entry in self.log if entry[1] == "user"]
        gone = mine[which % len(mine)]
        (row,) = self.kit.log.read(ANA, "monday", gone[0], 1)
        self.kit.items.apply(Plan(ANA, (Forget(row.id),)))
        self.log.remove(gone)

    @rule(works=st.booleans())
    def digests_work_or_fail(self, works: bool) -> None:
        def broken(*args: Any) -> str:
            raise RuntimeError("no digest today")

        summaries.write_digest = self.digest if works else broken  # type: ignore[assignment]

    @invariant()
    def the_log_is_whole(self) -> None:
        log = self.kit.log.read(ANA, "monday", 0, 10_000)
        assert [(row.place, row.role) for row in log] == [(number, role) for number, role, _ in self.log]
        told = [(row.text, text) for row, (_, role, text) in zip(log, self.log, strict=True) if role == "user"]
        assert all(found == text for found, text in told)
        assert len(self.worker) == self.length

    @invariant()
    def the_window_is_within_its_budgets(self) -> None:
        window = self.worker.window()
        assert len(window.messages) <= LIMITS.max_items
        assert window.tokens <= LIMITS.max_tokens
        numbers = [message.number or 0 for message in window.messages]
        assert numbers == sorted(numbers)
        assert all(number >= self.cleared for number in numbers)
        start = summaries.load_summary(self.kit, ANA, "monday").start
        newest = [number for number, _, _ in self.log if number >= start]
        assert numbers[-1:] == newest[-1:]

    @invariant()
    def no_call_is_torn_from_its_result(self) -> None:
        log = self.worker.last(10_000) if self.log else []
        bound = {
            log[place].id: (log[at].id, log[at].calls[call].id) for place, (at, call) in match_results(log).items()
        }
        shown = self.worker.window().messages
        calls = {(message.id, call.id) for message in shown for call in message.calls}
        assert {bound[one.id] for one in shown if one.id in bound} == calls & set(bound.values())
        for form in ("anthropic", "openai"):
            sent = json.dumps(self.worker.messages_for_llm(form))  # type: ignore[arg-type]
            assert ORPHAN not in sent
            assert self.open is not None or NO_RESULT not in sent

    @invariant()
    def nothing_is_summed_up_twice(self) -> None:
        lines = self.worker.summary.splitlines()
        assert len(lines) == len(set(lines))

    def teardown(self) -> None:
        summaries.write_digest = self.digest
        logging.getLogger("engrain").setLevel(logging.NOTSET)


TestTalk = Talk.TestCase
TestTalk.settings = settings(max_examples=up_to(30), stateful_step_count=30, deadline=None)
