"""Working memory: the task at hand, and the newest items of it within a budget of tokens."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engrain.core.chat.prompt import render_context, render_frame
from engrain.core.errors import InvalidInput, UnknownKey
from engrain.core.model.retention import TIERS
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
)
from engrain.core.text.summarize import shares_words
from engrain.core.tokens import CountTokens, check_counter, estimate_tokens
from engrain.core.validation import check_count, check_key, check_text

Summarize = Callable[[Sequence[str], int], str]

_USUAL = TIERS["working"].window
_KEYS = {"text": "text", "content": "text", "kind": "kind", "speaker": "speaker", "role": "speaker"}


@dataclass(frozen=True, slots=True)
class Pending:
    """Texts that were summarised without a model; a better summary of them has at most `limit` tokens."""

    texts: tuple[str, ...]
    limit: int


class WorkingMemory:
    """What is needed for the task at hand. It works alone, with no store, and may be shared by threads.

    `add` keeps the newest items word for word, at most `max_items` of them. Together with the summary they never have
    more than `max_tokens`. Above the share `summarize_at` of it, all but the newest `keep_recent` (as many of those as
    leave a third of that share for the summary) become sentences of the summary, each of which then stays or goes as it
    is. An item too large to leave room for the summary is kept as its head and tail: `add` returns what was kept, and
    how many tokens were left out. No model is asked on the way: `refine` asks the one given as `summarize`, later.
    """

    def __init__(
        self,
        max_tokens: int = _USUAL.max_tokens,
        max_items: int = _USUAL.max_items,
        summarize_at: float = _USUAL.summarize_at,
        keep_recent: int = _USUAL.keep_recent,
        count_tokens: CountTokens = estimate_tokens,
        summarize: Summarize | None = None,
    ) -> None:
        window = check_window(max_tokens, max_items, summarize_at, keep_recent)
        self._lock = threading.RLock()
        self._frame = Frame()
        self._buffer = Buffer(BufferBudget(window, check_counter(count_tokens), summarize is not None))
        self._summarize = summarize
        # Called by whoever makes a change: before it, or with a snapshot after it is taken over, to clear what must be
        # gone by then (a snapshot may be of that too); and after every change.
        self.changing: Callable[[], None] = _nothing
        self.changed: Callable[[], None] = _nothing
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

    def set_task(self, task: str, goal: str | None = None, task_id: str | None = None) -> str:
        """Begin a task and return its id. Variables stay, and so do the items: what was said before belongs to it."""
        text = check_text(task, "task", MAX_GOAL)
        aim = text if goal is None else check_text(goal, "goal", MAX_GOAL)
        id = uuid.uuid4().hex[:8] if task_id is None else check_key(task_id, "task_id")
        self.changing()
        with self._lock:
            self._frame = Frame(text, id, aim, variables=self._frame.variables)
        self.changed()
        return id

    def take(self, task: str, task_id: str, left: Mapping[str, Any] | None = None) -> bool:
        """Begin a task as `set_task` does, or as a snapshot left it. If another is at hand nothing is done: False."""
        text, id = check_text(task, "task", MAX_GOAL), check_key(task_id, "task_id")
        found = None if left is None else self._state(left)
        if found is None:
            self.changing()
        with self._lock:
            if self._frame.task:
                return False
            if found is None:
                self._frame = Frame(text, id, text, variables=self._frame.variables)
            else:
                self._frame, self._buffer = found
        if found is not None:
            self.changing()
        self.changed()
        return True

    def release(self, task_id: str) -> bool:
        """Clear everything if this task is at hand; whether it was."""
        self.changing()
        with self._lock:
            if not task_id or self._frame.task_id != task_id:
                return False
            self._frame, self._buffer = Frame(), Buffer(self._buffer.budget)
        self.changed()
        return True

    def revision(self) -> object:
        """Equal to an earlier one if nothing has changed since."""
        with self._lock:
            return (self._frame, self._buffer)

    def set_goal(self, goal: str) -> None:
        text = check_text(goal, "goal", MAX_GOAL)
        self.changing()
        with self._lock:
            self._frame = replace(self._frame, goal=text)
        self.changed()

    def push_subgoal(self, goal: str) -> None:
        self.changing()
        with self._lock:
            self._frame = self._frame.with_subgoals(goal)
        self.changed()

    def pop_subgoal(self) -> str | None:
        """The current subgoal, taken from the stack; None if there is none."""
        self.changing()
        with self._lock:
            *rest, last = self._frame.subgoals or (None,)
            self._frame = replace(self._frame, subgoals=tuple(rest))
        self.changed()
        return last

    def add_result(self, key: str, value: object) -> None:
        """Plain JSON; a tuple comes back as a list."""
        name = check_key(key, "key")
        self.changing()
        with self._lock:
            self._frame = self._frame.with_values("results", {name: value})
        self.changed()

    def get_result(self, key: str) -> Any:
        text = self._frame.results.get(check_key(key, "key"))
        return None if text is None else json.loads(text)

    def add_thought(self, thought: str) -> None:
        self.changing()
        with self._lock:
            self._frame = self._frame.with_thoughts(thought)
        self.changed()

    def set_variable(self, name: str, value: object) -> None:
        key = check_key(name, "name")
        self.changing()
        with self._lock:
            self._frame = self._frame.with_values("variables", {key: value})
        self.changed()

    def get_variable(self, name: str, default: Any = None) -> Any:
        text = self._frame.variables.get(check_key(name, "name"))
        return default if text is None else json.loads(text)

    def clear(self) -> None:
        """Forget everything: the task is over."""
        self.changing()
        with self._lock:
            self._frame = Frame()
            self._buffer = Buffer(self._buffer.budget)
        self.changed()

    @property
    def items(self) -> tuple[BufferEntry, ...]:
        """The newest items, in the order in which they were added."""
        return self._buffer.items

    @property
    def summary(self) -> str:
        """What is told of the items before them: a sentence a line, oldest first."""
        return self._buffer.summary

    @property
    def current_tokens(self) -> int:
        """Of the items and the summary."""
        return self._buffer.tokens

    @property
    def last_failure(self) -> str | None:
        """Why the last summary of a model was not used; None if it was."""
        return self._failure

    def add(self, item: str | Mapping[str, Any], kind: str = "note", speaker: str = "") -> BufferEntry:
        """Add a text, or a dict such as {"role": "user", "content": "…"}, and return what was kept of it."""
        entry = self._buffer.budget.entry(**{"kind": kind, "speaker": speaker, **_values(item)})
        self.changing()
        with self._lock:
            self._buffer = self._buffer.added(entry)
        self.changed()
        return entry

    def compress(self) -> bool:
        """Do now what `add` does when the budget is nearly used up; False if there is nothing older to summarise."""
        self.changing()
        with self._lock:
            before = self._buffer
            self._buffer = before.compressed()
            done = self._buffer is not before
        if done:
            self.changed()
        return done

    def pending(self) -> Pending | None:
        """What a model could still summarise better; kept only where there is a `summarize`."""
        buffer = self._buffer
        if not buffer.folded:
            return None
        texts = tuple(f"{item.speaker or item.kind}: {item.text}" for item in buffer.folded)
        return Pending(texts, buffer.budget.summary // 2)

    def improve(self, pending: Pending, summary: object) -> bool:
        """Put a model's summary in the place of our own; False if it is no good, or if more was summarised since."""
        wrong = self._wrong(pending, summary)
        self.changing()
        with self._lock:
            if wrong is None and self.pending() != pending:
                return False
            self._failure = wrong
            if wrong is None:
                self._buffer = self._buffer.improved(str(summary))
        if wrong is None:
            self.changed()
        return wrong is None

    def refine(self) -> bool:
        """Ask `summarize` for a better summary of what is pending; it may take its time, since nothing is locked."""
        pending = self.pending()
        if pending is None or self._summarize is None:
            return False
        try:
            summary = self._summarize(pending.texts, pending.limit)
        except Exception as exc:  # noqa: BLE001  # a model fails in any way: our own summary stands
            self._failure = f"{type(exc).__name__}: {exc}"
            return False
        return self.improve(pending, summary)

    def _wrong(self, pending: Pending, summary: object) -> str | None:
        try:
            text = check_text(summary, "the summary")
        except InvalidInput as exc:
            return str(exc)
        tokens = self._buffer.budget.count(text)
        if tokens > pending.limit:
            return f"the summary has {tokens:,} tokens; the limit was {pending.limit:,}."
        return None if shares_words(text, pending.texts) else f"the summary speaks of something else: {text[:80]!r}."

    def context(self, budget: int | None = None, items: bool = True) -> str:
        """Task, goal, results and thoughts, each cut to a stated length, then summary and items, for a prompt.

        It has at most `budget` tokens, `max_tokens` if none is given. `items=False` leaves summary and items out.
        """
        with self._lock:
            frame, buffer = self._frame, self._buffer
        most = buffer.budget.window.max_tokens if budget is None else check_count(budget, "budget", 0, MAX_TOKENS)
        return render_context(frame, buffer, most) if items else render_frame(frame, most, buffer.budget.count)

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain JSON, from which `load` and `from_snapshot` make an equal one."""
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
        """Another one that holds what the snapshot does; `load` brings it back into this one."""
        memory = cls(count_tokens=count_tokens, summarize=summarize)
        memory.load(snapshot)
        return memory

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Take over what a snapshot holds, in place of everything that is here."""
        frame, buffer = self._state(snapshot)
        with self._lock:
            self._frame, self._buffer = frame, buffer
        self.changing()
        self.changed()

    def _state(self, snapshot: Mapping[str, Any]) -> tuple[Frame, Buffer]:
        return read_snapshot(snapshot, self._buffer.budget.count, self._summarize is not None)

    def __eq__(self, other: object) -> bool:
        return self.snapshot() == other.snapshot() if isinstance(other, WorkingMemory) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"WorkingMemory(task={self.task[:40]!r}, items={len(self.items)}, tokens={self.current_tokens:,})"


def _nothing() -> None:
    pass


def _values(item: object) -> dict[str, Any]:
    """The values of an item, whichever way it is given."""
    if isinstance(item, str):
        return {"text": item}
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an item must be a text or a dict, not {type(item).__name__}.")
    if wrong := [key for key in item if key not in _KEYS]:
        raise UnknownKey(f"unknown key {wrong[0]!r} in an item. Known: {', '.join(_KEYS)}.")
    values = {_KEYS[key]: value for key, value in item.items()}
    if len(values) < len(item) or "text" not in values:
        raise InvalidInput("an item needs one text or content, and at most one speaker or role.")
    return values
