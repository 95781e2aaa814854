"""What a caller asks to have kept, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from engrain.core.clock import Time, checked_time
from engrain.core.errors import InvalidInput, UnknownKey
from engrain.core.items import Cite, Place, Relation, Source
from engrain.core.text import checked_count, checked_key, checked_metadata, checked_share, checked_text

MAX_PLACE = 2**53
RESERVED = ("procedure:", "session:")  # slots of procedures and of summaries


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to remember. `place` makes it a turn of a session; `derived` marks what was not said now but extracted,
    imported or replayed, so that it cannot bring back what was forgotten; with a `request_id` it is applied once."""

    text: str
    importance: float = 0.5
    slot: str | None = None
    metadata: Mapping[str, Any] | None = None
    source: str | Source | None = None
    occurred_at: Time | None = None
    place: Place | None = None
    relation: Relation | None = None
    derived: bool = False
    request_id: str | None = None


def as_note(value: object) -> Note:
    """A Note, a text, or a dict with a Note's keys (`place`, `source` and `relation` may be dicts as well)."""
    if isinstance(value, Note):
        return value
    if isinstance(value, str):
        return Note(value)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"remember_many takes texts, dicts or Notes, not {type(value).__name__}.")
    given = _known_keys(value, Note, "note")
    for name, kind in (("place", Place), ("source", Source), ("relation", Relation)):
        if isinstance(given.get(name), Mapping):
            part = _known_keys(given[name], kind, name)
            if name == "source":
                part["cites"] = _cites(part.get("cites"))
            given[name] = _made(kind, part, name)
    return _made(Note, given, "note")  # type: ignore[no-any-return]


def checked(note: Note) -> Note:
    """The same note with every value proved, or a typed error that names the value."""
    return Note(
        text=checked_text(note.text),
        importance=checked_share(note.importance, "importance"),
        slot=None if note.slot is None else _slot(note.slot),
        metadata=checked_metadata(note.metadata),
        source=_source(note.source),
        occurred_at=None if note.occurred_at is None else checked_time(note.occurred_at, "occurred_at"),
        place=_place(note.place),
        relation=_relation(note.relation),
        derived=bool(note.derived),
        request_id=None if note.request_id is None else checked_key(note.request_id, "request_id"),
    )


def _slot(slot: object) -> str:
    name = checked_key(slot, "slot")
    if name.startswith(RESERVED):
        raise InvalidInput(f"slot {name!r} is engrain's own: names that begin with {' or '.join(RESERVED)} are taken.")
    return name


def _source(source: str | Source | None) -> Source:
    if source is None:
        return Source()
    if isinstance(source, str):
        return Source(checked_key(source, "source"), "document")
    if not isinstance(source, Source):
        raise InvalidInput(f"source must be a name or a Source, not {type(source).__name__}.")
    if source.name is not None:
        checked_key(source.name, "source")
    for cite in source.cites:
        _cite(cite)
    return source


def _cites(given: object) -> tuple[Cite, ...]:
    if given is None:
        return ()
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InvalidInput(f"cites must be a list of cites, not {type(given).__name__}.")
    return tuple(
        cite if isinstance(cite, Cite) else _made(Cite, _known_keys(cite, Cite, "cite"), "cite") for cite in given
    )


def _cite(cite: object) -> None:
    if not isinstance(cite, Cite):
        raise InvalidInput(f"a source cites Cites, not {type(cite).__name__}.")
    checked_key(cite.item, "cited item")
    if cite.wordless or (cite.start is None and cite.end is None):
        return
    if not (isinstance(cite.start, int) and isinstance(cite.end, int) and 0 <= cite.start < cite.end):
        raise InvalidInput(f"a cited span needs 0 <= start < end, not {cite.start!r} and {cite.end!r}.")


def _place(place: Place | None) -> Place | None:
    if place is None:
        return None
    if not isinstance(place, Place):
        raise InvalidInput(
            f'place must be a Place, such as Place("monday", speaker="Ana"), not {type(place).__name__}.'
        )
    checked_key(place.session, "session")
    if place.number is not None:
        checked_count(place.number, "place number", 0, MAX_PLACE)
    for name in ("speaker", "role"):
        if getattr(place, name) is not None:
            checked_key(getattr(place, name), name)
    return place


def _relation(relation: Relation | None) -> Relation | None:
    if relation is not None:
        for name in ("subject", "relation", "object"):
            checked_key(getattr(relation, name), name)
    return relation


def _known_keys(given: object, kind: type, what: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} must be a dict, not {type(given).__name__}.")
    known = [field.name for field in fields(kind)]
    for key in given:
        if key not in known:
            raise UnknownKey(f"unknown key {key!r} in a {what}. Known: {', '.join(known)}.")
    return dict(given)


def _made(kind: Any, given: dict[str, Any], what: str) -> Any:
    try:
        return kind(**given)
    except TypeError as exc:
        needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
        lacking = " and its ".join(name for name in needed if name not in given)
        raise InvalidInput(f"a {what} lacks its {lacking}.") from exc
