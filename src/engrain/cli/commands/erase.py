"""The commands that erase with a receipt, look again, and take a source back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import Verb, verb
from engrain.cli.context import Session, nothing_from, typed, whole_id
from engrain.cli.erasure_output import (
    ReceiptFiles,
    erased_lines,
    holds_again,
    resumed_lines,
    undone_lines,
    verified_lines,
)
from engrain.cli.output import faint
from engrain.core.errors import InvalidInput, NotFound
from engrain.core.validation import find_similar_names

if TYPE_CHECKING:
    from engrain.memory import Memory

_ALL = 1_000_000


class EraseGroup(Verb, click.Group):
    """A verb of the memory with a verb of its own."""


@click.group(
    "erase",
    cls=EraseGroup,
    invoke_without_command=True,
    examples=(
        "engrain erase --user ana",
        "engrain erase --user ana --yes --receipt ana.json",
        "engrain erase --user ana --session monday --yes",
        "engrain erase verify ana.json",
        "engrain erase receipt > ana.json",
    ),
    prints="What would go, by kind. With --yes it goes: what went, how it was looked for, and the receipt.",
)
@click.option("--session", metavar="NAME", help="Only this session of this memory.")
@click.option("--source", metavar="NAME", help="Only what came from this source, with all it led to.")
@click.option("--id", metavar="ID", help="Only this item, with all that was derived from it.")
@click.option("--folder", "folders", metavar="DIR", multiple=True, help="A folder of `engrain files` to clean as well.")
@click.option("--receipt", metavar="FILE", help="With --yes or --resume: write the receipt there, as JSON.")
@click.option("--resume", is_flag=True, help="Complete what a killed run left undone.")
@click.option("--yes", "-y", is_flag=True, help="Do it; without this it is only shown what would go.")
@click.pass_context
def erase(ctx: click.Context, /, receipt: str | None, resume: bool, yes: bool, **what: Any) -> None:
    """Erase everything of a user, or a session, a source or an item, and prove it.

    Without --session, --source or --id it is everything of --user in this tenant, whatever the agent. The name is
    matched exactly. Every tier, index, journal and server goes, then the bytes; then all is looked for once more. A run
    that is killed goes on when the store is next opened.
    """
    if ctx.invoked_subcommand:
        return
    cli: Session = ctx.obj
    chosen = {} if resume else _chosen(ctx, what)
    if receipt and not yes and not resume:
        raise click.UsageError("--receipt needs --yes: without it nothing is erased, and there is no receipt.")
    watched = _Watched(cli, chosen, receipt)
    with cli.memory() as memory, ReceiptFiles(receipt) as files, watched:
        if resume:
            answers = memory.resume_erasures(watched.step)
        else:
            if "id" in chosen:
                chosen["id"] = whole_id(memory, chosen["id"])
            done = memory.erase(**chosen, folders=what["folders"], dry_run=not yes, progress=watched.step)
            answers = [done]
        for one in answers:
            if one.receipt:
                files.write(one.receipt)
    if resume:
        cli.answer(answers, lambda: resumed_lines(answers, files, cli))
    else:
        cli.answer(done, lambda: erased_lines(done, files, cli))
    ctx.exit(int(bool(files.failed) or any(one.pending or one.over for one in answers)))


@erase.command(
    "verify",
    cls=Verb,
    examples=("engrain erase verify ana.json", 'engrain erase verify ana.json --text "Ana lives in Lima."'),
    prints="What a second look found, and which servers were asked. The exit code is 1 if anything is left, a server "
    "could not be asked, or the audit log was changed.",
)
@click.argument("receipt", type=click.Path(dir_okay=False))
@click.option("--text", "texts", multiple=True, help="Look for this text, too, in every byte of every file.")
@click.pass_context
def verify(ctx: click.Context, receipt: str, texts: tuple[str, ...]) -> None:
    """Look again whether what a receipt says still holds."""
    cli: Session = ctx.obj
    try:
        given = Path(receipt).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"{receipt} cannot be read: {exc}.") from exc
    with cli.memory() as memory:
        found = memory.verify_erasure(given, texts=texts)
    cli.answer(found, lambda: verified_lines(found, texts))
    ctx.exit(int(not found))


@erase.command(
    "receipt",
    cls=Verb,
    examples=("engrain erase receipt --user ana > ana.json", "engrain erase receipt cr2vs4 > ana.json"),
    prints="A receipt out of the audit log, as `engrain erase --receipt` writes it.",
)
@click.argument("id", required=False)
@click.pass_context
def receipt(ctx: click.Context, id: str | None) -> None:
    """Print a receipt once more: the last one, or that of an id, of which the beginning is enough.

    With --user the last of those by which everything of this user was erased.
    """
    from engrain.privacy.receipts import Receipt

    cli: Session = ctx.obj
    user = cli.user if typed(ctx, "user") and id is None else None
    with cli.memory() as memory:
        log = [entry for entry in memory.audit(user=user, after=0, limit=_ALL) if entry.what == "erase"]
        if user is not None and not log:
            raise NotFound(f"there is no receipt of the user {user!r} in this store.{_receipted(memory, user)}")
    found = [entry for entry in log if str(entry.details["receipt"]).startswith(id or "")]
    if not log:
        raise NotFound("nothing was erased in this store yet: its audit log has no receipt.")
    if not found or (id and len(found) > 1):
        raise NotFound(f"{len(found) or 'no'} receipts begin with {id!r}. `engrain audit --json` has the id of each.")
    kept = Receipt.of(found[-1])
    cli.answer(kept, lambda: [str(kept)])


def _receipted(memory: Memory, name: str) -> str:
    """A user of nearly this name who has one and is here again, or where else to look."""
    here = find_similar_names(
        name, [one.user for one in memory.memories() if one.user and one.tenant == memory.scope.tenant], 3
    )
    meant = [one for one in here if any(entry.what == "erase" for entry in memory.audit(user=one, after=0, limit=_ALL))]
    told = f" Did you mean {meant[0]!r}?" if meant else ""
    return f"{told} That of a session, a source or an item is found by its id: engrain audit --json"


@verb(
    "undo",
    examples=("engrain undo https://bad.example/page", "engrain undo scraper --yes"),
    prints="What came from the source, with all it led to; with --yes, that it was taken back. The exit code is 1 if "
    "nothing came from it, or its bytes are still pending.",
)
@click.argument("source")
@click.option("--yes", "-y", is_flag=True, help="Take it back; without this it is only shown.")
def undo(cli: Session, source: str, yes: bool) -> None:
    """Take back what came from one source, such as a poisoned page or a bad tool, with all it led to.

    Of an address also the answers of tools that were called with it, and what the agent said after any such answer
    until the user spoke again. What it had replaced or corrected holds again. Something that has another source too
    stays, without this one.
    """
    with cli.looking() as memory:
        found = memory.undo(source, dry_run=not yes, progress=_step(cli))
        notes = [] if found else nothing_from(memory, source)
        again = [] if yes or cli.json else holds_again(memory, found)
    cli.answer(found, lambda: undone_lines(found, again, cli))
    for text in notes:
        click.echo(text, err=True)
    if not found or (found.done and not found.done.receipt):
        sys.exit(1)


class _Watched:
    """Shows each step to whoever waits for it, and tells who stops it how it is completed."""

    def __init__(self, cli: Session, chosen: Mapping[str, str], receipt: str | None) -> None:
        self._show, self._steps = _step(cli), 0
        self._chosen, self._resume = chosen, cli.command("erase", "--resume", "--receipt", receipt or "FILE")

    def step(self, text: str) -> None:
        self._steps += 1
        self._show(text)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if not isinstance(exc, KeyboardInterrupt) or not self._steps:
            return
        # The first step of a new one is told before it begins, and every other afterwards.
        begun = "has begun and goes on" if self._steps > 1 or not self._chosen else "may have begun"
        hidden = ": nobody finds the data" if "user" in self._chosen and self._steps > 1 else ""
        exc.add_note(f"The erasure {begun}{hidden}. Complete it: {self._resume}")


def _chosen(ctx: click.Context, what: Mapping[str, Any]) -> dict[str, str]:
    cli: Session = ctx.obj
    parts = {name: what[name] for name in ("session", "source", "id") if what[name] is not None}
    if len(parts) > 1:
        raise click.UsageError("Give one of --session, --source and --id.")
    if not parts and cli.user is None:
        raise click.UsageError("Say whose data with --user, or give --session, --source or --id.")
    if not parts and typed(ctx, "agent"):
        raise click.UsageError("A user is erased from the memory of every agent: leave out --agent.")
    return parts or {"user": str(cli.user)}


def _step(cli: Session) -> Callable[[str], None]:
    watched = sys.stderr.isatty() and not cli.json
    return lambda text: click.echo(faint(f"{text} …"), err=True) if watched else None
