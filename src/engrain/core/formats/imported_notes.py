"""Make checked notes from the values of other systems' exports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Note, Source
from engrain.core.validation import MAX_TEXT

ROLES: Mapping[str, str] = {
    "user": "user", "human": "user", "assistant": "assistant", "system": "system", "tool": "tool",
}  # fmt: skip
MAX_TITLE_CHARACTERS = 500
MAX_NOTE_CHARACTERS = MAX_TEXT // 4  # no character has more than four bytes


def split_message(origin: str, text: str, named: str, **values: Any) -> Iterator[Note]:
    """Make a note, or several if the text is longer than an item may be."""
    if len(text) <= MAX_NOTE_CHARACTERS or len(text.encode("utf-8", "replace")) <= MAX_TEXT:
        yield make_note(origin, text, named, **values)
        return
    for start in range(0, len(text), MAX_NOTE_CHARACTERS):
        more = f"\x1f{start}" if start else ""
        yield make_note(origin, text[start : start + MAX_NOTE_CHARACTERS], f"{named}{more}", **values)


def make_note(origin: str, text: str, named: str, **values: Any) -> Note:
    """Make a note. `named` is its id at the origin, so that a second import adds nothing."""
    return Note(text, source=Source(origin, "import"), derived=True, request_id=f"{origin}\x1f{named}", **values)


def check_object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, not {type(value).__name__}.")
    return value


def check_filled(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{what} must be a text, not {value!r:.80}.")
    return value


def read_role(value: object) -> str | None:
    return ROLES.get(value) if isinstance(value, str) else None


def title_metadata(value: object) -> dict[str, str]:
    return {"title": value[:MAX_TITLE_CHARACTERS]} if isinstance(value, str) and value.strip() else {}


def read_time(value: object) -> str | datetime | None:
    """Read seconds since 1970 or an ISO 8601 text."""
    if value is None or isinstance(value, str):
        return value or None
    wrong = f"a time must be ISO 8601 text or seconds since 1970, not {value!r:.80}."
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(wrong)
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError) as exc:
        raise InvalidInput(wrong) from exc


def hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def clean_text(text: object) -> str:
    # Programs print NULs into a chat.
    return text.replace("\x00", "") if isinstance(text, str) else ""
