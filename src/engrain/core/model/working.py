"""Working memory as values: the task's frame, a buffer that is summarized when full, and both as text for a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, chain
from typing import Any, Literal

from engrain.core.errors import InvalidInput, TooLarge
from engrain.core.model.recall import escape_text
from engrain.core.model.retention import WORKING_LIMITS, WindowLimits
from engrain.core.text.invisible import escape_invisible
from engrain.core.text.summarize import (
    SUMMARY_KIND,
    DigestLine,
    DigestPart,
    choose_lines,
    join_lines,
    make_line,
    split_lines,
)
from engrain.core.tokens import CountTokens, clip_text, cut_middle, shorten_line
from engrain.core.validation import check_count, check_key, check_name, check_share, check_text, encode_json

MAX_GOAL = 100_000  # bytes of a task, a goal or a thought
MAX_SUBGOAL = 10_000
MAX_SUBGOALS = 100
MAX_VALUE = 1_000_000  # bytes of JSON of one result or variable
MAX_VALUES = 4_000_000  # characters of JSON of all results, and as many of all variables
MAX_THOUGHTS = 1_000  # the newest; and no more than MAX_SCRATCH characters of them
MAX_SCRATCH = 1_000_000


@dataclass(frozen=True, slots=True)
class Frame:
    """`results` and `variables` are stored as JSON texts, so that no caller can change them."""

    task: str = ""
    task_id: str = ""
    goal: str = ""
    subgoals: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    scratchpad: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def with_values(self, where: Literal["results", "variables"], added: Mapping[Any, object]) -> Frame:
        """Set values. A value that is set again becomes the newest."""
        what = f"the name of a {where.removesuffix('s')}"
        new = {
            check_key(name, what): encode_json(value, f"{where}[{name!r}]", MAX_VALUE) for name, value in added.items()
        }
        old = self.results if where == "results" else self.variables
        values = {name: text for name, text in old.items() if name not in new} | new
        size = sum(len(name) + len(text) for name, text in values.items())
        if size > MAX_VALUES:
            raise TooLarge(f"{where} would have {size:,} characters; the limit is {MAX_VALUES:,}. Remember large ones.")
        return replace(self, results=values) if where == "results" else replace(self, variables=values)

    def with_subgoals(self, *goals: object) -> Frame:
        if len(self.subgoals) + len(goals) > MAX_SUBGOALS:
            raise TooLarge(f"{MAX_SUBGOALS} subgoals are the most there may be: finish one first.")
        new = tuple(check_text(goal, "subgoal", MAX_SUBGOAL) for goal in goals)
        return replace(self, subgoals=self.subgoals + new)

    def with_thoughts(self, *thoughts: object) -> Frame:
        """Add thoughts. A full scratchpad drops the oldest."""
        new = tuple(check_text(thought, "thought", MAX_GOAL) for thought in thoughts)
        every = (self.scratchpad + new)[-MAX_THOUGHTS:]
        sizes = accumulate(map(len, reversed(every)))
        fitting = sum(size <= MAX_SCRATCH for size in sizes)
        return replace(self, scratchpad=every[len(every) - fitting :])


def decode_values(values: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in values.items()}


MAX_TOKENS = 1_000_000
MIN_TOKENS = 100
MIN_SUMMARIZE_SHARE = 0.25  # compressed earlier, there would be no room for a summary
SUMMARY_DIVISOR = 3  # the summary has at most a third of the tokens at which the buffer is compressed


@dataclass(frozen=True, slots=True)
class BufferEntry:
    """A stored item. A text that was too large keeps its head and tail, and `left_out` counts the missing tokens."""

    text: str
    kind: str
    speaker: str
    tokens: int
    left_out: int = 0
    lines: tuple[DigestLine, ...] = field(default=(), repr=False, compare=False)


def check_window(max_tokens: object, max_items: object, summarize_at: object, keep_recent: object) -> WindowLimits:
    tokens = check_count(max_tokens, "max_tokens", MIN_TOKENS, MAX_TOKENS)
    items = check_count(max_items, "max_items", 2)
    share = check_share(summarize_at, "summarize_at")
    if share < MIN_SUMMARIZE_SHARE:
        raise InvalidInput(f"summarize_at must be from {MIN_SUMMARIZE_SHARE} to 1, not {summarize_at!r}.")
    # At most one less than the limit, so that a full buffer has something to summarize.
    return WindowLimits(items, tokens, share, items, check_count(keep_recent, "keep_recent", 1, items - 1))


@dataclass(frozen=True, slots=True)
class BufferBudget:
    """The limits of a buffer in tokens. With `models`, summarized items are kept for a model for a while."""

    window: WindowLimits
    count: CountTokens
    models: bool = False

    @property
    def full(self) -> int:
        """The tokens above which the buffer is compressed."""
        return int(self.window.max_tokens * self.window.summarize_at)

    @property
    def summary(self) -> int:
        return self.full // SUMMARY_DIVISOR

    @property
    def item(self) -> int:
        """The tokens of the largest item that leaves room for the summary."""
        return self.window.max_tokens - self.summary

    def make_entry(self, text: object, kind: object, speaker: object, left_out: int = 0) -> BufferEntry:
        """Check an item and cut it to size."""
        whole = check_text(text)
        shortened, gone = cut_middle(whole, self.item, self.count)
        if not shortened:
            raise TooLarge(f"the text has {gone:,} tokens, and not even a part of it fits into {self.item:,}.")
        part = DigestPart(shortened, check_name(speaker, "speaker"), check_key(kind, "kind"))
        lines = tuple(split_lines(part, self.count))
        return BufferEntry(shortened, part.kind, part.speaker, self.count(shortened), left_out + gone, lines)


@dataclass(frozen=True, slots=True)
class Buffer:
    """The newest items, and a summary of the older ones in lines.

    `fresh` lines come from the `folded` items, which a model may still summarize better. `settled` lines do not.
    """

    budget: BufferBudget
    items: tuple[BufferEntry, ...] = ()
    settled: tuple[DigestLine, ...] = ()
    fresh: tuple[DigestLine, ...] = ()
    folded: tuple[BufferEntry, ...] = ()

    @property
    def lines(self) -> tuple[DigestLine, ...]:
        return self.settled + self.fresh

    @property
    def summary(self) -> str:
        return join_lines(self.lines)

    @property
    def tokens(self) -> int:
        summary = self.budget.count(self.summary) if self.lines else 0
        return summary + sum(item.tokens for item in self.items)

    def add_entries(self, *entries: BufferEntry) -> Buffer:
        grown = replace(self, items=self.items + entries)
        full = len(grown.items) > self.budget.window.max_items or grown.tokens > self.budget.full
        return grown.compress() if full else grown

    def compress(self) -> Buffer:
        """Keep the newest items that the budget allows, and summarize the others."""
        older = self.items[: len(self.items) - self._count_kept()]
        if not older:
            return self
        settled, fresh, folded = self._fold(older)
        shorter = replace(self, items=self.items[len(older) :], folded=folded)
        return shorter.with_lines(settled, fresh)

    def with_lines(self, settled: Sequence[DigestLine], fresh: Sequence[DigestLine] = ()) -> Buffer:
        """Use these lines as the summary; if there are too many, the most valuable ones."""
        picked = choose_lines((*settled, *fresh), self.budget.summary, self.budget.count)
        early = {line.text for line in settled}
        return replace(
            self,
            settled=tuple(line for line in picked if line.text in early),
            fresh=tuple(line for line in picked if line.text not in early),
        )

    def with_model_summary(self, summary: str) -> Buffer:
        """Replace the fresh lines by a model's summary of the folded items."""
        lines = split_lines(DigestPart(summary, kind=SUMMARY_KIND), self.budget.count)
        return replace(self, folded=()).with_lines((*self.settled, *lines))

    def _count_kept(self) -> int:
        """Count the items to keep. The newest always fits: `BufferBudget.make_entry` cuts it to size."""
        window, room = self.budget.window, self.budget.full - self.budget.summary
        count = 0
        for item in reversed(self.items[-window.keep_recent :]):
            room -= item.tokens
            if count and room < 0:
                break
            count += 1
        return count

    def _fold(
        self, older: tuple[BufferEntry, ...]
    ) -> tuple[tuple[DigestLine, ...], tuple[DigestLine, ...], tuple[BufferEntry, ...]]:
        """Return the settled lines, the fresh lines and the folded items after `older` left the buffer."""
        new = tuple(chain.from_iterable(item.lines for item in older))
        if not self.budget.models:
            return (*self.lines, *new), (), ()
        folded = (*self.folded, *older)
        if sum(item.tokens for item in folded) <= self.budget.window.max_tokens:
            return self.settled, (*self.fresh, *new), folded
        # No model has summarized for a long time: its input must not grow without limit.
        return self.lines, new, older


SNAPSHOT_KIND = "working"
VERSION = 1
_MAX_LEFT_OUT = 2**53


def make_snapshot(frame: Frame, buffer: Buffer) -> dict[str, Any]:
    window = buffer.budget.window
    return {
        "engrain": SNAPSHOT_KIND,
        "v": VERSION,
        "max_tokens": window.max_tokens,
        "max_items": window.max_items,
        "summarize_at": window.summarize_at,
        "keep_recent": window.keep_recent,
        "task": frame.task,
        "task_id": frame.task_id,
        "goal": frame.goal,
        "subgoals": list(frame.subgoals),
        "results": decode_values(frame.results),
        "scratchpad": list(frame.scratchpad),
        "variables": decode_values(frame.variables),
        "items": [_write_entry(entry) for entry in buffer.items],
        "summary": [line.text for line in buffer.settled],
        "fresh": [line.text for line in buffer.fresh],
        "pending": [_write_entry(entry) for entry in buffer.folded],
    }


def read_snapshot(snapshot: object, count: CountTokens, models: bool) -> tuple[Frame, Buffer]:
    """Read a snapshot. Every value is checked like new input: a snapshot may come from anywhere."""
    checked = _check_snapshot(snapshot)
    window = check_window(checked["max_tokens"], checked["max_items"], checked["summarize_at"], checked["keep_recent"])
    budget = BufferBudget(window, count, models)
    buffer = Buffer(budget, folded=_read_entries(checked["pending"], "pending", budget))
    # Another counter may count too many tokens: with_lines() and add_entries() shorten it then.
    buffer = buffer.with_lines(
        _read_lines(checked["summary"], "summary", count), _read_lines(checked["fresh"], "fresh", count)
    )
    buffer = buffer.add_entries(*_read_entries(checked["items"], "items", budget))
    return _read_frame(checked), buffer


def _check_snapshot(snapshot: object) -> Mapping[str, Any]:
    if not isinstance(snapshot, Mapping) or snapshot.get("engrain") != SNAPSHOT_KIND:
        raise InvalidInput('this is no snapshot of a working memory: it lacks "engrain": "working".')
    if snapshot.get("v") != VERSION:
        raise InvalidInput(f"the snapshot has version {snapshot.get('v')!r}; this engrain knows {VERSION}. Upgrade it.")
    known = make_snapshot(Frame(), Buffer(BufferBudget(WORKING_LIMITS, len)))
    if wrong := sorted(map(str, known.keys() ^ snapshot.keys())):
        raise InvalidInput(f"the snapshot is damaged: {', '.join(wrong)} missing or unknown.")
    for key, value in known.items():
        if isinstance(value, (list, dict)) and not isinstance(snapshot[key], type(value)):
            raise InvalidInput(f"the snapshot is damaged: {key} is a {type(snapshot[key]).__name__}.")
    return snapshot


def _read_frame(snapshot: Mapping[str, Any]) -> Frame:
    task, goal = _read_text(snapshot["task"], "task"), _read_text(snapshot["goal"], "goal")
    frame = Frame(task, check_name(snapshot["task_id"], "task_id"), goal)
    frame = frame.with_subgoals(*snapshot["subgoals"]).with_thoughts(*snapshot["scratchpad"])
    return frame.with_values("results", snapshot["results"]).with_values("variables", snapshot["variables"])


def _read_text(value: object, what: str) -> str:
    return "" if value == "" else check_text(value, what, MAX_GOAL)


def _read_lines(texts: list[object], what: str, count: CountTokens) -> list[DigestLine]:
    return [make_line(check_text(text, what), count) for text in texts]


def _write_entry(entry: BufferEntry) -> dict[str, Any]:
    return {"text": entry.text, "kind": entry.kind, "speaker": entry.speaker, "left_out": entry.left_out}


def _read_entries(entries: list[object], what: str, budget: BufferBudget) -> tuple[BufferEntry, ...]:
    names = {field.name for field in fields(BufferEntry)} - {"tokens", "lines"}
    for entry in entries:
        if not isinstance(entry, Mapping) or entry.keys() != names:
            raise InvalidInput(f"the snapshot is damaged: {what} must be dicts of {', '.join(sorted(names))}.")
        check_count(entry["left_out"], "left_out", 0, _MAX_LEFT_OUT)
    return tuple(budget.make_entry(**entry) for entry in entries)  # type: ignore[arg-type]


FRAME_DIVISOR = 5  # the frame has at most a fifth of the text, if there are items to show as well

MAX_TASK_CHARACTERS = 1_000
MAX_SUBGOAL_CHARACTERS = 200
MAX_RESULT_CHARACTERS = 200
MAX_THOUGHT_CHARACTERS = 500
MAX_NAME_CHARACTERS = 80
# The newest results and thoughts and the innermost subgoals are shown.
SHOWN_SUBGOALS, SHOWN_RESULTS, SHOWN_THOUGHTS = 10, 20, 5
_HEADINGS = "Earlier:\n\n\nLatest (1,000 older ones not shown):\n"


def render_context(frame: Frame, buffer: Buffer, limit: int) -> str:
    """Render the frame, the summary and the newest items. The oldest go first if they do not fit."""
    count = buffer.budget.count
    frame_part = render_frame(frame, limit // FRAME_DIVISOR if buffer.items or buffer.lines else limit, count)
    buffer_part = render_buffer(buffer, limit - count(frame_part + "\n\n") if frame_part else limit)
    both = "\n\n".join(filter(None, (frame_part, buffer_part)))
    return both if count(both) <= limit else clip_text(both, limit, count)


def render_frame(frame: Frame, limit: int, count: CountTokens) -> str:
    subgoals = [_shorten(goal, MAX_SUBGOAL_CHARACTERS) for goal in frame.subgoals[-SHOWN_SUBGOALS:]]
    results = [
        f"  {_shorten(name, MAX_NAME_CHARACTERS)}: {_shorten(text, MAX_RESULT_CHARACTERS)}"
        for name, text in list(frame.results.items())[-SHOWN_RESULTS:]
    ]
    thoughts = [f"  - {_shorten(thought, MAX_THOUGHT_CHARACTERS)}" for thought in frame.scratchpad[-SHOWN_THOUGHTS:]]
    while True:
        text = _join_frame(frame, subgoals, results, thoughts)
        if count(text) <= limit:
            return text
        least_needed = results or thoughts or subgoals
        if not least_needed:
            return clip_text(text, limit, count)
        del least_needed[0]


def render_buffer(buffer: Buffer, limit: int) -> str:
    """Render the summary and the newest items. All of it is quoted: a tool's words must not pass for this text."""
    count = buffer.budget.count
    items: list[str] = []
    room = limit - count(_HEADINGS)
    for entry in reversed(buffer.items):
        item = _render_item(entry, escape_text(entry.text))
        if not items and count(item) > room:
            item = _render_item(entry, clip_text(escape_text(entry.text), room - count(_render_item(entry, "")), count))
        room -= count(item + "\n")
        if room < 0:
            break
        items.insert(0, item)
    quoted = [replace(line, tokens=count(_quote_line(line) + "\n")) for line in buffer.lines]
    earlier = choose_lines(quoted, room, count)
    while earlier or items:
        text = _join_buffer(earlier, items, len(buffer.items) - len(items))
        if count(text) <= limit:
            return text
        # Parts may count more together than apart.
        del (earlier or items)[0]
    return ""


def _join_frame(frame: Frame, subgoals: list[str], results: list[str], thoughts: list[str]) -> str:
    lines = [f"Current Task: {_shorten(frame.task, MAX_TASK_CHARACTERS)}"] if frame.task else []
    lines += [f"Current Goal: {_shorten(frame.goal, MAX_TASK_CHARACTERS)}"] if frame.goal else []
    lines += [f"Subgoals: {' > '.join(subgoals)}"] if subgoals else []
    if results:
        older = len(frame.results) - len(results)
        lines += [f"\nIntermediate Results{f' ({older} older ones not shown)' if older else ''}:", *results]
    if thoughts:
        lines += ["\nRecent Thoughts:", *thoughts]
    return "\n".join(lines).strip()


def _join_buffer(earlier: Sequence[DigestLine], items: Sequence[str], older: int) -> str:
    blocks = ["\n".join(["Earlier:", *map(_quote_line, earlier)])] if earlier else []
    if items:
        blocks.append("\n".join([f"Latest{f' ({older} older ones not shown)' if older else ''}:", *items]))
    return "\n\n".join(blocks)


def _render_item(entry: BufferEntry, text: str) -> str:
    label = ", ".join(filter(None, (entry.speaker, entry.kind)))
    return f'- {_shorten(label, MAX_NAME_CHARACTERS)}: "{text}"'


def _quote_line(line: DigestLine) -> str:
    return f'- "{escape_text(line.text)}"'


def _shorten(text: str, limit: int) -> str:
    return escape_invisible(shorten_line(text, limit))
