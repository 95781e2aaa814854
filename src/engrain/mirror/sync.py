"""One round between a folder and a memory: compare, take in, write."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engrain.core.errors import BadText, ConfigError, StoreError
from engrain.core.identity import Scope
from engrain.core.markdown.folder_names import widen_folder_pattern
from engrain.core.markdown.layout import PageBudget, list_conflict_ids, update_conflicts
from engrain.core.markdown.merge import MergeDecision
from engrain.core.markdown.page import hash_entry
from engrain.core.markdown.sync_state import (
    CONFLICTS,
    MEMORY,
    OVERFLOW,
    SOUL,
    SOUL_SLOT,
    SYNC_BASE,
    HeldDeletion,
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
from engrain.ingest.write import redact_json
from engrain.mirror.apply import ApplyResult, Editor, apply_changes, describe_changes, plan_changes
from engrain.mirror.diff import Comparison, compare_files, confirm_moved, list_hidden_lines, map_lines, settle_deletions
from engrain.mirror.render import LineMap, Page, RenderedPages, render_day, render_memory
from engrain.mirror.selection import MIN_TRUST, Selection, build_soul_entry, find_current, select_items
from engrain.ports import Services
from engrain.ports.storage import Folder

ROUNDS_PROGRESS = "files"  # under which the log keeps how many rounds a folder has had with this store

_log = logging.getLogger("engrain")

RawFiles = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """What a round is asked to do: the budget, whose hand writes in the files, and what to do with deletions that are
    held back."""

    budget: PageBudget
    by: SourceKind = "user"
    accept: bool = False
    restore: bool = False
    dry_run: bool = False


class SyncRound:
    """The folder must be locked, unless nothing is to be written."""

    def __init__(self, services: Services, scope: Scope, folder: Folder, terms: SyncOptions) -> None:
        self._services, self._scope, self._folder, self._terms = services, scope, folder, terms
        # When the first of the items that were looked at ends by itself.
        self.until: datetime | None = None

    def run(self) -> SyncResult:
        began = self._services.items.moment()
        hand, was = self._meeting()
        desk, raws = self._desk(hand.base)
        self.until = min((at for item in desk.items for at in (item.valid_to, item.expires_at) if at), default=None)
        found = settle_deletions(compare_files(desk), accept=self._terms.accept, restore=self._terms.restore)
        if TRUST[hand.by] >= MIN_TRUST:
            found = confirm_moved(found, desk)
        wanted = plan_changes(found, desk.before, hand, self._services.redact)
        clashes = list(_find_clashes(found, desk))
        conflicts = self._conflicts(desk.pages[CONFLICTS].text, clashes)
        safe = dict(raws)
        if self._terms.dry_run:
            took, on_shelf = ApplyResult(describe_changes(wanted)), _drop_changed(desk.shelf, found)
        else:
            # What was written by hand is safe before anything stands in its place.
            self._write({CONFLICTS: conflicts}, raws)
            safe[CONFLICTS] = conflicts.encode() or None
            took = apply_changes(wanted, self._services, self._scope, hand, began)
            on_shelf = select_items(self._services, self._scope) if wanted else desk.shelf
        given = self._given(replace(desk, shelf=on_shelf), found, took, conflicts)
        if not self._terms.dry_run:
            by_hand = [one.line for one in found if one.do in ("edit", "forget") and one.line]
            self._save(
                hand.base, hand.base.advance((*given.lines, *list_hidden_lines(found)), by_hand), given, safe, was
            )
            self._settle(found)
        return SyncResult(
            tuple(name for name, text in given.texts.items() if _differs(text, raws[name])),
            took.told,
            tuple(replace(one, text=redact_json(one.text, self._services.redact)) for one in clashes),
            tuple(_list_held_back(found, desk)),
            tuple(_list_notices(desk, hand.first and was is not None)),
            self._terms.dry_run,
        )

    # Reading

    def _meeting(self) -> tuple[Editor, bytes | None]:
        """What the last round left. A folder that this store has not met, or not since it was restored, is met anew:
        its lines are taken in, and none is removed for not being in the store."""
        raw = self._folder.read(SYNC_BASE)
        base = read_base(raw.decode("utf-8", "replace")) if raw else None
        if base is not None and base.scope != self._scope.id:
            each = widen_folder_pattern(self._services.policies.mirror, self._scope)
            raise ConfigError(
                f"{self._folder.path} is kept in step with another memory than that of {self._scope}. Give this one a "
                f'folder of its own; in the settings, mirror = "{each}" gives one to each.'
            )
        if (
            base is not None
            and self._services.log.progress(self._scope, _session_name(base), ROUNDS_PROGRESS) >= base.round
        ):
            return Editor(self._terms.by, base), raw
        return Editor(self._terms.by, SyncBase(secrets.token_hex(8), self._scope.id), first=True), raw

    def _desk(self, base: SyncBase) -> tuple[Comparison, RawFiles]:
        on_shelf = select_items(self._services, self._scope)
        logged = {line.file for line in base.lines if parse_log_day(line.file)}
        days = {*self._folder.days(), *logged, *on_shelf.days}
        raws = {name: self._folder.read(name) for name in (SOUL, MEMORY, OVERFLOW, CONFLICTS, *sorted(days))}
        pages = {name: Page.of(name, decode_page(name, raw)) for name, raw in raws.items()}
        before, stands = find_current(self._services, self._scope, [line.id for line in base.lines])
        return Comparison(pages, base.by_file(), on_shelf, before, stands), raws

    def _conflicts(self, page: str, clashes: Sequence[SyncConflict]) -> str:
        ids = list_conflict_ids(page)
        there = {item.id for item in self._services.items.get_many(self._scope, ids)} if ids else set()
        return update_conflicts(page, clashes, {*ids} - there, f"{self._services.clock():%Y-%m-%d}")

    # Writing

    def _given(
        self, desk: Comparison, found: Sequence[MergeDecision], took: ApplyResult, conflicts: str
    ) -> RenderedPages:
        where = map_lines(found, took.ids)
        base = [line for lines in desk.lines.values() for line in lines]
        logged = {line.id for line in base if line.state in ("stands", "away")}
        known = logged | {id for id in where.ids.values() if id}
        given = [
            render_memory(desk.pages, desk.shelf, where, self._terms.budget),
            _render_soul(desk, where),
            *(render_day(page, desk.shelf, where, known) for page in desk.days),
        ]
        # Once more: an item that was forgotten just now takes its conflict along.
        texts = {CONFLICTS: self._conflicts(conflicts, ())}
        texts |= {name: text for one in given for name, text in one.texts.items()}
        return RenderedPages(texts, tuple(line for one in given for line in one.lines))

    def _save(self, base: SyncBase, after: SyncBase, given: RenderedPages, raws: RawFiles, was: bytes | None) -> None:
        """First that lines are about to come and go, then the files, then that they did: a round that is cut off in
        between does not look like one after which somebody deleted lines."""
        moves = any(_differs(text, raws[name]) for name, text in given.texts.items())
        if not moves and base.round and base.lines == after.lines:
            return
        self._services.log.advance(self._scope, _session_name(after), ROUNDS_PROGRESS, after.round)
        if moves:
            unsure = write_base(base.while_writing(after)).encode()
            self._folder.write(SYNC_BASE, unsure, was)
            self._write(given.texts, raws)
            was = unsure
        self._folder.write(SYNC_BASE, write_base(after).encode(), was)

    def _write(self, texts: Mapping[str, str], raws: RawFiles) -> None:
        for name, text in texts.items():
            if _differs(text, raws[name]):
                if text:
                    self._folder.write(name, text.encode(), raws[name])
                else:
                    self._folder.remove(name, raws[name])

    def _settle(self, found: Sequence[MergeDecision]) -> None:
        """Who the agent is stays pinned, and the bytes of what was forgotten go."""
        soul = self._services.items.slot(self._scope, SOUL_SLOT, None)
        if soul is not None and not soul.pinned and soul.trust >= MIN_TRUST:
            self._services.items.apply(Plan(self._scope, (Change(soul.id, pinned=True),)))
        if any(one.do == "forget" for one in found):
            try:
                self._services.items.purge()
            except StoreError as exc:
                # What was asked for is done: the bytes are tried again by themselves.
                _log.warning("the bytes of what was forgotten are still to be removed: %s", exc)


def decode_page(name: str, raw: bytes | None) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise BadText(f"{name}, line {line}: byte 0x{exc.object[exc.start]:02x} is not UTF-8. Mend it.") from exc


def _render_soul(desk: Comparison, where: LineMap) -> RenderedPages:
    item, page = desk.shelf.soul, desk.pages[SOUL]
    if item is not None and item.trust < MIN_TRUST:
        return RenderedPages({}, tuple(desk.lines.get(SOUL, ())))
    if item is None or item.id in where.away:
        gone = (SOUL, 0) in where.ids and where.ids[SOUL, 0] is None
        return RenderedPages({SOUL: "" if gone else page.text})
    entry = build_soul_entry(item)
    text = page.text if desk.soul == entry.text else entry.text.replace("\n", page.end) + page.end
    return RenderedPages({SOUL: text}, (SyncedLine(item.id, hash_entry(entry), SOUL),))


def _drop_changed(on_shelf: Selection, found: Sequence[MergeDecision]) -> Selection:
    """For a dry run: without the items whose lines are about to be taken in."""
    ids = {one.line.id for one in found if one.do in ("edit", "forget") and one.line}
    soul = on_shelf.soul if on_shelf.soul and on_shelf.soul.id not in ids else None
    return Selection({id: item for id, item in on_shelf.facts.items() if id not in ids}, on_shelf.days, soul)


def _find_clashes(found: Sequence[MergeDecision], desk: Comparison) -> Iterator[SyncConflict]:
    texts = {item.id: item.text for item in desk.items}
    for one in found:
        if one.do != "clash" or one.id is None:
            continue
        if one.seen is not None:
            entry = one.seen.entry
            slot = f"**{entry.slot}**: " if entry.slot and one.seen.file != SOUL else ""
            yield SyncConflict(one.seen.file, one.id, slot + entry.text, texts[one.id])
        elif one.line is not None:
            yield SyncConflict(one.line.file, one.id, None, texts[one.id])


def _list_held_back(found: Sequence[MergeDecision], desk: Comparison) -> Iterator[HeldDeletion]:
    for one in found:
        if one.do == "hold" and one.line and not parse_log_day(one.line.file):
            yield HeldDeletion(one.line.file, one.line.id, desk.before[one.line.id].text)


def _list_notices(desk: Comparison, anew: bool) -> Iterator[str]:
    if anew:
        yield "this store has not met the folder before: its lines were taken in, and none was removed"
    soul = desk.shelf.soul
    if soul is not None and soul.trust < MIN_TRUST:
        yield f"{SOUL} is left as it is: the slot {SOUL_SLOT} was set by a source that is not trusted with it"
    prose = sum(block.prose for block in desk.pages[MEMORY].blocks)
    if prose:
        many = "1 line of prose is" if prose == 1 else f"{prose:,} lines of prose are"
        yield f'{MEMORY}: {many} not taken in; begin a line with "- " to have it kept'


def _differs(text: str, raw: bytes | None) -> bool:
    return text.encode() != (raw or b"")


def _session_name(base: SyncBase) -> str:
    return f"files:{base.folder}"
