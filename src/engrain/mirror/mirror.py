"""Synchronize a folder of Markdown files with a memory, in both directions."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from engrain.core.errors import Conflict, EngrainError, InvalidInput, NotFound, StoreClosed, StoreError, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.markdown.layout import PageBudget, list_conflict_ids
from engrain.core.markdown.page import read_page
from engrain.core.markdown.sync_state import CONFLICTS, MEMORY, OVERFLOW, IdleState, MirrorStatus, SyncResult
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import SourceKind
from engrain.core.model.queries import ListQuery
from engrain.core.validation import check_count
from engrain.mirror.render import MAX_PAGE_BYTES
from engrain.mirror.sync import SyncOptions, SyncRound, decode_page
from engrain.ports import Services
from engrain.ports.storage import Folder

LOCK_TIMEOUT_SECONDS = 30.0  # for another sync of the same folder to end
MAX_ATTEMPTS = 5
WRITE_PAUSE_SECONDS = 0.2
# After this time a written file has another stamp on every file system, even if it is mapped into memory and its pages
# wait to be written.
STAMP_CHANGE_SECONDS = 60.0
EDITORS = ("user", "agent", "document")
CHANGES_PER_READ = 1_000

_log = logging.getLogger("engrain")

Report = Callable[[SyncResult | EngrainError], None]


class Mirror:
    """A folder that mirrors one scope's memory.

    Nothing is held open between two syncs. One sync runs at a time, across threads and processes.
    """

    def __init__(
        self,
        services: Services,
        scope: Scope,
        folder: Folder,
        budget: PageBudget | None = None,
        by: SourceKind = "user",
    ) -> None:
        self._services, self._scope, self._folder = services, scope, folder
        self._budget = budget or PageBudget()
        check_count(self._budget.lines, "max_lines", 20, 100_000)
        check_count(self._budget.bytes, "max_bytes", 1_000, MAX_PAGE_BYTES)
        if by not in EDITORS:
            raise InvalidInput(f"by={by!r} is not known. It names who edits the files: one of {', '.join(EDITORS)}.")
        self._by: SourceKind = by
        self._stop = threading.Event()

    @property
    def path(self) -> str:
        return self._folder.path

    def sync(
        self, *, dry_run: bool = False, accept_deletions: bool = False, restore_deletions: bool = False
    ) -> SyncResult:
        """Apply the files' changes to the memory, then write the memory's changes to the files.

        If both changed the same line, the memory's version stays and the other goes to memory/conflicts.md. Too many
        deletions at once are held back until they are accepted or restored. A dry run changes nothing.
        """
        if accept_deletions and restore_deletions:
            raise InvalidInput("accept_deletions and restore_deletions exclude each other. Give one of them.")
        options = SyncOptions(self._budget, self._by, accept_deletions, restore_deletions, dry_run)
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._sync_once(options)
            except (Conflict, NotFound):
                # A file or an item changed during the sync: start again.
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def pending(self) -> SyncResult:
        """Return what a sync would do.

        Nothing is read if the last call found nothing and, by their stamps, neither files nor memory changed since.
        """
        began, now, seq = time.monotonic(), self._services.clock(), self._services.items.newest(self._scope)
        files = hashlib.blake2b(repr(self._folder.signature(base=True)).encode(), digest_size=16).digest()
        place = (self.path, self._scope.id)
        known = self._services.rests.get(place)
        if (
            known
            and known.is_current(files, now)
            and not self._services.items.changes(self._scope, known.seq, 1).changes
        ):
            return SyncResult(dry_run=True)
        sync = SyncRound(self._services, self._scope, self._folder, SyncOptions(self._budget, self._by, dry_run=True))
        found = sync.run()
        if not (found.written or found.taken or self._has_future_items(now)):
            since = known.since if known and known.files == files else began
            self._services.rests[place] = IdleState(
                files, since, seq, now, sync.valid_until, began - since >= STAMP_CHANGE_SECONDS
            )
        return found

    def status(self) -> MirrorStatus:
        """Describe the folder, and what a sync would do."""
        texts = {name: decode_page(name, self._folder.read(name)) for name in (MEMORY, OVERFLOW, CONFLICTS)}
        return MirrorStatus(
            folder=self.path,
            lines=len(texts[MEMORY].splitlines()),
            max_lines=self._budget.lines,
            bytes=len(texts[MEMORY].encode()),
            max_bytes=self._budget.bytes,
            entries=_count_entries(texts[MEMORY]),
            overflow=_count_entries(texts[OVERFLOW]),
            days=len(self._folder.days()),
            conflicts=len(list_conflict_ids(texts[CONFLICTS])),
            pending=self.sync(dry_run=True),
        )

    def watch(self, seconds: float = 1.0, report: Report | None = None) -> None:
        """Sync whenever a file or the memory has changed, until `stop` or Ctrl-C.

        `report` is called with every sync that did something and with every error; the watch continues after an error.
        It polls every `seconds`. With watchfiles (pip install "engrain[watch]") it sees changed files at once.
        """
        if not isinstance(seconds, (int, float)) or not 0.01 <= seconds <= 86_400:
            raise InvalidInput(f"seconds must be a number from 0.01 to 86,400, not {seconds!r}.")
        seen: object = None
        since = 0
        for _ in self._folder.ticks(seconds, self._stop):
            try:
                files, since = self._folder.signature(), self._read_last_change(since)
                # A file that is still being written waits for the next round.
                if (files, since) == seen or self._stop.wait(WRITE_PAUSE_SECONDS) or files != self._folder.signature():
                    continue
                seen = (files, since)
                outcome: SyncResult | EngrainError = self.sync()
            except StoreClosed:
                raise
            except EngrainError as exc:
                raise_interrupt(exc)
                _log.warning("%s was not synced: %s", self.path, exc)
                outcome, seen = exc, None if isinstance(exc, StoreError) else seen
            if report is not None and (outcome or isinstance(outcome, EngrainError)):
                report(outcome)

    def stop(self) -> None:
        """End `watch`, whichever thread it runs in."""
        self._stop.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _sync_once(self, options: SyncOptions) -> SyncResult:
        sync = SyncRound(self._services, self._scope, self._folder, options)
        if options.dry_run:
            return sync.run()
        with self._folder.lock(LOCK_TIMEOUT_SECONDS):
            return sync.run()

    def _has_future_items(self, now: datetime) -> bool:
        """Check for items that become valid later, without any change."""
        later = parse_filter({"valid_from": {">": now}})
        return bool(self._services.items.page(ListQuery(self._scope, later, history=True, limit=1)))

    def _read_last_change(self, since: int) -> int:
        while True:
            changes = self._services.items.changes(self._scope, since, CHANGES_PER_READ)
            since = changes.changes[-1].seq if changes.changes else since
            if changes.complete:
                return since


def _count_entries(text: str) -> int:
    return sum(block.entry is not None for block in read_page(text))
