"""The verbs behind the routes: find each one's function, its parameters and the object that it is called on."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, BinaryIO

import engrain
from engrain.core.errors import Conflict
from engrain.core.http_routes import Right, Route
from engrain.core.identity import Scope
from engrain.core.model.results import MemoryInfo
from engrain.memory.memory import Memory
from engrain.memory.store import Store
from engrain.server.keys import SCOPE_PARTS
from engrain.tasks.admin import Tasks
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.scoped_working import ScopedWorkingMemory
from engrain.tiers.semantic import Relations, SemanticMemory, Slots
from engrain.tiers.sessions import Sessions

PARTS: Mapping[str, type] = {
    "slots": Slots,
    "relations": Relations,
    "working": ScopedWorkingMemory,
    "conversation": ConversationMemory,
    "episodic": EpisodicMemory,
    "semantic": SemanticMemory,
    "procedural": ProceduralMemory,
    "sessions": Sessions,
    "tasks": Tasks,
    "store": Store,
}
# Parameters that a request cannot give: a callback, and the id that the header has.
_NOT_ON_THE_WIRE = ("self", "progress", "request_id")


@dataclass(frozen=True)
class Caller:
    """The caller: its key, its rights, and the scope that key and headers name."""

    key: str
    rights: tuple[Right, ...]
    scope: Scope
    chooses: tuple[str, ...] = ()

    @property
    def whole_store(self) -> bool:
        return set(self.chooses) == set(SCOPE_PARTS)

    def may_name(self, scope: Scope) -> bool:
        """Tell if the caller's key could name this scope."""
        return all(part in self.chooses or getattr(scope, part) == getattr(self.scope, part) for part in SCOPE_PARTS)


@dataclass(frozen=True)
class Target:
    """The objects that a verb may be called on: the store, and the caller's view of it."""

    store: Store
    memory: Memory
    caller: Caller


@dataclass(frozen=True)
class ScopeInfo:
    """The memory that a request uses, and what its key may do there."""

    tenant: str | None
    agent: str | None
    user: str | None
    rights: tuple[str, ...]
    chooses: tuple[str, ...]


@dataclass(frozen=True)
class ScopeStatus:
    """The size of one memory: current items, and sessions, episodes, procedures and tasks up to 1,000 each."""

    items: int
    counts: Mapping[str, int | None]
    on_hold: bool


class ServerVerbs:
    """Verbs that only the server has."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def scope(self) -> ScopeInfo:
        """Return the memory that this request uses, and the rights of its key."""
        caller, scope = self._target.caller, self._target.caller.scope
        return ScopeInfo(scope.tenant, scope.agent, scope.user, caller.rights, caller.chooses)

    def status(self) -> ScopeStatus:
        """Return the number of items, sessions, episodes, procedures and tasks of this memory."""
        found = self._target.store.status(self._target.caller.scope)
        return ScopeStatus(found.items, found.holds, found.hold is not None)

    def memories(self) -> list[MemoryInfo]:
        """List the memories that this key may use."""
        may_name = self._target.caller.may_name
        found = self._target.store.memories()
        return [one for one in found if may_name(Scope(one.tenant, one.agent, one.user))]

    def current_session(self) -> str | None:
        """Return the id of the view's default session; null before it begins."""
        return self._target.memory.current_session

    def begin_conversation(self) -> str:
        """Return the id of the view's default session, which begins now if there is none."""
        return self._target.memory.conversation.session

    def events(self) -> None:
        """Stream the changes of this memory as server-sent events. `Last-Event-ID` continues after that change."""


class Verb:
    """The function of a route and its parameters."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._part, _, self.name = route.verb.rpartition(".")
        owner = ServerVerbs if self._part == "server" else PARTS[self._part] if self._part else Memory
        found: Any = inspect.getattr_static(owner, self.name)
        self.is_property = isinstance(found, property)
        self.function: Callable[..., Any] = found.fget if self.is_property else found

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters that a request gives, by name: all but those of the path."""
        in_path = {self.route.renamed.get(name, name) for name in self.route.path_names}
        hidden = {*in_path, *_NOT_ON_THE_WIRE, *self.route.without, *self.from_scope}
        return {name: one for name, one in self._signature.items() if name not in hidden}

    @cached_property
    def from_scope(self) -> tuple[str, ...]:
        """The parameters that the caller's scope gives: those of a verb of the store about one owner."""
        if self._part != "store" or self.route.whole_store:
            return ()
        return tuple(part for part in SCOPE_PARTS if part in self._signature)

    @property
    def takes_request_id(self) -> bool:
        return "request_id" in self._signature

    @cached_property
    def path_parameters(self) -> Mapping[str, str]:
        """The verb's parameter for each value in the path; "" for the session that a conversation is of."""
        renamed = {name: self.route.renamed.get(name, name) for name in self.route.path_names}
        return {name: one if one in self._signature else "" for name, one in renamed.items()}

    @cached_property
    def returns(self) -> Any:
        """The type of the value, for the schema of the answer."""
        module = vars(inspect.getmodule(inspect.unwrap(self.function)))
        names, found = load_public_names(), inspect.get_annotations(self.function).get("return")
        return eval(found, {**names, **module}) if isinstance(found, str) else found  # our own source

    def call(self, target: Target, arguments: Mapping[str, Any]) -> Any:
        """Call the verb. The session of a conversation is in the arguments under its name."""
        given = dict(arguments)
        owner = self._find_owner(target, given)
        given |= self._read_scope(target.caller.scope)
        found = getattr(owner, self.name)
        return found if self.is_property else found(**given)

    def _read_scope(self, scope: Scope) -> dict[str, Any]:
        """Return the arguments that the scope gives. Without a user, a verb about one would answer for all users."""
        if "user" in self.from_scope and "agent" not in self.from_scope and scope.user is None:
            raise Conflict("this is about one user, and the memory has none: use a key of a user, or Engrain-User.")
        return {part: getattr(scope, part) for part in self.from_scope}

    def _find_owner(self, target: Target, arguments: dict[str, Any]) -> Any:
        if self._part == "server":
            return ServerVerbs(target)
        if self._part == "store":
            return target.store
        if self._part == "conversation":
            return target.memory.session(arguments.pop("session")).conversation
        return getattr(target.memory, self._part) if self._part else target.memory

    @cached_property
    def _signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters


@cache
def load_public_names() -> dict[str, Any]:
    """Return every public name, by which annotations name a type that their module imports for checking only."""
    return {name: getattr(engrain, name) for name in dir(engrain)}


@contextmanager
def export_to_file(memory: Memory, **options: Any) -> Iterator[BinaryIO]:
    """Export a memory to a temporary file that only the server can read, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="engrain-export-") as folder:
        path = Path(folder) / "export"
        memory.export(path, **options)
        with path.open("rb") as file:
            yield file
