"""Working memory: the current task and the newest items of it, within a budget of tokens."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engrain.core.errors import InvalidInput, UnknownKey, raise_interrupt
from engrain.core.model.retention import WORKING_LIMITS
from engrain.core.model.working import (
    MAX_GOAL,
    MAX_TOKENS,
    Buffer,
    BufferBudget,
    BufferEntry,
    Frame,
    check_window,
    decode_values,
    make_snapshot,
    read_snapshot,
    render_context,
    render_frame,
)
from engrain.core.text.summarize import shares_words
from engrain.core.tokens import CountTokens, check_counter, estimate_tokens
from engrain.core.validation import check_count, check_key, check_text

Summarize = Callable[[Sequence[str], int], str]
State = tuple[Frame, Buffer]

_ITEM_KEYS = {"text": "text", "content": "text", "kind": "kind", "speaker": "speaker", "role": "speaker"}


@dataclass(frozen=True, slots=True)
class Pending:
    """Texts that were summarised without a model. A better summary of them has at most `limit` tokens."""

    texts: tuple[str, ...]
    limit: int


class WorkingMemory:
    """The state of the current task. It needs no store, and threads may share it.

    `add` keeps the newest items word for word, at most `max_items` of them. Items and summary never have more than
    `max_tokens`. Above the share `summarize_at` of it, the older items become sentences of the summary. The newest
    `keep_recent` stay, as many as leave a third of that share for the summary. An item too large for that is kept as
    its head and tail: `add` returns the kept part, and how many tokens were left out. No model is called on the way:
    `refine` calls the one given as `summarize`, later.
    """

    def __init__(
        self,
        max_tokens: int = WORKING_LIMITS.max_tokens,
        max_items: int = WORKING_LIMITS.max_items,
        summarize_at: float = WORKING_LIMITS.summarize_at,
        keep_recent: int = WORKING_LIMITS.keep_recent,
        count_tokens: CountTokens = estimate_tokens,
        summarize: Summarize | None = None,
    ) -> None:
        window = check_window(max_tokens, max_items, summarize_at, keep_recent)
        self._lock = threading.RLock()
        self._frame = Frame()
        self._buffer = Buffer(BufferBudget(window, check_counter(count_tokens), summarize is not None))
        self._summarize = summarize
        self.before_change: Callable[[], object] = lambda: None
        self.after_change: Callable[[], object] = lambda: None
        self._failure: str | None = None

    @property
    def task(self) -> str:
        return self._frame.task

    @property
    def task_id(self) -> str:
        return self._frame.task_id

    @property
    def goal(self) -> str:
        return self._frame.goal

    @property
    def subgoals(self) -> tuple[str, ...]:
        """The stack, the current one last."""
        return self._frame.subgoals

    @property
    def results(self) -> dict[str, Any]:
        return decode_values(self._frame.results)

    @property
    def scratchpad(self) -> tuple[str, ...]:
        return self._frame.scratchpad

    @property
    def variables(self) -> dict[str, Any]:
        return decode_values(self._frame.variables)

    def _change(self, change: Callable[[Frame, Buffer], State | None], loaded: bool = False) -> bool:
        """Replace the state by what `change` makes of it. False if it returns None: then nothing has changed.

        Erased state is cleared first; after a loaded snapshot, which may hold some, before it is saved.
        """
        if not loaded:
            self.before_change()
        with self._lock:
            state = change(self._frame, self._buffer)
            if state is None:
                return False
            self._frame, self._buffer = state
        if loaded:
            self.before_change()
        self.after_change()
        return True

    def _change_frame(self, change: Callable[[Frame], Frame]) -> None:
        self._change(lambda frame, buffer: (change(frame), buffer))

    def set_task(self, task: str, goal: str | None = None, task_id: str | None = None) -> str:
        """Begin a task and return its id. Variables and items stay: earlier messages belong to the task."""
        text = check_text(task, "task", MAX_GOAL)
        aim = text if goal is None else check_text(goal, "goal", MAX_GOAL)
        id = uuid.uuid4().hex[:8] if task_id is None else check_key(task_id, "task_id")
        self._change_frame(lambda frame: Frame(text, id, aim, variables=frame.variables))
        return id

    def take(self, task: str, task_id: str, stored: Mapping[str, Any] | None = None) -> bool:
        """Internal: begin a durable task, or continue it from a snapshot. False if another task is current."""
        text, id = check_text(task, "task", MAX_GOAL), check_key(task_id, "task_id")
        found = None if stored is None else self._read_snapshot(stored)

        def begin(frame: Frame, buffer: Buffer) -> State | None:
            new = found or (Frame(text, id, text, variables=frame.variables), buffer)
            return None if frame.task else new

        return self._change(begin, loaded=found is not None)

    def release(self, task_id: str) -> bool:
        """Internal: clear everything if this durable task is current. False if it is not."""
        return self._change(
            lambda frame, buffer: (Frame(), Buffer(buffer.budget)) if task_id and frame.task_id == task_id else None
        )

    def revision(self) -> object:
        """Internal: return a value that equals an earlier one if nothing has changed since."""
        with self._lock:
            return (self._frame, self._buffer)

    def set_goal(self, goal: str) -> None:
        text = check_text(goal, "goal", MAX_GOAL)
        self._change_frame(lambda frame: replace(frame, goal=text))

    def push_subgoal(self, goal: str) -> None:
        self._change_frame(lambda frame: frame.with_subgoals(goal))

    def pop_subgoal(self) -> str | None:
        """Remove the current subgoal from the stack and return it; None if there is none."""
        popped: list[str] = []

        def pop(frame: Frame) -> Frame:
            popped.extend(frame.subgoals[-1:])
            return replace(frame, subgoals=frame.subgoals[:-1])

        self._change_frame(pop)
        return popped[0] if popped else None

    def add_result(self, key: str, value: object) -> None:
        """Keep plain JSON. A tuple becomes a list."""
        name = check_key(key, "key")
        self._change_frame(lambda frame: frame.with_values("results", {name: value}))

    def get_result(self, key: str) -> Any:
        text = self._frame.results.get(check_key(key, "key"))
        return None if text is None else json.loads(text)

    def add_thought(self, thought: str) -> None:
        self._change_frame(lambda frame: frame.with_thoughts(thought))

    def set_variable(self, name: str, value: object) -> None:
        key = check_key(name, "name")
        self._change_frame(lambda frame: frame.with_values("variables", {key: value}))

    def get_variable(self, name: str, default: Any = None) -> Any:
        text = self._frame.variables.get(check_key(name, "name"))
        return default if text is None else json.loads(text)

    def clear(self) -> None:
        """Forget everything: the task is over."""
        self._change(lambda _, buffer: (Frame(), Buffer(buffer.budget)))

    @property
    def items(self) -> tuple[BufferEntry, ...]:
        """The newest items, in the order in which they were added."""
        return self._buffer.items

    @property
    def summary(self) -> str:
        """The summary of the older items: one sentence a line, oldest first."""
        return self._buffer.summary

    @property
    def current_tokens(self) -> int:
        """The tokens of the items and the summary."""
        return self._buffer.tokens

    @property
    def last_failure(self) -> str | None:
        """The reason why the last summary of a model was not used; None if it was."""
        return self._failure

    def add(self, item: str | Mapping[str, Any], kind: str = "note", speaker: str = "") -> BufferEntry:
        """Add a text, or a dict such as {"role": "user", "content": "…"}, and return the kept part of it."""
        entry = self._buffer.budget.make_entry(**{"kind": kind, "speaker": speaker, **_parse_item(item)})
        self._change(lambda frame, buffer: (frame, buffer.add_entries(entry)))
        return entry

    def compress(self) -> bool:
        """Summarise the older items now, as `add` does near the budget; False if there are none."""

        def compress(frame: Frame, buffer: Buffer) -> State | None:
            shorter = buffer.compress()
            return None if shorter is buffer else (frame, shorter)

        return self._change(compress)

    def pending(self) -> Pending | None:
        """Return the texts that a model could summarise better; None without a `summarize`."""
        buffer = self._buffer
        if not buffer.folded:
            return None
        texts = tuple(f"{item.speaker or item.kind}: {item.text}" for item in buffer.folded)
        return Pending(texts, buffer.budget.summary // 2)

    def improve(self, pending: Pending, summary: object) -> bool:
        """Replace our own summary by a model's. False if it is unfit, or if more was summarised since."""
        problem = self._find_problem(pending, summary)
        if problem is not None:
            self._failure = problem
            return False

        def replace_summary(frame: Frame, buffer: Buffer) -> State | None:
            if self.pending() != pending:
                return None
            self._failure = None
            return frame, buffer.with_model_summary(str(summary))

        return self._change(replace_summary)

    def refine(self) -> bool:
        """Ask `summarize` for a better summary of the pending texts. Nothing is locked meanwhile."""
        pending = self.pending()
        if pending is None or self._summarize is None:
            return False
        try:
            summary = self._summarize(pending.texts, pending.limit)
        except Exception as exc:  # noqa: BLE001  # a model may raise anything: our own summary stays
            raise_interrupt(exc)
            self._failure = f"{type(exc).__name__}: {exc}"
            return False
        return self.improve(pending, summary)

    def _find_problem(self, pending: Pending, summary: object) -> str | None:
        try:
            text = check_text(summary, "the summary")
        except InvalidInput as exc:
            return str(exc)
        tokens = self._buffer.budget.count(text)
        if tokens > pending.limit:
            return f"the summary has {tokens:,} tokens; the limit was {pending.limit:,}."
        return None if shares_words(text, pending.texts) else f"the summary speaks of something else: {text[:80]!r}."

    def context(self, budget: int | None = None, items: bool = True) -> str:
        """Render task, goal, results and thoughts, each cut to a stated length, then summary and items, for a prompt.

        It has at most `budget` tokens, `max_tokens` if none is given. `items=False` leaves summary and items out.
        """
        with self._lock:
            frame, buffer = self._frame, self._buffer
        most = buffer.budget.window.max_tokens if budget is None else check_count(budget, "budget", 0, MAX_TOKENS)
        return render_context(frame, buffer, most) if items else render_frame(frame, most, buffer.budget.count)

    def snapshot(self) -> dict[str, Any]:
        """Return everything as plain JSON, from which `load` and `from_snapshot` make an equal one."""
        with self._lock:
            frame, buffer = self._frame, self._buffer
        return make_snapshot(frame, buffer)

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Mapping[str, Any],
        count_tokens: CountTokens = estimate_tokens,
        summarize: Summarize | None = None,
    ) -> WorkingMemory:
        """Make a new one from a snapshot."""
        memory = cls(count_tokens=count_tokens, summarize=summarize)
        memory.load(snapshot)
        return memory

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Replace everything by a snapshot."""
        found = self._read_snapshot(snapshot)
        self._change(lambda *_: found, loaded=True)

    def _read_snapshot(self, snapshot: Mapping[str, Any]) -> State:
        return read_snapshot(snapshot, self._buffer.budget.count, self._summarize is not None)

    def __eq__(self, other: object) -> bool:
        return self.snapshot() == other.snapshot() if isinstance(other, WorkingMemory) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"WorkingMemory(task={self.task[:40]!r}, items={len(self.items)}, tokens={self.current_tokens:,})"


def _parse_item(item: object) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an item must be a text or a dict, not {type(item).__name__}.")
    if unknown := [key for key in item if key not in _ITEM_KEYS]:
        raise UnknownKey(f"unknown key {unknown[0]!r} in an item. Known: {', '.join(_ITEM_KEYS)}.")
    values = {_ITEM_KEYS[key]: value for key, value in item.items()}
    if len(values) < len(item) or "text" not in values:
        raise InvalidInput("an item needs one text or content, and at most one speaker or role.")
    return values
