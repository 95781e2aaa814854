"""Notes from what other memories and chats export: mem0, ChatGPT, Claude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from engrain.core.errors import InvalidInput
from engrain.core.items import Place, Relation, Source
from engrain.core.notes import Note, checked

Origin = Literal["mem0", "chatgpt", "claude"]
ROLES: Mapping[str, str] = {
    "user": "user", "human": "user", "assistant": "assistant", "system": "system", "tool": "tool",
}  # fmt: skip
MAX_TITLE = 500
# What mem0 says of a memory besides its text.
BESIDE = ("categories", "user_id", "agent_id", "app_id", "run_id", "actor_id", "updated_at")


def origin_of(value: object) -> Origin | None:
    """Whose export a JSON document is, by the names in it."""
    if isinstance(value, dict):
        listed = value.get("results", value.get("memories"))
        return "mem0" if isinstance(listed, list) else None
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict):
        return None
    if "mapping" in first:
        return "chatgpt"
    if "chat_messages" in first or "conversations_memory" in first:
        return "claude"
    return "mem0" if "memory" in first else None


def entries(value: object, origin: Origin) -> list[object]:
    """What is read one by one: a memory, or a conversation."""
    found = value
    if origin == "mem0" and isinstance(value, dict):
        related = value.get("relations")
        listed = value.get("results", value.get("memories"))
        found = [*listed, *(related if isinstance(related, list) else [])] if isinstance(listed, list) else None
    if not isinstance(found, list):
        raise InvalidInput(f"this is no export of {origin}: a list is expected.")
    return found


def owners(value: object, origin: Origin) -> list[str]:
    """The users whose memories they are, as far as it says so."""
    found = (entry.get("user_id") for entry in entries(value, origin) if isinstance(entry, dict))
    return sorted({one for one in found if isinstance(one, str)}) if origin == "mem0" else []


def notes_of(entry: object, origin: Origin) -> list[Note]:
    """Every value proved. What a conversation's words were is kept; facts are not drawn from them."""
    return [checked(note) for note in _READERS[origin](_object(entry, "an entry"))]


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
    named = _text(entry.get("id"), "id")
    yield _note("mem0", text, named, metadata=metadata, occurred_at=_iso(entry.get("created_at")))


def _chatgpt(entry: Mapping[str, Any]) -> Iterator[Note]:
    session = f"chatgpt-{_text(entry.get('conversation_id', entry.get('id')), 'conversation_id')}"
    title = _title(entry.get("title"))
    for node in _branch(entry):
        message = node.get("message")
        if not isinstance(message, dict):
            continue
        role = _role(_object(message.get("author") or {}, "author").get("role"))
        hidden = _object(message.get("metadata") or {}, "metadata").get("is_visually_hidden_from_conversation")
        text = _said(message.get("content"))
        if role is None or hidden or not text.strip():
            continue
        yield _note(
            "chatgpt",
            text,
            f"{session}\x1f{_text(message.get('id'), 'id')}",
            place=Place(session, role=role),
            metadata=title,
            occurred_at=_seconds(message.get("create_time")),
        )
        title = {}


def _branch(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages that the conversation shows: from its present end back to its beginning."""
    mapping = _object(entry.get("mapping"), "mapping")
    at = entry.get("current_node")
    if at is None:
        at = next((name for name in reversed([*mapping]) if not _object(mapping[name], "a node").get("children")), None)
    found: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while at is not None:
        if not isinstance(at, str) or at not in mapping or at in seen:
            raise InvalidInput(f"the messages of the conversation do not hang together at {at!r:.80}.")
        seen.add(at)
        found.append(_object(mapping[at], "a node"))
        at = found[-1].get("parent")
    return found[::-1]


def _said(content: object) -> str:
    """The words of a message, written or spoken; pictures, files and thoughts are left out."""
    if not isinstance(content, dict) or content.get("content_type") in ("thoughts", "user_editable_context"):
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n".join(filter(None, map(_part, parts)))
    return _words(content.get("text"))


def _part(part: object) -> str:
    if isinstance(part, dict) and part.get("content_type") == "audio_transcription":
        return _words(part.get("text"))
    return _words(part)


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
    for given in messages:
        message = _object(given, "a message")
        role = _role(message.get("sender"))
        text = _blocks(message)
        if role is None or not text.strip():
            continue
        yield _note(
            "claude",
            text,
            f"{session}\x1f{_text(message.get('uuid'), 'uuid')}",
            place=Place(session, role=role),
            metadata=title,
            occurred_at=_iso(message.get("created_at")),
        )
        title = {}


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


def _note(origin: Origin, text: str, named: str, **values: Any) -> Note:
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


def _seconds(value: object) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(f"a time must be seconds since 1970, not {value!r:.80}.")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError) as exc:
        raise InvalidInput(f"a time must be seconds since 1970, not {value!r:.80}.") from exc


_READERS: Mapping[Origin, Callable[[Mapping[str, Any]], Iterator[Note]]] = {
    "mem0": _mem0,
    "chatgpt": _chatgpt,
    "claude": _claude,
}
