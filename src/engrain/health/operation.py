"""Check disk, clock, waiting tasks and maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.model.results import Verdict, list_first, report_failure, report_pass, report_warning
from engrain.core.model.tasks import CHECKPOINT_VERSION, TaskQuery, TaskRecord
from engrain.core.validation import count_noun
from engrain.health.run_checks import Check, CheckContext, describe_age, describe_span, report_own
from engrain.maintenance.passes import MAINTENANCE_SCOPE
from engrain.maintenance.schedule_and_sync import MAINTENANCE_TASK

MAX_MISSED_ROUNDS = 3
MAX_TASKS = 1_000
MAX_CLOCK_SKEW, FAILING_CLOCK_SKEW = timedelta(seconds=5), timedelta(hours=1)


def check_clock(context: CheckContext) -> Verdict:
    newest = context.services.items.current_time()
    # Read after the store's moment: others may write while the earlier checks run.
    behind = timedelta(microseconds=newest - to_micros(context.services.clock()))
    if behind <= MAX_CLOCK_SKEW:
        return report_pass("the clock is not behind what was recorded")
    behind_text = f"{describe_span(behind)} behind the store ({from_micros(newest):%Y-%m-%d %H:%M} UTC)"
    why = f"the clock is {behind_text}, so times stand still and nothing expires"
    fix = "set the clock: timedatectl set-ntp true; if it is right, it was ahead before, and the store waits for it"
    return report_failure(why, fix) if behind > FAILING_CLOCK_SKEW else report_warning(why, fix)


def check_waiting_tasks(context: CheckContext) -> Verdict:
    journal = context.services.journal
    if journal is None:
        return report_pass("this store keeps no tasks")
    stopped = journal.tasks(TaskQuery(context.scope, ("parked", "expired", "failed"), limit=MAX_TASKS))
    waiting = {task.task: str(task.status) for task in stopped}
    for task in journal.tasks(TaskQuery(context.scope, ("running", "waiting"), limit=MAX_TASKS)):
        if any(step.status == "ambiguous" for step in journal.unsettled(context.scope, task.task)):
            waiting[task.task] = "ambiguous"
    if not waiting:
        return report_pass("no task waits for a person")
    named = list_first([f"{task} ({status})" for task, status in waiting.items()])
    why = f"{count_noun(len(waiting), 'task waits', 'tasks wait')} for a person: {named}"
    show = context.build_command("tasks", "show", about=next(iter(waiting)))
    return report_warning(why, f"{show} says why; engrain tasks resolve, resume or cancel decides")


def check_leases(context: CheckContext) -> Verdict:
    if context.services.journal is None:
        return report_pass("this store keeps no tasks")
    stale = context.services.journal.tasks(TaskQuery(context.scope, ("running",), stale=True, limit=MAX_TASKS))
    left = [task for task in stale if task.version != CHECKPOINT_VERSION and task.until is not None]
    if not left:
        return report_pass("every running task has a live worker")
    beats = [f"{task.task} (last heartbeat {describe_age(task.until, context.now)})" for task in left if task.until]
    cancel = context.build_command("tasks", "cancel", about=left[0].task)
    why = f"{count_noun(len(left), 'task was', 'tasks were')} left by a worker that died: {list_first(beats)}"
    return report_warning(why, f"start its program again, which recovers it; or {cancel}")


def check_maintenance(context: CheckContext) -> Verdict:
    if errors := _list_errors(context.background):
        return report_warning(
            f"background work is failing: {list_first(errors)}",
            f"{context.build_command('status', '--json')} shows it; fix what it names",
        )
    every = timedelta(minutes=context.services.policies.every_minutes)
    record = context.services.journal.task(MAINTENANCE_SCOPE, MAINTENANCE_TASK) if context.services.journal else None
    if not every:
        return _check_manual_maintenance(context)
    if record is None:
        return report_pass(
            f"maintenance is due every {_format_minutes(every)}, and has not run yet in a program that stays open"
        )
    return _check_last_round(context, every, record)


def _check_last_round(context: CheckContext, every: timedelta, record: TaskRecord) -> Verdict:
    if record.status == "running" and record.until and record.until > context.now:
        return report_pass("maintenance is running")
    try:
        last = datetime.fromisoformat(record.outcome)
    except ValueError:
        why = f"the last maintenance failed ({record.outcome or 'its process died'})"
        return report_warning(why, f"{context.build_command('maintain')} shows what is wrong")
    if context.now - last > MAX_MISSED_ROUNDS * every:
        due = f"though one is due every {_format_minutes(every)}"
        why = f"the last maintenance was {describe_age(last, context.now)}, {due}"
        return report_warning(why, f"{context.build_command('maintain')}; and start the program that stays open")
    return report_pass(f"the last maintenance was {describe_age(last, context.now)}, and no background work fails")


def _check_manual_maintenance(context: CheckContext) -> Verdict:
    """Check manual maintenance: overdue data shows that nobody runs it."""
    found = context.verdicts.get("past its time")
    if found is None or found.state != "warn":
        return report_pass("maintenance is left to engrain maintain (every_minutes is 0), and nothing is overdue")
    last = context.find_last_recorded("maintain")
    effect = f"last had an effect {describe_age(last, context.now)}" if last else "never had an effect"
    why = f"nobody seems to maintain this store: data is overdue, and maintenance {effect}"
    daily = f"{context.build_command('maintain')} daily, as deploy/engrain-maintenance.timer does"
    return report_warning(why, f"{daily}; or every_minutes = 60 in [lifecycle]")


def _list_errors(background: Mapping[str, Any]) -> list[str]:
    parts = {
        "embedding": background.get("error"),
        "the model": (background.get("enrichment") or {}).get("error"),
        "summaries": background.get("summary"),
        "the vector server": (background.get("vectors") or {}).get("error"),
        "maintenance": (background.get("maintenance") or {}).get("error"),
    }
    return [f"{name}: {str(error).rstrip('.')}" for name, error in parts.items() if error]


def _format_minutes(span: timedelta) -> str:
    count = span / timedelta(minutes=1)
    return "minute" if count == 1 else f"{count:g} minutes"


CHECKS = (
    Check(31, "operation", "disk", "Is there room for more, and for a copy?",
          report_own("disk", "its disk is not seen from here: {store.backend} {store.location}")),
    Check(32, "operation", "clock", "Is the clock right, as far as the store can tell?", check_clock),
    Check(33, "operation", "waiting tasks", "Does a task wait for a person?", check_waiting_tasks,
          "no task waits for a person"),
    Check(34, "operation", "leases", "Was a task left by a worker that died?", check_leases,
          "every running task has a live worker"),
    Check(35, "operation", "maintenance", "Does maintenance run, and does no background work fail?", check_maintenance),
)  # fmt: skip
