"""Working memory as plain JSON in a versioned envelope, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from engrain.core.buffer import Budget, Buffer, Entry, checked_window
from engrain.core.digest import Line, line
from engrain.core.errors import InvalidInput
from engrain.core.frame import MAX_GOAL, Frame, decoded
from engrain.core.text import checked_count, checked_name, checked_text
from engrain.core.tiers import TIERS
from engrain.core.tokens import CountTokens

WHAT = "working"
VERSION = 1
_MOST = 2**53


def snapshot_of(frame: Frame, buffer: Buffer) -> dict[str, Any]:
    window = buffer.budget.window
    return {
        "engrain": WHAT,
        "v": VERSION,
        "max_tokens": window.max_tokens,
        "max_items": window.max_items,
        "summarize_at": window.summarize_at,
        "keep_recent": window.keep_recent,
        "task": frame.task,
        "task_id": frame.task_id,
        "goal": frame.goal,
        "subgoals": list(frame.subgoals),
        "results": decoded(frame.results),
        "scratchpad": list(frame.scratchpad),
        "variables": decoded(frame.variables),
        "items": [_entry_values(entry) for entry in buffer.items],
        "summary": [one.text for one in buffer.settled],
        "fresh": [one.text for one in buffer.fresh],
        "pending": [_entry_values(entry) for entry in buffer.folded],
    }


def state_of(snapshot: object, count: CountTokens, models: bool) -> tuple[Frame, Buffer]:
    """Every value is checked as if it were new: a snapshot may come from anywhere."""
    given = _opened(snapshot)
    window = checked_window(given["max_tokens"], given["max_items"], given["summarize_at"], given["keep_recent"])
    budget = Budget(window, count, models)
    buffer = Buffer(budget, folded=_entries(given["pending"], "pending", budget))
    # With another counter there may be too much of it: telling() and added() see to that.
    buffer = buffer.telling(_lines(given["summary"], "summary", count), _lines(given["fresh"], "fresh", count))
    buffer = buffer.added(*_entries(given["items"], "items", budget))
    return _frame(given), buffer


def _opened(snapshot: object) -> Mapping[str, Any]:
    if not isinstance(snapshot, Mapping) or snapshot.get("engrain") != WHAT:
        raise InvalidInput('this is no snapshot of a working memory: it lacks "engrain": "working".')
    if snapshot.get("v") != VERSION:
        raise InvalidInput(f"the snapshot has version {snapshot.get('v')!r}; this engrain knows {VERSION}. Upgrade it.")
    known = snapshot_of(Frame(), Buffer(Budget(TIERS[WHAT].window, len)))
    if wrong := sorted(map(str, known.keys() ^ snapshot.keys())):
        raise InvalidInput(f"the snapshot is damaged: {', '.join(wrong)} missing or unknown.")
    for key, value in known.items():
        if isinstance(value, (list, dict)) and not isinstance(snapshot[key], type(value)):
            raise InvalidInput(f"the snapshot is damaged: {key} is a {type(snapshot[key]).__name__}.")
    return snapshot


def _frame(given: Mapping[str, Any]) -> Frame:
    task, goal = _text(given["task"], "task"), _text(given["goal"], "goal")
    frame = Frame(task, checked_name(given["task_id"], "task_id"), goal)
    frame = frame.with_subgoals(*given["subgoals"]).with_thoughts(*given["scratchpad"])
    return frame.with_values("results", given["results"]).with_values("variables", given["variables"])


def _text(value: object, what: str) -> str:
    return "" if value == "" else checked_text(value, what, MAX_GOAL)


def _lines(given: list[object], what: str, count: CountTokens) -> list[Line]:
    return [line(checked_text(text, what), count) for text in given]


def _entry_values(entry: Entry) -> dict[str, Any]:
    return {"text": entry.text, "kind": entry.kind, "speaker": entry.speaker, "left_out": entry.left_out}


def _entries(given: list[object], what: str, budget: Budget) -> tuple[Entry, ...]:
    names = {field.name for field in fields(Entry)} - {"tokens", "lines"}
    for one in given:
        if not isinstance(one, Mapping) or one.keys() != names:
            raise InvalidInput(f"the snapshot is damaged: {what} must be dicts of {', '.join(sorted(names))}.")
        checked_count(one["left_out"], "left_out", 0, _MOST)
    return tuple(budget.entry(**one) for one in given)  # type: ignore[arg-type]
