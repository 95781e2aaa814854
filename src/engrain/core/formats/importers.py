"""Notes from what other memories and chats export: mem0, ChatGPT, Claude."""

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
MAX_TITLE = 500
# What mem0 says of a memory besides its text.
BESIDE = ("categories", "user_id", "agent_id", "app_id", "run_id", "actor_id", "updated_at")
# Metadata of a text that a user handed over with a message, with the name of its file.
ATTACHMENT_KEY = "attachment"
PIECE = MAX_TEXT // 4  # characters, of which none has more than four bytes
# What ChatGPT draws in the place of such marks is no text, but for names.
_MARK = re.compile("\ue200([^\ue200\ue201]*)\ue201")
CLAUDES_FIRST = "00000000-0000-4000-8000-000000000000"  # what the first message of a conversation follows
_UNSAID = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


def detect_origin(value: object) -> ExportOrigin | None:
    """Whose export a JSON document is, by the names in it."""
    if isinstance(value, dict):
        listed = value.get("results", value.get("memories"))
        return "mem0" if isinstance(listed, list) else _chat_of(value)
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict):
        return None
    return _chat_of(first) or ("mem0" if "memory" in first else None)


def _chat_of(entry: Mapping[str, Any]) -> ExportOrigin | None:
    if "mapping" in entry:
        return "chatgpt"
    return "claude" if "chat_messages" in entry or "conversations_memory" in entry else None


def list_entries(value: object, origin: ExportOrigin) -> list[object]:
    """What is read one by one: a memory, or a conversation. One chat may be a file by itself."""
    found = [value] if isinstance(value, dict) and _chat_of(value) == origin else value
    if origin == "mem0" and isinstance(value, dict):
        related = value.get("relations")
        listed = value.get("results", value.get("memories"))
        found = [*listed, *(related if isinstance(related, list) else [])] if isinstance(listed, list) else None
    if not isinstance(found, list):
        raise InvalidInput(f"this is no export of {origin}: a list is expected.")
    return found


def list_owners(value: object, origin: ExportOrigin) -> list[str]:
    """The users whose memories they are, as far as it says so."""
    found = (entry.get("user_id") for entry in list_entries(value, origin) if isinstance(entry, dict))
    return sorted({one for one in found if isinstance(one, str)}) if origin == "mem0" else []


def read_notes(entry: object, origin: ExportOrigin) -> list[Note]:
    """Every value proved. What a conversation's words were is kept; facts are not drawn from them."""
    return [check_note(note) for note in _READERS[origin](_object(entry, "an entry"))]


def _mem0(entry: Mapping[str, Any]) -> Iterator[Note]:
    if "relationship" in entry or "relation" in entry:
        verb = _text(entry.get("relationship", entry.get("relation")), "relationship")
        subject = _text(entry.get("source"), "source")
        object = _text(entry.get("target", entry.get("destination")), "target")
        relation = Relation(subject, verb, object)
        yield _note("mem0", f"{subject} {verb} {object}", f"{subject}\x1f{verb}\x1f{object}", relation=relation)
        return
    text = _text(entry.get("memory", entry.get("text")), "memory")
    own = _object(entry.get("metadata") or {}, "metadata")
    metadata = {**{name: entry[name] for name in BESIDE if entry.get(name)}, **own}
    named = entry.get("id")
    # What an export job was not asked for is not there.
    named = _digest(text) if named is None else _text(named, "id")
    yield _note("mem0", text, named, metadata=metadata, occurred_at=_iso(entry.get("created_at")))


def _chatgpt(entry: Mapping[str, Any]) -> Iterator[Note]:
    session = f"chatgpt-{_text(entry.get('conversation_id') or entry.get('id'), 'conversation_id')}"
    title = _title(entry.get("title"))
    for name, node in _branch(entry):
        message = node.get("message")
        if not isinstance(message, dict):
            continue
        beside = _object(message.get("metadata") or {}, "metadata")
        yield from _instructions(beside.get("user_context_message_data"), _time(entry.get("create_time")))
        role = _role(_object(message.get("author") or {}, "author").get("role"))
        text = _said(message.get("content"))
        if role is None or beside.get("is_visually_hidden_from_conversation") or not text.strip():
            continue
        yield from _message(
            "chatgpt",
            text,
            f"{session}\x1f{_text(message.get('id') or name, 'id')}",
            place=SessionPosition(session, role=role),
            metadata=title,
            occurred_at=_time(message.get("create_time")),
        )
        title = {}


def _instructions(told: object, at: str | datetime | None) -> Iterator[Note]:
    """What the user wants every conversation to know; each of them has a copy."""
    for name in ("about_user", "about_model"):
        text = _words(told.get(f"{name}_message")).strip() if isinstance(told, dict) else ""
        if text:
            slot = f"chatgpt.{name}"
            yield _note("chatgpt", text, f"{slot}\x1f{_digest(text)}", slot=slot, occurred_at=at)


def _branch(entry: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The messages that the conversation shows, by name: from its present end back to its beginning."""
    mapping = _object(entry.get("mapping"), "mapping")
    at = entry.get("current_node")
    if at is None:
        at = next((name for name in reversed([*mapping]) if not _object(mapping[name], "a node").get("children")), None)
    found: dict[str, Mapping[str, Any]] = {}
    while at is not None:
        if not isinstance(at, str) or at not in mapping or at in found:
            raise InvalidInput(f"the messages of the conversation do not hang together at {at!r:.80}.")
        found[at] = _object(mapping[at], "a node")
        at = found[at].get("parent")
    return [*found.items()][::-1]


def _said(content: object) -> str:
    """The words of a message, written or spoken; pictures, files and thoughts are left out."""
    if not isinstance(content, dict) or content.get("content_type") in _UNSAID:
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n".join(filter(None, map(_part, parts)))
    return _words(content.get("text")) or _words(content.get("result"))


def _part(part: object) -> str:
    return _MARK.sub(_drawn, _words(part.get("text") if isinstance(part, dict) else part))


def _drawn(mark: re.Match[str]) -> str:
    """Of a place, a person or a thing its name; a reference to a page is none of the words."""
    kind, _, told = mark[1].partition("\ue202")
    try:
        named = json.loads(told) if kind == "entity" else None
    except (ValueError, RecursionError):
        named = None
    return str(named[1]) if isinstance(named, list) and len(named) > 1 else ""


def _words(text: object) -> str:
    """Without the NULs that programs print into a chat."""
    return text.replace("\x00", "") if isinstance(text, str) else ""


def _claude(entry: Mapping[str, Any]) -> Iterator[Note]:
    if "conversations_memory" in entry:
        yield from _claude_memory(entry)
        return
    session = f"claude-{_text(entry.get('uuid'), 'uuid')}"
    title = _title(entry.get("name"))
    messages = entry.get("chat_messages")
    if not isinstance(messages, list):
        raise InvalidInput("chat_messages must be a list.")
    for message in _shown([_object(one, "a message") for one in messages], entry.get("current_leaf_message_uuid")):
        role = _role(message.get("sender"))
        if role is None:
            continue
        named = f"{session}\x1f{_text(message.get('uuid'), 'uuid')}"
        at = _iso(message.get("created_at"))
        place = SessionPosition(session, role=role)
        given = [(f"{named}\x1fattachment {number}", *one) for number, one in enumerate(_attached(message), 1)]
        for name, text, beside in [*given, (named, _blocks(message), {})]:
            if text.strip():
                yield from _message("claude", text, name, place=place, metadata={**title, **beside}, occurred_at=at)
                title = {}


def _shown(messages: Sequence[Mapping[str, Any]], last: object) -> Sequence[Mapping[str, Any]]:
    """Those of the branch that the conversation ends with; all of them where that cannot be told."""
    known = {str(one.get("uuid")): one for one in messages}
    parents = {str(one.get("parent_message_uuid")) for one in messages}
    leaves = [id for id in known if id not in parents]
    at = last if isinstance(last, str) and last in known else leaves[-1] if leaves else None
    found: dict[str, Mapping[str, Any]] = {}
    while isinstance(at, str) and at in known and at not in found:
        found[at] = known[at]
        at = known[at].get("parent_message_uuid")
    return [*found.values()][::-1] if at == CLAUDES_FIRST else messages


def _attached(message: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """The texts that were handed over with a message, with their metadata; a long paste is one without a name."""
    given = message.get("attachments")
    for one in given if isinstance(given, list) else ():
        if isinstance(one, dict) and (text := _words(one.get("extracted_content"))):
            yield text, {ATTACHMENT_KEY: _words(one.get("file_name"))[:MAX_TITLE] or "pasted"}


def _claude_memory(entry: Mapping[str, Any]) -> Iterator[Note]:
    """What Claude itself has written down about the user, and about each project."""
    told = {"claude.memory": entry.get("conversations_memory")}
    told |= {f"claude.memory.{id}": text for id, text in _object(entry.get("project_memories") or {}, "memory").items()}
    for slot, given in told.items():
        if text := _words(given).strip():
            yield _note("claude", text, slot, slot=slot)


def _blocks(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    texts = [_words(one.get("text")) for one in blocks if one.get("type") == "text"]
    return "\n".join(filter(None, texts)) or _words(message.get("text"))


def _message(origin: ExportOrigin, text: str, named: str, **values: Any) -> Iterator[Note]:
    """In several pieces if it is longer than an item may be."""
    if len(text) <= PIECE or len(text.encode("utf-8", "replace")) <= MAX_TEXT:
        yield _note(origin, text, named, **values)
        return
    for start in range(0, len(text), PIECE):
        more = f"\x1f{start}" if start else ""
        yield _note(origin, text[start : start + PIECE], f"{named}{more}", **values)


def _note(origin: ExportOrigin, text: str, named: str, **values: Any) -> Note:
    """`named` is what the origin calls it, so that a second import adds nothing."""
    return Note(text, source=Source(origin, "import"), derived=True, request_id=f"{origin}\x1f{named}", **values)


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, not {type(value).__name__}.")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{what} must be a text, not {value!r:.80}.")
    return value


def _role(value: object) -> str | None:
    return ROLES.get(value) if isinstance(value, str) else None


def _title(value: object) -> dict[str, str]:
    return {"title": value[:MAX_TITLE]} if isinstance(value, str) and value.strip() else {}


def _iso(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"a time must be ISO 8601 text, not {value!r:.80}.")
    return value or None


def _time(value: object) -> str | datetime | None:
    """Seconds since 1970, or ISO 8601."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(f"a time must be seconds since 1970, not {value!r:.80}.")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError) as exc:
        raise InvalidInput(f"a time must be seconds since 1970, not {value!r:.80}.") from exc


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


_READERS: Mapping[ExportOrigin, Callable[[Mapping[str, Any]], Iterator[Note]]] = {
    "mem0": _mem0,
    "chatgpt": _chatgpt,
    "claude": _claude,
}
