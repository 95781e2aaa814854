"""Take into the memory what people changed in its files: one transaction for all of it."""

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
from engrain.mirror.selection import MIN_TRUST, build_entry, build_log_entry
from engrain.ports import Services

if TYPE_CHECKING:
    from engrain.core.secrets.redact import RedactFunction

LEAST_TRUSTED: SourceKind = "web"  # whose word it is, of tools and the web, no file tells: the less trusted
HANDWRITTEN_IMPORTANCE = 0.7  # of what somebody took the trouble to write down by hand


@dataclass(frozen=True, slots=True)
class Editor:
    """Whose hand writes in the files, and what the last sync knew. `first`: the memory and the folder have not met."""

    by: SourceKind
    base: SyncBase
    first: bool = False


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What was done, and which item each entry of a file is now; None for one that was kept out."""

    told: tuple[AppliedLine, ...] = ()
    ids: Mapping[FileEntry, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LineChange:
    """What one line asks for: a note, in place of `old` if there is one; with no note, that `old` be forgotten."""

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
    verdicts: Sequence[MergeDecision], before: Mapping[str, Item], hand: Editor, redact: RedactFunction | None
) -> list[LineChange]:
    """Every note proved: a line that cannot be kept is an error that names it, before anything is written."""
    found: list[LineChange] = []
    for one in verdicts:
        if one.do == "forget" and one.line:
            old = before[one.line.id]
            found.append(LineChange(one.line.file, old.text, None, None, old))
        elif one.do in ("add", "edit") and one.seen:
            was = before[one.line.id] if one.do == "edit" and one.line else None
            # As it is taken in: what is private stands in no report either.
            text = redact_json(one.seen.entry.text, redact)
            found.append(LineChange(one.seen.file, text, one.seen, _build_note(one.seen, was, hand), was))
    # What goes takes along what rests on it: what is still to be corrected must not be among that.
    return sorted(found, key=lambda one: (one.note is None, one.old is not None and one.old.relation is not None))


def describe_changes(wanted: Sequence[LineChange]) -> tuple[AppliedLine, ...]:
    return tuple(
        AppliedLine(one.action, one.file, one.text, one.old.id if one.old else None, one.slot) for one in wanted
    )


def apply_changes(
    wanted: Sequence[LineChange], services: Services, scope: Scope, hand: Editor, began: int
) -> ApplyResult:
    if not wanted:
        return ApplyResult()
    notes = [one.note for one in wanted if one.note]
    drafts = iter(write.build_drafts(notes, services))
    steps: list[Step] = []
    ends: list[int] = []  # the step whose outcome is the wish's
    asked: dict[str, int] = {}
    for one in wanted:
        if one.note is None:
            assert one.old is not None
            steps.append(Forget(one.old.id, keep_source=True))
        else:
            draft = next(drafts)
            if one.seen and parse_log_day(one.file):
                draft = replace(draft, kind="episode")
            if one.old is None or one.note.slot is not None:
                steps.append(Add(draft, _build_request_id(one, hand, asked)))
            elif one.old.relation is not None:
                # The words of a relation are its parts: another text is another thing.
                steps += [Forget(one.old.id, keep_source=True), Add(draft)]
            else:
                steps.append(Correct(one.old.id, draft))
        ends.append(len(steps) - 1)
    outcomes = services.items.apply(Plan(scope, tuple(steps), began=began)).outcomes
    done = [outcomes[n] for n in ends]
    _keep_pinned(wanted, done, services, scope)
    return ApplyResult(
        tuple(_describe_result(one, outcome) for one, outcome in zip(wanted, done, strict=True)),
        {one.seen: outcome.id for one, outcome in zip(wanted, done, strict=True) if one.seen},
    )


def _build_note(seen: FileEntry, was: Item | None, hand: Editor) -> Note:
    day, happened = parse_log_day(seen.file), None
    if day is not None and (was is None or build_log_entry(was).at != seen.entry.at):
        happened = datetime.combine(day, time.fromisoformat(seen.entry.at or "00:00"), UTC)
    # What happened is still told by what was said: to forget that takes the corrected words as well.
    cites = was.sources[0].cites if was and was.kind == "episode" and was.sources else ()
    same = was is not None and _has_same_words(seen, was)
    note = Note(
        seen.entry.text,
        was.importance if was else HANDWRITTEN_IMPORTANCE,
        seen.entry.slot,
        was.metadata if was and was.slot is None else None,
        Source(seen.file, _choose_source_kind(seen, was, hand), cites),
        happened,
        relation=was.relation if same and was else None,
        derived=not same and (hand.first or seen.key in hand.base.ours),
    )
    try:
        return check_note(note)
    except InvalidInput as exc:
        raise type(exc)(f"{seen.file}, line {seen.number}: {exc}") from exc


def _has_same_words(seen: FileEntry, was: Item) -> bool:
    """The very words of the item: the line was moved to where it is trusted."""
    return parse_log_day(seen.file) is None and seen.entry == build_entry(was)


def _choose_source_kind(seen: FileEntry, was: Item | None, hand: Editor) -> SourceKind:
    """Whose word a line is: of what stands among the unsure not the hand's, in whatever store; and in a log, where
    there is no heading to move it to, what was not trusted is not by an edit."""
    low = was is not None and was.trust < MIN_TRUST
    if not seen.unsure and not (low and parse_log_day(seen.file)):
        return hand.by
    return was.sources[0].kind if was and low and was.sources else LEAST_TRUSTED


def _build_request_id(one: LineChange, hand: Editor, asked: dict[str, int]) -> str | None:
    """The same for the same line of the same file since the last sync: one that was cut off adds nothing twice."""
    if one.seen is None:
        return None
    name = f"files:{hand.base.folder}:{hand.base.round}:{one.file}:{one.seen.key}"
    asked[name] = asked.get(name, -1) + 1
    return f"{name}:{asked[name]}"


def _describe_result(one: LineChange, outcome: Outcome) -> AppliedLine:
    if one.note is not None and outcome.id is None:
        return AppliedLine("kept out", one.file, one.text, None, one.slot)
    return AppliedLine(one.action, one.file, one.text, outcome.id, one.slot)


def _keep_pinned(wanted: Sequence[LineChange], done: Sequence[Outcome], services: Services, scope: Scope) -> None:
    """A pinned slot stays pinned when its value changes."""
    both = zip(wanted, done, strict=True)
    ids = [end.id for one, end in both if one.old and one.old.pinned and one.note and one.note.slot and end.id]
    if ids:
        services.items.apply(Plan(scope, tuple(Change(id, pinned=True) for id in ids)))
