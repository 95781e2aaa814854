"""The store, the memory and its parts on a server: the same classes, whose verbs are HTTP requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Self

import orjson

from engrain.client.connection import Connection
from engrain.client.values import from_wire, to_query
from engrain.config import Settings
from engrain.core.clock import system_clock
from engrain.core.errors import ConfigError, InvalidInput
from engrain.core.http_routes import EXPORT_HEADER
from engrain.core.identity import Scope
from engrain.core.model.items import Item, Note
from engrain.core.model.messages import Message, MessageResult
from engrain.core.model.plans import Change, Outcome
from engrain.core.model.results import MemoryInfo
from engrain.core.validation import check_key
from engrain.memory.foreign_verbs import answer_other_names, make_attribute_error
from engrain.memory.http_verbs import PARTS, Channel, Verb, find_route, make_headers, serve_verbs
from engrain.memory.memory import Memory
from engrain.memory.session_handle import Session
from engrain.memory.store import Store
from engrain.memory.transfer import open_input, open_output
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.scoped_working import ScopedWorkingMemory
from engrain.tiers.semantic import SemanticMemory, require_id
from engrain.tiers.session_lifecycle import new_session
from engrain.tiers.working import WorkingMemory

if TYPE_CHECKING:
    from engrain.core.model.results import Explanation, ForgetResult, Progress
    from engrain.privacy.receipts import Receipt, VerificationResult
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadResult

CHUNK = 1 << 16
_LOAD_TYPE = "application/octet-stream"


class _OnServer:
    """The verbs of one object on a server. Code that needs the ports of an opened store gets an error."""

    channel: Channel
    path_values: Mapping[str, str] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name == "_services":
                raise ConfigError("this needs the opened store, and this memory is on a server: use Store(PATH) there.")
            raise make_attribute_error(self, name)


@answer_other_names
@serve_verbs("store")
class RemoteStore(_OnServer, Store):
    """A store on a server. `memory` makes views, and each verb of an operator needs a key with the right for it."""

    services = workers = property(lambda self: self._services, doc="Internal: only an opened store has it.")

    @classmethod
    def connect(cls, connection: Connection) -> Self:
        """Return the store that a connection leads to."""
        made = cls.__new__(cls)
        made.attach(connection)
        return made

    def attach(self, connection: Connection) -> None:
        """Internal: use this connection."""
        self._location = connection.url
        self.channel = Channel(connection)

    def memories(self) -> list[MemoryInfo]:
        """List the memories that the key may use."""
        return self.channel.ask("server.memories", list[MemoryInfo])  # type: ignore[no-any-return]

    def erase(self, *, user: str, tenant: str | None = None, **options: Any) -> Any:
        """Erase everything of a user, as Store.erase. Files of `folders` are not on the server."""
        return self.memory(user=check_key(user, "user"), tenant=tenant).erase(**options)

    def verify_erasure(self, receipt: Receipt | str | bytes, **options: Any) -> VerificationResult:
        """Verify an erasure, as Store.verify_erasure."""
        text = receipt.decode() if isinstance(receipt, bytes) else str(receipt)
        return self.channel.call([Verb(find_route("store.verify_erasure"))], (text,), options)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the connections. The server and its store stay open."""
        self.channel.connection.close()


def attach_store(store: Store, settings: Settings, refused: Mapping[str, object]) -> None:
    """Make a store one on the server that the settings name."""
    if unusable := [name for name, value in refused.items() if value]:
        raise InvalidInput(f"{unusable[0]} belongs to the server that has the store: leave it out.")
    # One class would have to be two: the caller's `Memory(URL)` and `Store(URL)` keep their type.
    store.__class__ = RemoteStore
    assert isinstance(store, RemoteStore)
    store.attach(Connection(settings.store, settings.api_key or None, settings.timeout, settings.retries))


class RemotePart(_OnServer):
    """A part of a memory on a server."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory
        self.channel = memory.channel


def _read_snapshot(name: str) -> property:
    return property(lambda self: getattr(WorkingMemory.from_snapshot(self.snapshot()), name))


@serve_verbs("working")
class RemoteWorking(RemotePart, ScopedWorkingMemory):
    """The working memory of a view on a server."""

    task, task_id, goal, subgoals, results, scratchpad, variables, items, summary = map(
        _read_snapshot,
        ("task", "task_id", "goal", "subgoals", "results", "scratchpad", "variables", "items", "summary"),
    )

    def get_variable(self, name: str, default: Any = None) -> Any:
        """Return a variable, or the default."""
        return self.variables.get(check_key(name, "name"), default)

    def version_of(self, procedure: str | None) -> str | None:
        """Return the id of the procedure's current version; NotFound if there is none."""
        return self._memory.procedural.require(procedure).id if procedure else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkingMemory) and self.snapshot() == other.snapshot()

    __hash__ = None  # type: ignore[assignment]


@serve_verbs("semantic")
class RemoteSemantic(RemotePart, SemanticMemory):
    """The knowledge of a memory on a server. Its verbs are those of the memory, with other arguments."""

    def remember(self, note: Note, request_id: str | None = None) -> str:
        return require_id(self._memory.remember_many([note], request_id=request_id)[0])

    def remember_many(
        self, notes: Iterable[Any], request_id: str | None = None, progress: Progress | None = None
    ) -> list[Outcome]:
        return self._memory.remember_many(notes, request_id=request_id, progress=progress)

    def get(self, id: str) -> Item | None:
        return self._memory.get(id)

    def list(self, *args: Any, **options: Any) -> list[Item]:
        return self._memory.list(*args, **options)

    def correct(self, id: str, note: Note, request_id: str | None = None) -> str:
        return self._memory.correct(id, note.text, source=note.source, request_id=request_id)

    def change(self, change: Change, request_id: str | None = None) -> None:
        values = {name: getattr(change, name) for name in ("importance", "pinned", "metadata", "expires_at")}
        self._memory.update(change.id, **values, request_id=request_id)

    def forget(self, what: str | Mapping[str, Any], **options: Any) -> ForgetResult:
        return self._memory.forget(what, **options)

    def explain(self, id: str) -> Explanation:
        return self._memory.explain(id)


@serve_verbs("conversation")
class RemoteConversation(RemotePart, ConversationMemory):
    """The messages of one session on a server."""

    def __init__(self, memory: RemoteMemory, session: str) -> None:
        super().__init__(memory)
        self.session = check_key(session, "session")
        self.path_values = {"session": self.session}

    def last(self, n: int) -> list[Message]:
        return self._memory.sessions.messages(self.session, n)  # type: ignore[no-any-return]


class RemoteSession(Session):
    """One session on a server."""

    def __init__(self, memory: RemoteMemory, id: str) -> None:
        self._memory = memory
        self.id = check_key(id, "session")
        self.conversation = RemoteConversation(memory, self.id)
        self._sessions = memory.sessions
        self._start = None

    def _record(self, messages: Sequence[Any], expect: int | None, request_id: str | None) -> list[MessageResult]:
        return self._memory.add_messages(messages, session=self.id, expect=expect, request_id=request_id)


def _part(name: str, make: Callable[[RemoteMemory], Any] | None = None) -> Any:
    """The property for the part of this name. By default all of its verbs are those of the route table."""
    made = make or serve_verbs(name)(type(f"Remote{PARTS[name].__name__}", (RemotePart, PARTS[name]), {}))
    return property(lambda self: self._get_part(name, lambda: made(self)), doc=getattr(Memory, name).__doc__)


@answer_other_names
@serve_verbs("")
class RemoteMemory(_OnServer, Memory):
    """A memory on a server. `progress` is never called, and a default session and working memory live on the server."""

    slots = _part("slots")
    relations = _part("relations")
    working = _part("working", RemoteWorking)
    episodic = _part("episodic")
    semantic = _part("semantic", RemoteSemantic)
    procedural = _part("procedural")
    sessions = _part("sessions")
    tasks = _part("tasks")
    close = Memory.close

    def join(self, store: RemoteStore) -> None:
        """Internal: speak for this scope. The server keeps a default session and a working memory for each object."""
        headers = make_headers(self._scope, self._reads, f"client-{token_hex(8)}")
        self.channel = Channel(store.channel.connection, headers)

    @cached_property
    def scope(self) -> Scope:
        """The owner of this memory: that of the key, if the program names none."""
        return self.channel.ask("server.scope", Scope)  # type: ignore[no-any-return]

    @property
    def current_session(self) -> str | None:
        """The id of the default session; None before it begins."""
        return self.channel.ask("server.current_session", str | None)  # type: ignore[no-any-return]

    @property
    def conversation(self) -> RemoteConversation:
        """The messages of the default session, which begins now if there is none."""
        return RemoteConversation(self, self.channel.ask("server.begin_conversation", str))

    def session(self, id: str | None = None) -> RemoteSession:
        """Open a new session or continue one. Several may be open at once; none becomes the default one."""
        return RemoteSession(self, new_session(system_clock()) if id is None else id)

    def export(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None, **options: Any
    ) -> ExportResult:
        """Write this memory to a file of this machine, as Memory.export."""
        from engrain.transfer.export import ExportResult

        request = self.channel.make_request(find_route("export"), options)
        with open_output(path, overwrite) as out, self.channel.connection.stream(request) as answer:
            for part in answer.parts:
                out.write(part)
            found = answer.headers.get(EXPORT_HEADER)
        return ExportResult() if found is None else from_wire(ExportResult, orjson.loads(found))

    def load(
        self, path: str | os.PathLike[str] | BinaryIO, *, progress: Progress | None = None, **options: Any
    ) -> LoadResult:
        """Load a file of this machine, as Memory.load."""
        from engrain.transfer.load import LoadResult
        from engrain.transfer.readers import detect_by_name

        route = find_route("load")
        with open_input(path) as file:
            if isinstance(file, str):
                raise InvalidInput("a database is loaded where the store is opened, not through a server.")
            by_name = detect_by_name(file)
            if by_name is not None:
                options = {"format": by_name, **{name: value for name, value in options.items() if value is not None}}
            request = replace(
                self.channel.make_request(route, {}),
                query=to_query(options),
                body=iter(lambda: file.read(CHUNK), b""),
                body_type=_LOAD_TYPE,
            )
            body = self.channel.connection.send(request)
        return from_wire(LoadResult, orjson.loads(body or b"{}"))  # type: ignore[no-any-return]
