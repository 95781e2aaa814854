"""Write the owner of a memory as one part of an address, and read it again."""

from __future__ import annotations

import re

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope

NO_OWNER = "no-owner"
_PARTS = ("tenant", "agent", "user")
_PLAIN = re.compile(r"[A-Za-z0-9_.@-]")
_ESCAPED = re.compile(r"((?:~[0-9a-f]{2})+)")


def write_owner(scope: Scope) -> str:
    """Return "user=ana" or "tenant=acme,user=ana". A server decodes %2F before it routes, so other bytes become ~2f."""
    named = [(part, getattr(scope, part)) for part in _PARTS]
    return ",".join(f"{part}={_escape(name)}" for part, name in named if name is not None) or NO_OWNER


def read_owner(text: str) -> Scope:
    """Return the scope. InvalidInput if `write_owner` never wrote this text."""
    values: dict[str, str] = {}
    for pair in [] if text == NO_OWNER else text.split(","):
        part, _, name = pair.partition("=")
        values[part] = _unescape(name)
    if not set(values) <= set(_PARTS) or write_owner(scope := Scope(**values)) != text:
        raise InvalidInput(f"{text!r} names no memory.")
    return scope


def _escape(name: str) -> str:
    return "".join(
        part if _PLAIN.fullmatch(part) else "".join(f"~{byte:02x}" for byte in part.encode()) for part in name
    )


def _unescape(text: str) -> str:
    try:
        return _ESCAPED.sub(lambda found: bytes.fromhex(found[1].replace("~", "")).decode(), text)
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{text!r} names no memory.") from exc
