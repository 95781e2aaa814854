"""Read notes from the exports of mem0, ChatGPT and Claude."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Note, Relation, SessionPosition, Source, check_note
from engrain.core.validation import MAX_TEXT

ExportOrigin = Literal["mem0", "chatgpt", "claude"]
ROLES: Mapping[str, str] = {
    "user": "user", "human": "user", "assistant": "assistant", "system": "system", "tool": "tool",
}  # fmt: skip
MAX_TITLE_CHARACTERS = 500
# Fields of a mem0 memory that become metadata.
MEM0_METADATA = ("categories", "user_id", "agent_id", "app_id", "run_id", "actor_id", "updated_at")
# Metadata key of an attached text: the name of its file.
ATTACHMENT_KEY = "attachment"
MAX_NOTE_CHARACTERS = MAX_TEXT // 4  # no character has more than four bytes
# ChatGPT draws something in the place of such a mark. Only an entity's name is text.
_CHATGPT_MARK = re.compile("\ue200([^\ue200\ue201]*)\ue201")
CLAUDE_ROOT = "00000000-0000-4000-8000-000000000000"  # the parent of a conversation's first message
_HIDDEN_CONTENT = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


def detect_origin(value: object) -> ExportOrigin | None:
    """Tell whose export a JSON document is, by its keys."""
    if isinstance(value, dict):
        listed = value.get("results", value.get("memories"))
        return "mem0" if isinstance(listed, list) else _detect_chat(value)
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict):
        return None
    return _detect_chat(first) or ("mem0" if "memory" in first else None)


def _detect_chat(entry: Mapping[str, Any]) -> ExportOrigin | None:
    if "mapping" in entry:
        return "chatgpt"
    return "claude" if "chat_messages" in entry or "conversations_memory" in entry else None


def list_entries(value: object, origin: ExportOrigin) -> list[object]:
    """List the memories or conversations of an export. A single conversation may be a file by itself."""
    found = [value] if isinstance(value, dict) and _detect_chat(value) == origin else value
    if origin == "mem0" and isinstance(value, dict):
        related = value.get("relations")
        listed = value.get("results", value.get("memories"))
        found = [*listed, *(related if isinstance(related, list) else [])] if isinstance(listed, list) else None
    if not isinstance(found, list):
        raise InvalidInput(f"this is not an export of {origin}: it must be a list.")
    return found


def list_owners(value: object, origin: ExportOrigin) -> list[str]:
    """List the users that a mem0 export names as owners."""
    found = (entry.get("user_id") for entry in list_entries(value, origin) if isinstance(entry, dict))
    return sorted({owner for owner in found if isinstance(owner, str)}) if origin == "mem0" else []


def read_notes(entry: object, origin: ExportOrigin) -> list[Note]:
    """Read one entry as checked notes. The words of a conversation are kept; no facts are extracted from them."""
    return [check_note(note) for note in _READERS[origin](_check_object(entry, "an entry"))]


def _read_mem0(entry: Mapping[str, Any]) -> Iterator[Note]:
    if "relationship" in entry or "relation" in entry:
        verb = _check_text(entry.get("relationship", entry.get("relation")), "relationship")
        subject = _check_text(entry.get("source"), "source")
        object = _check_text(entry.get("target", entry.get("destination")), "target")
        relation = Relation(subject, verb, object)
        yield _make_note("mem0", f"{subject} {verb} {object}", f"{subject}\x1f{verb}\x1f{object}", relation=relation)
        return
    text = _check_text(entry.get("memory", entry.get("text")), "memory")
    own = _check_object(entry.get("metadata") or {}, "metadata")
    metadata = {**{name: entry[name] for name in MEM0_METADATA if entry.get(name)}, **own}
    named = entry.get("id")
    # An export job leaves out fields that it was not asked for.
    named = _hash_text(text) if named is None else _check_text(named, "id")
    yield _make_note("mem0", text, named, metadata=metadata, occurred_at=_read_time(entry.get("created_at")))


def _read_chatgpt(entry: Mapping[str, Any]) -> Iterator[Note]:
    session = f"chatgpt-{_check_text(entry.get('conversation_id') or entry.get('id'), 'conversation_id')}"
    title = _title_metadata(entry.get("title"))
    for name, node in _current_branch(entry):
        message = node.get("message")
        if not isinstance(message, dict):
            continue
        beside = _check_object(message.get("metadata") or {}, "metadata")
        yield from _read_instructions(beside.get("user_context_message_data"), _read_time(entry.get("create_time")))
        role = _read_role(_check_object(message.get("author") or {}, "author").get("role"))
        text = _read_content(message.get("content"))
        if role is None or beside.get("is_visually_hidden_from_conversation") or not text.strip():
            continue
        yield from _split_message(
            "chatgpt",
            text,
            f"{session}\x1f{_check_text(message.get('id') or name, 'id')}",
            position=SessionPosition(session, role=role),
            metadata=title,
            occurred_at=_read_time(message.get("create_time")),
        )
        title = {}


def _read_instructions(context: object, at: str | datetime | None) -> Iterator[Note]:
    """Read the user's custom instructions. Every conversation has a copy."""
    for name in ("about_user", "about_model"):
        text = _clean_text(context.get(f"{name}_message")).strip() if isinstance(context, dict) else ""
        if text:
            slot = f"chatgpt.{name}"
            yield _make_note("chatgpt", text, f"{slot}\x1f{_hash_text(text)}", slot=slot, occurred_at=at)


def _current_branch(entry: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the visible messages with their names, found from the current end back to the beginning."""
    mapping = _check_object(entry.get("mapping"), "mapping")
    at = entry.get("current_node")
    if at is None:
        at = next(
            (name for name in reversed([*mapping]) if not _check_object(mapping[name], "a node").get("children")), None
        )
    found: dict[str, Mapping[str, Any]] = {}
    while at is not None:
        if not isinstance(at, str) or at not in mapping or at in found:
            raise InvalidInput(f"the messages of the conversation are not connected at {at!r:.80}.")
        found[at] = _check_object(mapping[at], "a node")
        at = found[at].get("parent")
    return [*found.items()][::-1]


def _read_content(content: object) -> str:
    """Return the written or spoken words of a message, without pictures, files and thoughts."""
    if not isinstance(content, dict) or content.get("content_type") in _HIDDEN_CONTENT:
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        texts = (_clean_text(part.get("text") if isinstance(part, dict) else part) for part in parts)
        return "\n".join(filter(None, (_CHATGPT_MARK.sub(_replace_mark, text) for text in texts)))
    return _clean_text(content.get("text")) or _clean_text(content.get("result"))


def _replace_mark(mark: re.Match[str]) -> str:
    """Replace an entity mark by the entity's name. Citation marks are dropped."""
    kind, _, data = mark[1].partition("\ue202")
    try:
        entity = json.loads(data) if kind == "entity" else None
    except (ValueError, RecursionError):
        entity = None
    return str(entity[1]) if isinstance(entity, list) and len(entity) > 1 else ""


def _clean_text(text: object) -> str:
    # Programs print NULs into a chat.
    return text.replace("\x00", "") if isinstance(text, str) else ""


def _read_claude(entry: Mapping[str, Any]) -> Iterator[Note]:
    if "conversations_memory" in entry:
        yield from _read_claude_memory(entry)
        return
    session = f"claude-{_check_text(entry.get('uuid'), 'uuid')}"
    title = _title_metadata(entry.get("name"))
    messages = entry.get("chat_messages")
    if not isinstance(messages, list):
        raise InvalidInput("chat_messages must be a list.")
    for message in _current_messages(
        [_check_object(message, "a message") for message in messages], entry.get("current_leaf_message_uuid")
    ):
        role = _read_role(message.get("sender"))
        if role is None:
            continue
        named = f"{session}\x1f{_check_text(message.get('uuid'), 'uuid')}"
        at = _read_time(message.get("created_at"))
        position = SessionPosition(session, role=role)
        attached = [
            (f"{named}\x1fattachment {number}", *attachment)
            for number, attachment in enumerate(_read_attachments(message), 1)
        ]
        for name, text, beside in [*attached, (named, _join_blocks(message), {})]:
            if text.strip():
                yield from _split_message(
                    "claude", text, name, position=position, metadata={**title, **beside}, occurred_at=at
                )
                title = {}


def _current_messages(messages: Sequence[Mapping[str, Any]], last: object) -> Sequence[Mapping[str, Any]]:
    """Return the messages of the current branch; all messages if the branch is unknown."""
    known = {str(message.get("uuid")): message for message in messages}
    parents = {str(message.get("parent_message_uuid")) for message in messages}
    leaves = [id for id in known if id not in parents]
    at = last if isinstance(last, str) and last in known else leaves[-1] if leaves else None
    found: dict[str, Mapping[str, Any]] = {}
    while isinstance(at, str) and at in known and at not in found:
        found[at] = known[at]
        at = known[at].get("parent_message_uuid")
    return [*found.values()][::-1] if at == CLAUDE_ROOT else messages


def _read_attachments(message: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the attached texts with their metadata. A long paste is an attachment without a name."""
    listed = message.get("attachments")
    for attachment in listed if isinstance(listed, list) else ():
        if isinstance(attachment, dict) and (text := _clean_text(attachment.get("extracted_content"))):
            yield text, {ATTACHMENT_KEY: _clean_text(attachment.get("file_name"))[:MAX_TITLE_CHARACTERS] or "pasted"}


def _read_claude_memory(entry: Mapping[str, Any]) -> Iterator[Note]:
    """Read Claude's own notes about the user and each project."""
    notes = {"claude.memory": entry.get("conversations_memory")}
    notes |= {
        f"claude.memory.{id}": text for id, text in _check_object(entry.get("project_memories") or {}, "memory").items()
    }
    for slot, content in notes.items():
        if text := _clean_text(content).strip():
            yield _make_note("claude", text, slot, slot=slot)


def _join_blocks(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [_clean_text(block.get("text")) for block in blocks if block.get("type") == "text"]
    return "\n".join(filter(None, texts)) or _clean_text(message.get("text"))


def _split_message(origin: ExportOrigin, text: str, named: str, **values: Any) -> Iterator[Note]:
    """Make a note, or several if the text is longer than an item may be."""
    if len(text) <= MAX_NOTE_CHARACTERS or len(text.encode("utf-8", "replace")) <= MAX_TEXT:
        yield _make_note(origin, text, named, **values)
        return
    for start in range(0, len(text), MAX_NOTE_CHARACTERS):
        more = f"\x1f{start}" if start else ""
        yield _make_note(origin, text[start : start + MAX_NOTE_CHARACTERS], f"{named}{more}", **values)


def _make_note(origin: ExportOrigin, text: str, named: str, **values: Any) -> Note:
    """Make a note. `named` is its id at the origin, so that a second import adds nothing."""
    return Note(text, source=Source(origin, "import"), derived=True, request_id=f"{origin}\x1f{named}", **values)


def _check_object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, not {type(value).__name__}.")
    return value


def _check_text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{what} must be a text, not {value!r:.80}.")
    return value


def _read_role(value: object) -> str | None:
    return ROLES.get(value) if isinstance(value, str) else None


def _title_metadata(value: object) -> dict[str, str]:
    return {"title": value[:MAX_TITLE_CHARACTERS]} if isinstance(value, str) and value.strip() else {}


def _read_time(value: object) -> str | datetime | None:
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


def _hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


_READERS: Mapping[ExportOrigin, Callable[[Mapping[str, Any]], Iterator[Note]]] = {
    "mem0": _read_mem0,
    "chatgpt": _read_chatgpt,
    "claude": _read_claude,
}
