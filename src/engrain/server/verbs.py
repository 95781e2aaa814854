"""Call the verb of a route on the object that it belongs to: the store, the caller's view, or the server itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from engrain.core.errors import Conflict
from engrain.core.http_routes import Right
from engrain.core.identity import Scope
from engrain.core.model.results import MemoryInfo
from engrain.memory.http_verbs import Verb
from engrain.memory.memory import Memory
from engrain.memory.store import Store
from engrain.server.key_trust import Voice
from engrain.server.keys import SCOPE_PARTS
from engrain.transfer.export import ExportResult


@dataclass(frozen=True)
class Caller:
    """The caller: its key, its rights, and the scope that key and headers name."""

    key: str
    rights: tuple[Right, ...]
    scope: Scope
    chooses: tuple[str, ...] = ()
    reads: tuple[Scope, ...] = ()
    voice: Voice = "user"

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
        return ScopeStatus(found.items, found.counts, found.hold is not None)

    def memories(self) -> list[MemoryInfo]:
        """List the memories that this key may use."""
        may_name = self._target.caller.may_name
        found = self._target.store.memories()
        return [info for info in found if may_name(Scope(info.tenant, info.agent, info.user))]

    def current_session(self) -> str | None:
        """Return the id of the view's default session; null before it begins."""
        return self._target.memory.current_session

    def begin_conversation(self) -> str:
        """Return the id of the view's default session, which begins now if there is none."""
        return self._target.memory.conversation.session

    def events(self) -> None:
        """Stream the changes of this memory as server-sent events. `Last-Event-ID` continues after that change."""


class ServedVerb(Verb):
    """A verb that a request calls on the store, or on the caller's view of it."""

    owners: ClassVar[Mapping[str, type]] = {**Verb.owners, "server": ServerVerbs}

    def call(self, target: Target, arguments: Mapping[str, Any]) -> Any:
        """Call the verb. The session of a conversation is in the arguments under its name."""
        values = dict(arguments)
        owner = self._find_owner(target, values)
        values |= self._read_scope(target.caller.scope)
        found = getattr(owner, self.name)
        return found if self.is_property else found(**values)

    def _read_scope(self, scope: Scope) -> dict[str, Any]:
        """Return the arguments that the scope gives. Without a user, a verb about one would answer for all users."""
        if "user" in self.from_scope and "agent" not in self.from_scope and scope.user is None:
            raise Conflict("this is about one user, and the memory has none: use a key of a user, or Engrain-User.")
        return {part: getattr(scope, part) for part in self.from_scope}

    def _find_owner(self, target: Target, arguments: dict[str, Any]) -> Any:
        if self.part == "server":
            return ServerVerbs(target)
        if self.part == "store":
            return target.store
        if self.part == "conversation":
            return target.memory.session(arguments.pop("session")).conversation
        return getattr(target.memory, self.part) if self.part else target.memory


@contextmanager
def export_to_file(memory: Memory, **options: Any) -> Iterator[tuple[BinaryIO, ExportResult]]:
    """Export a memory to a temporary file that only the server can read, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="engrain-export-") as folder:
        path = Path(folder) / "export"
        exported = memory.export(path, **options)
        with path.open("rb") as file:
            yield file, exported
