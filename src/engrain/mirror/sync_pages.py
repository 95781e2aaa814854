"""Compare the files with the memory, and write the differences to it: MEMORY.md and its overflow, logs, SOUL.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.markdown.layout import find_untrusted_blocks
from engrain.core.markdown.page import Entry, hash_entry
from engrain.core.markdown.three_way_merge import (
    MEMORY,
    OVERFLOW,
    SOUL,
    SOUL_SLOT,
    Action,
    AppliedLine,
    DamageSigns,
    FileEntry,
    MemorySide,
    MergeDecision,
    SyncBase,
    SyncedLine,
    hold_back_deletions,
    merge_lines,
    parse_log_day,
)
from engrain.core.model.items import FORGOTTEN, Item, Note, Source, SourceKind, check_note
from engrain.core.model.plans import Add, Change, Correct, Forget, Outcome, Plan, Step
from engrain.core.rules.message_filters import find_unrecalled_spans
from engrain.ingest import write
from engrain.ingest.write import redact_json
from engrain.mirror.render import (
    MIN_SOUL_TRUST,
    MIN_TRUST,
    LineMap,
    Page,
    Selection,
    build_entry,
    build_log_entry,
    build_soul_entry,
    normalize_soul,
)
from engrain.ports import Services

if TYPE_CHECKING:
    from engrain.core.secrets.redact import RedactFunction


MEMORY_FILES = (MEMORY, OVERFLOW)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Files and memory at one moment. `lines` are those of the last sync, by file.

    `before` are the items of these lines; `current` are the items that replace them now.
    """

    pages: Mapping[str, Page]
    lines: Mapping[str, Sequence[SyncedLine]]
    selection: Selection
    before: Mapping[str, Item]
    current: Mapping[str, Item | None]

    @property
    def items(self) -> list[Item]:
        """Return the items that a file shows or should show."""
        logged = (item for day in self.selection.days.values() for item in day.values())
        found = (*self.selection.facts.values(), *logged, self.selection.soul, *self.current.values())
        return [item for item in found if item]

    @property
    def days(self) -> list[Page]:
        return [page for name, page in self.pages.items() if parse_log_day(name)]

    @property
    def soul(self) -> str | None:
        """Return the text of SOUL.md, None if the file is missing or empty."""
        text = normalize_soul(self.pages[SOUL].text)
        return text if text.strip() else None


def compare_files(comparison: Comparison) -> list[MergeDecision]:
    return [
        *_compare_memory(comparison),
        *(verdict for page in comparison.days for verdict in _compare_day(comparison, page)),
        *_compare_soul(comparison),
    ]


def settle_deletions(found: Sequence[MergeDecision], *, accept: bool, restore: bool) -> list[MergeDecision]:
    """Accept or restore the deletions that are held back. Missing lines of a log stay: they may just be left out."""
    if not (accept or restore):
        return list(found)
    others = [verdict for verdict in found if not verdict.is_pending_deletion]
    accepted = (replace(verdict, do="forget") for verdict in found if verdict.is_pending_deletion)
    return [*others, *accepted] if accept else others


def confirm_moved(found: Sequence[MergeDecision], comparison: Comparison) -> list[MergeDecision]:
    """Turn lines that a person moved away from the unsure heading into edits: they get the person's trust.

    If the heading itself is gone, nobody has moved anything.
    """
    below = find_untrusted_blocks(comparison.pages[MEMORY].blocks)
    return [
        replace(verdict, do="edit") if below is not None and _was_moved(verdict, comparison) else verdict
        for verdict in found
    ]


def _was_moved(verdict: MergeDecision, comparison: Comparison) -> bool:
    line, seen = verdict.line, verdict.seen
    if verdict.do != "keep" or line is None or seen is None or seen.unsure or seen.file != MEMORY:
        return False
    item = comparison.selection.facts.get(line.id)
    return item is not None and item.trust < MIN_TRUST and verdict.id == item.id


def map_lines(found: Sequence[MergeDecision], ids: Mapping[FileEntry, str | None]) -> LineMap:
    """Map each block to its item after the changes with `ids` were applied."""
    positions: dict[tuple[str, int], str | None] = {}
    fresh = set()
    for verdict in found:
        seen, applied = verdict.seen, verdict.do in ("add", "edit")
        if seen is None or (applied and seen not in ids):
            continue
        position = (seen.file, seen.block)
        positions[position] = ids[seen] if applied else None if verdict.do == "drop" else verdict.id
        if verdict.do == "renew":
            fresh.add(position)
    deleted = {verdict.id for verdict in found if verdict.do == "hold" and verdict.id}
    return LineMap(positions, frozenset(fresh), frozenset(deleted))


def list_hidden_lines(found: Sequence[MergeDecision]) -> list[SyncedLine]:
    return [replace(verdict.line, state="deleted") for verdict in found if verdict.do == "hold" and verdict.line]


def _compare_memory(comparison: Comparison) -> list[MergeDecision]:
    pages = [comparison.pages[name] for name in MEMORY_FILES]
    seen = [entry for page in pages for entry in _list_entries(page)]
    base = [line for name in MEMORY_FILES for line in comparison.lines.get(name, ())]
    side = _build_side(comparison, base, comparison.selection.facts, build_entry)
    found = [
        verdict
        for verdict in merge_lines(base, seen, side)
        if not (verdict.do == "add" and _came_from_recall(comparison, verdict))
    ]
    files = {line.file for line in base}
    gone = {page.name for page in pages if page.name in files and not page.text.strip()}
    unended = {
        page.name: _list_entries(page)[-1] for page in pages if page.text[-1:] not in ("", "\n") and _list_entries(page)
    }
    return hold_back_deletions(found, base, side, DamageSigns(frozenset(gone), unended))


def _compare_day(comparison: Comparison, page: Page) -> list[MergeDecision]:
    """Compare a day's log. Lines are added and edits kept; a missing line forgets nothing."""
    base = comparison.lines.get(page.name, ())
    side = _build_side(comparison, base, comparison.selection.day(page.name), build_log_entry)
    found: list[MergeDecision] = []
    added: set[str] = set()
    for verdict in merge_lines(base, _list_entries(page), side):
        if verdict.seen is None:
            found.append(MergeDecision("hold", verdict.line, id=verdict.line.id if verdict.line else None))
        elif verdict.do == "add" and (_came_from_recall(comparison, verdict) or verdict.seen.key in added):
            continue
        elif verdict.do == "drop" and verdict.id is not None:
            continue  # the same words twice, which a log may have
        else:
            found.append(_judge_log_line(verdict, comparison))
            added.add(verdict.seen.key)
    return found


def _judge_log_line(verdict: MergeDecision, comparison: Comparison) -> MergeDecision:
    line, seen = verdict.line, verdict.seen
    if line is None or seen is None or verdict.do == "drop":
        return verdict
    was, now = comparison.before.get(line.id), comparison.current.get(line.id)
    if verdict.do == "edit" and was is not None and was.kind != "summary":
        return verdict
    if now is None or now.id not in comparison.selection.day(seen.file):
        return MergeDecision("keep", line, seen, line.id)
    # Renew the line of a summary that was replaced on the same day, and of an item that had words cut out.
    ours = was is not None and seen.key == line.key == hash_entry(build_log_entry(was))
    cut = FORGOTTEN in now.text and hash_entry(build_log_entry(now)) != seen.key
    if cut or (ours and now.id != line.id):
        return MergeDecision("renew", line, seen, now.id)
    return MergeDecision("keep", line, seen, line.id)


def _compare_soul(comparison: Comparison) -> list[MergeDecision]:
    """Compare SOUL.md: the whole file is one entry, the value of one slot."""
    base, item = comparison.lines.get(SOUL, ()), comparison.selection.soul
    if item is not None and item.trust < MIN_SOUL_TRUST:
        return []
    text = comparison.soul
    entry = Entry(text, SOUL_SLOT) if text is not None else None
    seen = [FileEntry(SOUL, 0, entry, hash_entry(entry), 1)] if entry else []
    side = _build_side(comparison, base, {item.id: item} if item else {}, build_soul_entry)
    return hold_back_deletions(
        merge_lines(base, seen, side), base, side, DamageSigns(frozenset() if seen else frozenset((SOUL,)))
    )


def _build_side(
    comparison: Comparison, base: Sequence[SyncedLine], items: Mapping[str, Item], entry: Callable[[Item], Entry]
) -> MemorySide:
    ids = [line.id for line in base]
    current = {id: comparison.current.get(id) for id in ids}
    shown = {**items, **{item.id: item for item in current.values() if item}}
    return MemorySide(
        {id: entry(comparison.before[id]) for id in ids if id in comparison.before},
        {id: item.id if item else None for id, item in current.items()},
        {id: entry(item) for id, item in shown.items()},
    )


def _list_entries(page: Page) -> list[FileEntry]:
    unsure = find_untrusted_blocks(page.blocks) or frozenset()
    return [
        FileEntry(page.name, n, block.entry, hash_entry(block.entry), block.line, n in unsure)
        for n, block in enumerate(page.blocks)
        if block.entry is not None
    ]


def _came_from_recall(comparison: Comparison, verdict: MergeDecision) -> bool:
    """Check for a line that recall printed: it is in the memory already, and stays in the file."""
    return verdict.seen is not None and not find_unrecalled_spans(
        comparison.pages[verdict.seen.file].blocks[verdict.seen.block].raw
    )


LEAST_TRUSTED: SourceKind = "web"  # a file does not tell tools from the web, so the less trusted of both counts
HANDWRITTEN_IMPORTANCE = 0.7


@dataclass(frozen=True, slots=True)
class Editor:
    """The one who edits the files, and the state of the last sync."""

    by: SourceKind
    base: SyncBase
    first: bool = False  # the memory and the folder were never synchronized


@dataclass(frozen=True, slots=True)
class ApplyResult:
    taken: tuple[AppliedLine, ...] = ()
    ids: Mapping[FileEntry, str | None] = field(default_factory=dict)  # entry of a file -> its item, None if kept out


@dataclass(frozen=True, slots=True)
class LineChange:
    """The change of one line: `note` replaces `old`. Without `old` it is added; without `note`, `old` is forgotten."""

    file: str
    text: str
    seen: FileEntry | None
    note: Note | None
    old: Item | None = None

    @property
    def slot(self) -> str | None:
        return self.note.slot if self.note else self.old.slot if self.old else None

    @property
    def action(self) -> Action:
        if self.note is None:
            return "forgotten"
        if self.old is None:
            return "added"
        if self.seen and _has_same_words(self.seen, self.old):
            return "confirmed"
        return "changed" if self.note.slot else "corrected"


def plan_changes(
    verdicts: Sequence[MergeDecision], before: Mapping[str, Item], editor: Editor, redact: RedactFunction | None
) -> list[LineChange]:
    """Plan the changes. A line that cannot be kept raises an error that names it, before anything is written."""
    found: list[LineChange] = []
    old: Item | None
    for verdict in verdicts:
        if verdict.do == "forget" and verdict.line:
            old = before[verdict.line.id]
            found.append(LineChange(verdict.line.file, old.text, None, None, old))
        elif verdict.do in ("add", "edit") and verdict.seen:
            old = before[verdict.line.id] if verdict.do == "edit" and verdict.line else None
            # Redacted here too: the report must not show private words either.
            text = redact_json(verdict.seen.entry.text, redact)
            found.append(LineChange(verdict.seen.file, text, verdict.seen, _build_note(verdict.seen, old, editor), old))
    # Forgetting an item also forgets what cites it, so corrections of such items come first.
    return sorted(found, key=lambda change: (change.note is None, bool(change.old and change.old.relation)))


def describe_changes(changes: Sequence[LineChange]) -> tuple[AppliedLine, ...]:
    return tuple(
        AppliedLine(change.action, change.file, change.text, change.old.id if change.old else None, change.slot)
        for change in changes
    )


def apply_changes(
    changes: Sequence[LineChange], services: Services, scope: Scope, editor: Editor, began: int
) -> ApplyResult:
    if not changes:
        return ApplyResult()
    notes = [change.note for change in changes if change.note]
    drafts = iter(write.build_drafts(notes, services))
    steps: list[Step] = []
    last_steps: list[int] = []  # per change, the step whose outcome counts
    counts: dict[str, int] = {}
    for change in changes:
        if change.note is None:
            assert change.old is not None
            steps.append(Forget(change.old.id, keep_source=True))
        else:
            draft = next(drafts)
            if change.seen and parse_log_day(change.file):
                draft = replace(draft, kind="episode")
            if change.old is None or change.note.slot is not None:
                steps.append(Add(draft, _build_request_id(change, editor, counts)))
            elif change.old.relation is not None:
                # A relation's text is made of its parts: another text is another relation.
                steps += [Forget(change.old.id, keep_source=True), Add(draft)]
            else:
                steps.append(Correct(change.old.id, draft))
        last_steps.append(len(steps) - 1)
    outcomes = services.items.apply(Plan(scope, tuple(steps), began=began)).outcomes
    done = [outcomes[n] for n in last_steps]
    _keep_pinned(changes, done, services, scope)
    taken, ids = list[AppliedLine](), dict[FileEntry, str | None]()
    for change, outcome in zip(changes, done, strict=True):
        action = "kept out" if change.note is not None and outcome.id is None else change.action
        taken.append(AppliedLine(action, change.file, change.text, outcome.id, change.slot))
        if change.seen:
            ids[change.seen] = outcome.id
    return ApplyResult(tuple(taken), ids)


def _build_note(seen: FileEntry, old: Item | None, editor: Editor) -> Note:
    day, happened = parse_log_day(seen.file), None
    if day is not None and (old is None or build_log_entry(old).at != seen.entry.at):
        happened = datetime.combine(day, time.fromisoformat(seen.entry.at or "00:00"), UTC)
    # A corrected event still cites its messages: forgetting those forgets the corrected words too.
    cites = old.sources[0].cites if old and old.kind == "episode" and old.sources else ()
    same = old is not None and _has_same_words(seen, old)
    note = Note(
        seen.entry.text,
        old.importance if old else HANDWRITTEN_IMPORTANCE,
        seen.entry.slot,
        old.metadata if old and old.slot is None else None,
        Source(seen.file, _choose_source_kind(seen, old, editor), cites),
        happened,
        relation=old.relation if same and old else None,
        derived=not same and (editor.first or seen.key in editor.base.ours),
    )
    try:
        return check_note(note)
    except InvalidInput as exc:
        raise type(exc)(f"{seen.file}, line {seen.number}: {exc}") from exc


def _has_same_words(seen: FileEntry, old: Item) -> bool:
    """Check for an unchanged line: it was only moved to a trusted heading."""
    return parse_log_day(seen.file) is None and seen.entry == build_entry(old)


def _choose_source_kind(seen: FileEntry, old: Item | None, editor: Editor) -> SourceKind:
    """Return the source of a line: the editor, unless the line is not trusted.

    Lines under the unsure heading are not. Editing an untrusted line of a log does not make it trusted: a log has no
    heading to move it to.
    """
    low = old is not None and old.trust < MIN_TRUST
    if not seen.unsure and not (low and parse_log_day(seen.file)):
        return editor.by
    return old.sources[0].kind if old and low and old.sources else LEAST_TRUSTED


def _build_request_id(change: LineChange, editor: Editor, counts: dict[str, int]) -> str | None:
    """Build the same id for the same line since the last sync, so that an interrupted sync adds nothing twice."""
    if change.seen is None:
        return None
    name = f"files:{editor.base.folder}:{editor.base.round}:{change.file}:{change.seen.key}"
    counts[name] = counts.get(name, -1) + 1
    return f"{name}:{counts[name]}"


def _keep_pinned(changes: Sequence[LineChange], done: Sequence[Outcome], services: Services, scope: Scope) -> None:
    """Pin the new value of a pinned slot."""
    both = zip(changes, done, strict=True)
    ids = [
        end.id for change, end in both if change.old and change.old.pinned and change.note and change.slot and end.id
    ]
    if ids:
        services.items.apply(Plan(scope, tuple(Change(id, pinned=True) for id in ids)))
