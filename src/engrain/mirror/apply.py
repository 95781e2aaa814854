"""Apply the files' changes to the memory in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.markdown.merge import FileEntry, MergeDecision
from engrain.core.markdown.sync_state import Action, AppliedLine, SyncBase, parse_log_day
from engrain.core.model.items import Item, Note, Source, SourceKind, check_note
from engrain.core.model.plans import Add, Change, Correct, Forget, Outcome, Plan, Step
from engrain.ingest import write
from engrain.ingest.write import redact_json
from engrain.mirror.render import MIN_TRUST, build_entry, build_log_entry
from engrain.ports import Services

if TYPE_CHECKING:
    from engrain.core.secrets.redact import RedactFunction

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
