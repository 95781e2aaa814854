"""Load a file of any known format: check all of it, then write."""

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
from engrain.transfer.dedupe import Deduplicated, deduplicate, extract_facts, preview_facts, update_changed
from engrain.transfer.preview import foretold
from engrain.transfer.readers import Form, ReadResult, detect_format, read_entries, read_notes
from engrain.transfer.restore import restore
from engrain.transfer.verify import verify_export

NOTES_PER_PROGRESS = 2_048

Done = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    form: Form | None = None
    source: str | None = None  # for notes without one
    skip_bad: bool = False  # write the good notes; no effect on an export, which is loaded whole or not at all
    other_scope: bool = False  # accept another memory's data
    dry_run: bool = False
    facts: bool = False  # extract facts from conversations of other systems


@dataclass(frozen=True, slots=True)
class Loaded:
    form: Form
    read: int
    added: int = 0
    repeated: int = 0  # stored already
    replaced: int = 0  # closed an older value of their slot
    behind: int = 0  # older than the value of their slot
    kept_out: int = 0  # forgotten or erased here
    kept_out_lines: tuple[int, ...] = ()  # of an export
    facts: int = 0  # extracted from conversations
    rows: Mapping[str, int] = field(default_factory=dict)  # new rows of an export, by kind
    bad: tuple[BadLine, ...] = ()
    written: bool = True  # False after a dry run


def load(file: BinaryIO, scope: Scope, kit: Kit, options: LoadOptions, done: Done) -> Loaded:
    """Load a file. BadFile if a line is bad; then nothing is written. `done` is called with each number written.

    A KeyboardInterrupt carries a note about what stays.
    """
    form, documents = detect_format(file, options.form)
    if form == "engrain":
        return _load_export(file, scope, kit, options, done)
    read = (
        read_notes(file, options.source)
        if form == "notes"
        else read_entries(documents, form, scope, options.other_scope)
    )
    return _load_notes(read, form, scope, kit, options, done)


@contextmanager
def _explain_interrupted_export() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note("An export is loaded whole or not at all. Load it again: that tells which, and finishes it.")
        raise


@contextmanager
def _count_written(done: Done) -> Iterator[Done]:
    """Count the written notes, and add the count to a KeyboardInterrupt."""
    count = 0

    def counting(more: int) -> None:
        nonlocal count
        count += more
        done(more)

    try:
        yield counting
    except KeyboardInterrupt as stop:
        known = f" (at least {count:,} notes)" if count else ""
        stop.add_note(f"Notes written by then stay{known}. Load the file again to skip them and continue.")
        raise


def _load_export(file: BinaryIO, scope: Scope, kit: Kit, options: LoadOptions, done: Done) -> Loaded:
    export = verify_export(file, scope, kit, lambda _: None)
    if export.manifest.scope != scope and not options.other_scope:
        raise Conflict(
            f"this is an export of {export.manifest.scope}, and this memory is that of {scope}. To load it "
            "nevertheless, give other_scope=True or --other-scope."
        )
    with _explain_interrupted_export():
        decision = restore(export.rows, scope, kit, done, options.dry_run, export.manifest.scope)
    return Loaded(
        "engrain",
        len(export.rows),
        added=len(decision.new),
        repeated=decision.there,
        kept_out=len(decision.kept_out),
        kept_out_lines=tuple(sorted(decision.kept_out)),
        rows=Counter(row.kind for row in decision.new),
        written=not options.dry_run,
    )


def _load_notes(read: ReadResult, form: Form, scope: Scope, kit: Kit, options: LoadOptions, done: Done) -> Loaded:
    began = kit.items.moment()
    if form == "notes" and any(map(_may_conflict, read.notes)):
        read = _drop_conflicting(read, scope, kit)
    if read.bad and not options.skip_bad:
        raise BadFile(read.bad)
    # A note's request id contains its words: a changed note is another note.
    given = Deduplicated(read.notes) if form == "notes" else deduplicate(read.notes, scope, kit)
    found = Counter({"repeated": given.known, "replaced": len(given.changed), "kept_out": given.barred})
    with _count_written(done) as counting:
        if options.dry_run:
            fates = list(map(str, foretold(given.new, scope, kit)))
        else:
            fates = list(_write_notes(given.new, scope, kit, began, counting))
            update_changed(given.changed, scope, kit, began)
        found.update(fates)
        new = [note for note, fate in zip(given.new, fates, strict=True) if fate == "added"]
        facts = _add_facts(read.notes, new, scope, kit, options, began) if options.facts else 0
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
        written=not options.dry_run,
    )


def _add_facts(
    notes: Sequence[Note], new: Sequence[Note], scope: Scope, kit: Kit, options: LoadOptions, began: int
) -> int:
    facts = list(extract_facts(notes, scope, kit))
    if options.dry_run:
        facts += preview_facts(new, kit)
        counts = Counter(map(str, foretold(facts, scope, kit)))
    else:
        counts = Counter(_write_notes(facts, scope, kit, began, lambda _: None))
    return counts["added"] + counts["replaced"] + counts["behind"]


def _may_conflict(note: Note) -> bool:
    """Check whether the store may refuse the note because of what it holds."""
    cites = isinstance(note.source, Source) and note.source.cites
    return bool(cites) or (note.place is not None and note.place.number is not None)


def _drop_conflicting(read: ReadResult, scope: Scope, kit: Kit) -> ReadResult:
    """Keep the notes that can be written one after the other."""
    good, bad = ReadResult(), list(read.bad)
    for note, line, fate in zip(read.notes, read.lines, foretold(read.notes, scope, kit), strict=True):
        if isinstance(fate, EngrainError):
            bad.append(BadLine(line, type(fate).__name__, str(fate)))
        else:
            good.notes.append(note)
    return ReadResult(good.notes, bad=sorted(bad))


def _write_notes(notes: Sequence[Note], scope: Scope, kit: Kit, began: int, done: Done) -> Iterable[str]:
    for start in range(0, len(notes), NOTES_PER_PROGRESS):
        for outcome in write.commit_batches(notes[start : start + NOTES_PER_PROGRESS], scope, kit, None, done, began):
            yield outcome.status
