"""The command that runs the checks of a memory in production."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command
from engrain.cli.context import DEFAULT_STORE, CommandContext
from engrain.cli.output import bold, dim, escape, show_progress, terminal_width, wrap
from engrain.connect.home import ConnectHome
from engrain.core.errors import BackendMissing, ConfigError, EmptyText, InvalidInput, StoreCorrupt, StoreError
from engrain.core.identity import Scope
from engrain.core.model.results import GROUPS, NOT_OPENED, split_commands, summarize_checks
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.connect.status import Finding
    from engrain.core.model.results import CheckResult

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
    states: list[str] = [*(check.state for check in checks), *(one.state for one in agents)]
    failed = "fail" in states
    counts = {state: sum(check.state == state for check in checks) for state in MARKS}
    summary = {"counts": counts, "counted": summarize_checks(checks), "findings": checks, "agents": agents}
    cli.print_result({"ok": not failed, **about, **summary}, lambda: _format_report(checks, about, agents))
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
        from engrain.health.context import explain_unopened

        return explain_unopened(CHECKS, error, cli.store)


def _check_agents() -> list[Finding]:
    """Check the coding agents that `engrain connect` gave a memory; none if there are none."""
    from engrain.connect.connector import list_connections

    home = ConnectHome.find()
    if not list_connections(home):
        return []
    from engrain.connect.status import read_status

    return list(read_status(home, Path.cwd()).list_findings())


def _format_report(checks: Sequence[CheckResult], about: Mapping[str, Any], agents: Sequence[Finding]) -> Iterator[str]:
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
        for one in agents:
            mark, colour = MARKS[one.state]
            yield f"  {click.style(mark, fg=colour, bold=True)} {one.name}: {escape(one.why)}."
            if one.fix:
                yield from _format_fix(one.fix, "    ") if one.state != "pass" else wrap(one.fix, "    ")
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
