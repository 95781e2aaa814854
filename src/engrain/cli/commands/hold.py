"""The command for legal holds, which protect a user's data from removal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext
from engrain.cli.output import escape
from engrain.core.errors import NotFound
from engrain.core.model.erasure import Reasons, add_reason
from engrain.core.validation import suggest_name

if TYPE_CHECKING:
    from engrain.core.model.erasure import Hold
    from engrain.memory import Memory


@memory_command(
    "hold",
    examples=(
        "engrain hold",
        "engrain hold --user ana",
        "engrain hold --user ana --reason case-7",
        "engrain hold --user ana --release --reason case-7",
    ),
    prints="Each hold with its reasons; or that a hold was set or released.",
)
@click.option(
    "--reason",
    "reasons",
    metavar="CODE",
    multiple=True,
    help="Why --user is held, such as a case number; repeatable.",
)
@click.option("--release", is_flag=True, help="End the hold on --user; with --reason, only for that reason.")
def hold(cli: CommandContext, reasons: tuple[str, ...], release: bool) -> None:
    """Protect a user's data from removal (legal hold), or list the holds.

    A hold lasts until each of its reasons is released. An erasure requested meanwhile is refused, and hides the data
    until the release.
    """
    with cli.open_memory() as memory:
        if not reasons and not release:
            if not cli.print_each(memory.store.holds(user=cli.user, tenant=cli.tenant), _format_hold) and not cli.json:
                on_user = f" on {escape(cli.user)}. --reason CODE sets one" if cli.user else ""
                click.echo(f"There is no hold{on_user}.")
            return
        if cli.user is None:
            raise click.UsageError("Say whose data with --user.")
        if release:
            _release(cli, memory, cli.user, tuple(dict.fromkeys(reasons)))
            return
        for reason in reasons:
            add_reason((), reason)
        new = [memory.store.hold(cli.user, tenant=cli.tenant, reason=reason) for reason in reasons][-1]
        if new.user is None:
            known = [info.user for info in memory.store.memories() if info.tenant == cli.tenant and info.user]
            hint = suggest_name(cli.user, known)
            click.echo(f"warning: nothing is kept for {cli.user!r} in this store yet.{hint}", err=True)
    cli.print_result(new, lambda: [f"Held since {new.at:%Y-%m-%d %H:%M}, for {new.reason}."])


def _release(cli: CommandContext, memory: Memory, user: str, reasons: Reasons) -> None:
    hold = next(iter(memory.store.holds(user=user, tenant=cli.tenant)), None)
    known = hold.reasons if hold else ()
    wrong = [reason for reason in reasons if reason not in known]
    done = None if hold is None or wrong else memory.store.release(user, tenant=cli.tenant, reason=reasons or None)
    if not done:
        raise NotFound(
            f"there is no hold on {user!r}{f' for {wrong[0]}' if wrong else ''}; nothing was released. "
            "`engrain hold` lists all."
        )
    lines = [f"Released. Still held for {', '.join(done.left)}." if done.left else "Released."]
    refused = None
    if done.refused:
        command = replace(cli, agent=None).format_command("erase", "--yes", "--receipt", "FILE")
        refused = {"at": done.refused, "command": command}
        lines.append(f"An erasure was refused on {done.refused:%Y-%m-%d}. The data is visible again. To erase it now:")
        lines.append(f"  {command}")
    cli.print_result({"released": True, "left": done.left, "erasure_asked": refused}, lambda: lines)


def _format_hold(hold: Hold) -> Iterator[str]:
    name = escape(hold.user) if hold.user else hold.subject_hash  # the keyed hash if no memory has the name
    tenant = f" of tenant {escape(hold.tenant)}" if hold.user and hold.tenant else ""
    hidden = ", hidden because an erasure was requested" * hold.hidden
    yield f"{name}{tenant}  {hold.at:%Y-%m-%d}  {hold.reason}{hidden}"
