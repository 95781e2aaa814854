"""Load a file of any known format: check all of it, write it, and extract facts from conversations."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import BinaryIO

from engrain.core.errors import BadFile, BadLine, Conflict, EngrainError, InvalidInput, NotFound, OutcomeUnknown
from engrain.core.formats.foreign_exports import ATTACHMENT_KEY
from engrain.core.identity import Scope
from engrain.core.model.items import Item, Note, Source, Statement
from engrain.core.model.messages import item_to_message
from engrain.core.model.plans import Add, Correct, Plan
from engrain.core.rules.message_filters import blank_recalled
from engrain.core.rules.statements import load_statement_rules
from engrain.ingest import gate, write
from engrain.ingest.facts import Utterance, build_note
from engrain.ports import Services
from engrain.ports.storage import iterate_rows
from engrain.privacy.tombstones import TombstoneFilter
from engrain.transfer.export import number_lines, require_movable, verify_export
from engrain.transfer.load_export import limit_row_trust, load_rows, preview
from engrain.transfer.readers import (
    LoadFormat,
    ReadResult,
    detect_format,
    get_file_name,
    read_entries,
    read_note_lines,
    read_store_values,
    read_text_file,
)

NOTES_PER_PROGRESS = 2_048
LINE_FORMATS = ("notes", "text", "csv")
MAX_GATE_CHARACTERS = 20_000  # that the gate reads of a message: the rest is pasted text

Done = Callable[[int], None]
Statuses = tuple[list[str], list[str]]  # of the notes, and of the facts extracted from them


@dataclass(frozen=True, slots=True)
class LoadOptions:
    format: LoadFormat | None = None
    source: str | None = None  # for notes without one
    skip_bad: bool = False  # write the good notes; no effect on an export, which is loaded whole or not at all
    other_scope: bool = False  # accept another memory's data
    dry_run: bool = False
    facts: bool = False  # extract facts from conversations of other systems
    trusted: bool = False  # believe what the file says of its sources: the caller vouches for it


@dataclass(frozen=True, slots=True)
class LoadResult:
    format: LoadFormat
    read: int
    added: int = 0
    repeated: int = 0  # stored already
    replaced: int = 0  # closed an older value of their slot
    behind: int = 0  # older than the value of their slot
    kept_out: int = 0  # forgotten or erased here, or records of a file that is not trusted
    kept_out_lines: tuple[int, ...] = ()  # of an export
    facts: int = 0  # extracted from conversations
    rows: Mapping[str, int] = field(default_factory=dict)  # new rows of an export, by kind
    bad: tuple[BadLine, ...] = ()
    written: bool = True  # False after a dry run


def load(file: BinaryIO | str, scope: Scope, services: Services, options: LoadOptions, done: Done) -> LoadResult:
    """Load a file. BadFile if a line is bad; then nothing is written. `done` is called with each number written.

    A KeyboardInterrupt carries a note about what stays. A text is the URL of a Postgres database of LangGraph.
    """
    if isinstance(file, str):
        return _load_notes(read_store_values(file), "langgraph", scope, services, options, done)
    form, documents = detect_format(file, options.format)
    if form == "engrain":
        return _load_export(file, scope, services, options, done)
    if form == "notes":
        read = read_note_lines(file, options.source, options.trusted)
    elif form == "text" or form == "csv":  # a type checker does not narrow by `in`
        read = read_text_file(file, form, options.source, options.trusted)
    elif form == "langgraph":
        read = read_store_values(_require_path(file))
    else:
        read = read_entries(documents, form, scope, options.other_scope)
    return _load_notes(read, form, scope, services, options, done)


def _require_path(file: BinaryIO) -> str:
    name = get_file_name(file)
    if not name:
        raise InvalidInput("a store of LangGraph is read from a file: give its path.")
    return name


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
    except (KeyboardInterrupt, OutcomeUnknown) as stop:
        known = f" (at least {count:,} notes)" if count else ""
        stop.add_note(f"Notes written by then stay{known}. Load the file again to skip them and continue.")
        raise


def _load_export(file: BinaryIO, scope: Scope, services: Services, options: LoadOptions, done: Done) -> LoadResult:
    export = verify_export(file, scope, services, lambda _: None)
    if export.manifest.scope != scope and not options.other_scope:
        raise Conflict(
            f"this is an export of {export.manifest.scope}, and this memory is that of {scope}. To load it "
            "nevertheless, give other_scope=True or --other-scope."
        )
    rows, left_out = export.rows, list[int]()
    if not options.trusted:
        # A framework may run what a body names when it reads it.
        rows = [limit_row_trust(row) for row in export.rows if row.kind != "record"]
        left_out = [number for (kind, _), number in number_lines(export.rows).items() if kind == "record"]
    try:
        decision = load_rows(rows, scope, services, done, options.dry_run, export.manifest.scope)
    except (KeyboardInterrupt, OutcomeUnknown) as stop:
        stop.add_note("An export is loaded whole or not at all. Load it again: that tells which, and finishes it.")
        raise
    return LoadResult(
        "engrain",
        len(export.rows),
        added=len(decision.new),
        repeated=decision.there,
        kept_out=len(decision.kept_out) + len(left_out),
        kept_out_lines=tuple(sorted([*decision.kept_out, *left_out])),
        rows=Counter(row.kind for row in decision.new),
        written=not options.dry_run,
    )


def _load_notes(
    read: ReadResult, format: LoadFormat, scope: Scope, services: Services, options: LoadOptions, done: Done
) -> LoadResult:
    load = _NoteLoad(scope, services, services.items.current_time())
    if format in LINE_FORMATS and any(map(_may_conflict, read.notes)):
        read = load.find_clashes(read)
    if read.bad and not options.skip_bad:
        raise BadFile(read.bad)
    # A note's request id contains its words: a changed note is another note.
    sorted_notes = Deduplicated(read.notes) if format in LINE_FORMATS else deduplicate(read.notes, scope, services)
    found = Counter(
        {"repeated": sorted_notes.known, "replaced": len(sorted_notes.changed), "kept_out": sorted_notes.barred}
    )
    conversations = read.notes if options.facts else ()
    statuses, facts = (
        load.preview(sorted_notes, conversations) if options.dry_run else load.write(sorted_notes, conversations, done)
    )
    found.update(statuses)
    extracted = Counter(facts)
    return LoadResult(
        format,
        len(read.notes) + len(read.bad),
        found["added"],
        found["repeated"],
        found["replaced"],
        found["behind"],
        found["kept_out"],
        facts=extracted["added"] + extracted["replaced"] + extracted["behind"],
        bad=tuple(read.bad),
        written=not options.dry_run,
    )


@dataclass(frozen=True, slots=True)
class _NoteLoad:
    """A load of notes into a scope. After an erasure since `began`, its plans are refused."""

    scope: Scope
    services: Services
    began: int

    def write(self, sorted_notes: Deduplicated, conversations: Sequence[Note], done: Done) -> Statuses:
        """Write the notes and the facts extracted from the conversations. Return their statuses."""
        with _count_written(done) as counting:
            statuses = self._commit(sorted_notes.new, counting)
            for plan in plan_corrections(sorted_notes.changed, self.scope, self.services, self.began):
                self.services.items.apply(plan)
            facts = list(extract_facts(conversations, self.scope, self.services)) if conversations else []
            return statuses, self._commit(facts, lambda _: None)

    def preview(self, sorted_notes: Deduplicated, conversations: Sequence[Note]) -> Statuses:
        """Do the same in one transaction that is rolled back. Nothing is embedded: vectors change no status."""
        new = self._plans(sorted_notes.new)
        changed = list(plan_corrections(sorted_notes.changed, self.scope, self.services, self.began, embed=False))
        find = cache(find_lasting_statements)
        for note in filter(is_users_message, conversations):
            find(write.build_draft(note, self.services.redact).text)  # slow, and other writers wait for the transaction

        def do(check: Done) -> Statuses:
            statuses = self._apply(new, check)
            self._apply(changed, check)
            facts = list(extract_facts(conversations, self.scope, self.services, find)) if conversations else []
            return statuses, self._apply(self._plans(facts), check)

        return preview(self.services, do)

    def find_clashes(self, read: ReadResult) -> ReadResult:
        """Move the notes that the store refuses to `bad`. Each is tried on top of the ones before it."""
        planned: list[tuple[int, Note, Plan]] = []
        bad = list(read.bad)
        for line, note in zip(read.lines, read.notes, strict=True):
            try:
                planned.append((line, note, self._plans([note])[0]))
            except EngrainError as exc:
                bad.append(_bad_line(line, exc))

        def do(check: Done) -> tuple[list[Note], list[BadLine]]:
            good, refused = list[Note](), list[BadLine]()
            for line, note, plan in planned:
                check(1)
                try:
                    self.services.items.apply(plan)
                    good.append(note)
                except (InvalidInput, NotFound, Conflict) as exc:
                    refused.append(_bad_line(line, exc))
            return good, refused

        good, refused = preview(self.services, do)
        return ReadResult(good, bad=sorted(bad + refused))

    def _commit(self, notes: Sequence[Note], done: Done) -> list[str]:
        statuses: list[str] = []
        for start in range(0, len(notes), NOTES_PER_PROGRESS):
            part = notes[start : start + NOTES_PER_PROGRESS]
            outcomes = write.commit_batches(part, self.scope, self.services, None, done, self.began)
            statuses += [outcome.status for outcome in outcomes]
        return statuses

    def _plans(self, notes: Sequence[Note]) -> list[Plan]:
        """Return plans without vectors."""
        steps = [Add(write.build_draft(note, self.services.redact), note.request_id) for note in notes]
        parts = (tuple(steps[start : start + write.BATCH_SIZE]) for start in range(0, len(steps), write.BATCH_SIZE))
        return [Plan(self.scope, part, began=self.began) for part in parts]

    def _apply(self, plans: Sequence[Plan], check: Done) -> list[str]:
        statuses: list[str] = []
        for plan in plans:
            check(len(plan.steps))
            statuses += [outcome.status for outcome in self.services.items.apply(plan).outcomes]
        return statuses


def _may_conflict(note: Note) -> bool:
    """Check whether the store may refuse the note because of what it holds."""
    cites = isinstance(note.source, Source) and note.source.cites
    return bool(cites) or (note.position is not None and note.position.number is not None)


def _bad_line(line: int, error: EngrainError) -> BadLine:
    return BadLine(line, type(error).__name__, str(error))


def find_lasting_statements(text: str) -> list[Statement]:
    """Find the statements of a message that are worth keeping. It takes a millisecond or two."""
    found = gate.find_statements(blank_recalled(text[:MAX_GATE_CHARACTERS]))
    # A request to forget was addressed to the other system, not to this memory.
    return [statement for statement in found if isinstance(statement, Statement)]


def extract_facts(
    notes: Sequence[Note],
    scope: Scope,
    services: Services,
    find: Callable[[str], list[Statement]] = find_lasting_statements,
) -> Iterator[Note]:
    """Yield facts that cite the stored messages of these notes, except those that were extracted before."""
    asked = load_answered_requests(services, scope)
    imported = {
        asked[name]: note for note in notes if is_users_message(note) and asked.get(name := note.request_id or "")
    }
    ids = list(imported)
    for start in range(0, len(ids), write.BATCH_SIZE):
        for item in services.items.get_many(scope, ids[start : start + write.BATCH_SIZE]):
            if item.retracted_at is None:
                utterance = Utterance(item_to_message(item), item.id)
                found = _build_facts(utterance, find(utterance.message.text), imported[item.id], services)
                yield from (fact for fact in found if fact.request_id not in asked)


def is_users_message(note: Note) -> bool:
    """Tell if the user wrote the text, in contrast to an attachment."""
    return note.position is not None and note.position.role == "user" and ATTACHMENT_KEY not in (note.metadata or {})


def _build_facts(
    utterance: Utterance, statements: Sequence[Statement], note: Note, services: Services
) -> Iterator[Note]:
    origin = note.source.name if isinstance(note.source, Source) else None
    for found in statements:
        if (words := utterance.quote(found)).strip():
            ended = found.replaces is not None or load_statement_rules().sign("ended").search(words) is not None
            fact = build_note(replace(found, slot=None) if ended else found, utterance, services)
            cites = fact.source.cites if isinstance(fact.source, Source) else ()
            name = f"{note.request_id}\x1ffact {found.start}"
            yield replace(fact, source=Source(origin, "import", cites), request_id=name)


@dataclass(frozen=True, slots=True)
class Deduplicated:
    new: list[Note] = field(default_factory=list)
    changed: list[tuple[Item, Note]] = field(default_factory=list)  # with the item whose words the note replaces
    known: int = 0  # unchanged, or corrected here since
    barred: int = 0  # changed to words that were forgotten here


def deduplicate(notes: Sequence[Note], scope: Scope, services: Services) -> Deduplicated:
    """Sort the notes by their request ids, which are their ids in the source. Of two with one id, the last counts."""
    store = require_movable(services)
    by_request = {note.request_id or "": note for note in notes}
    asked = load_answered_requests(services, scope)
    # The texts as they would be stored, and as tombstones have them.
    texts = {name: write.build_draft(note, services.redact).text for name, note in by_request.items()}
    versions = _load_versions(services, scope, {id for name in by_request if (id := asked.get(name))})
    new: list[Note] = []
    changed: list[tuple[Item, Note]] = []
    for name, note in by_request.items():
        here = versions.get(asked.get(name) or "")
        if not here:
            new.append(_extend_request_id(note) if name in asked else note)
        elif (
            all(source.kind == "import" for source in here[-1].sources)
            and not note.relation
            and all(version.text != texts[name] for version in here)
        ):
            if note.slot:
                new.append(_extend_request_id(note))
            else:
                changed.append((here[-1], note))
    tombstones = TombstoneFilter([], [scope], services, store, [texts[note.request_id or ""] for _, note in changed])
    allowed = [(item, note) for item, note in changed if not tombstones.rejects_text(texts[note.request_id or ""])]
    return Deduplicated(new, allowed, len(notes) - len(new) - len(changed), len(changed) - len(allowed))


def plan_corrections(
    changed: Sequence[tuple[Item, Note]], scope: Scope, services: Services, began: int, *, embed: bool = True
) -> Iterator[Plan]:
    """Yield plans that replace the words of items that were imported before."""
    for start in range(0, len(changed), write.BATCH_SIZE):
        part = changed[start : start + write.BATCH_SIZE]
        notes = [_keep_place(item, note) for item, note in part]
        drafts = (
            write.build_drafts(notes, services)
            if embed
            else [write.build_draft(note, services.redact) for note in notes]
        )
        steps = tuple(Correct(item.id, draft) for (item, _), draft in zip(part, drafts, strict=True))
        yield Plan(scope, steps, began=began)


def _keep_place(item: Item, note: Note) -> Note:
    number = None if note.position is None else replace(note.position, number=None)
    return replace(note, importance=item.importance, slot=item.slot, position=number)


def _extend_request_id(note: Note) -> Note:
    """Add the words to the request id: a forgotten item leaves its id behind. Tombstones decide about the words."""
    words = hashlib.blake2b(f"{note.text}\x1f{note.occurred_at}".encode(), digest_size=8).hexdigest()
    return replace(note, request_id=f"{note.request_id}\x1f{words}")


def _load_versions(services: Services, scope: Scope, ids: Iterable[str]) -> dict[str, list[Item]]:
    """Load each existing item with its corrections, oldest first."""
    found: dict[str, Item] = {}
    asked = list(ids)
    while asked:
        some = services.items.get_many(scope, asked)
        found |= {item.id: item for item in some}
        asked = [item.replaced_by for item in some if item.replaced_by and item.replaced_by not in found]
    return {id: _follow_corrections(id, found) for id in ids if id in found}


def _follow_corrections(id: str | None, found: dict[str, Item]) -> list[Item]:
    chain: list[Item] = []
    while id in found and found[id] not in chain:
        chain.append(found[id])
        id = chain[-1].replaced_by
    return chain


def load_answered_requests(services: Services, scope: Scope) -> dict[str, str]:
    """Return request id -> id of the item that the request added."""
    rows = iterate_rows(require_movable(services), "request", scope)
    return {row.key[1]: row.values["outcomes"][0][0] for row in rows if row.values["outcomes"]}
