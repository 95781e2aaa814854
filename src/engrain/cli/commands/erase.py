"""Commands that erase with a receipt: erase, erase verify, erase receipt, undo."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from engrain.cli.command import MemoryGroup, memory_command
from engrain.cli.context import CommandContext, complete_id, is_typed
from engrain.cli.output import bold, dim, escape, wrap
from engrain.core.errors import InvalidInput, NotFound
from engrain.core.model.results import describe_counts, describe_verification
from engrain.core.validation import count_noun
from engrain.ports.plain_files import read_plain_text

if TYPE_CHECKING:
    from engrain.core.model.audit import AuditEntry
    from engrain.core.model.results import Progress
    from engrain.memory import Memory
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import VerificationResult

MAX_SHOWN = 20
MAX_AUDIT_ENTRIES = 1_000_000
REMAINS = {
    "backups_made_before": "backups made before, {known} on record: remove them, and the NAME.part of one that was "
    "killed; `engrain restore` with this receipt leaves the data out",
    "backups_in_rotation": "scheduled backups, the last of which is removed by {until}",
    "copies_made_before": "copies made before, {known} on record: erase the data there too",
    "copies_beside": "copies of the store in its folder, {known}: remove them; `engrain erase verify` lists them",
    "exports_made_before": "exports made before, {known} on record: remove the files",
    "folders_not_named": "folders of `engrain files` that were not named with --folder",
    "server_log_archives_and_replicas": "archives of the server's log, and its replicas, until they are removed",
    "logs_of_servers_beside": "the logs of Redis and vector servers, until they rewrite them",
}


@click.group(
    "erase",
    cls=MemoryGroup,
    invoke_without_command=True,
    examples=(
        "engrain erase --user ana",
        "engrain erase --user ana --yes --receipt ana.json",
        "engrain erase --user ana --session monday --yes",
        "engrain erase verify ana.json",
        "engrain erase receipt > ana.json",
    ),
    prints="How many rows of each kind would be erased. With --yes: what was erased, what was searched afterwards, "
    "and the receipt.",
)
@click.option("--session", metavar="NAME", help="Only this session of this memory.")
@click.option("--source", metavar="NAME", help="Only data from this source, and what was derived from it.")
@click.option("--id", metavar="ID", help="Only this item, and what was derived from it.")
@click.option("--folder", "folders", metavar="DIR", multiple=True, help="Also clean this folder of `engrain files`.")
@click.option("--receipt", metavar="FILE", help="Write the receipt to this file, as JSON; needs --yes.")
@click.option("--resume", is_flag=True, help="Complete the erasures that were interrupted.")
@click.option("--yes", "-y", is_flag=True, help="Erase. Without --yes nothing is changed.")
@click.pass_context
def erase(ctx: click.Context, /, receipt: str | None, resume: bool, yes: bool, **what: Any) -> None:
    """Erase a user, a session, a source or an item, and prove it.

    Without --session, --source or --id, all data of --user in this tenant is erased, in the memory of every agent.
    The name must match exactly. First all rows go, in every tier, index, journal and server; then their bytes; then
    the store is searched again. An interrupted erasure continues when the store is next opened.
    """
    if ctx.invoked_subcommand:
        return
    cli: CommandContext = ctx.obj
    target = {} if resume else _parse_target(ctx, what)
    if receipt and (resume or not yes):
        raise click.UsageError("--receipt needs --yes: without it nothing is erased. --resume prints the ids.")
    with _create_receipt_file(receipt) as file:
        with cli.open_memory() as memory:
            try:
                if resume:
                    results = memory.store.resume_erasures(progress=_show_stage(cli))
                else:
                    options = {"folders": what["folders"], "dry_run": not yes, "progress": _show_stage(cli)}
                    results = [_erase(cli, memory, target, **options)]
            except KeyboardInterrupt as exc:
                command = cli.format_command("erase", "--resume")
                exc.add_note(f"An erasure that has begun continues by itself. Complete it now: {command}")
                raise
        lines = [line for result in results for line in _format_erasure(result, receipt, cli)]
        cli.print_result(results if resume else results[0], lambda: lines or ["No erasure is running."])
        if file and results[0].receipt:
            # After the output: a receipt that cannot be written is still in the audit log.
            file.write(f"{results[0].receipt}\n")
    ctx.exit(int(any(result.pending or result.over for result in results)))


def _parse_target(ctx: click.Context, what: Mapping[str, Any]) -> dict[str, str]:
    cli: CommandContext = ctx.obj
    parts = {name: what[name] for name in ("session", "source", "id") if what[name] is not None}
    if len(parts) > 1:
        raise click.UsageError("Give one of --session, --source and --id.")
    if not parts and cli.user is None:
        raise click.UsageError("Say whose data with --user, or give --session, --source or --id.")
    if not parts and is_typed(ctx, "agent"):
        raise click.UsageError("A user is erased from the memory of every agent: omit --agent.")
    return parts or {"user": str(cli.user)}


def _erase(cli: CommandContext, memory: Memory, target: dict[str, str], **options: Any) -> ErasureResult:
    if "user" in target:
        return memory.store.erase(user=target["user"], tenant=cli.tenant, **options)
    if "id" in target:
        target["id"] = complete_id(memory, target["id"])
    return memory.erase(**{**target, **options})


@erase.subcommand(
    "verify",
    examples=("engrain erase verify ana.json", 'engrain erase verify ana.json --text "Ana lives in Lima."'),
    prints="What a second search found, and which servers were asked. Exit code 1 if data is left, a server did not "
    "answer, or the audit log was changed.",
)
@click.argument("receipt", type=click.Path(dir_okay=False))
@click.option("--text", "texts", multiple=True, help="Also search every byte of every file for this text.")
def verify(cli: CommandContext, receipt: str, texts: tuple[str, ...]) -> None:
    """Check again that a receipt is true."""
    content = read_plain_text(receipt)
    with cli.open_memory() as memory:
        result = memory.store.verify_erasure(content, texts=texts, scope=memory.scope)
    cli.print_result(result, lambda: _format_verification(result, texts))
    click.get_current_context().exit(int(not result))


@erase.subcommand(
    "receipt",
    examples=("engrain erase receipt --user ana > ana.json", "engrain erase receipt cr2vs4 > ana.json"),
    prints="A receipt from the audit log, as `engrain erase --receipt` writes it.",
)
@click.argument("id", required=False)
def receipt(cli: CommandContext, id: str | None) -> None:
    """Print a receipt again: the last one, or the one whose id begins with ID.

    With --user: the last receipt for erasing this user.
    """
    from engrain.privacy.receipts import Receipt

    user = cli.user if is_typed(click.get_current_context(), "user") and id is None else None
    with cli.open_memory() as memory:
        erasures = _list_erasures(memory, user)
        if user is not None and not erasures:
            raise NotFound(
                f"there is no receipt of the user {user!r} in this store. Receipts of sessions, sources and items are "
                "found by id: engrain audit --json"
            )
    found = [entry for entry in erasures if str(entry.details["receipt"]).startswith(id or "")]
    if not erasures:
        raise NotFound("nothing was erased in this store yet: its audit log has no receipt.")
    if not found or (id and len(found) > 1):
        raise NotFound(f"{len(found) or 'no'} receipts begin with {id!r}. `engrain audit --json` has the id of each.")
    result = Receipt.of(found[-1])
    cli.print_result(result, lambda: [str(result)])


def _list_erasures(memory: Memory, user: str | None) -> list[AuditEntry]:
    entries = memory.store.audit(user=user, tenant=memory.scope.tenant, after=0, limit=MAX_AUDIT_ENTRIES)
    return [entry for entry in entries if entry.what == "erase"]


@memory_command(
    "undo",
    examples=("engrain undo https://bad.example/page", "engrain undo scraper --yes"),
    prints="What came from the source, and what was derived from it; with --yes, that it was removed. Exit code 1 if "
    "nothing came from it, or its bytes are still pending.",
)
@click.argument("source")
@click.option("--yes", "-y", is_flag=True, help="Remove it. Without --yes nothing is changed.")
def undo(cli: CommandContext, source: str, yes: bool) -> None:
    """Remove everything that came from one source, such as a poisoned page or a bad tool.

    If SOURCE is an address, the results of tools called with it go too, and what the agent said after such a result
    until the user spoke again. Values that it had replaced or corrected become valid again. An item with another
    source stays, without this one.
    """
    with cli.read_memory() as memory:
        who = {"user": cli.user, "agent": cli.agent, "tenant": cli.tenant}
        found = memory.store.undo(source, **who, dry_run=not yes, progress=_show_stage(cli))
    cli.print_result(found, lambda: _format_undo(found, cli))
    if not found:
        click.echo(f"Nothing came from {escape(source)}.", err=True)
    if not found or (found.done and not found.done.receipt):
        sys.exit(1)


def _show_stage(cli: CommandContext) -> Progress:
    visible = sys.stderr.isatty() and not cli.json
    return lambda stage, done, total: click.echo(dim(f"{stage} …"), err=True) if visible else None


@contextmanager
def _create_receipt_file(path: str | None) -> Iterator[TextIO | None]:
    """Create the file before anything is erased, readable by its owner alone; remove it again if it stays empty."""
    if path is None:
        yield None
        return
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as exc:
        raise InvalidInput(f"{path} exists already. Give a new path for the receipt.") from exc
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be written: {exc.strerror}. Nothing was erased.") from exc
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            yield file
    finally:
        if not os.path.getsize(path):
            os.unlink(path)


def _format_erasure(result: ErasureResult, file: str | None, cli: CommandContext) -> Iterator[str]:
    if result.dry_run:
        yield from _format_dry_run(result)
    elif result.over:
        yield str(result)
        yield "The erasure was cancelled and has no receipt. Ask for it again when nothing blocks it."
    elif result.receipt is None:
        yield str(result)
        command = cli.format_command("erase", "--resume")
        yield f"The data is hidden from now on. The erasure completes by itself, or with: {command}"
    else:
        values = result.receipt.values
        yield f"{bold('Erased')}: {describe_counts(values['counts']) or 'nothing'}."
        yield describe_verification(values["verified"])
        for remains in values["remains"]:
            if remains.get("known") != 0:
                yield dim(f"Not reached: {REMAINS.get(remains['what'], remains['what']).format(**remains)}.")
        command = cli.format_command("erase", "receipt", id := values["receipt"])
        yield f"Receipt {id}, in {file}." if file else f"Receipt {id}. Keep it outside the store: {command} > FILE"


def _format_dry_run(result: ErasureResult) -> Iterator[str]:
    counts = describe_counts(result.counts)
    if not counts and not result.memories:
        yield "There is nothing to erase. With --yes the store is searched once more, and you get a receipt."
        return
    yield f"Would erase: {counts or 'data on other servers'}."
    if any(scope.agent is not None for scope in result.memories):
        names = ["(none)" if scope.agent is None else escape(scope.agent) for scope in result.memories]
        more = [count_noun(len(names) - MAX_SHOWN, "other")] if len(names) > MAX_SHOWN else []
        yield f"In the memories of all agents: {', '.join([*names[:MAX_SHOWN], *more])}."
    yield dim("Nothing was changed. Add --yes to erase it for good.")


def _format_verification(result: VerificationResult, texts: Sequence[str]) -> Iterator[str]:
    if texts and not result.bytes:
        yield "No bytes were searched for --text: the files of this store cannot be read from here."
    *lines, verdict = map(escape, str(result).splitlines())
    yield from lines
    yield bold(verdict)


def _format_undo(found: UndoResult, cli: CommandContext) -> Iterator[str]:
    for item in found.items[:MAX_SHOWN]:
        # The tool that brought it, the role that said it, or its kind.
        origin = item.source or "tool" if item.role == "tool" else item.role or item.kind
        yield from wrap(f"{origin}: {item.text}", "  ", limit=150)
        yield dim(f"    {item.id}{f' · slot {escape(item.slot)}' if item.slot else ''}")
    if len(found.items) > MAX_SHOWN:
        yield dim(f"  … and {count_noun(len(found.items) - MAX_SHOWN, 'other')}: --json shows them")
    if found.kept:
        staying = count_noun(len(found.kept), "item stays because it has", "items stay because they have")
        yield dim(f"{staying} another source too.")
    yield from _format_undo_outcome(found, cli) if found else ()


def _format_undo_outcome(found: UndoResult, cli: CommandContext) -> Iterator[str]:
    if found.done is None:
        nouns = "item came from it or is based on it", "items came from it or are based on it"
        them = "it" if len(found.items) == 1 else "them"
        yield f"{count_noun(len(found.items), *nouns)}. Add --yes to remove {them}."
        return
    if found.done.over:
        yield str(found.done)
        return
    yield f"Removed {count_noun(len(found.items), 'item')}."
    if found.done.pending:
        yield f"The bytes are pending: {found.done.why}"
        yield f"They are removed automatically, or with: {cli.format_command('erase', '--resume')}"
