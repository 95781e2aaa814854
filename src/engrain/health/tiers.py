"""Check that every kind of memory answers and keeps within its limits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from engrain.core.errors import StoreError
from engrain.core.model.items import PROCEDURE_SLOT_PREFIX, SESSION_SLOT_PREFIX
from engrain.core.model.procedures import estimate_success_rate
from engrain.core.model.results import Verdict, list_first, report_failure, report_pass, report_warning
from engrain.core.model.retention import CONVERSATION_LIMITS, TIERS
from engrain.core.model.tasks import TaskQuery
from engrain.core.validation import count_noun
from engrain.health.run_checks import Check, CheckContext, find_worst
from engrain.maintenance import episodes as episode_passes
from engrain.maintenance.passes import MaintenanceContext

MAX_SESSIONS = 50  # the newest
ABANDONED_AFTER = timedelta(days=1)  # without a message
MIN_TRIALS = 3  # before a procedure's success rate counts
START_SERVER = "start its server, or name another in [stores]"


def check_stores(context: CheckContext) -> Verdict:
    services = context.services
    asked: dict[str, Callable[[], object]] = {
        "conversation": lambda: services.log.sessions(context.scope, 1),
        "semantic": lambda: context.store,
        "episodic": lambda: services.episodes and services.episodes.recent(context.scope, None, 1, context.now),
        "procedural": lambda: services.outcomes and services.outcomes.tallies(context.scope, []),
        "tasks": lambda: services.journal and services.journal.tasks(TaskQuery(context.scope, limit=1)),
    }
    parts = {"episodic": services.episodes, "procedural": services.outcomes, "tasks": services.journal}
    missing = [name for name, part in parts.items() if part is None]
    if missing:
        return report_warning(
            f"this store keeps no {list_first(missing)} memory", "engrain copy it to agent.db or postgresql://…"
        )
    for name, ask in asked.items():
        try:
            ask()
        except StoreError as exc:
            return report_failure(f"{name} memory does not answer: {str(exc).rstrip('.')}", START_SERVER)
    redis = find_worst(context.find_on_servers("redis"))
    if redis and redis.state != "pass":
        return redis._replace(fix=redis.fix or START_SERVER)
    if not_writable := context.find_own("writable"):
        return not_writable
    servers = f", with {list_first([server.where for server in services.servers])}" if services.servers else ""
    return report_pass(f"all kinds of memory answer, in {context.store.backend}{servers}")


def check_windows(context: CheckContext) -> Verdict:
    most = CONVERSATION_LIMITS.max_items
    log = context.services.log
    names = log.sessions(context.scope, MAX_SESSIONS)
    behind = []
    for name in names:
        summary = log.summary(context.scope, name)
        tail = log.length(context.scope, name) - (summary.upto if summary else 0)
        if tail > most and len(log.last(context.scope, name, most + 1)) > most:
            behind.append(f"{name} ({tail:,})")
    if not names:
        return report_pass("there is no session yet")
    if not behind:
        return report_pass(f"no session, of the newest {len(names)}, has more than {most} messages without a summary")
    many = count_noun(len(behind), "session has", "sessions have")
    why = f"{many} more than {most} messages without a summary: {list_first(behind)}"
    return report_warning(why, "the next message summarizes it: memory.start_session(NAME), then add_message")


def check_sessions(context: CheckContext) -> Verdict:
    names = context.services.log.sessions(context.scope, MAX_SESSIONS)
    left = [name for name in names if _was_abandoned(context, name)]
    if not names:
        return report_pass("there is no session yet")
    if not left:
        return report_pass(f"no session, of the newest {len(names)}, was inactive for a day without a summary")
    many = count_noun(len(left), "session was", "sessions were")
    why = f"{many} never ended, so recall finds no summary of it: {list_first(left)}"
    return report_warning(
        why, "memory.start_session(NAME) and memory.end_session() end one; a new session ends the last three"
    )


def _was_abandoned(context: CheckContext, session: str) -> bool:
    last = context.services.log.last(context.scope, session, 1)
    if not last or context.now - last[0].recorded_at < ABANDONED_AFTER:
        return False
    recap = context.services.items.slot(context.scope, SESSION_SLOT_PREFIX + session, None)
    return recap is None or recap.metadata.get("upto") != context.services.log.length(context.scope, session)


def check_episodes(context: CheckContext) -> Verdict:
    if context.services.episodes is None:
        return report_pass("this store keeps no episodes")
    promoted, _, trimmed, tidied = (
        len(planned.actions)
        for planned in episode_passes.plan_episode_passes(
            MaintenanceContext(context.services, context.scope, context.now)
        )
    )
    most = TIERS["episodic"].max_items
    wrong = (
        (promoted, "of importance 0.7 or more would be lost when they expire"),
        (trimmed, f"are beyond the {most:,} that a session keeps"),
        (tidied, "cite texts that no longer exist"),
    )
    listed = [f"{count:,} {what}" for count, what in wrong if count]
    if listed:
        return report_warning(f"of the episodes {', '.join(listed)}", context.build_command("maintain"))
    return report_pass(f"no session has more than {most:,} episodes, and important ones are kept")


def check_slots(context: CheckContext) -> Verdict:
    found = context.find_own("slots") or report_pass("this store allows only one value for each slot")
    fix = f"{context.build_command('slots')} shows them; engrain forget ID the one that is wrong"
    return found if found.state == "pass" else found._replace(fix=fix)


def check_procedures(context: CheckContext) -> Verdict:
    if context.services.outcomes is None:
        return report_pass("this store counts no trials of procedures")
    known = {
        item.id: (item.slot or "").removeprefix(PROCEDURE_SLOT_PREFIX)
        for item in context.services.items.slots(context.scope, PROCEDURE_SLOT_PREFIX, None)
    }
    if not known:
        return report_pass("there is no procedure yet")
    tallies = context.services.outcomes.tallies(context.scope, list(known))
    bad = [
        f"{known[id]} ({tally.successes} of {tally.successes + tally.failures})"
        for id, tally in tallies.items()
        if tally.successes + tally.failures >= MIN_TRIALS
        and estimate_success_rate(tally.successes, tally.failures) < estimate_success_rate(0, 0)
    ]
    if bad:
        worse = count_noun(len(bad), "procedure does", "procedures do")
        why = f"{worse} worse than an untried one: {list_first(bad)}"
        shown = context.build_command("procedures", about=bad[0].rpartition(" (")[0])
        return report_warning(why, f"{shown} shows the failures; memory.procedural.learn(NAME, steps) replaces it")
    return report_pass(f"no procedure, of {len(known):,}, does worse than an untried one")


CHECKS = (
    Check(1, "tiers", "stores", "Does the store of every kind of memory answer?", check_stores),
    Check(2, "tiers", "windows", "Do the summaries keep up with the messages?", check_windows,
          "no session has more messages without a summary than a window holds"),
    Check(3, "tiers", "sessions", "Was every session ended?", check_sessions,
          "no session was inactive for a day without a summary"),
    Check(4, "tiers", "episodes", "Are the episodes within their limits?", check_episodes,
          "episodes are within their limits, and important ones are kept"),
    Check(5, "tiers", "slots", "Does every slot have one current value?", check_slots),
    Check(6, "tiers", "procedures", "Do the procedures work?", check_procedures,
          "no procedure does worse than an untried one"),
)  # fmt: skip
