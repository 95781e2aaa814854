"""Lines for people about an erasure, its receipt, and a second look."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from engrain.cli.output import faint, many, safe, strong, wrapped
from engrain.core.errors import InvalidInput
from engrain.core.model.results import describe_counts, describe_verification

if TYPE_CHECKING:
    from engrain.cli.context import Session
    from engrain.core.identity import Scope
    from engrain.core.model.items import Item
    from engrain.memory import Memory
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import Receipt, VerificationResult


SHOWN = 20
REMAINS = {
    "backups_made_before": "backups made before, {known} on record: remove them, and the NAME.part of one that was "
    "killed; `engrain restore` leaves it out",
    "backups_in_rotation": "backups by the clock, of which the last that has it goes by {until}",
    "copies_made_before": "copies made before, {known} on record: erase it there too",
    "copies_beside": "copies of the store's file beside it, {known}: remove them; `engrain erase verify` names them",
    "exports_made_before": "exports made before, {known} on record: remove the files",
    "folders_not_named": "folders of `engrain files` that were not named with --folder",
    "server_log_archives_and_replicas": "archives of the server's log, and its replicas, until they are let go",
    "logs_of_servers_beside": "the logs of the servers beside, until they rewrite them",
}


def erased_lines(done: ErasureResult, files: ReceiptFiles, cli: Session) -> Iterator[str]:
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
        yield f"{strong('Erased')}: {describe_counts(done.receipt.values['counts']) or 'nothing'}."
        yield from _proof(done.receipt)
        yield from _kept(done.receipt, files, cli)


def resumed_lines(answers: Sequence[ErasureResult], files: ReceiptFiles, cli: Session) -> Iterator[str]:
    for one in answers:
        yield from erased_lines(one, files, cli)
    if not answers:
        yield "No erasure is under way."


def verified_lines(found: VerificationResult, texts: Sequence[str]) -> Iterator[str]:
    if texts and not found.bytes:
        yield "No bytes were looked through for the given texts: those of this store cannot be read from here."
    *told, verdict = map(safe, str(found).splitlines())
    yield from told
    yield strong(verdict)


def _would(done: ErasureResult) -> Iterator[str]:
    counts = describe_counts(done.counts)
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
    yield describe_verification(receipt.values["verified"])
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


VERSIONS = 1_000


def undone_lines(found: UndoResult, again: Sequence[Item], cli: Session) -> Iterator[str]:
    for item in found.items[:SHOWN]:
        yield from wrapped(f"{_way(item)}: {item.text}", "  ", longest=150)
        yield faint(f"    {item.id}{f' · slot {safe(item.slot)}' if item.slot else ''}")
    if len(found.items) > SHOWN:
        yield faint(f"  … and {many(len(found.items) - SHOWN, 'other')}: --json shows them")
    if found.kept:
        yield faint(f"{many(len(found.kept), 'item')} with another source too: they stay, without this one.")
    for item in again[:SHOWN]:
        yield from wrapped(f"{item.slot} will be again: {item.text}", longest=150)
    yield from _outcome(found, cli) if found else ()


def holds_again(memory: Memory, found: UndoResult) -> list[Item]:
    """Values that take their slots again. A slot that several versions may come back to is not foretold."""
    gone = {item.id: item for item in found.items}
    again = []
    for slot in {item.slot: None for item in found.items if item.slot and item.open}:
        versions = memory.list({"slot": slot}, history=True, limit=VERSIONS)
        back = [one for one in versions if one.id not in gone and one.replaced_by in gone]
        if len(back) == 1 and _last(back[0], gone).open:
            again += back
    return again


def _last(item: Item, gone: dict[str, Item]) -> Item:
    """Of those that took its place and go."""
    seen = set()
    while item.replaced_by in gone and item.replaced_by not in seen:
        seen.add(item.replaced_by)
        item = gone[item.replaced_by]
    return item


def _way(item: Item) -> str:
    """The tool that brought it, who said it, or what it is."""
    return item.source or "tool" if item.role == "tool" else item.role or item.kind


def _outcome(found: UndoResult, cli: Session) -> Iterator[str]:
    if found.done is None:
        told = "item came from it or rests on it", "items came from it or rest on it"
        yield f"{many(len(found.items), *told)}. Add --yes to take {'it' if len(found.items) == 1 else 'them'} back."
        return
    if found.done.over:
        yield str(found.done)
        return
    yield f"Took back {many(len(found.items), 'item')}."
    if found.done.pending:
        yield f"The bytes are pending: {found.done.why}"
        yield f"They go by themselves, or with: {cli.command('erase', '--resume')}"


class ReceiptFiles:
    """For its owner's eyes alone. A second receipt goes beside the first, as ana-2.json; a file that none was written
    to goes again. `names` has the file of each receipt by its id, `failed` why it could not be written."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._made: Path | None = None
        self.names: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> ReceiptFiles:
        try:
            self._made = self._path and _made(self._path)
        except FileExistsError as exc:
            raise InvalidInput(f"{self._path} is there already. Give a new path for the receipt.") from exc
        except OSError as exc:
            raise InvalidInput(f"{self._path} cannot be written: {exc.strerror}. Nothing was erased.") from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self._made is not None:
            self._made.unlink(missing_ok=True)

    def write(self, receipt: Receipt) -> None:
        if self._path is None:
            return
        id, file = receipt.values["receipt"], None
        try:
            file, self._made = self._made or _beside(self._path), None
            file.write_text(f"{receipt}\n", encoding="utf-8")
        except OSError as exc:
            self.failed[id] = f"{file or self._path} cannot be written: {exc.strerror}"
            if file is not None:
                file.unlink(missing_ok=True)
        else:
            self.names[id] = str(file)


def _made(path: Path) -> Path:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def _beside(first: Path) -> Path:
    for number in count(2):
        try:
            return _made(first.with_name(f"{first.stem}-{number}{first.suffix}"))
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")
