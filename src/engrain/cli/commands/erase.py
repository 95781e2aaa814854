"""The commands that erase with a receipt, look again, hold, and take a source back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.session import Session, whole_id
from engrain.cli.shown import faint, many, strong, wrapped
from engrain.cli.verbs import Verb, verb
from engrain.core.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from engrain.core.erasure import Hold
    from engrain.lifecycle.erasure.erasing import Erased, Undone
    from engrain.lifecycle.erasure.receipts import Receipt, Verified

SHOWN = 20
REMAINS = {
    "backups_made_before": "backups made before, {known} on record: remove them, and the NAME.part of one that was "
    "killed; `engrain restore` leaves it out",
    "backups_in_rotation": "backups by the clock, of which the last that has it goes by {until}",
    "copies_made_before": "copies made before, {known} on record: erase it there too",
    "copies_beside": "copies of the store's file beside it, {known}: remove them; `engrain erase verify` names them",
    "exports_made_before": "exports of this user, {known} on record: remove the files",
    "folders_not_named": "folders of `engrain files` that were not named with --folder",
    "server_log_archives_and_replicas": "archives of the server's log, and its replicas, until they are let go",
    "logs_of_servers_beside": "the logs of the servers beside, until they rewrite them",
}
# What the kinds of rows are called; another is called by its name.
KINDS = {
    "scope": ("memory", "memories"),
    "progress": ("mark of progress", "marks of progress"),
    "request": ("answered request", None),
    "raw": ("raw output", None),
    "result": ("large result", None),
    "beside": ("key on another server", "keys on other servers"),
    "files": ("file", None),
    "cut": ("text that it was cut out of", "texts that it was cut out of"),
}


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
    ),
    prints="What would go, by kind. With --yes it goes: what went, how it was looked for, and the receipt.",
)
@click.option("--session", metavar="NAME", help="Only this session of this memory.")
@click.option("--source", metavar="NAME", help="Only what came from this source, with all it led to.")
@click.option("--id", metavar="ID", help="Only this item, with all that was derived from it.")
@click.option("--folder", "folders", metavar="DIR", multiple=True, help="A folder of `engrain files` to clean as well.")
@click.option("--receipt", metavar="FILE", help="Write the receipt there, as JSON.")
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
    with cli.memory() as memory, _reserved(receipt) as write:
        if resume:
            answers = memory.resume_erasures(_step(cli))
            given = [one.receipt for one in answers if one.receipt]
            if len(given) == 1:
                write(given[0])
            cli.answer(answers, lambda: _resumed(answers, receipt if len(given) == 1 else None))
            ctx.exit(int(any(one.pending for one in answers)))
        chosen = _chosen(cli, what)
        if "id" in chosen:
            chosen["id"] = whole_id(memory, chosen["id"])
        done = memory.erase(**chosen, folders=what["folders"], dry_run=not yes, progress=_step(cli))
        if done.receipt:
            write(done.receipt)
    cli.answer(done, lambda: _erased(done, receipt))
    ctx.exit(int(done.pending))


@erase.command(
    "verify",
    cls=Verb,
    examples=("engrain erase verify ana.json", 'engrain erase verify ana.json --text "Ana lives in Lima."'),
    prints="What a second look found. The exit code is 1 if anything is left, or the audit log was changed.",
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
    cli.answer(found, lambda: _verified(found, texts))
    ctx.exit(int(not found))


@verb(
    "undo",
    examples=("engrain undo https://bad.example/page", "engrain undo scraper --yes"),
    prints="What came from the source, with all it led to; with --yes, that it was taken back.",
)
@click.argument("source")
@click.option("--yes", "-y", is_flag=True, help="Take it back; without this it is only shown.")
def undo(cli: Session, source: str, yes: bool) -> None:
    """Take back what came from one source, such as a poisoned page or a bad tool.

    What it had replaced or corrected holds again. Something that has another source too stays, without this one.
    """
    with cli.memory() as memory:
        found = memory.undo(source, dry_run=not yes, progress=_step(cli))
    cli.answer(found, lambda: _undone(found))


@verb(
    "hold",
    examples=(
        "engrain hold",
        "engrain hold --user ana",
        "engrain hold --user ana --reason case-7",
        "engrain hold --user ana --release",
    ),
    prints="Each hold with its reason; or that it was set or released.",
)
@click.option("--reason", metavar="CODE", help="Set a hold on --user, with a code such as a file number.")
@click.option("--release", is_flag=True, help="End the hold on --user.")
def hold(cli: Session, reason: str | None, release: bool) -> None:
    """Keep a user's data from being removed, or list who is held: with --user, whether that one is.

    An erasure that is asked for meanwhile is refused, and takes the data out of every answer until the release.
    """
    with cli.memory() as memory:
        if reason is None and not release:
            if not cli.answer_each(memory.holds(user=cli.user), _held) and not cli.json:
                click.echo("Nobody is held." if cli.user is None else f"There is no hold on {cli.user}.")
            return
        if cli.user is None:
            raise click.UsageError("Say whose data with --user.")
        if release:
            there = memory.release(cli.user)
            cli.answer({"released": there}, lambda: ["Released." if there else "There was no hold."])
            return
        held = memory.hold(cli.user, reason=str(reason))
    cli.answer(held, lambda: [f"Held since {held.at:%Y-%m-%d %H:%M}, for {held.reason}."])


@contextmanager
def _reserved(path: str | None) -> Iterator[Callable[[Receipt], object]]:
    """What writes the receipt. The file is made before anything is erased, for this user's eyes alone, and goes again
    if there is none to write."""
    if path is None:
        yield lambda _: None
        return
    file = Path(path)
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError as exc:
        raise InvalidInput(f"{path} is there already. Give a new path for the receipt.") from exc
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be written: {exc.strerror}. Nothing was erased.") from exc
    try:
        yield lambda receipt: file.write_text(f"{receipt}\n", encoding="utf-8")
    finally:
        if file.exists() and not file.stat().st_size:
            file.unlink()


def _held(one: Hold) -> Iterator[str]:
    """By its keyed hash if no memory says who it is."""
    hidden = ", shown to nobody since an erasure was asked for" * one.hidden
    yield f"{one.user or one.mark}  {one.at:%Y-%m-%d}  {one.reason}{hidden}"


def _chosen(cli: Session, what: Mapping[str, Any]) -> dict[str, str]:
    parts = {name: what[name] for name in ("session", "source", "id") if what[name] is not None}
    if len(parts) > 1:
        raise click.UsageError("Give one of --session, --source and --id.")
    if not parts and cli.user is None:
        raise click.UsageError("Say whose data with --user, or give --session, --source or --id.")
    return parts or {"user": str(cli.user)}


def _step(cli: Session) -> Callable[[str], None]:
    watched = sys.stderr.isatty() and not cli.json
    return lambda text: click.echo(faint(f"{text} …"), err=True) if watched else None


def _erased(done: Erased, file: str | None) -> Iterator[str]:
    found = done.receipt.values["counts"] if done.receipt else done.counts
    counts = ", ".join(many(count, *KINDS.get(kind, (kind, None))) for kind, count in found.items() if count)
    counts = counts or "nothing"
    if done.dry_run:
        yield f"Would erase: {counts}."
        yield faint("Nothing was changed. Add --yes to erase it for good.")
    elif done.receipt is None:
        yield f"Pending: {done.why}"
        yield "Nobody finds it any more. It is completed by itself, or with: engrain erase --resume"
    else:
        yield f"{strong('Erased')}: {counts}."
        yield from _proof(done.receipt)
        yield f"Receipt {done.receipt.values['receipt']}" + (f", in {file}." if file else "; --receipt FILE writes it.")


def _proof(receipt: Receipt) -> Iterator[str]:
    seen = receipt.values["verified"]
    yield f"Looked again: {seen['rows']} rows; {seen['found']} of {seen['prints']:,} prints in {seen['bytes']:,} bytes."
    for one in receipt.values["remains"]:
        yield faint(f"Not reached: {REMAINS.get(one['what'], one['what']).format(**one)}.")


def _resumed(answers: list[Erased], file: str | None) -> Iterator[str]:
    for one in answers:
        yield from _erased(one, file)
    if not answers:
        yield "No erasure is under way."


def _verified(found: Verified, texts: tuple[str, ...]) -> Iterator[str]:
    rows = sum(found.rows.values())
    yield f"{rows:,} rows from before the erasure."
    if texts and not found.bytes:
        yield "No bytes were looked through for the given texts: those of this store cannot be read from here."
    elif texts:
        yield f"{found.found:,} traces of the given texts in any file."
    yield "The audit log holds this receipt." if found.recorded else "The audit log does not hold this receipt."
    yield from found.faults
    for copy in found.copies:
        yield f"Not looked into: {copy}, a copy of the store. Remove it if it is from before."
    yield strong("It still holds.") if found else strong("It does not hold.")


def _undone(found: Undone) -> Iterator[str]:
    if not found:
        yield "Nothing came from this source."
        return
    for item in found.items[:SHOWN]:
        yield from wrapped(item.text, "  ", longest=150)
    if len(found.items) > SHOWN:
        yield faint(f"  … and {many(len(found.items) - SHOWN, 'other')}")
    if found.kept:
        yield faint(f"{many(len(found.kept), 'item')} with another source too: they stay, without this one.")
    if found.done is None:
        yield f"{many(len(found.items), 'item')} came from it or rest on it. Add --yes to take them back."
    elif found.done.pending:
        raise Conflict(f"taken back, but the bytes are pending: {found.done.why}")
    else:
        yield f"Took back {many(len(found.items), 'item')}."
