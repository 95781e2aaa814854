"""Load a file of any known form: prove all of it, then write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from engrain.core.errors import BadFile, BadLine, Conflict, EngrainError
from engrain.core.identity import Scope
from engrain.core.model.items import Note, Source
from engrain.ingest import write
from engrain.ports import Kit
from engrain.transfer.dedupe import Sorted, drawn, foreseen, sort, take_over
from engrain.transfer.preview import foretold
from engrain.transfer.readers import Form, Read, entries_in, notes_in, told
from engrain.transfer.restore import restore
from engrain.transfer.verify import proved

PART = 2_048  # notes between two words of progress

Done = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a file is loaded. `source` is that of notes which name none; `other_scope` takes what is another memory's;
    `skip_bad` writes the good notes even if others are bad, and is nothing for an export, which is whole or nothing;
    `facts` draws facts from the conversations of others."""

    form: Form | None = None
    source: str | None = None
    skip_bad: bool = False
    other_scope: bool = False
    dry_run: bool = False
    facts: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of a file. `added` was new; `repeated` was here already; `replaced` closed an older value of its slot,
    and `behind` is older than what its slot holds; `kept_out` was forgotten or erased here, of an export with the lines
    that it stands in. `facts` were drawn from conversations. `rows` are the new rows of an export by kind. `written` is
    False for a dry run, which says what would be."""

    form: Form
    read: int
    added: int = 0
    repeated: int = 0
    replaced: int = 0
    behind: int = 0
    kept_out: int = 0
    kept_out_lines: tuple[int, ...] = ()
    facts: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    bad: tuple[BadLine, ...] = ()
    written: bool = True


def load(file: BinaryIO, scope: Scope, kit: Kit, terms: Terms, done: Done) -> Loaded:
    """BadFile if a line cannot be used, and then nothing is written. `done` is told how many more are written; whoever
    stops it learns what stays."""
    form, documents = told(file, terms.form)
    if form == "engrain":
        return _export(file, scope, kit, terms, done)
    read = notes_in(file, terms.source) if form == "notes" else entries_in(documents, form, scope, terms.other_scope)
    return _notes(read, form, scope, kit, terms, done)


@contextmanager
def _whole() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note("An export comes in whole or not at all. The same load again tells which, and finishes it.")
        raise


@contextmanager
def _counted(done: Done) -> Iterator[Done]:
    """While notes are written."""
    count = 0

    def counting(more: int) -> None:
        nonlocal count
        count += more
        done(more)

    try:
        yield counting
    except KeyboardInterrupt as stop:
        known = f" (at least {count:,} notes)" if count else ""
        stop.add_note(f"What was written by then stays{known}. The same load again skips it and goes on.")
        raise


def _export(file: BinaryIO, scope: Scope, kit: Kit, terms: Terms, done: Done) -> Loaded:
    export = proved(file, scope, kit, lambda _: None)
    if export.manifest.scope != scope and not terms.other_scope:
        raise Conflict(
            f"this is an export of {export.manifest.scope}, and this memory is that of {scope}. Say so if it is to go "
            "into another memory all the same: other_scope=True, or --other-scope."
        )
    with _whole():
        decision = restore(export.rows, scope, kit, done, terms.dry_run, export.manifest.scope)
    return Loaded(
        "engrain",
        len(export.rows),
        added=len(decision.new),
        repeated=decision.there,
        kept_out=len(decision.kept_out),
        kept_out_lines=tuple(sorted(decision.kept_out)),
        rows=Counter(row.kind for row in decision.new),
        written=not terms.dry_run,
    )


def _notes(read: Read, form: Form, scope: Scope, kit: Kit, terms: Terms, done: Done) -> Loaded:
    began = kit.items.moment()
    if form == "notes" and any(map(_may_clash, read.notes)):
        read = _proved(read, scope, kit)
    if read.bad and not terms.skip_bad:
        raise BadFile(read.bad)
    # Notes have their words in their names: one that was changed is another.
    given = Sorted(read.notes) if form == "notes" else sort(read.notes, scope, kit)
    found = Counter({"repeated": given.known, "replaced": len(given.changed), "kept_out": given.barred})
    with _counted(done) as counting:
        if terms.dry_run:
            fates = list(map(str, foretold(given.new, scope, kit)))
        else:
            fates = list(_written(given.new, scope, kit, began, counting))
            take_over(given.changed, scope, kit, began)
        found.update(fates)
        new = [note for note, fate in zip(given.new, fates, strict=True) if fate == "added"]
        facts = _drawn(read.notes, new, scope, kit, terms, began) if terms.facts else 0
    return Loaded(
        form,
        len(read.notes) + len(read.bad),
        found["added"],
        found["repeated"],
        found["replaced"],
        found["behind"],
        found["kept_out"],
        facts=facts,
        bad=tuple(read.bad),
        written=not terms.dry_run,
    )


def _drawn(notes: Sequence[Note], new: Sequence[Note], scope: Scope, kit: Kit, terms: Terms, began: int) -> int:
    facts = list(drawn(notes, scope, kit))
    if terms.dry_run:
        facts += foreseen(new, kit)
        told = Counter(map(str, foretold(facts, scope, kit)))
    else:
        told = Counter(_written(facts, scope, kit, began, lambda _: None))
    return told["added"] + told["replaced"] + told["behind"]


def _may_clash(note: Note) -> bool:
    """Whether a store may refuse it for what is there."""
    cites = isinstance(note.source, Source) and note.source.cites
    return bool(cites) or (note.place is not None and note.place.number is not None)


def _proved(read: Read, scope: Scope, kit: Kit) -> Read:
    """The notes that can be written, one after the other."""
    good, bad = Read(), list(read.bad)
    for note, line, fate in zip(read.notes, read.lines, foretold(read.notes, scope, kit), strict=True):
        if isinstance(fate, EngrainError):
            bad.append(BadLine(line, type(fate).__name__, str(fate)))
        else:
            good.notes.append(note)
    return Read(good.notes, bad=sorted(bad))


def _written(notes: Sequence[Note], scope: Scope, kit: Kit, began: int, done: Done) -> Iterable[str]:
    for start in range(0, len(notes), PART):
        for outcome in write.commit_batches(notes[start : start + PART], scope, kit, None, done, began):
            yield outcome.status
