"""Synchronize a folder of Markdown files with a memory, in both directions."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from engrain.core.errors import (
    BadText,
    ConfigError,
    Conflict,
    EngrainError,
    InvalidInput,
    NotFound,
    StoreClosed,
    StoreError,
    raise_interrupt,
)
from engrain.core.identity import Scope
from engrain.core.markdown.layout import PageBudget, list_conflict_ids, update_conflicts, widen_folder_pattern
from engrain.core.markdown.page import hash_entry, read_page
from engrain.core.markdown.three_way_merge import (
    CONFLICTS,
    MEMORY,
    OVERFLOW,
    SOUL,
    SOUL_SLOT,
    SYNC_BASE,
    MergeDecision,
    MirrorStatus,
    PendingDeletion,
    SyncBase,
    SyncConflict,
    SyncedLine,
    SyncResult,
    parse_log_day,
    read_base,
    write_base,
)
from engrain.core.model.items import TRUST, SourceKind
from engrain.core.model.plans import Change, Plan
from engrain.core.validation import check_count
from engrain.ingest.write import purge_or_log, redact_json
from engrain.mirror.render import (
    MAX_PAGE_BYTES,
    MIN_SOUL_TRUST,
    MIN_TRUST,
    LineMap,
    Page,
    RenderedPages,
    Selection,
    build_soul_entry,
    find_current,
    render_day,
    render_memory,
    select_items,
)
from engrain.mirror.sync_pages import (
    ApplyResult,
    Comparison,
    Editor,
    apply_changes,
    compare_files,
    confirm_moved,
    describe_changes,
    list_hidden_lines,
    map_lines,
    plan_changes,
    settle_deletions,
)
from engrain.ports import Services
from engrain.ports.storage import Folder

ROUNDS_PROGRESS = "files"  # name of the log's progress mark that counts a folder's rounds with this store

RawFiles = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    budget: PageBudget
    by: SourceKind = "user"  # who edits the files
    accept: bool = False  # the deletions that are held back
    restore: bool = False  # the deletions that are held back
    dry_run: bool = False


class SyncRound:
    """One synchronization. The folder must be locked, except in a dry run."""

    def __init__(self, services: Services, scope: Scope, folder: Folder, options: SyncOptions) -> None:
        self._services, self._scope, self._folder, self._options = services, scope, folder, options

    def run(self) -> SyncResult:
        began = self._services.items.current_time()
        editor, previous_base = self._load_base()
        comparison, raws = self._compare(editor.base)
        found = settle_deletions(compare_files(comparison), accept=self._options.accept, restore=self._options.restore)
        if TRUST[editor.by] >= MIN_TRUST:
            found = confirm_moved(found, comparison)
        changes = plan_changes(found, comparison.before, editor, self._services.redact)
        clashes = list(_find_clashes(found, comparison))
        conflicts = self._render_conflicts(comparison.pages[CONFLICTS].text, clashes)
        safe = dict(raws)
        if self._options.dry_run:
            result, selection = ApplyResult(describe_changes(changes)), _drop_changed(comparison.selection, found)
        else:
            # Handwritten text is saved before anything replaces it.
            self._write({CONFLICTS: conflicts}, raws)
            safe[CONFLICTS] = conflicts.encode() or None
            result = apply_changes(changes, self._services, self._scope, editor, began)
            selection = select_items(self._services, self._scope) if changes else comparison.selection
        rendered = self._render(replace(comparison, selection=selection), found, result, conflicts)
        if not self._options.dry_run:
            by_hand = [verdict.line for verdict in found if verdict.do in ("edit", "forget") and verdict.line]
            new_base = editor.base.advance((*rendered.lines, *list_hidden_lines(found)), by_hand)
            self._save(editor.base, new_base, rendered, safe, previous_base)
            self._finish(found)
        return SyncResult(
            tuple(name for name, text in rendered.texts.items() if _differs(text, raws[name])),
            result.taken,
            tuple(replace(clash, text=redact_json(clash.text, self._services.redact)) for clash in clashes),
            tuple(
                PendingDeletion(verdict.line.file, verdict.line.id, comparison.before[verdict.line.id].text)
                for verdict in found
                if verdict.line and verdict.is_pending_deletion
            ),
            tuple(_list_notices(comparison, editor.first and previous_base is not None)),
            self._options.dry_run,
        )

    # Reading

    def _load_base(self) -> tuple[Editor, bytes | None]:
        """Load the state of the last round.

        A folder that is new to this store, or to the backup that it was restored from, starts without a state: its
        lines are added to the memory, and none is removed because the store does not have it.
        """
        raw = self._folder.read(SYNC_BASE)
        base = read_base(raw.decode("utf-8", "replace")) if raw else None
        if base is not None and base.scope != self._scope.id:
            each = widen_folder_pattern(self._services.policies.mirror, self._scope)
            raise ConfigError(
                f"{self._folder.path} mirrors another memory, not that of {self._scope}. Use a folder of its own; "
                f'in the settings, mirror = "{each}" gives one to each memory.'
            )
        if (
            base is not None
            and self._services.log.progress(self._scope, _session_name(base), ROUNDS_PROGRESS) >= base.round
        ):
            return Editor(self._options.by, base), raw
        return Editor(self._options.by, SyncBase(secrets.token_hex(8), self._scope.id), first=True), raw

    def _compare(self, base: SyncBase) -> tuple[Comparison, RawFiles]:
        selection = select_items(self._services, self._scope)
        logged = {line.file for line in base.lines if parse_log_day(line.file)}
        days = {*self._folder.days(), *logged, *selection.days}
        raws = {name: self._folder.read(name) for name in (SOUL, MEMORY, OVERFLOW, CONFLICTS, *sorted(days))}
        pages = {name: Page.of(name, decode_page(name, raw)) for name, raw in raws.items()}
        before, current = find_current(self._services, self._scope, [line.id for line in base.lines])
        return Comparison(pages, base.by_file(), selection, before, current), raws

    def _render_conflicts(self, page: str, clashes: Sequence[SyncConflict]) -> str:
        ids = list_conflict_ids(page)
        there = {item.id for item in self._services.items.get_many(self._scope, ids)} if ids else set()
        return update_conflicts(page, clashes, {*ids} - there, f"{self._services.clock():%Y-%m-%d}")

    # Writing

    def _render(
        self, comparison: Comparison, found: Sequence[MergeDecision], result: ApplyResult, conflicts: str
    ) -> RenderedPages:
        line_map = map_lines(found, result.ids)
        base = [line for lines in comparison.lines.values() for line in lines]
        logged = {line.id for line in base if line.state in ("written", "deleted")}
        known = logged | {id for id in line_map.ids.values() if id}
        rendered = [
            render_memory(comparison.pages, comparison.selection, line_map, self._options.budget),
            _render_soul(comparison, line_map),
            *(render_day(page, comparison.selection, line_map, known) for page in comparison.days),
        ]
        # Again, because an item forgotten in this round takes its conflict with it.
        texts = {CONFLICTS: self._render_conflicts(conflicts, ())}
        texts |= {name: text for pages in rendered for name, text in pages.texts.items()}
        return RenderedPages(texts, tuple(line for pages in rendered for line in pages.lines))

    def _save(
        self, base: SyncBase, after: SyncBase, rendered: RenderedPages, raws: RawFiles, previous_base: bytes | None
    ) -> None:
        """Write the state as unsure, then the files, then the final state.

        So a round that is cut off in between does not look as if somebody had deleted lines.
        """
        changes = any(_differs(text, raws[name]) for name, text in rendered.texts.items())
        if not changes and base.round and base.lines == after.lines:
            return
        self._services.log.advance(self._scope, _session_name(after), ROUNDS_PROGRESS, after.round)
        if changes:
            unsure = write_base(base.while_writing(after)).encode()
            self._folder.write(SYNC_BASE, unsure, previous_base)
            self._write(rendered.texts, raws)
            previous_base = unsure
        self._folder.write(SYNC_BASE, write_base(after).encode(), previous_base)

    def _write(self, texts: Mapping[str, str], raws: RawFiles) -> None:
        for name, text in texts.items():
            if _differs(text, raws[name]):
                if text:
                    self._folder.write(name, text.encode(), raws[name])
                else:
                    self._folder.remove(name, raws[name])

    def _finish(self, found: Sequence[MergeDecision]) -> None:
        """Keep the agent's identity pinned, and purge the bytes of forgotten items."""
        soul = self._services.items.slot(self._scope, SOUL_SLOT, None)
        if soul is not None and not soul.pinned and soul.trust >= MIN_SOUL_TRUST:
            self._services.items.apply(Plan(self._scope, (Change(soul.id, pinned=True),)))
        if any(verdict.do == "forget" for verdict in found):
            purge_or_log(self._services)


def read_folder_base(folder: Folder) -> SyncBase | None:
    """Return the state after the last round in a folder; None if it is new."""
    return read_base((folder.read(SYNC_BASE) or b"").decode("utf-8", "replace"))


def decode_page(name: str, raw: bytes | None) -> str:
    try:
        text = (raw or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise BadText(
            f"{name}, line {line}: byte 0x{exc.object[exc.start]:02x} is not UTF-8. Save the file as UTF-8."
        ) from exc
    # A power cut may leave zeros in place of a file. Its lines were not deleted.
    if (at := text.find("\0")) >= 0:
        raise BadText(f"{name}, line {text.count(chr(10), 0, at) + 1}: a NUL is no text. Restore the file.")
    return text


def _render_soul(comparison: Comparison, line_map: LineMap) -> RenderedPages:
    item, page = comparison.selection.soul, comparison.pages[SOUL]
    if item is not None and item.trust < MIN_SOUL_TRUST:
        return RenderedPages({}, tuple(comparison.lines.get(SOUL, ())))
    if item is None or item.id in line_map.deleted:
        gone = (SOUL, 0) in line_map.ids and line_map.ids[SOUL, 0] is None
        return RenderedPages({SOUL: "" if gone else page.text})
    entry = build_soul_entry(item)
    text = page.text if comparison.soul == entry.text else entry.text.replace("\n", page.end) + page.end
    return RenderedPages({SOUL: text}, (SyncedLine(item.id, hash_entry(entry), SOUL),))


def _drop_changed(selection: Selection, found: Sequence[MergeDecision]) -> Selection:
    """Drop the items whose lines a real sync would change: for a dry run."""
    ids = {verdict.line.id for verdict in found if verdict.do in ("edit", "forget") and verdict.line}
    soul = selection.soul if selection.soul and selection.soul.id not in ids else None
    return Selection({id: item for id, item in selection.facts.items() if id not in ids}, selection.days, soul)


def _find_clashes(found: Sequence[MergeDecision], comparison: Comparison) -> Iterator[SyncConflict]:
    texts = {item.id: item.text for item in comparison.items}
    for verdict in found:
        if verdict.do != "clash" or verdict.id is None:
            continue
        if verdict.seen is not None:
            entry = verdict.seen.entry
            slot = f"**{entry.slot}**: " if entry.slot and verdict.seen.file != SOUL else ""
            yield SyncConflict(verdict.seen.file, verdict.id, slot + entry.text, texts[verdict.id])
        elif verdict.line is not None:
            yield SyncConflict(verdict.line.file, verdict.id, None, texts[verdict.id])


def _list_notices(comparison: Comparison, is_new: bool) -> Iterator[str]:
    if is_new:
        yield "this folder is new to the store: its lines were added to the memory, and none was removed"
    soul = comparison.selection.soul
    if soul is not None and soul.trust < MIN_SOUL_TRUST:
        yield f"{SOUL} was not changed: the slot {SOUL_SLOT} was set by a source that is not trusted with it"
    prose = sum(block.prose for block in comparison.pages[MEMORY].blocks)
    if prose:
        many = "1 line of prose is" if prose == 1 else f"{prose:,} lines of prose are"
        yield f'{MEMORY}: {many} not in the memory; begin a line with "- " to add it'


def _differs(text: str, raw: bytes | None) -> bool:
    return text.encode() != (raw or b"")


def _session_name(base: SyncBase) -> str:
    return f"files:{base.folder}"


LOCK_TIMEOUT_SECONDS = 30.0  # for another sync of the same folder to end
MAX_ATTEMPTS = 5
WRITE_PAUSE_SECONDS = 0.2
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
        """Return what a sync would do."""
        return self.sync(dry_run=True)

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

    def _read_last_change(self, since: int) -> int:
        while True:
            changes = self._services.items.changes(self._scope, since, CHANGES_PER_READ)
            since = changes.changes[-1].seq if changes.changes else since
            if changes.complete:
                return since


def _count_entries(text: str) -> int:
    return sum(block.entry is not None for block in read_page(text))
