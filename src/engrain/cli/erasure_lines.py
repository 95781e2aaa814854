"""Lines for people about an erasure, its receipt, and a second look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engrain.cli.shown import faint, many, safe, strong
from engrain.core.erasure_words import counted, looked_again

if TYPE_CHECKING:
    from engrain.cli.receipt_files import ReceiptFiles
    from engrain.cli.session import Session
    from engrain.core.scope import Scope
    from engrain.lifecycle.erasure.erasing import Erased
    from engrain.lifecycle.erasure.receipts import Receipt, Verified

SHOWN = 20
REMAINS = {
    "backups_made_before": "backups made before, {known} on record: remove them, and the NAME.part of one that was "
    "killed; `engrain restore` with its receipt leaves it out",
    "backups_in_rotation": "backups by the clock, of which the last that has it goes by {until}",
    "copies_made_before": "copies made before, {known} on record: erase it there too",
    "copies_beside": "copies of the store's file beside it, {known}: remove them; `engrain erase verify` names them",
    "exports_made_before": "exports made before, {known} on record: remove the files",
    "folders_not_named": "folders of `engrain files` that were not named with --folder",
    "server_log_archives_and_replicas": "archives of the server's log, and its replicas, until they are let go",
    "logs_of_servers_beside": "the logs of the servers beside, until they rewrite them",
}


def erased_lines(done: Erased, files: ReceiptFiles, cli: Session) -> Iterator[str]:
    if done.dry_run:
        yield from _would(done)
    elif done.over:
        yield str(done)
        yield "That erasure is over, without a receipt. Ask for it again when nothing stands in its way."
    elif done.receipt is None:
        yield str(done)
        command = cli.command("erase", "--resume", "--receipt", "FILE")
        yield f"Nobody finds it any more. It is completed by itself, or with: {command}"
    else:
        yield f"{strong('Erased')}: {counted(done.receipt.values['counts']) or 'nothing'}."
        yield from _proof(done.receipt)
        yield from _kept(done.receipt, files, cli)


def resumed_lines(answers: Sequence[Erased], files: ReceiptFiles, cli: Session) -> Iterator[str]:
    for one in answers:
        yield from erased_lines(one, files, cli)
    if not answers:
        yield "No erasure is under way."


def verified_lines(found: Verified, texts: Sequence[str]) -> Iterator[str]:
    if texts and not found.bytes:
        yield "No bytes were looked through for the given texts: those of this store cannot be read from here."
    *told, verdict = map(safe, str(found).splitlines())
    yield from told
    yield strong(verdict)


def _would(done: Erased) -> Iterator[str]:
    counts = counted(done.counts)
    if not counts and not done.memories:
        yield "Nothing is left to erase. With --yes it is looked for once more, and there is a receipt."
        return
    yield f"Would erase: {counts or 'what other servers have'}."
    if any(one.agent is not None for one in done.memories):
        yield f"In the memories of all agents: {_agents(done.memories)}."
    yield faint("Nothing was changed. Add --yes to erase it for good.")


def _agents(memories: Sequence[Scope]) -> str:
    names = ["(none)" if one.agent is None else safe(one.agent) for one in memories]
    more = [many(len(names) - SHOWN, "other")] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more])


def _proof(receipt: Receipt) -> Iterator[str]:
    yield looked_again(receipt.values["verified"])
    for one in receipt.values["remains"]:
        if one.get("known") != 0:
            yield faint(f"Not reached: {REMAINS.get(one['what'], one['what']).format(**one)}.")


def _kept(receipt: Receipt, files: ReceiptFiles, cli: Session) -> Iterator[str]:
    id = receipt.values["receipt"]
    command = cli.command("erase", "receipt", id)
    if id in files.names:
        yield f"Receipt {id}, in {files.names[id]}."
    elif id in files.failed:
        yield str(receipt)
        yield f"The erasure is complete, but {files.failed[id]}. The receipt is above, and: {command}"
    else:
        yield f"Receipt {id}. Keep it outside the store: {command} > FILE"
