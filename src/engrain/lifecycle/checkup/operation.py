"""Whether somebody looks after the memory, and what goes on beside goes well."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from engrain.core.checked import Verdict, named, passed, warned
from engrain.core.journal import TaskRecord
from engrain.lifecycle.care.keeper import PLACE, task_of
from engrain.lifecycle.checkup.looking import Look, Point, ago

MISSED = 3  # rounds


def upkeep(look: Look) -> Verdict:
    if trouble := _troubles(look.background):
        return warned(f"work beside is failing: {named(trouble)}", "engrain status --json shows it; mend what it names")
    every = timedelta(minutes=look.kit.policies.every_minutes)
    record = look.kit.journal.task(PLACE, task_of(look.scope)) if look.kit.journal else None
    if not every:
        return _by_hand(look)
    if record is None:
        return passed(f"care is due every {_minutes(every)}, and has not been yet in a program that stays open")
    return _kept(look, every, record)


def _kept(look: Look, every: timedelta, record: TaskRecord) -> Verdict:
    if record.status == "running" and record.until and record.until > look.now:
        return passed("a round of care is under way")
    last = _time(record.outcome)
    if last is None:
        why = f"the last round of care did not end well ({record.outcome or 'its process died'})"
        return warned(why, "engrain maintain shows what is wrong")
    if look.now - last > MISSED * every:
        why = f"the last round of care was {ago(last, look.now)}, though one is due every {_minutes(every)}"
        return warned(why, "engrain maintain; and start the program that stays open")
    return passed(f"the last round of care was {ago(last, look.now)}, and nothing beside fails")


def _by_hand(look: Look) -> Verdict:
    """Without a program that cares, what is due piles up: that shows whether somebody else does."""
    found = look.verdicts.get("past its time")
    if found is None or found.state != "warn":
        return passed("care is left to engrain maintain (every_minutes is 0), and nothing is overdue")
    last = look.last("maintain")
    since = f"the last care that did something was {ago(last, look.now)}" if last else "no care ever did something"
    why = f"nobody seems to look after this store: things are overdue, and {since}"
    return warned(
        why, "engrain maintain daily, as deploy/engrain-upkeep.timer does; or every_minutes = 60 in [lifecycle]"
    )


def _troubles(background: Mapping[str, Any]) -> list[str]:
    parts = {
        "embedding": background.get("error"),
        "the model": (background.get("enrichment") or {}).get("error"),
        "summaries": background.get("summary"),
        "the vector server": (background.get("vectors") or {}).get("error"),
        "care": (background.get("care") or {}).get("error"),
    }
    return [f"{name}: {str(error).rstrip('.')}" for name, error in parts.items() if error]


def _minutes(span: timedelta) -> str:
    return f"{span / timedelta(minutes=1):g} minutes"


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


POINTS = (Point(35, "operation", "upkeep", "Is it looked after, and does nothing fail beside?", upkeep),)
