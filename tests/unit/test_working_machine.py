"""Working memory under any sequence of calls, beside a simple model of what it promises."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from examples import up_to
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engrain.core.errors import InvalidInput
from engrain.core.model.working import BufferEntry
from engrain.core.tokens import estimate_tokens
from engrain.tiers.working import WorkingMemory


def heavier_together(text: str) -> int:
    """Lines count more together than apart."""
    return len(text.split()) + text.count("\n") ** 2


COUNTERS: tuple[Callable[[str], int], ...] = (estimate_tokens, len, heavier_together)
PIECES = (
    *(
        "We decided to wait. ",
        "It failed.\n",
        "Ana moved to Lima in 2021. ",
        "ok ",
        "Why? ",
        "1. ",
        "x" * 90,
        "x" * 500,
    ),
    *("今天决定了。", "a: b. ", "\u2028", "never do it. ", "Dr. Who came. ", "\n\n"),
)
TEXTS = st.builds(
    lambda some, n: "".join(some) + str(n), st.lists(st.sampled_from(PIECES), max_size=6), st.integers(0, 9)
)
NAMES = st.sampled_from(["a", "b", "c", "ü"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
ANSWERS: dict[str, Callable[[Sequence[str], int], Any]] = {
    "good": lambda texts, limit: " ".join(texts[0].split())[: limit // 4],
    "raises": lambda texts, limit: 1 / 0,
    "empty": lambda texts, limit: "",
    "none": lambda texts, limit: None,
    "long": lambda texts, limit: "word " * (limit + 1) * 4,
    "strange": lambda texts, limit: "zzzz qqqq",
}


class Working(RuleBasedStateMachine):
    @initialize(
        tokens=st.sampled_from([100, 300, 1_000, 8_000]),
        items=st.integers(2, 8),
        keep=st.integers(1, 7),
        share=st.sampled_from([0.25, 0.5, 0.8, 1.0]),
        count=st.sampled_from(COUNTERS),
        model=st.booleans(),
    )
    def begin(self, tokens: int, items: int, keep: int, share: float, count: Callable[[str], int], model: bool) -> None:
        self.tokens, self.most, self.keep, self.count = tokens, items, min(keep, items - 1), count
        self.full = int(tokens * share)
        self.answer = "good"
        self.summarize = (lambda texts, limit: ANSWERS[self.answer](texts, limit)) if model else None
        self.memory = WorkingMemory(tokens, items, share, self.keep, count, self.summarize)
        self.added: list[BufferEntry] = []  # since the summary was last written by a model
        self.base: list[str] = []  # its lines then
        self.frame: dict[str, Any] = {"task": "", "subgoals": [], "results": {}, "scratchpad": [], "variables": {}}

    @rule(text=TEXTS, kind=st.sampled_from(["note", "error"]), speaker=st.sampled_from(["", "Who? Me: x", "a\nb"]))
    def add(self, text: str, kind: str, speaker: str) -> None:
        entry = self.memory.add(text, kind, speaker)
        self.added.append(entry)
        assert (entry.text == text) == (entry.left_out == 0)
        assert self.memory.items[-1] == entry, "the newest stays word for word"

    @rule(bad=st.sampled_from(["", None, "\x00", {"text": "x", "y": 1}, {}]))
    def add_nothing_bad(self, bad: Any) -> None:
        before = self.memory.snapshot()
        try:
            self.memory.add(bad)
        except InvalidInput:
            assert self.memory.snapshot() == before
        else:
            raise AssertionError("it was taken")

    @rule()
    def compress(self) -> None:
        was = len(self.memory.items)
        assert self.memory.compress() == (len(self.memory.items) < was)
        assert len(self.memory.items) <= self.keep

    @precondition(lambda self: self.summarize is not None)
    @rule(answer=st.sampled_from(sorted(ANSWERS)))
    def refine(self, answer: str) -> None:
        self.answer = answer
        before, waiting = self.memory.snapshot(), self.memory.pending()
        if self.memory.refine():
            assert answer == "good"
            assert self.memory.pending() is None
            assert self.memory.last_failure is None
            self.base = self.memory.summary.split("\n") if self.memory.summary else []
            self.added = list(self.memory.items)
        else:
            assert self.memory.snapshot() == before, "a failing model changes nothing"
            assert waiting is None or self.memory.last_failure

    @rule(name=NAMES, value=VALUES)
    def keep_values(self, name: str, value: Any) -> None:
        self.memory.add_result(name, value)
        self.memory.set_variable(name, [value])
        self.frame["results"][name] = value
        self.frame["variables"][name] = [value]

    @rule(text=TEXTS)
    def think(self, text: str) -> None:
        self.memory.add_thought(text)
        self.memory.push_subgoal(text)
        self.frame["scratchpad"].append(text)
        self.frame["subgoals"].append(text)

    @rule()
    def pop(self) -> None:
        expected = self.frame["subgoals"].pop() if self.frame["subgoals"] else None
        assert self.memory.pop_subgoal() == expected

    @rule(text=TEXTS)
    def set_task(self, text: str) -> None:
        self.memory.set_task(text)
        self.frame |= {"task": text, "subgoals": [], "results": {}, "scratchpad": []}

    @rule()
    def clear(self) -> None:
        self.memory.clear()
        self.added, self.base = [], []
        self.frame = {"task": "", "subgoals": [], "results": {}, "scratchpad": [], "variables": {}}

    @rule()
    def go_on_from_a_snapshot(self) -> None:
        kept = json.loads(json.dumps(self.memory.snapshot()))
        again = WorkingMemory.from_snapshot(kept, self.count, self.summarize)
        assert again == self.memory
        assert again.pending() == self.memory.pending()
        assert again.current_tokens == self.memory.current_tokens
        self.memory = again

    @invariant()
    def the_budget_holds(self) -> None:
        summary, items = self.memory.summary, self.memory.items
        used = (self.count(summary) if summary else 0) + sum(self.count(item.text) for item in items)
        assert used == self.memory.current_tokens <= self.tokens
        assert len(items) <= self.most
        assert used <= self.full or len(items) <= 1
        for budget in (0, 30, self.tokens):
            assert self.count(self.memory.context(budget)) <= budget
            assert self.count(self.memory.context(budget, items=False)) <= budget

    @invariant()
    def the_newest_are_there_in_their_order(self) -> None:
        items = list(self.memory.items)
        assert items == self.added[len(self.added) - len(items) :]
        room, promised = self.full - self.full // 3, 0
        for entry in reversed(self.added[-self.keep :]):
            room -= entry.tokens
            if promised and room < 0:
                break
            promised += 1
        assert len(items) >= promised

    @invariant()
    def the_summary_has_lines_of_the_older_ones_and_all_of_them_if_they_fit(self) -> None:
        older = self.added[: len(self.added) - len(self.memory.items)]
        known = [*self.base, *(line.text for entry in older for line in entry.lines)]
        told = self.memory.summary.split("\n") if self.memory.summary else []
        if len(told) != 1:  # one line alone may be cut
            rest = iter(known)
            assert all(line in rest for line in told), "in order, as they were said"
            assert len(set(told)) == len(told), "none twice"
        distinct, limit = list(dict.fromkeys(known)), self.full // 3
        if sum(self.count(line + "\n") for line in distinct) <= limit and self.count("\n".join(distinct)) <= limit:
            assert told == distinct, "nothing is lost while there is room"

    @invariant()
    def the_frame_is_as_it_was_set(self) -> None:
        memory = self.memory
        assert memory.task == self.frame["task"]
        assert list(memory.subgoals) == self.frame["subgoals"]
        assert list(memory.scratchpad) == self.frame["scratchpad"]
        assert memory.results == self.frame["results"]
        assert memory.variables == self.frame["variables"]


Working.TestCase.settings = settings(max_examples=up_to(60), stateful_step_count=40, deadline=None)
TestWorking = Working.TestCase
