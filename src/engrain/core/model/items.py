"""Items of a memory: their text, sources, validity and session position, and the notes that become items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, get_args

from engrain.core.clock import Time, check_time
from engrain.core.errors import InvalidInput
from engrain.core.validation import (
    check_count,
    check_key,
    check_keys,
    check_list,
    check_metadata,
    check_optional_key,
    check_share,
    check_slot,
    check_text,
    fields_to_plain,
)

Kind = Literal["fact", "message", "relation", "summary", "episode", "procedure"]
SourceKind = Literal["user", "system", "agent", "tool", "document", "import", "web"]

KINDS: tuple[Kind, ...] = get_args(Kind)
FORGOTTEN = "[forgotten]"
ROLES = ("user", "assistant", "system", "tool")

# The kind of a source decides how far its items are trusted. `explain` shows the number.
TRUST: Mapping[str, float] = {
    "user": 1.0, "system": 1.0, "agent": 0.7, "document": 0.6, "import": 0.6, "tool": 0.5, "web": 0.3,
}  # fmt: skip


def is_all_forgotten(text: str) -> bool:
    """Tell if a text has been cut so far that only the mark is left."""
    return FORGOTTEN in text and not any(map(str.isalnum, text.replace(FORGOTTEN, "")))


def limit_kind(kind: SourceKind) -> SourceKind:
    """The kind of a source that a file names: no more trusted than an import."""
    return kind if TRUST[kind] <= TRUST["import"] else "import"


@dataclass(frozen=True, slots=True)
class Citation:
    """A span of another item that an item is derived from; the whole item if no span is given.

    The span 0:0 also means the whole item, but no words are taken from it: forgetting the citing item cuts nothing.
    """

    item: str
    start: int | None = None
    end: int | None = None

    @property
    def wordless(self) -> bool:
        return (self.start, self.end) == (0, 0)

    def find_span(self, length: int) -> tuple[int, int]:
        """Return the cited span of a text of this length."""
        return self.start or 0, length if self.end is None else self.end

    def check_span(self, length: int) -> None:
        start, end = self.find_span(length)
        if not (0 <= start < end <= length or self.wordless):
            raise InvalidInput(f"the cited span {start}:{end} is not in item {self.item!r}.")


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of an item. `name` is a page, a file or a tool; None for a statement in a conversation."""

    name: str | None = None
    kind: SourceKind = "user"
    cites: tuple[Citation, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in TRUST:
            raise InvalidInput(f"source kind {self.kind!r} is not one of {', '.join(TRUST)}.")

    @property
    def trust(self) -> float:
        return TRUST[self.kind]


_USER = Source()


@dataclass(frozen=True, slots=True)
class SessionPosition:
    """The position of an item in a session, and its speaker. Without a number the item takes the session's next one."""

    session: str
    number: int | None = None
    speaker: str | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A link between two entities: subject –relation→ object."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True, slots=True)
class Item:
    """One version of a remembered text, word for word."""

    id: str
    kind: Kind
    text: str
    importance: float
    recorded_at: datetime
    valid_from: datetime
    valid_to: datetime | None = None
    occurred_at: datetime | None = None
    slot: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    trust: float = 1.0
    session: str | None = None
    place: int | None = None
    speaker: str | None = None
    role: str | None = None
    relation: Relation | None = None
    pinned: bool = False
    replaced_by: str | None = None
    retracted_at: datetime | None = None
    expires_at: datetime | None = None
    access_count: int = 0
    last_accessed: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON: times as ISO 8601 texts, tuples as lists."""
        return fields_to_plain(self)

    @property
    def source(self) -> str | None:
        """The name of the first named source."""
        return next((source.name for source in self.sources if source.name), None)

    @property
    def open(self) -> bool:
        """Tell if the item is current: neither replaced nor corrected."""
        return self.valid_to is None and self.retracted_at is None

    def visible(self, at: datetime) -> bool:
        """Tell if the item was valid at that moment. A corrected item is valid at no moment."""
        return (
            self.retracted_at is None
            and self.valid_from <= at
            and (self.valid_to is None or at < self.valid_to)
            and (self.expires_at is None or at < self.expires_at)
        )


@dataclass(frozen=True, slots=True)
class Words:
    """The indexed words of a text: little-endian uint32 pairs (term, passage << 16 | count), and how many passages."""

    pairs: bytes = b""
    passages: int = 1


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of one text by one model: float32, unit length, one row for each window of the text."""

    model: str
    rows: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A text to be stored, with everything that is computed from it before the transaction."""

    text: str
    kind: Kind = "fact"
    importance: float = 0.5
    slot: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Source = field(default_factory=Source)
    position: SessionPosition | None = None
    occurred_at: datetime | None = None
    expires_at: datetime | None = None
    relation: Relation | None = None
    words: Words = field(default_factory=Words)
    vectors: Vectors | None = None
    traits: int = 0
    # Extracted, imported or replayed: a tombstone of the same words rejects it.
    derived: bool = False
    # Items without this slot that no longer hold once this one is stored: ids, or references to earlier steps.
    ends: tuple[str, ...] = ()

    def with_vectors(self, vectors: Vectors) -> Draft:
        """Return the draft with these vectors, in half the time of dataclasses.replace."""
        values = list(_read_draft(self))
        values[_VECTORS] = vectors
        return Draft(*values)


_DRAFT_FIELDS = [attribute.name for attribute in fields(Draft)]
_VECTORS = _DRAFT_FIELDS.index("vectors")
_read_draft = attrgetter(*_DRAFT_FIELDS)


MAX_PLACE = 2**53
RESERVED_KEY = "engrain"  # the one key of an item's metadata that is engrain's own
ENDS_KEY = "ends"  # under RESERVED_KEY: the items that a fact ended
ASPECT_KEY = "aspect"  # under RESERVED_KEY: what a fact is about, such as "city" or "diet"
WISH_KEY = "wish"  # under RESERVED_KEY: the fact says how the assistant should always answer or act
OUTDATES_KEY = "outdates"  # under RESERVED_KEY: the items that a fact marked as earlier, each with the moment
LATER_KEY = "later"  # under RESERVED_KEY: since when something newer was said about the same matter
FOUND_BY = (("by", "gate"), ("by", "model"))  # in the metadata of a fact: which part of engrain found it
PROCEDURE_SLOT_PREFIX, SESSION_SLOT_PREFIX = "procedure:", "session:"  # slots of procedures and of summaries
PROPOSED_SLOT_PREFIX = "proposed:"  # slots of procedures that a less trusted source offers
RESERVED_SLOT_PREFIXES = (PROCEDURE_SLOT_PREFIX, SESSION_SLOT_PREFIX, PROPOSED_SLOT_PREFIX)


@dataclass(frozen=True, slots=True)
class Note:
    """One text to remember. `position` makes it a message of a session.

    `derived` marks a text that is extracted, imported or replayed: it cannot bring back what was forgotten.
    With a `request_id` the note is applied once.
    """

    text: str
    importance: float = 0.5
    slot: str | None = None
    metadata: Mapping[str, Any] | None = None
    source: str | Source | None = None
    occurred_at: Time | None = None
    position: SessionPosition | None = None
    relation: Relation | None = None
    derived: bool = False
    request_id: str | None = None
    expires_at: Time | None = None


def parse_note(value: object) -> Note:
    """Return a Note from a Note, a text or a dict with a Note's keys. `position`, `source`, `relation` may be dicts."""
    if isinstance(value, Note):
        return value
    if isinstance(value, str):
        return Note(value)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"remember_many takes texts, dicts or Notes, not {type(value).__name__}.")
    values = dict(value)
    for name, kind in (("position", SessionPosition), ("source", Source), ("relation", Relation)):
        if isinstance(values.get(name), Mapping):
            part = dict(values[name])
            if name == "source":
                cites = check_list(part.get("cites"), "cites")
                part["cites"] = tuple(
                    cite if isinstance(cite, Citation) else _build(Citation, cite, "cite") for cite in cites
                )
            values[name] = _build(kind, part, name)
    return _build(Note, values, "note")  # type: ignore[no-any-return]


def check_note(note: Note) -> Note:
    """Return the note with every value checked. The error names the first bad value."""
    return Note(
        text=check_text(note.text),
        importance=check_share(note.importance, "importance"),
        slot=None if note.slot is None else _check_slot(note.slot),
        metadata=check_metadata(note.metadata),
        source=_check_source(note.source),
        occurred_at=None if note.occurred_at is None else check_time(note.occurred_at, "occurred_at"),
        position=_check_position(note.position),
        relation=_check_relation(note.relation),
        derived=bool(note.derived),
        request_id=check_optional_key(note.request_id, "request_id"),
        expires_at=None if note.expires_at is None else check_time(note.expires_at, "expires_at"),
    )


def _check_slot(slot: object) -> str:
    name = check_slot(slot)
    if name.startswith(RESERVED_SLOT_PREFIXES):
        raise InvalidInput(
            f"slot {name!r} is engrain's own: names that begin with {' or '.join(RESERVED_SLOT_PREFIXES)} are taken."
        )
    return name


def _check_source(source: str | Source | None) -> Source:
    if source is None:
        return _USER
    if isinstance(source, str):
        return Source(check_key(source, "source"), "document")
    if not isinstance(source, Source):
        raise InvalidInput(f"source must be a name or a Source, not {type(source).__name__}.")
    if source.name is not None:
        check_key(source.name, "source")
    for cite in source.cites:
        _check_cite(cite)
    return source


def _check_cite(cite: object) -> None:
    if not isinstance(cite, Citation):
        raise InvalidInput(f"a source cites Citations, not {type(cite).__name__}.")
    check_key(cite.item, "cited item")
    if cite.wordless or (cite.start is None and cite.end is None):
        return
    if not (isinstance(cite.start, int) and isinstance(cite.end, int) and 0 <= cite.start < cite.end):
        raise InvalidInput(f"a cited span needs 0 <= start < end, not {cite.start!r} and {cite.end!r}.")


def _check_position(position: SessionPosition | None) -> SessionPosition | None:
    if position is None:
        return None
    if not isinstance(position, SessionPosition):
        raise InvalidInput(
            f'position must be a SessionPosition, such as SessionPosition("monday", speaker="Ana"), '
            f"not {type(position).__name__}."
        )
    check_key(position.session, "session")
    if position.number is not None:
        check_count(position.number, "position number", 0, MAX_PLACE)
    check_optional_key(position.speaker, "speaker")
    check_optional_key(position.role, "role")
    return position


def _check_relation(relation: Relation | None) -> Relation | None:
    if relation is not None:
        if not isinstance(relation, Relation):
            raise InvalidInput(f'a relation is a Relation("Ana", "works at", "Acme"), not {type(relation).__name__}.')
        for name in ("subject", "relation", "object"):
            check_key(getattr(relation, name), name)
    return relation


def _build(kind: Any, value: object, what: str) -> Any:
    """Build a dataclass from a dict of its fields."""
    values = check_keys(value, [attribute.name for attribute in fields(kind)], what)
    try:
        return kind(**values)
    except TypeError as exc:
        needed = [
            attribute.name for attribute in fields(kind) if attribute.default is attribute.default_factory is MISSING
        ]
        lacking = " and its ".join(name for name in needed if name not in values)
        raise InvalidInput(f"a {what} lacks its {lacking}.") from exc


@dataclass(frozen=True, slots=True)
class Statement:
    """The words from `start` to `end` of a message state something that lasts.

    `slot` names the value that the statement sets, if any. `explicit`: the speaker asked to remember it.
    `replaces` are words of an earlier statement that no longer hold ("tea instead of coffee": coffee).
    A `doubtful` statement may be somebody else's: it fills no slot and replaces nothing. One that `spares_slots` is the
    speaker's, but not so surely that it may set or end the value of a slot. A `wish` says how the assistant should
    always answer or act.
    """

    start: int
    end: int
    slot: str | None = None
    importance: float = 0.6
    explicit: bool = False
    replaces: str | None = None
    doubtful: bool = False
    spares_slots: bool = False
    wish: bool = False


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """The speaker wants a slot's value forgotten, or the statement between `start` and `end`.

    `topic` names the matter in free words, "" for the message before; `everything` is meant about it, or one thing.
    A `doubtful` request is only proposed: others may have written it, or it is one of several. `matters` are the
    requests that it lists.
    """

    start: int
    end: int
    slot: str | None = None
    doubtful: bool = False
    topic: str | None = None
    everything: bool = False
    matters: tuple[ForgetRequest, ...] = ()
