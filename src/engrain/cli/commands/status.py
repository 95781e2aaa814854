"""Commands for the operator of a store: status, memories, maintain, doctor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command
from engrain.cli.context import DEFAULT_STORE, HIDDEN, CommandContext, check_memory_exists, list_hiding_holds
from engrain.cli.output import (
    bold,
    dim,
    escape,
    flatten,
    format_bytes,
    format_table,
    show_progress,
    terminal_width,
    wrap,
)
from engrain.connect.connect_home import ConnectHome
from engrain.core.errors import BackendMissing, ConfigError, EmptyText, InvalidInput, StoreCorrupt, StoreError
from engrain.core.identity import Scope
from engrain.core.model.results import GROUPS, NOT_OPENED, split_commands, summarize_checks
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.connect.status import Finding
    from engrain.core.model.erasure import Hold
    from engrain.core.model.results import CheckResult, MaintenanceReport, MemoryInfo, Status


COUNT_LIMIT = 1_000  # status counts no further


@memory_command(
    "status",
    examples=("engrain status", "engrain status --json"),
    prints="How much the memory and its store hold, the embedder, and pending work.",
)
def status(cli: CommandContext) -> None:
    """Show counts, store, embedder and pending work."""
    with cli.open_memory() as memory:
        answer = memory.store.status(memory.scope)
    cli.print_result(answer, lambda: format_table(_format_status(answer)))


@memory_command(
    "memories",
    examples=("engrain memories", "engrain memories --json"),
    prints="One line for each memory: its user, agent and tenant, and its number of items.",
)
def memories(cli: CommandContext) -> None:
    """List every memory in the store, with its owner.

    A store can hold many memories, isolated from each other. The list shows the exact names that --user, --agent and
    --tenant need.
    """
    with cli.open_memory() as memory:
        found = memory.store.memories()
        hidden = sum(hold.user is not None for hold in list_hiding_holds(memory))

    def format_memory(info: MemoryInfo) -> list[str]:
        return [f"{info.scope}: {count_noun(info.items, 'item')}"]

    if not cli.print_each(found, format_memory) and not cli.json:
        click.echo("No memory is shown." if hidden else "No memory in this store yet.")
    if hidden:
        more = count_noun(hidden, "more user is", "more users are")
        click.echo(f"note: {more} hidden under a legal hold. `engrain hold` names them.", err=True)


def _format_status(answer: Status) -> list[tuple[str, str]]:
    store, embedder = dict(answer.store), dict(answer.embedder)
    rows = [
        ("memory", f"{answer.scope}: {count_noun(answer.items, 'item')}"),
        ("contains", ", ".join(_format_counts(answer.counts))),
        ("store", f"{store.pop('backend')} {store.pop('location')}"),
        ("whole store", _format_store(store)),
        ("on disk", format_bytes(store.pop("bytes"))),
        ("schema", str(store.pop("schema"))),
        ("embedder", f"{embedder.get('name')}, {embedder.get('dimension')} dimensions"),
        ("to embed", "unknown" if answer.store["hidden"] else f"{store.pop('unembedded'):,}"),
        ("bytes to remove", "pending: another process still reads them" if store.pop("purge_pending") else "none"),
    ]
    if change := answer.background.get("changing"):
        rows.append(("changing to", f"{change['to']}: {change['embedded']:,} of {change['of']:,}"))
    rows += [("legal hold", _format_hold(answer.hold))] if answer.hold else []
    rows += [("running erasure", _format_erasure(erasure)) for erasure in answer.background.get("erasures") or ()]
    rows += _format_vectors(answer.background.get("vectors") or {}, answer.store["hidden"])
    rows += _format_maintenance(answer.background.get("maintenance") or {})
    rows += [("not answering", str(why)) for why in (answer.background.get("unavailable") or {}).values()]
    details = store.pop("details", {})
    return rows + [(name.replace("_", " "), value) for name, value in flatten(details)]


def _format_erasure(erasure: Mapping[str, Any]) -> str:
    return f"{erasure['by']}, requested {erasure['since']:%Y-%m-%d %H:%M} UTC. Complete it: engrain erase --resume"


def _format_hold(hold: Hold) -> str:
    return f"since {hold.at:%Y-%m-%d}, for {hold.reason}{f'; {HIDDEN}' if hold.hidden else ''}"


def _format_counts(counts: Mapping[str, int | None]) -> Iterator[str]:
    for name, count in counts.items():
        if count is None:
            yield f"{name} unknown"
        else:
            yield count_noun(count, name.removesuffix("s"), f"or more {name}" if count >= COUNT_LIMIT else name)


def _format_vectors(state: dict[str, Any], hidden: bool) -> list[tuple[str, str]]:
    if not state:
        return []
    behind = state["error"] or ("up to date" if state["behind"] == 0 else f"{state['behind']:,} changes behind")
    if hidden and not state["error"]:
        behind = "number of missing changes unknown"
    return [("vectors in", f"{state['server']}: {behind}")]


def _format_maintenance(state: dict[str, Any]) -> list[tuple[str, str]]:
    if not state.get("every_minutes"):
        return []
    last = f"last {state['last']:%Y-%m-%d %H:%M} UTC" if state["last"] else "not yet"
    every = "every minute" if state["every_minutes"] == 1 else f"every {state['every_minutes']:g} minutes"
    return [("maintenance", f"{every}, {last}")]


def _format_store(store: dict[str, Any]) -> str:
    if store["hidden"]:
        return "hidden from this role by row-level security (the policy maintenance)"
    memories = count_noun(store["scopes"], "memory", "memories")
    return f"{count_noun(store['open_items'], 'item')}, {store['items']:,} with old versions, in {memories}"


@memory_command(
    "maintain",
    examples=(
        "engrain maintain --dry-run --each",
        "engrain maintain",
        "engrain --user ana maintain",
        "engrain --store engrain.toml maintain --reembed",
        "engrain maintain --json",
    ),
    prints="One line for each pass that has something to do. With --each, every pass, and every item with its owner "
    "and the reason.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would be done.")
@click.option("--each", is_flag=True, help="List every item, episode and task, with the reason.")
@click.option("--reembed", is_flag=True, help="Compute all vectors with the current model and drop the old ones.")
@click.option("--trust-clock", is_flag=True, help="The clock is right, although it jumped by half a year.")
@click.option("--everyone", is_flag=True, help="Every memory, even if a user, agent or tenant is set.")
def maintain(cli: CommandContext, dry_run: bool, each: bool, reembed: bool, trust_clock: bool, everyone: bool) -> None:
    """Remove expired episodes and old tasks, embed what is new.

    Works on every memory of the store, or only on the one that --user, --agent and --tenant name.

    Also removes knowledge of little importance that is rarely used, and makes backups if a folder is set. The table
    [lifecycle] of the settings controls each pass; docs/how-to/maintain.md lists them. A dry run shows exactly what a
    real run would do.
    """
    with cli.open_memory() as memory, show_progress("Maintaining", None, cli.json) as progress:
        everyone = everyone or not (cli.user or cli.agent or cli.tenant)
        if not everyone:
            check_memory_exists(memory)
        scope = None if everyone else memory.scope
        options = {"dry_run": dry_run, "reembed": reembed, "trust_clock": trust_clock}
        report = memory.store.maintain(scope, **options, progress=progress)
    cli.print_result(report, lambda: _format_maintenance_report(report, each))
    if report.problems:
        click.get_current_context().exit(1)


def _format_maintenance_report(report: MaintenanceReport, each: bool) -> Iterator[str]:
    where = f" in {count_noun(report.memories, 'memory', 'memories')}" if report.memories > 1 else ""
    lines = [line for line, count in zip(report.lines, report.counts.values(), strict=True) if count or each]
    if lines and where:
        yield f"Maintenance{where}:"
    yield from lines
    if each:
        yield from (escape(f"  {f'{action.scope}: ' if action.scope else ''}{action}") for action in report.each)
    if not report.each and not report.problems and not each:
        yield f"Nothing to do{where}."
    yield from (escape(f"not done: {problem}") for problem in report.problems)


MARKS = {"pass": ("✓", "green"), "warn": ("!", "magenta"), "fail": ("✗", "red"), "unknown": ("?", "yellow")}
CHECK_COUNT = 35
EVERY_MEMORY = "every memory of the store"


@memory_command(
    "doctor",
    examples=(
        "engrain doctor",
        "engrain doctor --user ana",
        "engrain doctor --strict --json",
        "engrain doctor --rebuild",
    ),
    prints="35 checks in groups: passed (✓), warning (!), failed (✗) or not checked (?), each with the reason and a "
    "fix; docs/reference/checklist.md explains them. Exit code 1 if a check failed or the store does not exist; with "
    "--strict also on ! and ?.",
)
@click.option("--rebuild", is_flag=True, help="First rebuild every index from the stored texts.")
@click.option("--everyone", is_flag=True, help="Check every memory, even if a user, agent or tenant is set.")
@click.option("--strict", is_flag=True, help="Exit code 1 on warnings too, for scripts.")
def doctor(cli: CommandContext, rebuild: bool, everyone: bool, strict: bool) -> None:
    """Run 35 checks and show how to fix each problem.

    Checks every memory of the store, or only the one that --user, --agent and --tenant name. Without --store
    and engrain.db that is the store of the agents that `engrain connect` connected.
    """
    agents = _check_agents()
    is_theirs = bool(agents) and cli.store is None and not Path(DEFAULT_STORE).exists()
    if is_theirs:
        cli.store = ConnectHome.find().store
    everyone = everyone or not (cli.user or cli.agent or cli.tenant)
    scope = Scope(cli.tenant, cli.agent, cli.user)  # an invalid name is a usage error, not a failed check
    about: dict[str, Any] = {"memory": EVERY_MEMORY if everyone else str(scope), "rebuilt": None}
    about |= {"store": cli.store} if is_theirs else {}
    checks = [] if is_theirs and cli.find_missing_file() else _run_checks(cli, rebuild, about)
    states: list[str] = [*(check.state for check in checks), *(agent.state for agent in agents)]
    failed = "fail" in states
    counts = {state: sum(check.state == state for check in checks) for state in MARKS}
    summary = {"counts": counts, "counted": summarize_checks(checks), "findings": checks, "agents": agents}
    cli.print_result({"ok": not failed, **about, **summary}, lambda: _format_checks(checks, about, agents))
    if failed or (strict and any(state != "pass" for state in states)):
        click.get_current_context().exit(1)


def _run_checks(cli: CommandContext, rebuild: bool, about: dict[str, Any]) -> list[CheckResult]:
    from engrain.config import load_settings

    try:
        settings = load_settings(cli.store)
        # A memory that is opened read-only does not connect to a vector or session server.
        one_server = not (settings.vectors or settings.sessions)
        with cli.open_memory(read_only=not rebuild and one_server) as memory:
            if rebuild:
                with show_progress("Embedding", None, cli.json) as progress:
                    about["rebuilt"] = memory.store.rebuild(progress=progress)
            everyone = about["memory"] == EVERY_MEMORY
            about["empty"] = False
            with suppress(ValueError, StoreCorrupt):  # a damaged row: its check reports it
                about["empty"] = not (memory.store.memories() if everyone else memory.list(limit=1))
            with show_progress("Checking", CHECK_COUNT, cli.json) as progress:
                return memory.store.doctor(None if everyone else memory.scope, progress=progress)
    except EmptyText:  # an empty name on the command line
        raise
    except (StoreError, ConfigError, BackendMissing, InvalidInput) as error:
        from engrain.health import CHECKS
        from engrain.health.run_checks import explain_unopened

        return explain_unopened(CHECKS, error, cli.store)


def _check_agents() -> list[Finding]:
    """Check the coding agents that `engrain connect` gave a memory; none if there are none."""
    from engrain.connect.connector import list_connections

    home = ConnectHome.find()
    if not list_connections(home):
        return []
    from engrain.connect.status import read_status

    return list(read_status(home, Path.cwd()).list_findings())


def _format_checks(checks: Sequence[CheckResult], about: Mapping[str, Any], agents: Sequence[Finding]) -> Iterator[str]:
    shown = [check for check in checks if check.why != NOT_OPENED]
    if "store" in about:
        yield f"The store of the connected agents: {escape(about['store'])}"
    yield from _format_head(about) if checks else ["It does not exist yet: the first session of an agent makes it."]
    left = max((len(check.name) for check in shown), default=0)
    for group in GROUPS:
        members = [check for check in shown if check.group == group]
        if members:
            passed = sum(check.state == "pass" for check in members)
            yield bold(group.capitalize()) + dim(f"  {passed} of {len(members)}")
        for check in members:
            yield from _format_check(check, left)
    if agents:
        yield bold("Coding agents") + dim("  engrain connect --status")
        for agent in agents:
            mark, colour = MARKS[agent.state]
            yield f"  {click.style(mark, fg=colour, bold=True)} {agent.name}: {escape(agent.why)}."
            if agent.fix:
                yield from _format_fix(agent.fix, "    ") if agent.state != "pass" else wrap(agent.fix, "    ")
    if checks:
        yield ""
    if problems := [f"{check.number} {check.name}" for check in shown if check.state != "pass"]:
        yield from wrap(f"See above: {', '.join(problems)}. docs/reference/checklist.md explains each.", limit=None)
    if checks:
        yield summarize_checks(checks)


def _format_head(about: Mapping[str, Any]) -> Iterator[str]:
    if about["rebuilt"] is not None:
        yield f"Rebuilt every index from {count_noun(about['rebuilt'], 'item')}."
    if "empty" not in about:
        yield "The store does not open."
    elif about["memory"] == EVERY_MEMORY:
        yield "The store is empty." if about["empty"] else "Checked: every memory of the store."
    elif about["empty"]:
        # Most checks pass on an empty memory.
        yield f"The checked memory, {about['memory']}, is empty. Choose yours with --user, --agent, --tenant."
    else:
        yield f"Checked: {about['memory']}."


def _format_check(check: CheckResult, left: int) -> Iterator[str]:
    mark, colour = MARKS[check.state]
    indent = " " * (left + 9)
    why = check.why if check.why.endswith(("?", "!")) else f"{check.why}."
    first, *more = wrap(why, indent, limit=None)
    yield f"  {click.style(mark, fg=colour, bold=True)} {check.number:>2} {check.name.ljust(left)}  {first.lstrip()}"
    yield from more
    if check.fix:
        yield from _format_fix(check.fix, indent)


def _format_fix(fix: str, indent: str) -> Iterator[str]:
    """A command that does not fit gets an unbroken line of its own, so that it can be pasted."""
    lead = "Fix: "
    text = lead + "".join(part for _, part in split_commands(fix))
    if len(indent + text) <= terminal_width():
        yield dim(indent + escape(text))
        return
    for is_command, part in split_commands(fix):
        if is_command:
            if lead:
                yield dim(indent + lead.rstrip())
            yield indent + escape(part)
        elif part.strip(" ,;"):
            yield from (dim(line) for line in wrap(lead + part.strip(" ,;"), indent, limit=None))
        lead = ""
