"""The command that keeps a user's data from being removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

import click

from engrain.cli.command import verb
from engrain.cli.context import Session
from engrain.cli.output import safe
from engrain.core.errors import NotFound
from engrain.core.model.erasure import Reasons, add_reason
from engrain.core.validation import suggest_name

if TYPE_CHECKING:
    from engrain.core.model.erasure import Hold
    from engrain.memory import Memory


class Asked(TypedDict):
    at: datetime
    command: str


@verb(
    "hold",
    examples=(
        "engrain hold",
        "engrain hold --user ana",
        "engrain hold --user ana --reason case-7",
        "engrain hold --user ana --release --reason case-7",
    ),
    prints="Each hold with its reasons; or that it was set or released.",
)
@click.option(
    "--reason",
    "reasons",
    metavar="CODE",
    multiple=True,
    help="Hold --user for this, such as a file number; repeatable.",
)
@click.option("--release", is_flag=True, help="End the hold on --user, for --reason if there are several.")
def hold(cli: Session, reasons: tuple[str, ...], release: bool) -> None:
    """Keep a user's data from being removed, or list who is held: with --user, whether that one is.

    It lasts until each of its reasons is released. An erasure that is asked for meanwhile is refused, and takes the
    data out of every answer until then.
    """
    with cli.memory() as memory:
        if not reasons and not release:
            if not cli.answer_each(memory.holds(user=cli.user), _listed) and not cli.json:
                none = (
                    f"There is no hold on {safe(cli.user)}. --reason CODE sets one." if cli.user else "Nobody is held."
                )
                click.echo(none)
            return
        if cli.user is None:
            raise click.UsageError("Say whose data with --user.")
        if release:
            _release(cli, memory, cli.user, tuple(dict.fromkeys(reasons)))
            return
        for reason in reasons:
            add_reason((), reason)
        held = [memory.hold(cli.user, reason=reason) for reason in reasons][-1]
        if held.user is None:
            known = [one.user for one in memory.memories() if one.tenant == cli.tenant and one.user]
            told = f"nothing is kept of {cli.user!r} in this store yet.{suggest_name(cli.user, known)}"
            click.echo(f"warning: {told}", err=True)
    cli.answer(held, lambda: [f"Held since {held.at:%Y-%m-%d %H:%M}, for {held.reason}."])


def _release(cli: Session, memory: Memory, user: str, reasons: Reasons) -> None:
    held = next(iter(memory.holds(user=user)), None)
    known = held.reasons if held else ()
    wrong = [one for one in reasons if one not in known]
    done = None if held is None or wrong else memory.release(user, reason=reasons or None)
    if not done:
        raise NotFound(
            f"there is no hold on {user!r}{f' for {wrong[0]}' if wrong else ''}; nothing was released. "
            "`engrain hold` lists all."
        )
    asked: Asked | None = None
    if done.refused:
        command = replace(cli, agent=None).command("erase", "--yes", "--receipt", "FILE")
        asked = {"at": done.refused, "command": command}
    cli.answer({"released": True, "left": done.left, "erasure_asked": asked}, lambda: _released(done.left, asked))


def _released(left: Reasons, asked: Asked | None) -> Iterator[str]:
    yield f"Released. Still held for {', '.join(left)}." if left else "Released."
    if asked:
        yield f"An erasure was asked for on {asked['at']:%Y-%m-%d}, and refused: the data is shown again. Ask anew:"
        yield f"  {asked['command']}"


def _listed(one: Hold) -> Iterator[str]:
    """By its keyed hash if no memory says who it is."""
    who = safe(one.user) if one.user else one.mark
    tenant = f" of tenant {safe(one.tenant)}" if one.user and one.tenant else ""
    hidden = ", shown to nobody since an erasure was asked for" * one.hidden
    yield f"{who}{tenant}  {one.at:%Y-%m-%d}  {one.reason}{hidden}"
