"""Durable tasks: a list, the time line of one, and the decisions of a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from starlette.responses import Response

from engrain import InvalidInput, StepRecord, Timeline
from engrain.core.model.tasks import ENDED_STATUSES, TaskStatus
from engrain.ui.page_request import Visit

MAX_TASKS = 300
MIN_WIDTH = 0.6  # of 100: a step of a millisecond is still seen
ACTIONS = ("resolve", "signal", "park", "resume", "cancel")
VERDICTS = ("done", "failed", "skipped")


@dataclass(frozen=True)
class StepBar:
    """A step and its place on a time line of the width 100."""

    step: StepRecord
    start: float
    width: float
    seconds: float | None
    result: str | None


def show_tasks(visit: Visit) -> Response:
    wanted = [status for status in visit.query_list("status") if status in get_args(TaskStatus)]
    found = visit.memory.tasks.list(status=wanted, limit=MAX_TASKS)  # type: ignore[arg-type]
    values: dict[str, Any] = {"tasks": found, "wanted": wanted, "statuses": get_args(TaskStatus)}
    return visit.fragment("_tasks.html", **values) if visit.by_htmx else visit.page("tasks.html", **values)


def show_task(visit: Visit) -> Response:
    values = _load(visit)
    return visit.fragment("_task.html", **values) if visit.by_htmx else visit.page("task.html", **values)


def show_action_dialog(visit: Visit) -> Response:
    found, action = visit.memory.tasks.timeline(visit.require("name")), visit.require("action")
    if action not in ACTIONS:
        raise InvalidInput(f"{action!r} is none of {', '.join(ACTIONS)}.")
    waits = [step.name for step in found.waits_for if step.kind == "event"]
    return visit.fragment(
        "_task_action.html", task=found.task, action=action, step=visit.query("step"), waits=waits,
        occurrence=visit.query("occurrence") or "0",
    )  # fmt: skip


def act(visit: Visit) -> Response:
    tasks, name, action = visit.memory.tasks, visit.require("name"), visit.require("action")
    why = visit.value("why").strip()
    if action == "park":
        tasks.park(name, why)
        notice = "Parked. Its worker can write no more."
    elif action == "cancel":
        tasks.cancel(name, why)
        notice = "Cancelled for good."
    elif action == "resume":
        tasks.resume(name)
        notice = "It continues when a worker next recovers tasks."
    elif action == "signal":
        new = tasks.signal(name, visit.require("event"), _parse_json(visit.value("payload"), "payload"))
        notice = "Delivered." if new else "The task has this event already; nothing was changed."
    else:
        notice = _resolve(visit, name)
    return visit.redirect("task", notice, name=name)


def _resolve(visit: Visit, name: str) -> str:
    verdict = visit.require("verdict")
    if verdict not in VERDICTS:
        raise InvalidInput(f"a verdict is one of {', '.join(VERDICTS)}, not {verdict!r}.")
    result = _parse_json(visit.value("result"), "result") if verdict == "done" else None
    visit.memory.tasks.resolve(
        name, visit.require("step"), verdict, result=result, note=visit.value("why").strip(),  # type: ignore[arg-type]
        occurrence=int(visit.number("occurrence") or 0),
    )  # fmt: skip
    return f"Resolved as {verdict}. The task continues when it is next started."


def _load(visit: Visit) -> dict[str, Any]:
    found = visit.memory.tasks.timeline(visit.require("name"))
    now = datetime.now(found.task.started_at.tzinfo)
    ended = found.task.status in ENDED_STATUSES
    first, last = _find_range(found, now)
    return {
        "task": found.task,
        "bars": _draw_bars(found.steps, first, last),
        "ended": ended,
        "live": found.task.status == "running",
        "waits_for": found.waits_for,
        "first": first,
        "last": last,
        "unsettled": [step for step in found.steps if step.status == "ambiguous"],
    }


def _find_range(found: Timeline, now: datetime) -> tuple[datetime, datetime]:
    """Return the times of the first and the last step: beside days of sleep no step could be told from another."""
    begun = [step.began_at for step in found.steps] or [found.task.started_at]
    over = [step.ended_at or step.began_at for step in found.steps] or [now]
    return min(begun), max(*over, *begun) if len(over) + len(begun) > 1 else max(over)


def _draw_bars(steps: Sequence[StepRecord], first: datetime, last: datetime) -> list[StepBar]:
    whole = max((last - first).total_seconds(), 0.001)
    bars = []
    for step in steps:
        seconds = None if step.ended_at is None else max(0.0, (step.ended_at - step.began_at).total_seconds())
        start = min(100 - MIN_WIDTH, 100 * max(0.0, (step.began_at - first).total_seconds()) / whole)
        width = 100 - start if seconds is None else max(MIN_WIDTH, 100 * seconds / whole)
        bars.append(StepBar(step, round(start, 3), round(min(width, 100 - start), 3), seconds, _show_result(step)))
    return bars


def _show_result(step: StepRecord) -> str | None:
    """The value inside the versioned envelope of a result."""
    if step.result is None:
        return None
    try:
        kept = json.loads(step.result)
    except (ValueError, RecursionError):
        return step.result
    value = kept.get("value", kept.get("data", kept)) if isinstance(kept, dict) else kept
    return None if value is None else json.dumps(value, ensure_ascii=False, indent=1)


def _parse_json(text: str, what: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f'the {what} is not JSON: {exc}. A text needs quotes: "like this".') from exc
