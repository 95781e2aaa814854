"""Read notes from Letta's agent files, and from episodes, facts and messages of Zep and Graphiti."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import orjson

from engrain.core.errors import InvalidInput
from engrain.core.formats.imported_notes import (
    check_filled,
    check_object,
    clean_text,
    hash_text,
    make_note,
    read_role,
    read_time,
    split_message,
)
from engrain.core.model.items import Note, SessionPosition

ZEP_LISTS = ("episodes", "facts", "edges", "messages")
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
        thinks = any(_list_sent(one) for one in messages)
        found += [
            {"session": session, "number": number, "message": one, "thinks": thinks}
            for number, one in enumerate(messages)
        ]
    return found


def read_letta(entry: Mapping[str, Any]) -> Iterator[Note]:
    """Read a block as the value of the slot `letta.LABEL`, or a message of the user or the agent."""
    if "block" in entry:
        block = check_object(entry["block"], "a block")
        text = clean_text(block.get("value")).strip()
        if text:
            slot = f"letta.{check_filled(block.get('label'), 'label').strip().lower().replace(' ', '_')}"
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
