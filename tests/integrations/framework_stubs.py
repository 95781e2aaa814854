"""The few classes of frameworks that our readers of stored records use, for runs where a framework is not installed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pydantic
import pytest


def install(patch: pytest.MonkeyPatch, framework: str) -> None:
    """Let `import` find the stubs of a framework, and our adapter anew, until the test ends."""
    ours = f"engrain.integrations.{framework}"
    for name in [name for name in sys.modules if name == ours or name.startswith(f"{ours}.")]:
        patch.delitem(sys.modules, name)
    for name, members in STUBS[framework].items():
        module = ModuleType(name)
        vars(module).update(members)
        patch.setitem(sys.modules, name, module)


def remove_adapter(framework: str) -> None:
    """Drop our modules that were imported with stubs."""
    ours = f"engrain.integrations.{framework}"
    for name in [name for name in sys.modules if name == ours or name.startswith(f"{ours}.")]:
        del sys.modules[name]


class Plain:
    def __init__(self, *args: Any, **named: Any) -> None:
        pass


class ToolError(Exception):
    pass


@dataclass
class Content:
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text}


@dataclass
class Message:
    role: str
    contents: list[Any] = field(default_factory=list)
    message_id: str | None = None

    def __post_init__(self) -> None:
        self.contents = [Content(one) if isinstance(one, str) else one for one in self.contents]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Message:
        return cls(values["role"], [Content(one["text"]) for one in values["contents"]], values.get("message_id"))

    def to_dict(self) -> dict[str, Any]:
        contents = [one.to_dict() for one in self.contents]
        return {"role": self.role, "contents": contents, "message_id": self.message_id}


class Actions(pydantic.BaseModel):
    state_delta: dict[str, Any] = {}


class Event(pydantic.BaseModel):
    author: str
    timestamp: float = 1.0
    partial: bool = False
    actions: Actions = Actions()


class Session(pydantic.BaseModel):
    app_name: str
    user_id: str
    id: str
    state: dict[str, Any]
    events: list[Event] = []
    last_update_time: float


class SessionService:
    async def append_event(self, session: Session, event: Event) -> Event:
        session.events.append(event)
        return event


class Sessions(pydantic.BaseModel):
    sessions: list[Session]


class State:
    APP_PREFIX, USER_PREFIX, TEMP_PREFIX = "app:", "user:", "temp:"


class NoSession(Exception):
    pass


STUBS: dict[str, dict[str, dict[str, Any]]] = {
    "anthropic": {
        "anthropic": {},
        "anthropic.lib": {},
        "anthropic.lib.tools": {
            "ToolError": ToolError, "BetaAbstractMemoryTool": Plain, "BetaAsyncAbstractMemoryTool": Plain,
        },
    },
    "openai_agents": {
        "agents": {},
        "agents.memory": {},
        "agents.memory.session": {"SessionABC": Plain},
        "agents.memory.session_settings": {
            "SessionSettings": Plain, "resolve_session_limit": lambda limit, settings: limit,
        },
    },
    "agent_framework": {
        "agent_framework": {"ContextProvider": Plain, "HistoryProvider": Plain, "Message": Message},
    },
    "google_adk": {
        "google.adk": {},
        "google.adk.sessions": {},
        "google.adk.errors.already_exists_error": {"AlreadyExistsError": ValueError},
        "google.adk.errors.session_not_found_error": {"SessionNotFoundError": NoSession},
        "google.adk.events.event": {"Event": Event},
        "google.adk.memory.base_memory_service": {"BaseMemoryService": Plain, "SearchMemoryResponse": Plain},
        "google.adk.memory.memory_entry": {"MemoryEntry": Plain},
        "google.adk.sessions.base_session_service": {
            "BaseSessionService": SessionService, "GetSessionConfig": Plain, "ListSessionsResponse": Sessions,
        },
        "google.adk.sessions.session": {"Session": Session},
        "google.adk.sessions.state": {"State": State},
        "google.genai": {"types": None},
    },
}  # fmt: skip
