"""Load a file of any known form: tell what it is, prove all of it, then write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, get_args

from engrain.capture import write
from engrain.core.errors import BadFile, BadLine, Conflict, InvalidInput
from engrain.core.foreign import Origin, origin_of
from engrain.core.manifests import is_manifest
from engrain.core.notes import Note
from engrain.core.scope import Scope
from engrain.lifecycle.foretelling import foretold
from engrain.lifecycle.importing import MAX_LINE, Read, document, entries_in, notes_in
from engrain.lifecycle.lines import lines, value_of
from engrain.lifecycle.loading import proved
from engrain.lifecycle.restoring import restore
from engrain.ports import Kit

Form = Literal["engrain", "notes", "mem0", "chatgpt", "claude"]
FORMS: tuple[Form, ...] = get_args(Form)
PART = 2_048  # notes between two words of progress

Done = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a file is loaded. `source` is that of notes which name none; `other_scope` takes an export of another memory;
    `skip_bad` writes the good notes even if others are bad, and is nothing for an export, which is whole or nothing."""

    form: Form | None = None
    source: str | None = None
    skip_bad: bool = False
    other_scope: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of a file. `added` was new; `repeated` was here already; `replaced` closed an older value of its slot,
    and `behind` is older than what its slot holds; `kept_out` was forgotten here. `rows` are the new rows of an export
    by kind. `written` is False for a dry run, which says what would be."""

    form: Form
    read: int
    added: int = 0
    repeated: int = 0
    replaced: int = 0
    behind: int = 0
    kept_out: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    bad: tuple[BadLine, ...] = ()
    written: bool = True


def load(file: BinaryIO, scope: Scope, kit: Kit, terms: Terms, done: Done) -> Loaded:
    """BadFile if a line cannot be used, and then nothing is written."""
    if terms.form is not None and terms.form not in FORMS:
        raise InvalidInput(f"unknown form {terms.form!r}. Known: {', '.join(FORMS)}.")
    form, value = _told(file, terms.form)
    if form == "engrain":
        return _export(file, scope, kit, terms, done)
    read = notes_in(file, terms.source, done) if form == "notes" else entries_in(value, form, done)
    return _notes(read, form, scope, kit, terms, done)


def _told(file: BinaryIO, given: Form | None) -> tuple[Form, object]:
    """What form the file has, and the whole of it where that is one JSON document; the file is back at its start."""
    found: Form | None = given
    first = next(iter(lines(file, MAX_LINE)), None)
    file.seek(0)
    start = (first.raw or b"").lstrip()[:1] if first else b""
    if found is None and first and first.raw is not None:
        found = _by_first_line(first.raw)
    if found in ("engrain", "notes"):
        return found, None
    if found is None and start not in (b"[", b"{"):
        return "notes", None
    try:
        value = document(file)
    except InvalidInput:
        if given is not None:
            raise
        # Then its lines say one by one what is wrong with them.
        file.seek(0)
        return "notes", None
    origin: Origin | None = found or origin_of(value)  # type: ignore[assignment]
    if origin is None:
        raise InvalidInput(f"this is none of the known forms: {', '.join(FORMS)}. docs/export.md shows them.")
    return origin, value


def _by_first_line(raw: bytes) -> Form | None:
    try:
        value = value_of(raw, MAX_LINE)
    except InvalidInput:
        # The beginning of a document over several lines, or a bad line of notes.
        return None if raw.strip() in (b"[", b"{", b"[{") else "notes"
    if is_manifest(value):
        return "engrain"
    return None if isinstance(value, list) or origin_of(value) else "notes"


def _export(file: BinaryIO, scope: Scope, kit: Kit, terms: Terms, done: Done) -> Loaded:
    export = proved(file, scope, kit, lambda _: None)
    if export.manifest.scope != scope and not terms.other_scope:
        raise Conflict(
            f"this is an export of {export.manifest.scope}, and this memory is that of {scope}. Say so if it is to go "
            "into another memory all the same: other_scope=True, or --other-scope."
        )
    decision = restore(export.rows, scope, kit, done, terms.dry_run)
    return Loaded(
        "engrain",
        len(export.rows),
        added=len(decision.new),
        repeated=decision.there,
        kept_out=decision.kept_out,
        rows=Counter(row.kind for row in decision.new),
        written=not terms.dry_run,
    )


def _notes(read: Read, form: Form, scope: Scope, kit: Kit, terms: Terms, done: Done) -> Loaded:
    if read.bad and not terms.skip_bad:
        raise BadFile(read.bad)
    statuses = foretold(read.notes, scope, kit) if terms.dry_run else _written(read.notes, scope, kit, done)
    found = Counter(statuses)
    return Loaded(
        form,
        len(read.notes) + len(read.bad),
        found["added"],
        found["repeated"],
        found["replaced"],
        found["behind"],
        found["kept_out"],
        bad=tuple(read.bad),
        written=not terms.dry_run,
    )


def _written(notes: Sequence[Note], scope: Scope, kit: Kit, done: Done) -> Iterable[str]:
    for start in range(0, len(notes), PART):
        for outcome in write.commit_many(notes[start : start + PART], scope, kit, None, done):
            yield outcome.status
