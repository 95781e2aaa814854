"""Take into the memory what people changed in its files: one transaction for all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.markdown.merge import Seen, Verdict
from engrain.core.markdown.sync_state import Action, Base, Taken, day_of
from engrain.core.model.items import Item, Note, Source, SourceKind, checked
from engrain.core.model.plans import Add, Change, Correct, Forget, Outcome, Plan, Step
from engrain.ingest import write
from engrain.ingest.write import redact_json
from engrain.mirror.selection import TRUSTED, entry_of, log_entry_of
from engrain.ports import Kit

if TYPE_CHECKING:
    from engrain.core.secrets.redact import Redact

LEAST: SourceKind = "web"  # whose word it is, of tools and the web, no file tells: the less trusted
IMPORTANCE = 0.7  # of what somebody took the trouble to write down by hand


@dataclass(frozen=True, slots=True)
class Hand:
    """Whose hand writes in the files, and what the last sync knew. `first`: the memory and the folder have not met."""

    by: SourceKind
    base: Base
    first: bool = False


@dataclass(frozen=True, slots=True)
class Took:
    """What was done, and which item each entry of a file is now; None for one that was kept out."""

    told: tuple[Taken, ...] = ()
    ids: Mapping[Seen, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one line asks for: a note, in place of `old` if there is one; with no note, that `old` be forgotten."""

    file: str
    text: str
    seen: Seen | None
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
        if self.seen and _same(self.seen, self.old):
            return "vouched for"
        return "changed" if self.note.slot else "corrected"


def wishes(verdicts: Sequence[Verdict], before: Mapping[str, Item], hand: Hand, redact: Redact | None) -> list[_Wish]:
    """Every note proved: a line that cannot be kept is an error that names it, before anything is written."""
    found: list[_Wish] = []
    for one in verdicts:
        if one.do == "forget" and one.line:
            old = before[one.line.id]
            found.append(_Wish(one.line.file, old.text, None, None, old))
        elif one.do in ("add", "edit") and one.seen:
            was = before[one.line.id] if one.do == "edit" and one.line else None
            # As it is taken in: what is private stands in no report either.
            text = redact_json(one.seen.entry.text, redact)
            found.append(_Wish(one.seen.file, text, one.seen, _note(one.seen, was, hand), was))
    # What goes takes along what rests on it: what is still to be corrected must not be among that.
    return sorted(found, key=lambda one: (one.note is None, one.old is not None and one.old.relation is not None))


def told(wanted: Sequence[_Wish]) -> tuple[Taken, ...]:
    return tuple(Taken(one.action, one.file, one.text, one.old.id if one.old else None, one.slot) for one in wanted)


def take(wanted: Sequence[_Wish], kit: Kit, scope: Scope, hand: Hand, began: int) -> Took:
    if not wanted:
        return Took()
    notes = [one.note for one in wanted if one.note]
    drafts = iter(write.build_drafts(notes, kit))
    steps: list[Step] = []
    ends: list[int] = []  # the step whose outcome is the wish's
    asked: dict[str, int] = {}
    for one in wanted:
        if one.note is None:
            assert one.old is not None
            steps.append(Forget(one.old.id, keep_source=True))
        else:
            draft = next(drafts)
            if one.seen and day_of(one.file):
                draft = replace(draft, kind="episode")
            if one.old is None or one.note.slot is not None:
                steps.append(Add(draft, _request(one, hand, asked)))
            elif one.old.relation is not None:
                # The words of a relation are its parts: another text is another thing.
                steps += [Forget(one.old.id, keep_source=True), Add(draft)]
            else:
                steps.append(Correct(one.old.id, draft))
        ends.append(len(steps) - 1)
    outcomes = kit.items.apply(Plan(scope, tuple(steps), began=began)).outcomes
    done = [outcomes[n] for n in ends]
    _pin(wanted, done, kit, scope)
    return Took(
        tuple(_taken(one, outcome) for one, outcome in zip(wanted, done, strict=True)),
        {one.seen: outcome.id for one, outcome in zip(wanted, done, strict=True) if one.seen},
    )


def _note(seen: Seen, was: Item | None, hand: Hand) -> Note:
    day, happened = day_of(seen.file), None
    if day is not None and (was is None or log_entry_of(was).at != seen.entry.at):
        happened = datetime.combine(day, time.fromisoformat(seen.entry.at or "00:00"), UTC)
    # What happened is still told by what was said: to forget that takes the corrected words as well.
    cites = was.sources[0].cites if was and was.kind == "episode" and was.sources else ()
    same = was is not None and _same(seen, was)
    note = Note(
        seen.entry.text,
        was.importance if was else IMPORTANCE,
        seen.entry.slot,
        was.metadata if was and was.slot is None else None,
        Source(seen.file, _kind(seen, was, hand), cites),
        happened,
        relation=was.relation if same and was else None,
        derived=not same and (hand.first or seen.key in hand.base.ours),
    )
    try:
        return checked(note)
    except InvalidInput as exc:
        raise type(exc)(f"{seen.file}, line {seen.number}: {exc}") from exc


def _same(seen: Seen, was: Item) -> bool:
    """The very words of the item: the line was moved to where it is trusted."""
    return day_of(seen.file) is None and seen.entry == entry_of(was)


def _kind(seen: Seen, was: Item | None, hand: Hand) -> SourceKind:
    """Whose word a line is: of what stands among the unsure not the hand's, in whatever store; and in a log, where
    there is no heading to move it to, what was not trusted is not by an edit."""
    low = was is not None and was.trust < TRUSTED
    if not seen.unsure and not (low and day_of(seen.file)):
        return hand.by
    return was.sources[0].kind if was and low and was.sources else LEAST


def _request(one: _Wish, hand: Hand, asked: dict[str, int]) -> str | None:
    """The same for the same line of the same file since the last sync: one that was cut off adds nothing twice."""
    if one.seen is None:
        return None
    name = f"files:{hand.base.folder}:{hand.base.round}:{one.file}:{one.seen.key}"
    asked[name] = asked.get(name, -1) + 1
    return f"{name}:{asked[name]}"


def _taken(one: _Wish, outcome: Outcome) -> Taken:
    if one.note is not None and outcome.id is None:
        return Taken("kept out", one.file, one.text, None, one.slot)
    return Taken(one.action, one.file, one.text, outcome.id, one.slot)


def _pin(wanted: Sequence[_Wish], done: Sequence[Outcome], kit: Kit, scope: Scope) -> None:
    """A pinned slot stays pinned when its value changes."""
    both = zip(wanted, done, strict=True)
    ids = [end.id for one, end in both if one.old and one.old.pinned and one.note and one.note.slot and end.id]
    if ids:
        kit.items.apply(Plan(scope, tuple(Change(id, pinned=True) for id in ids)))
