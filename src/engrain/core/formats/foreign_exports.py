"""Read notes from the exports of mem0, ChatGPT, Claude, Letta, Zep and Graphiti."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Note, Relation, SessionPosition, Source, check_note
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


ZEP_LISTS = ("episodes", "facts", "edges", "messages")
_NO_SLOT = re.compile(r"[^\w.-]")  # a mark that no slot has
# What MemGPT tells an agent in the user's place.
_EVENTS = ("login", "heartbeat", "system_alert")
_ZEP_BODIES = ("content", "episode_body", "body")


def detect_agent_export(value: object) -> Literal["letta", "zep"] | None:
    """Tell by its keys if a JSON document comes from Letta, Zep or Graphiti."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict):
        return None
    has_blocks = isinstance(first.get("blocks"), list) or isinstance(first.get("core_memory"), list)
    if has_blocks and ("agents" in first or "messages" in first):
        return "letta"
    if isinstance(first.get("episodes"), list) or isinstance(first.get("edges"), list):
        return "zep"
    return "zep" if _is_zep_entry(first) else None


def _is_zep_entry(entry: Mapping[str, Any]) -> bool:
    described = "episode_body" in entry or ("content" in entry and "source_description" in entry)
    return described or ("fact" in entry and ("valid_at" in entry or "uuid" in entry))


def list_letta(value: object) -> list[object]:
    """List the memory blocks and the messages of every agent of a file."""
    document = check_object(value, "an agent file")
    blocks = document.get("blocks") or document.get("core_memory") or []
    agents = document.get("agents") or [document]
    if not isinstance(blocks, list) or not isinstance(agents, list):
        raise InvalidInput("this is not an agent file of Letta: blocks and agents must be lists.")
    found: list[object] = [{"block": block} for block in blocks]
    for agent in agents:
        named = check_object(agent, "an agent")
        messages = named.get("messages") or []
        if not isinstance(messages, list):
            raise InvalidInput("the messages of an agent must be a list.")
        # Each file counts its agents from 0: the name tells one agent from another.
        session = f"letta-{named.get('name') or named.get('id') or 'agent'}"
        thinks = any(_list_sent(message) for message in messages)
        found += [
            {"session": session, "number": number, "message": message, "thinks": thinks}
            for number, message in enumerate(messages)
        ]
    return found


def read_letta(entry: Mapping[str, Any]) -> Iterator[Note]:
    """Read a block as the value of the slot `letta.LABEL`, or a message of the user or the agent."""
    if "block" in entry:
        block = check_object(entry["block"], "a block")
        text = clean_text(block.get("value")).strip()
        if text:
            slot = f"letta.{_NO_SLOT.sub('_', check_filled(block.get('label'), 'label').strip().lower())}"
            at = read_time(block.get("updated_at") or block.get("created_at"))
            yield make_note("letta", text, f"{slot}\x1f{hash_text(text)}", slot=slot, occurred_at=at)
        return
    message = check_object(entry["message"], "a message")
    role, text = read_role(message.get("role")), _join_content(message.get("content", message.get("text")))
    if role == "assistant" and entry["thinks"]:
        text = "\n".join(_list_sent(message))
    elif role == "user":
        text = _unwrap_event(text)
    if role in ("user", "assistant") and text.strip():
        # Each file counts its messages from 0 as well.
        named = message.get("created_at") or entry["number"]
        yield from split_message(
            "letta",
            text,
            f"{entry['session']}\x1f{named}\x1f{hash_text(text)}",
            position=SessionPosition(str(entry["session"]), role=role),
            occurred_at=read_time(message.get("created_at")),
        )


def _list_sent(message: object) -> list[str]:
    """List what an agent said by calls of `send_message`. The other words of such an agent are thoughts."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    sent = (
        _parse_object(function.get("arguments")).get("message")
        for function in functions
        if isinstance(function, dict) and function.get("name") == "send_message"
    )
    return list(filter(None, map(clean_text, sent)))


def _unwrap_event(text: str) -> str:
    """Return the user's words out of an event of MemGPT; of one without words, such as a login, nothing."""
    event = _parse_object(text)
    if event.get("type") == "user_message":
        return clean_text(event.get("message"))
    return "" if event.get("type") in _EVENTS and "time" in event else text


def _parse_object(text: object) -> Mapping[str, Any]:
    try:
        value = orjson.loads(text) if isinstance(text, str) and text.lstrip().startswith("{") else None
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def list_zep(value: object) -> list[object]:
    """List the episodes, facts and messages of an export. A document has them under these names, or is one list."""
    if isinstance(value, dict):
        lists = [value[name] for name in ZEP_LISTS if isinstance(value.get(name), list)]
        return [entry for listed in lists for entry in listed] or [value]
    if not isinstance(value, list):
        raise InvalidInput("this is not an export of Zep or Graphiti: it must be a list, or an object with episodes.")
    return value


def read_zep(entry: Mapping[str, Any]) -> Iterator[Note]:
    """Read a fact with its time, a message of a conversation, or the text of an episode."""
    if "fact" in entry:
        text = check_filled(entry["fact"], "fact")
        if entry.get("invalid_at") or entry.get("expired_at"):
            return  # it no longer holds
        at = read_time(entry.get("valid_at") or entry.get("created_at"))
        yield make_note("zep", text, str(entry.get("uuid") or hash_text(text)), occurred_at=at)
        return
    text = clean_text(next((entry[name] for name in _ZEP_BODIES if entry.get(name)), "")).strip()
    if not text:
        return
    at = read_time(entry.get("valid_at") or entry.get("reference_time") or entry.get("created_at"))
    named = str(entry.get("uuid") or entry.get("name") or hash_text(text))
    role = read_role(entry.get("role_type") or entry.get("role"))
    session = entry.get("thread_id") or entry.get("session_id") or entry.get("group_id")
    position = SessionPosition(f"zep-{session}", role=role or "user") if session and role else None
    yield from split_message("zep", text, named, position=position, occurred_at=at)


def _join_content(content: object) -> str:
    if not isinstance(content, list):
        return clean_text(content)
    parts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "\n".join(filter(None, map(clean_text, parts)))


ExportOrigin = Literal["mem0", "chatgpt", "claude", "letta", "zep"]
# Fields of a mem0 memory that become metadata.
MEM0_METADATA = ("categories", "user_id", "agent_id", "app_id", "run_id", "actor_id", "role", "updated_at")
# Metadata key of an attached text: the name of its file.
ATTACHMENT_KEY = "attachment"
# ChatGPT draws something in the place of such a mark. Only an entity's name is text.
_CHATGPT_MARK = re.compile("\ue200([^\ue200\ue201]*)\ue201")
CLAUDE_ROOT = "00000000-0000-4000-8000-000000000000"  # the parent of a conversation's first message
_HIDDEN_CONTENT = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


def detect_origin(value: object) -> ExportOrigin | None:
    """Tell whose export a JSON document is, by its keys."""
    agent = detect_agent_export(value)
    if agent is not None:
        return agent
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
    if origin in ("letta", "zep"):
        return list_letta(value) if origin == "letta" else list_zep(value)
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
    return [check_note(note) for note in _READERS[origin](check_object(entry, "an entry"))]


def _read_mem0(entry: Mapping[str, Any]) -> Iterator[Note]:
    if "relationship" in entry or "relation" in entry:
        verb = check_filled(entry.get("relationship", entry.get("relation")), "relationship")
        subject = check_filled(entry.get("source"), "source")
        object = check_filled(entry.get("target", entry.get("destination")), "target")
        relation = Relation(subject, verb, object)
        yield make_note("mem0", f"{subject} {verb} {object}", f"{subject}\x1f{verb}\x1f{object}", relation=relation)
        return
    text = check_filled(entry.get("memory", entry.get("text")), "memory")
    own = check_object(entry.get("metadata") or {}, "metadata")
    metadata = {**{name: entry[name] for name in MEM0_METADATA if entry.get(name)}, **own}
    if entry.get("role") == "assistant":
        metadata.pop("user_id", None)  # said to the user, not about them
    named = entry.get("id")
    # An export job leaves out fields that it was not asked for.
    named = hash_text(text) if named is None else check_filled(named, "id")
    yield make_note("mem0", text, named, metadata=metadata, occurred_at=read_time(entry.get("created_at")))


def _read_chatgpt(entry: Mapping[str, Any]) -> Iterator[Note]:
    session = f"chatgpt-{check_filled(entry.get('conversation_id') or entry.get('id'), 'conversation_id')}"
    title = title_metadata(entry.get("title"))
    for name, node in _current_branch(entry):
        message = node.get("message")
        if not isinstance(message, dict):
            continue
        beside = check_object(message.get("metadata") or {}, "metadata")
        yield from _read_instructions(beside.get("user_context_message_data"), read_time(entry.get("create_time")))
        role = read_role(check_object(message.get("author") or {}, "author").get("role"))
        text = _read_content(message.get("content"))
        if role is None or beside.get("is_visually_hidden_from_conversation") or not text.strip():
            continue
        yield from split_message(
            "chatgpt",
            text,
            f"{session}\x1f{check_filled(message.get('id') or name, 'id')}",
            position=SessionPosition(session, role=role),
            metadata=title,
            occurred_at=read_time(message.get("create_time")),
        )
        title = {}


def _read_instructions(context: object, at: str | datetime | None) -> Iterator[Note]:
    """Read the user's custom instructions. Every conversation has a copy."""
    for name in ("about_user", "about_model"):
        text = clean_text(context.get(f"{name}_message")).strip() if isinstance(context, dict) else ""
        if text:
            slot = f"chatgpt.{name}"
            yield make_note("chatgpt", text, f"{slot}\x1f{hash_text(text)}", slot=slot, occurred_at=at)


def _current_branch(entry: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the visible messages with their names, found from the current end back to the beginning."""
    mapping = check_object(entry.get("mapping"), "mapping")
    at = entry.get("current_node")
    if at is None:
        at = next(
            (name for name in reversed([*mapping]) if not check_object(mapping[name], "a node").get("children")), None
        )
    found: dict[str, Mapping[str, Any]] = {}
    while at is not None:
        if not isinstance(at, str) or at not in mapping or at in found:
            raise InvalidInput(f"the messages of the conversation are not connected at {at!r:.80}.")
        found[at] = check_object(mapping[at], "a node")
        at = found[at].get("parent")
    return [*found.items()][::-1]


def _read_content(content: object) -> str:
    """Return the written or spoken words of a message, without pictures, files and thoughts."""
    if not isinstance(content, dict) or content.get("content_type") in _HIDDEN_CONTENT:
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        texts = (clean_text(part.get("text") if isinstance(part, dict) else part) for part in parts)
        return "\n".join(filter(None, (_CHATGPT_MARK.sub(_replace_mark, text) for text in texts)))
    return clean_text(content.get("text")) or clean_text(content.get("result"))


def _replace_mark(mark: re.Match[str]) -> str:
    """Replace an entity mark by the entity's name. Citation marks are dropped."""
    kind, _, data = mark[1].partition("\ue202")
    try:
        entity = json.loads(data) if kind == "entity" else None
    except (ValueError, RecursionError):
        entity = None
    return str(entity[1]) if isinstance(entity, list) and len(entity) > 1 else ""


def _read_claude(entry: Mapping[str, Any]) -> Iterator[Note]:
    if "conversations_memory" in entry:
        yield from _read_claude_memory(entry)
        return
    session = f"claude-{check_filled(entry.get('uuid'), 'uuid')}"
    title = title_metadata(entry.get("name"))
    messages = entry.get("chat_messages")
    if not isinstance(messages, list):
        raise InvalidInput("chat_messages must be a list.")
    for message in _current_messages(
        [check_object(message, "a message") for message in messages], entry.get("current_leaf_message_uuid")
    ):
        role = read_role(message.get("sender"))
        if role is None:
            continue
        named = f"{session}\x1f{check_filled(message.get('uuid'), 'uuid')}"
        at = read_time(message.get("created_at"))
        position = SessionPosition(session, role=role)
        attached = [
            (f"{named}\x1fattachment {number}", *attachment)
            for number, attachment in enumerate(_read_attachments(message), 1)
        ]
        for name, text, beside in [*attached, (named, _join_blocks(message), {})]:
            if text.strip():
                yield from split_message(
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
        if isinstance(attachment, dict) and (text := clean_text(attachment.get("extracted_content"))):
            yield text, {ATTACHMENT_KEY: clean_text(attachment.get("file_name"))[:MAX_TITLE_CHARACTERS] or "pasted"}


def _read_claude_memory(entry: Mapping[str, Any]) -> Iterator[Note]:
    """Read Claude's own notes about the user and each project."""
    notes = {"claude.memory": entry.get("conversations_memory")}
    notes |= {
        f"claude.memory.{id}": text for id, text in check_object(entry.get("project_memories") or {}, "memory").items()
    }
    for slot, content in notes.items():
        if text := clean_text(content).strip():
            yield make_note("claude", text, slot, slot=slot)


def _join_blocks(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [clean_text(block.get("text")) for block in blocks if block.get("type") == "text"]
    return "\n".join(filter(None, texts)) or clean_text(message.get("text"))


_READERS: Mapping[ExportOrigin, Callable[[Mapping[str, Any]], Iterator[Note]]] = {
    "mem0": _read_mem0,
    "chatgpt": _read_chatgpt,
    "claude": _read_claude,
    "letta": read_letta,
    "zep": read_zep,
}
