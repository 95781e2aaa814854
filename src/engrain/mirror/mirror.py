"""Keep a folder of Markdown files and a memory in step, both ways."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from engrain.core.errors import Conflict, EngrainError, InvalidInput, NotFound, StoreClosed, StoreError
from engrain.core.identity import Scope
from engrain.core.markdown.layout import PageBudget, list_conflict_ids
from engrain.core.markdown.page import read_page
from engrain.core.markdown.sync_state import CONFLICTS, MEMORY, OVERFLOW, IdleState, MirrorStatus, SyncResult
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import SourceKind
from engrain.core.validation import check_count
from engrain.mirror.render import MAX_PAGE_BYTES
from engrain.mirror.sync import SyncOptions, SyncRound, decode_page
from engrain.ports import ListQuery, Services
from engrain.ports.storage import Folder

LOCK_TIMEOUT_SECONDS = 30.0  # seconds for another sync of the same folder
MAX_ATTEMPTS = 5
WRITE_PAUSE_SECONDS = 0.2
# Seconds after which a file that is written has another stamp than before, on any file system, and also if it is mapped
# into memory and its pages wait to be written.
STAMP_CHANGE_SECONDS = 60.0
EDITORS = ("user", "agent", "document")
CHANGES_PER_READ = 1_000  # changes of the memory that are looked at together

_log = logging.getLogger("engrain")

Report = Callable[[SyncResult | EngrainError], None]


class Mirror:
    """A folder beside one scope's memory. Nothing is held open between two syncs; one syncs at a time, whatever
    thread or process it is in."""

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
            raise InvalidInput(f"by says whose word the files are: one of {', '.join(EDITORS)}.")
        self._by: SourceKind = by
        self._stop = threading.Event()

    @property
    def path(self) -> str:
        return self._folder.path

    def sync(
        self, *, dry_run: bool = False, accept_deletions: bool = False, restore_deletions: bool = False
    ) -> SyncResult:
        """Take in what was changed in the files, then write what changed in the memory.

        Where both changed the same line, the memory's version stands and the other goes to memory/conflicts.md. Too
        many deletions at once are held back until they are accepted or restored. A dry run changes nothing.
        """
        if accept_deletions and restore_deletions:
            raise InvalidInput("deletions are either accepted or restored, not both.")
        terms = SyncOptions(self._budget, self._by, accept_deletions, restore_deletions, dry_run)
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._round(terms)
            except (Conflict, NotFound):
                # A file or an item was changed under our hands: all is looked at anew.
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def pending(self) -> SyncResult:
        """What a sync would do. Where the last look of this opening found nothing, and by their stamps neither the
        files nor the memory have changed since, nothing is read again."""
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
        one = SyncRound(self._services, self._scope, self._folder, SyncOptions(self._budget, self._by, dry_run=True))
        found = one.run()
        if not (found.written or found.taken or self._coming(now)):
            since = known.since if known and known.files == files else began
            self._services.rests[place] = IdleState(
                files, since, seq, now, one.until, began - since >= STAMP_CHANGE_SECONDS
            )
        return found

    def status(self) -> MirrorStatus:
        """How the folder stands, and what a sync would do."""
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
        """Sync whenever a file or the memory has changed, until `stop` or Ctrl-C. `report` hears of every sync that did
        something, and of every error, after which the watch goes on.

        It looks every so many seconds; with watchfiles (pip install "engrain[watch]") it hears of files at once.
        """
        if not isinstance(seconds, (int, float)) or not 0.01 <= seconds <= 86_400:
            raise InvalidInput(f"seconds must be a number from 0.01 to 86,400, not {seconds!r}.")
        seen: object = None
        since = 0
        for _ in self._folder.ticks(seconds, self._stop):
            try:
                files, since = self._folder.signature(), self._seq(since)
                # A file that is still being written is left alone until it rests.
                if (files, since) == seen or self._stop.wait(WRITE_PAUSE_SECONDS) or files != self._folder.signature():
                    continue
                seen = (files, since)
                outcome: SyncResult | EngrainError = self.sync()
            except StoreClosed:
                raise
            except EngrainError as exc:
                _log.warning("%s was not synced: %s", self.path, exc)
                outcome, seen = exc, None if isinstance(exc, StoreError) else seen
            if report is not None and (outcome or isinstance(outcome, EngrainError)):
                report(outcome)

    def stop(self) -> None:
        """End `watch`, in whatever thread it runs."""
        self._stop.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _round(self, terms: SyncOptions) -> SyncResult:
        one = SyncRound(self._services, self._scope, self._folder, terms)
        if terms.dry_run:
            return one.run()
        with self._folder.lock(LOCK_TIMEOUT_SECONDS):
            return one.run()

    def _coming(self, now: datetime) -> bool:
        """Whether something in the memory begins to hold by itself."""
        later = parse_filter({"valid_from": {">": now}})
        return bool(self._services.items.page(ListQuery(self._scope, later, history=True, limit=1)))

    def _seq(self, since: int) -> int:
        """The number of the memory's last change."""
        while True:
            changes = self._services.items.changes(self._scope, since, CHANGES_PER_READ)
            since = changes.changes[-1].seq if changes.changes else since
            if changes.complete:
                return since


def _count_entries(text: str) -> int:
    return sum(block.entry is not None for block in read_page(text))
