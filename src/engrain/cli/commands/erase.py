"""Commands that erase with a receipt: erase, erase verify, erase receipt, undo."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from engrain.cli.command import MemoryGroup, memory_command
from engrain.cli.context import CommandContext, complete_id, is_typed
from engrain.cli.output import bold, dim, escape, wrap
from engrain.core.errors import InvalidInput, NotFound
from engrain.core.model.messages import read_calls
from engrain.core.model.results import describe_counts, describe_verification
from engrain.core.rules.removal import find_addresses
from engrain.core.validation import count_noun, find_similar_names
from engrain.ports.plain_files import read_plain_text

if TYPE_CHECKING:
    from engrain.core.model.audit import AuditEntry
    from engrain.core.model.items import Item
    from engrain.core.model.results import Progress
    from engrain.memory import Memory
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import Receipt, VerificationResult

MAX_SHOWN = 20
MAX_AUDIT_ENTRIES = 1_000_000
MAX_SLOT_VERSIONS = 1_000
MAX_ITEMS_SEARCHED = 5_000  # the newest, for similar source names
MAX_SOURCES_SUGGESTED = 5
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
@click.option("--receipt", metavar="FILE", help="Write the receipt to this file, as JSON; needs --yes or --resume.")
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
    if receipt and not yes and not resume:
        raise click.UsageError("--receipt needs --yes: without it nothing is erased, and there is no receipt.")
    progress = _ErasureProgress(cli, target, receipt)
    with cli.open_memory() as memory, ReceiptFiles(receipt) as files, progress:
        if resume:
            results = memory.store.resume_erasures(progress=progress.step)
        else:
            results = [_erase(cli, memory, target, folders=what["folders"], dry_run=not yes, progress=progress.step)]
        for result in results:
            if result.receipt:
                files.write(result.receipt)
    lines = [line for result in results for line in _format_erasure(result, files, cli)]
    cli.print_result(results if resume else results[0], lambda: lines or ["No erasure is running."])
    ctx.exit(int(bool(files.failed) or any(result.pending or result.over for result in results)))


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
            raise NotFound(f"there is no receipt of the user {user!r} in this store.{_suggest_receipt(memory, user)}")
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


def _suggest_receipt(memory: Memory, name: str) -> str:
    """Name a similar user who has a receipt and is in the store again, or say where else to look."""
    users = [info.user for info in memory.store.memories() if info.user and info.tenant == memory.scope.tenant]
    similar = [user for user in find_similar_names(name, users, 3) if _list_erasures(memory, user)]
    hint = f" Did you mean {similar[0]!r}?" if similar else ""
    return f"{hint} Receipts of sessions, sources and items are found by id: engrain audit --json"


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
        notes = [] if found else _describe_missing_source(memory, source)
        revived = [] if yes or cli.json else _find_revived(memory, found)
    cli.print_result(found, lambda: _format_undo(found, revived, cli))
    for note in notes:
        click.echo(note, err=True)
    if not found or (found.done and not found.done.receipt):
        sys.exit(1)


def _describe_missing_source(memory: Memory, source: str) -> list[str]:
    """Say that nothing came from the source, and name similar ones."""
    items = memory.list({"source": {"exists": True}}, history=True, limit=MAX_ITEMS_SEARCHED)
    known = {origin.name for item in items for origin in item.sources if origin.name}
    answers = memory.list({"role": "assistant"}, history=True, limit=MAX_ITEMS_SEARCHED)
    calls = [call for item in answers for call in read_calls(item.text, item.metadata)]
    known |= {address for call in calls for address in find_addresses(call)}
    host = urlsplit(source).netloc
    same_host = sorted(name for name in known if name.startswith(source) or (host and urlsplit(name).netloc == host))
    similar = list(dict.fromkeys([*same_host, *find_similar_names(source, known, MAX_SOURCES_SUGGESTED)]))
    named = ", ".join(map(escape, similar[:MAX_SOURCES_SUGGESTED]))
    return [f"Nothing came from {escape(source)}.", *([f"Similar sources: {named}"] if named else [])]


def _find_revived(memory: Memory, found: UndoResult) -> list[Item]:
    """The values that become valid again. A slot with several candidates is left out."""
    removed = {item.id: item for item in found.items}
    revived = []
    for slot in {item.slot: None for item in found.items if item.slot and item.open}:
        versions = memory.list({"slot": slot}, history=True, limit=MAX_SLOT_VERSIONS)
        candidates = [item for item in versions if item.id not in removed and item.replaced_by in removed]
        if len(candidates) == 1:
            last, seen = candidates[0], set[str]()
            while last.replaced_by in removed and last.replaced_by not in seen:
                seen.add(last.replaced_by)
                last = removed[last.replaced_by]
            revived += candidates if last.open else []
    return revived


class _ErasureProgress:
    """Shows each stage at a terminal, and on Ctrl-C says how to complete the erasure."""

    def __init__(self, cli: CommandContext, target: Mapping[str, str], receipt: str | None) -> None:
        self._show, self._stages = _show_stage(cli), 0
        self._target = target
        self._resume = cli.format_command("erase", "--resume", "--receipt", receipt or "FILE")

    def step(self, stage: str, done: int, total: int | None) -> None:
        self._stages += 1
        self._show(stage, done, total)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if not isinstance(exc, KeyboardInterrupt) or not self._stages:
            return
        # The first stage of a new erasure is reported before it begins, every other afterwards.
        begun = "has begun and continues" if self._stages > 1 or not self._target else "may have begun"
        hidden = "; the data is already hidden" if "user" in self._target and self._stages > 1 else ""
        exc.add_note(f"The erasure {begun}{hidden}. Complete it: {self._resume}")


def _show_stage(cli: CommandContext) -> Progress:
    visible = sys.stderr.isatty() and not cli.json
    return lambda stage, done, total: click.echo(dim(f"{stage} …"), err=True) if visible else None


class ReceiptFiles:
    """Writes receipts that only their owner can read. A second receipt goes to NAME-2.json.

    `names` has the file of each receipt by its id, `failed` the reason why it could not be written.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._reserved: Path | None = None
        self.names: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> ReceiptFiles:
        try:
            self._reserved = self._path and _create_private(self._path)
        except FileExistsError as exc:
            raise InvalidInput(f"{self._path} exists already. Give a new path for the receipt.") from exc
        except OSError as exc:
            raise InvalidInput(f"{self._path} cannot be written: {exc.strerror}. Nothing was erased.") from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self._reserved is not None:
            self._reserved.unlink(missing_ok=True)

    def write(self, receipt: Receipt) -> None:
        if self._path is None:
            return
        id, file = receipt.values["receipt"], None
        try:
            file, self._reserved = self._reserved or _create_next(self._path), None
            file.write_text(f"{receipt}\n", encoding="utf-8")
        except OSError as exc:
            self.failed[id] = f"{file or self._path} cannot be written: {exc.strerror}"
            if file is not None:
                file.unlink(missing_ok=True)
        else:
            self.names[id] = str(file)


def _create_private(path: Path) -> Path:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def _create_next(first: Path) -> Path:
    for number in count(2):
        try:
            return _create_private(first.with_name(f"{first.stem}-{number}{first.suffix}"))
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")


def _format_erasure(result: ErasureResult, files: ReceiptFiles, cli: CommandContext) -> Iterator[str]:
    if result.dry_run:
        yield from _format_dry_run(result)
    elif result.over:
        yield str(result)
        yield "The erasure was cancelled and has no receipt. Ask for it again when nothing blocks it."
    elif result.receipt is None:
        yield str(result)
        command = cli.format_command("erase", "--resume", "--receipt", "FILE")
        yield f"The data is hidden from now on. The erasure completes by itself, or with: {command}"
    else:
        values = result.receipt.values
        yield f"{bold('Erased')}: {describe_counts(values['counts']) or 'nothing'}."
        yield describe_verification(values["verified"])
        for remains in values["remains"]:
            if remains.get("known") != 0:
                yield dim(f"Not reached: {REMAINS.get(remains['what'], remains['what']).format(**remains)}.")
        yield from _format_receipt_file(result.receipt, files, cli)


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


def _format_receipt_file(receipt: Receipt, files: ReceiptFiles, cli: CommandContext) -> Iterator[str]:
    id = receipt.values["receipt"]
    command = cli.format_command("erase", "receipt", id)
    if id in files.names:
        yield f"Receipt {id}, in {files.names[id]}."
    elif id in files.failed:
        yield str(receipt)
        yield f"The erasure is complete, but {files.failed[id]}. The receipt is above, and: {command}"
    else:
        yield f"Receipt {id}. Keep it outside the store: {command} > FILE"


def _format_verification(result: VerificationResult, texts: Sequence[str]) -> Iterator[str]:
    if texts and not result.bytes:
        yield "No bytes were searched for --text: the files of this store cannot be read from here."
    *lines, verdict = map(escape, str(result).splitlines())
    yield from lines
    yield bold(verdict)


def _format_undo(found: UndoResult, revived: Sequence[Item], cli: CommandContext) -> Iterator[str]:
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
    for item in revived[:MAX_SHOWN]:
        yield from wrap(f"{item.slot} becomes again: {item.text}", limit=150)
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
