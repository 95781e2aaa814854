"""Take what is private out of notes and messages before they are embedded or kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engrain.core.items import Relation
from engrain.core.messages import Message
from engrain.core.notes import Note
from engrain.core.text import checked_text

if TYPE_CHECKING:
    from engrain.core.redact import Redact


def clean_note(note: Note, redact: Redact | None) -> Note:
    """Its text, metadata and relation. The names that somebody chose (slot, source, session, speaker) are keys, and
    stay."""
    if redact is None:
        return note
    relation = note.relation
    if relation is not None:
        relation = Relation(*(redact(part) for part in (relation.subject, relation.relation, relation.object)))
    text = checked_text(redact(note.text))
    return replace(note, text=text, metadata=clean(note.metadata, redact), relation=relation)


def clean(value: Any, redact: Redact | None) -> Any:
    """Every text in plain JSON."""
    if redact is None:
        return value
    from engrain.core.redact import redacted_json

    return redacted_json(value, redact)


def clean_message(message: Message, redact: Redact | None) -> Message:
    """Before anything is made of it, so that what cites its words cites those that are kept."""
    if redact is None:
        return message
    calls = tuple(
        replace(call, arguments=clean(call.arguments, redact), malformed=clean(call.malformed, redact))
        for call in message.calls
    )
    return replace(message, text=redact(message.text), calls=calls, metadata=clean(message.metadata, redact))
