"""Read notes from JSON Lines, and from what other memories and chats export."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import orjson

from engrain.core.errors import BadLine, Conflict, EngrainError
from engrain.core.foreign import Origin, entries, notes_of, owners
from engrain.core.items import Source
from engrain.core.notes import Note, as_note, checked
from engrain.core.scope import Scope
from engrain.core.text import MAX_METADATA, MAX_TEXT
from engrain.lifecycle.exchange.archives import Document
from engrain.lifecycle.exchange.lines import lines, value_of

# The largest text, with every character written as an escape of six, and room for the rest of a note.
MAX_LINE = 6 * (MAX_TEXT + MAX_METADATA) + 65_536
HINT = 'Notes are one JSON object a line, such as {"text": "…"}.'


@dataclass(frozen=True, slots=True)
class Read:
    """`notes` have request ids made from their content, so that repeating an import adds nothing. `bad` lines are
    numbered from 1, and so are the `lines` of the notes; of a document that is a list, its entries are."""

    notes: list[Note] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)


def notes_in(file: BinaryIO, source: str | None) -> Read:
    """One note a line: {"text": …} or a whole Note."""
    found = Read()
    seen: Counter[str] = Counter()
    for number, raw in lines(file, MAX_LINE):
        try:
            if raw is None or raw.strip():
                value = value_of(raw, MAX_LINE)
                digest = _digest([value, source])
                seen[digest] += 1
                found.notes.append(replace(_note(value, source), request_id=f"import-{digest}-{seen[digest]}"))
                found.lines.append(number)
        except EngrainError as exc:
            hint = f" {HINT}" if number == 1 and not (raw or b"{").lstrip().startswith(b"{") else ""
            found.bad.append(BadLine(number, type(exc).__name__, f"{exc}{hint}"))
    return found


def entries_in(documents: Iterable[Document], origin: Origin, scope: Scope, other_scope: bool = False) -> Read:
    """Conflict if they are of another user or of several, unless that is wanted."""
    found = Read()
    for name, value in documents:
        if not other_scope:
            _check_owner(owners(value, origin), scope)
        for number, entry in enumerate(entries(value, origin), 1):
            try:
                found.notes.extend(notes_of(entry, origin))
            except EngrainError as exc:
                found.bad.append(BadLine(number, type(exc).__name__, f"{name}: {exc}" if name else str(exc)))
    return found


def _check_owner(users: Sequence[str], scope: Scope) -> None:
    if len(users) > 1:
        raise Conflict(
            f"these are memories of {len(users)} users, {', '.join(users)[:200]}, and this memory is one user's. "
            "Load each user's by themselves, or say that all are to go here: other_scope=True, --other-scope."
        )
    if users and scope.user not in (None, users[0]):
        raise Conflict(
            f"these are memories of {users[0][:200]}, and this memory is that of {scope}. Say so if they are to "
            "go here all the same: other_scope=True, --other-scope."
        )


def _note(value: object, source: str | None) -> Note:
    note = as_note(value)
    if note.source is None:
        note = replace(note, source=Source(source, "import"))
    return replace(checked(note), derived=True)


def _digest(value: object) -> str:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
