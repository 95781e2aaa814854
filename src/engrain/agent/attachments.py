"""Images and documents of user messages: a reference in the log, the bytes in records."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engrain.core.errors import InvalidInput
from engrain.core.model.messages import Attachment, Message
from engrain.core.model.records import ATTACHMENTS, MAX_BODY, RecordDraft
from engrain.ports.plain_files import read_plain

if TYPE_CHECKING:
    from engrain.memory import Memory

METADATA_KEY = "attachments"
MAX_SHOWN_BYTES = 20 * 2**20  # in one request, the newest first
_HASH = re.compile(r"[0-9a-f]{64}")
_ENDINGS = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".pdf": "application/pdf",
}  # fmt: skip


def parse_attachments(values: Sequence[Attachment | str | Path]) -> tuple[Attachment, ...]:
    """Read the files that are named by a path. The ending of a name says what it is."""
    return tuple(value if isinstance(value, Attachment) else _read_file(value) for value in values)


def _read_file(name: str | Path) -> Attachment:
    if not isinstance(name, str | os.PathLike):
        raise InvalidInput(f"an attachment is a path or an Attachment, not {type(name).__name__}.")
    path = Path(name)
    media_type = _ENDINGS.get(path.suffix.lower())
    if media_type is None:
        raise InvalidInput(f"{path.name!r} cannot be attached: it must end in one of {', '.join(_ENDINGS)}.")
    return Attachment(read_plain(path, MAX_BODY), media_type, path.name)


def refer_to_attachments(attachments: Sequence[Attachment]) -> dict[str, Any]:
    """Return the metadata of a message with these attachments."""
    return {METADATA_KEY: [one.reference for one in attachments]} if attachments else {}


def keep_attachments(memory: Memory, attachments: Sequence[Attachment], ids: Sequence[str]) -> None:
    """Keep the bytes for a message, each hash once. They are forgotten together with it."""
    memory.records.write(ATTACHMENTS, [RecordDraft((ids[0], one.hash), one.body) for one in attachments])


def load_attachments(memory: Memory, messages: Sequence[Message]) -> dict[int, tuple[Attachment, ...]]:
    """Return the attachments of messages by their place, the newest first, as far as they fit into one request."""
    room = MAX_SHOWN_BYTES
    found: dict[int, tuple[Attachment, ...]] = {}
    for place in reversed(range(len(messages))):
        references = _list_references(messages[place])
        room -= sum(reference["bytes"] for reference in references)
        if references and room >= 0:
            bodies = _read_bodies(memory, messages[place], references)
            found[place] = tuple(
                Attachment(bodies[reference["sha256"]], reference["media_type"], reference["name"])
                for reference in references
                if reference["sha256"] in bodies
            )
    return found


def _read_bodies(memory: Memory, message: Message, references: list[dict[str, Any]]) -> dict[str, bytes]:
    keys = [(message.id or "", reference["sha256"]) for reference in references]
    return {record.key[1]: record.body for record in memory.records.read(ATTACHMENTS, keys)}


def _list_references(message: Message) -> list[dict[str, Any]]:
    """Return the references in the metadata, which anybody may have written: others are left out."""
    value = message.metadata.get(METADATA_KEY)
    return [one for one in value if _is_reference(one)] if isinstance(value, list) else []


def _is_reference(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or type(value.get("bytes")) is not int:
        return False
    try:
        Attachment(b"-", value.get("media_type", ""), value["name"])
    except InvalidInput:
        return False
    return value["bytes"] > 0 and bool(_HASH.fullmatch(str(value.get("sha256"))))
