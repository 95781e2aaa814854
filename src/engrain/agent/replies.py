"""Replies of a model on their way into a journal and a log, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from engrain.agent.tools import storable
from engrain.core.chat import Reply, ToolCall
from engrain.core.errors import InvalidInput
from engrain.core.messages import arguments_text

UNNAMED = "unnamed"
LONGEST = 64  # characters of a name and of an id: what services accept


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply, and how many messages the session had when the model was asked."""

    reply: Reply
    seen: int

    @property
    def plain(self) -> dict[str, Any]:
        """As a journal keeps it."""
        said = self.reply
        calls = [
            {"id": c.id, "name": c.name, "arguments": dict(c.arguments), "malformed": c.malformed} for c in said.calls
        ]
        tokens = {"tokens_in": said.tokens_in, "tokens_out": said.tokens_out}
        return {"text": said.text, "calls": calls, "stop": said.stop, "model": said.model, **tokens, "seen": self.seen}


def heard_of(plain: dict[str, Any]) -> Heard:
    values = {name: value for name, value in plain.items() if name not in ("calls", "seen")}
    return Heard(Reply(calls=tuple(ToolCall(**call) for call in plain["calls"]), **values), plain["seen"])


def storable_reply(reply: Reply) -> Reply:
    """The reply with nothing in it that a store or a journal would refuse: it has been paid for."""
    return replace(reply, text=storable(reply.text), calls=tuple(map(_storable_call, reply.calls)))


def _storable_call(call: ToolCall) -> ToolCall:
    known = replace(
        call,
        id=storable(call.id)[:LONGEST],
        name=storable(call.name)[:LONGEST].strip() or UNNAMED,
        malformed=storable(call.malformed),
    )
    try:
        arguments_text(known)
    except InvalidInput:
        written = storable(json.dumps(dict(call.arguments), default=str, ensure_ascii=False))
        return replace(known, arguments={}, malformed=written[:10_000] or "(not JSON)")
    return known
