"""One round between a folder and a memory: compare, take in, write."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engrain.core.errors import BadText, ConfigError, StoreError
from engrain.core.identity import Scope
from engrain.core.markdown.layout import Budget, unsettled, with_conflicts
from engrain.core.markdown.merge import Verdict
from engrain.core.markdown.page import key_of
from engrain.core.markdown.sync_state import (
    BASE,
    CONFLICTS,
    MEMORY,
    OVERFLOW,
    SOUL,
    SOUL_SLOT,
    Base,
    Clash,
    HeldBack,
    Line,
    Synced,
    base_of,
    base_text,
    day_of,
    parted,
)
from engrain.core.model.items import TRUST, SourceKind
from engrain.core.model.plans import Change, Plan
from engrain.ingest.write import redact_json
from engrain.mirror.apply import Hand, Took, take, told, wishes
from engrain.mirror.diff import Desk, away, decided, placed, verdicts, vouched
from engrain.mirror.render import Given, Page, Placed, day_page, memory_pages
from engrain.mirror.selection import TRUSTED, Shelf, shelf, soul_entry_of, standing
from engrain.ports import Kit
from engrain.ports.storage import Folder

WORK = "files"  # under which the log keeps how many rounds a folder has had with this store

_log = logging.getLogger("engrain")

Raws = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a round is asked to do: the budget, whose hand writes in the files, and what to do with deletions that are
    held back."""

    budget: Budget
    by: SourceKind = "user"
    accept: bool = False
    restore: bool = False
    dry_run: bool = False


class Round:
    """The folder must be locked, unless nothing is to be written."""

    def __init__(self, kit: Kit, scope: Scope, folder: Folder, terms: Terms) -> None:
        self._kit, self._scope, self._folder, self._terms = kit, scope, folder, terms
        # When the first of the items that were looked at ends by itself.
        self.until: datetime | None = None

    def run(self) -> Synced:
        began = self._kit.items.moment()
        hand, was = self._meeting()
        desk, raws = self._desk(hand.base)
        self.until = min((at for item in desk.items for at in (item.valid_to, item.expires_at) if at), default=None)
        found = decided(verdicts(desk), accept=self._terms.accept, restore=self._terms.restore)
        if TRUST[hand.by] >= TRUSTED:
            found = vouched(found, desk)
        wanted = wishes(found, desk.before, hand, self._kit.redact)
        clashes = list(_clashes(found, desk))
        conflicts = self._conflicts(desk.pages[CONFLICTS].text, clashes)
        safe = dict(raws)
        if self._terms.dry_run:
            took, on_shelf = Took(told(wanted)), _untouched(desk.shelf, found)
        else:
            # What was written by hand is safe before anything stands in its place.
            self._write({CONFLICTS: conflicts}, raws)
            safe[CONFLICTS] = conflicts.encode() or None
            took = take(wanted, self._kit, self._scope, hand, began)
            on_shelf = shelf(self._kit, self._scope) if wanted else desk.shelf
        given = self._given(replace(desk, shelf=on_shelf), found, took, conflicts)
        if not self._terms.dry_run:
            by_hand = [one.line for one in found if one.do in ("edit", "forget") and one.line]
            self._save(hand.base, hand.base.then((*given.lines, *away(found)), by_hand), given, safe, was)
            self._settle(found)
        return Synced(
            tuple(name for name, text in given.texts.items() if _differs(text, raws[name])),
            took.told,
            tuple(replace(one, text=redact_json(one.text, self._kit.redact)) for one in clashes),
            tuple(_held_back(found, desk)),
            tuple(_notes(desk, hand.first and was is not None)),
            self._terms.dry_run,
        )

    # Reading

    def _meeting(self) -> tuple[Hand, bytes | None]:
        """What the last round left. A folder that this store has not met, or not since it was restored, is met anew:
        its lines are taken in, and none is removed for not being in the store."""
        raw = self._folder.read(BASE)
        base = base_of(raw.decode("utf-8", "replace")) if raw else None
        if base is not None and base.scope != self._scope.id:
            each = parted(self._kit.policies.mirror, self._scope)
            raise ConfigError(
                f"{self._folder.path} is kept in step with another memory than that of {self._scope}. Give this one a "
                f'folder of its own; in the settings, mirror = "{each}" gives one to each.'
            )
        if base is not None and self._kit.log.progress(self._scope, _session(base), WORK) >= base.round:
            return Hand(self._terms.by, base), raw
        return Hand(self._terms.by, Base(secrets.token_hex(8), self._scope.id), first=True), raw

    def _desk(self, base: Base) -> tuple[Desk, Raws]:
        on_shelf = shelf(self._kit, self._scope)
        logged = {line.file for line in base.lines if day_of(line.file)}
        days = {*self._folder.days(), *logged, *on_shelf.days}
        raws = {name: self._folder.read(name) for name in (SOUL, MEMORY, OVERFLOW, CONFLICTS, *sorted(days))}
        pages = {name: Page.of(name, text_of(name, raw)) for name, raw in raws.items()}
        before, stands = standing(self._kit, self._scope, [line.id for line in base.lines])
        return Desk(pages, base.by_file(), on_shelf, before, stands), raws

    def _conflicts(self, page: str, clashes: Sequence[Clash]) -> str:
        ids = unsettled(page)
        there = {item.id for item in self._kit.items.get_many(self._scope, ids)} if ids else set()
        return with_conflicts(page, clashes, {*ids} - there, f"{self._kit.clock():%Y-%m-%d}")

    # Writing

    def _given(self, desk: Desk, found: Sequence[Verdict], took: Took, conflicts: str) -> Given:
        where = placed(found, took.ids)
        base = [line for lines in desk.lines.values() for line in lines]
        logged = {line.id for line in base if line.state in ("stands", "away")}
        known = logged | {id for id in where.ids.values() if id}
        given = [
            memory_pages(desk.pages, desk.shelf, where, self._terms.budget),
            _soul(desk, where),
            *(day_page(page, desk.shelf, where, known) for page in desk.days),
        ]
        # Once more: an item that was forgotten just now takes its conflict along.
        texts = {CONFLICTS: self._conflicts(conflicts, ())}
        texts |= {name: text for one in given for name, text in one.texts.items()}
        return Given(texts, tuple(line for one in given for line in one.lines))

    def _save(self, base: Base, after: Base, given: Given, raws: Raws, was: bytes | None) -> None:
        """First that lines are about to come and go, then the files, then that they did: a round that is cut off in
        between does not look like one after which somebody deleted lines."""
        moves = any(_differs(text, raws[name]) for name, text in given.texts.items())
        if not moves and base.round and base.lines == after.lines:
            return
        self._kit.log.advance(self._scope, _session(after), WORK, after.round)
        if moves:
            unsure = base_text(base.unsure(after)).encode()
            self._folder.write(BASE, unsure, was)
            self._write(given.texts, raws)
            was = unsure
        self._folder.write(BASE, base_text(after).encode(), was)

    def _write(self, texts: Mapping[str, str], raws: Raws) -> None:
        for name, text in texts.items():
            if _differs(text, raws[name]):
                if text:
                    self._folder.write(name, text.encode(), raws[name])
                else:
                    self._folder.remove(name, raws[name])

    def _settle(self, found: Sequence[Verdict]) -> None:
        """Who the agent is stays pinned, and the bytes of what was forgotten go."""
        soul = self._kit.items.slot(self._scope, SOUL_SLOT, None)
        if soul is not None and not soul.pinned and soul.trust >= TRUSTED:
            self._kit.items.apply(Plan(self._scope, (Change(soul.id, pinned=True),)))
        if any(one.do == "forget" for one in found):
            try:
                self._kit.items.purge()
            except StoreError as exc:
                # What was asked for is done: the bytes are tried again by themselves.
                _log.warning("the bytes of what was forgotten are still to be removed: %s", exc)


def text_of(name: str, raw: bytes | None) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise BadText(f"{name}, line {line}: byte 0x{exc.object[exc.start]:02x} is not UTF-8. Mend it.") from exc


def _soul(desk: Desk, where: Placed) -> Given:
    item, page = desk.shelf.soul, desk.pages[SOUL]
    if item is not None and item.trust < TRUSTED:
        return Given({}, tuple(desk.lines.get(SOUL, ())))
    if item is None or item.id in where.away:
        gone = (SOUL, 0) in where.ids and where.ids[SOUL, 0] is None
        return Given({SOUL: "" if gone else page.text})
    entry = soul_entry_of(item)
    text = page.text if desk.soul == entry.text else entry.text.replace("\n", page.end) + page.end
    return Given({SOUL: text}, (Line(item.id, key_of(entry), SOUL),))


def _untouched(on_shelf: Shelf, found: Sequence[Verdict]) -> Shelf:
    """For a dry run: without the items whose lines are about to be taken in."""
    ids = {one.line.id for one in found if one.do in ("edit", "forget") and one.line}
    soul = on_shelf.soul if on_shelf.soul and on_shelf.soul.id not in ids else None
    return Shelf({id: item for id, item in on_shelf.facts.items() if id not in ids}, on_shelf.days, soul)


def _clashes(found: Sequence[Verdict], desk: Desk) -> Iterator[Clash]:
    texts = {item.id: item.text for item in desk.items}
    for one in found:
        if one.do != "clash" or one.id is None:
            continue
        if one.seen is not None:
            entry = one.seen.entry
            slot = f"**{entry.slot}**: " if entry.slot and one.seen.file != SOUL else ""
            yield Clash(one.seen.file, one.id, slot + entry.text, texts[one.id])
        elif one.line is not None:
            yield Clash(one.line.file, one.id, None, texts[one.id])


def _held_back(found: Sequence[Verdict], desk: Desk) -> Iterator[HeldBack]:
    for one in found:
        if one.do == "hold" and one.line and not day_of(one.line.file):
            yield HeldBack(one.line.file, one.line.id, desk.before[one.line.id].text)


def _notes(desk: Desk, anew: bool) -> Iterator[str]:
    if anew:
        yield "this store has not met the folder before: its lines were taken in, and none was removed"
    soul = desk.shelf.soul
    if soul is not None and soul.trust < TRUSTED:
        yield f"{SOUL} is left as it is: the slot {SOUL_SLOT} was set by a source that is not trusted with it"
    prose = sum(block.prose for block in desk.pages[MEMORY].blocks)
    if prose:
        many = "1 line of prose is" if prose == 1 else f"{prose:,} lines of prose are"
        yield f'{MEMORY}: {many} not taken in; begin a line with "- " to have it kept'


def _differs(text: str, raw: bytes | None) -> bool:
    return text.encode() != (raw or b"")


def _session(base: Base) -> str:
    return f"files:{base.folder}"
