"""Commands about privacy: erase with a receipt, undo, hold, audit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TextIO

import click

from engrain.cli.command import MemoryGroup, memory_command
from engrain.cli.context import CommandContext, complete_id, is_typed
from engrain.cli.output import bold, dim, escape, wrap
from engrain.core.errors import InvalidInput, NotFound
from engrain.core.model.erasure import Reasons, add_reason
from engrain.core.model.results import describe_counts, describe_verification
from engrain.core.validation import count_noun, suggest_name
from engrain.ports.plain_files import read_plain_text

if TYPE_CHECKING:
    from engrain.core.model.audit import AuditEntry, AuditResult
    from engrain.core.model.erasure import Hold
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
    "copies_in_folder": "copies of the store in its folder, {known}: remove them; `engrain erase verify` lists them",
    "exports_made_before": "exports made before, {known} on record: remove the files",
    "folders_not_named": "folders of `engrain files` that were not named with --folder",
    "server_log_archives_and_replicas": "archives of the server's log, and its replicas, until they are removed",
    "logs_of_other_servers": "the logs of Redis and vector servers, until they rewrite them",
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
def verify_receipt(cli: CommandContext, receipt: str, texts: tuple[str, ...]) -> None:
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
        click.echo(f"Nothing came from {escape(source)!r}.", err=True)
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


@click.group(
    "audit",
    cls=MemoryGroup,
    invoke_without_command=True,
    examples=("engrain audit", "engrain audit --after 100 --json", "engrain audit verify"),
    prints="Each entry with its number, time, action and counts; for an erasure, the id of its receipt. With --json, "
    "JSON Lines: one entry a line.",
)
@click.option("--after", type=int, help="Start after the entry with this number; default: the newest entries.")
@click.option("--limit", "-n", type=int, default=1_000, show_default=True, help="Maximum number of entries.")
@click.pass_context
def audit(ctx: click.Context, after: int | None, limit: int) -> None:
    """Show what was forgotten, erased, held and copied, without any content."""
    if ctx.invoked_subcommand:
        return
    cli: CommandContext = ctx.obj
    with cli.open_memory() as memory:
        entries = memory.store.audit(after=after, limit=limit)
        width = max((len(_format_action(entry)) for entry in entries), default=0)
        count = cli.print_each(entries, lambda entry: [_format_entry(entry, width)])
    if not count and not cli.json:
        click.echo(dim("The audit log is empty."), err=True)
    elif count and after is None and entries[0].n > 1 and not cli.json:
        click.echo(dim(f"The newest {count:,} entries. All entries: engrain audit --after 0"), err=True)


@audit.subcommand(
    "verify",
    examples=("engrain audit verify", "engrain audit verify --head 12:3c939b28c059a24995b5d6c023a4ad97"),
    prints="The number of entries and the current head, or what is wrong. Exit code 1 if anything is wrong.",
)
@click.option("--head", metavar="N:HASH", help="A head that you kept elsewhere: it must still be in the log.")
def verify_log(cli: CommandContext, head: str | None) -> None:
    """Check that no entry was changed, removed, moved, or cut off at the end.

    Someone who can write the file can replace or forge the whole log. Keep the printed head somewhere else: --head
    detects that too.
    """
    with cli.open_memory() as memory:
        found = memory.store.verify_audit(head=head)
    cli.print_result(
        {**asdict(found), "checkpoint": found.checkpoint}, lambda: found.faults or _format_intact(found, head)
    )
    click.get_current_context().exit(int(not found))


def _format_intact(found: AuditResult, head: str | None) -> Iterator[str]:
    yield f"{count_noun(found.entries, 'entry', 'entries')}, each linked to the one before: the chain is intact."
    if head is not None:
        yield "The given head is in the log."
    if found.entries:
        yield dim(f"Keep this head elsewhere, for --head: {found.checkpoint}")


def _format_action(entry: AuditEntry) -> str:
    by = entry.details.get("by")
    return entry.what.replace("_", " ") + (f" ({'item' if by == 'id' else by})" if by is not None else "")


def _format_entry(entry: AuditEntry, width: int) -> str:
    first = {name: entry.details[name] for name in ("receipt", "format") if name in entry.details}
    rest = {name: value for name, value in entry.details.items() if name != "by" and name not in first}
    details = ", ".join([*_format_details(first), *_format_details(entry.details.get("counts", rest))])
    action = _format_action(entry)
    padded = f"{' ' * (width - len(action))}  {dim(details)}" if details else ""
    return f"{entry.n:>5}  {entry.at:%Y-%m-%d %H:%M}  {bold(action)}{padded}"


def _format_details(details: Mapping[str, Any]) -> list[str]:
    """Name and value of each detail that is set, such as "item 5"."""
    found = []
    for name, value in details.items():
        if isinstance(value, (list, dict)) and value:  # the receipt ids of a restore
            found.append(f"{name.removesuffix('s') if len(value) == 1 else name} {' and '.join(map(str, value))}")
        elif value:
            found.append(f"{name.replace('_', ' ')} {value}")
    return found
