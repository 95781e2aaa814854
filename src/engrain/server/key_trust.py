"""Bound the trust of what a key writes: a key with the agent's voice never speaks for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from engrain.core.model.items import Source
from engrain.server.problems import Problem

Voice = Literal["user", "agent"]
VOICES: tuple[Voice, ...] = get_args(Voice)
_ROLES_OF_OTHERS = ("user", "system", "developer")  # the last is OpenAI's word for system
_KINDS_OF_OTHERS = ("user", "system")
# Verbs whose texts are the user's unless their source says otherwise.
_TAKE_SOURCE = ("remember", "correct", "relations.add", "procedural.learn")


def bound_voice(voice: Voice, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Make the agent the source of what would be the user's word. Problem 403 for a message of the user."""
    if voice == "user":
        return arguments
    roles = [arguments.get("role"), *(one.get("role") for one in arguments.get("messages", ()))]
    if any(role in _ROLES_OF_OTHERS for role in roles) or verb == "conversation.load" or arguments.get("trusted"):
        raise refuse_voice()
    bounded = dict(arguments)
    if verb in _TAKE_SOURCE:
        bounded["source"] = _to_agent(arguments.get("source"))
    if "notes" in arguments:
        bounded["notes"] = [_bound_note(note) for note in arguments["notes"]]
    return bounded


def refuse_voice() -> Problem:
    detail = "this key has the agent's voice: it may not keep words of the user. Send roles assistant and tool."
    return Problem(403, detail, "AccessDenied")


def _to_agent(source: str | Source | None) -> str | Source:
    """A mere name is that of a document, which is trusted less than the agent."""
    if isinstance(source, str):
        return source
    found = source or Source()
    return replace(found, kind="agent") if found.kind in _KINDS_OF_OTHERS else found


def _bound_note(note: str | Mapping[str, Any]) -> dict[str, Any]:
    plain = {"text": note} if isinstance(note, str) else dict(note)
    source = plain.get("source")
    if isinstance(source, str):
        return plain
    named = dict(source or {})
    if named.get("kind", "user") in _KINDS_OF_OTHERS:
        named["kind"] = "agent"
    return {**plain, "source": named}
