"""The memory that a call uses: one of a stdio server, or that of the caller's key over HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engrain.core.errors import EngrainError
from engrain.core.http_routes import RIGHTS, Right
from engrain.core.identity import Scope
from engrain.memory.remote import RemoteStore
from engrain.memory.store import Store, warm_up_embedder
from engrain.server.views import Views

if TYPE_CHECKING:
    from engrain.memory.memory import Memory
    from engrain.server.key_trust import Voice
    from engrain.server.keys import KeyLimits
    from engrain.server.limits import Limiter
    from engrain.server.verbs import Caller

VIEW = "mcp"
READ_ONLY_RIGHTS: tuple[Right, ...] = ("read",)
_log = logging.getLogger("engrain")


class MemorySource(Protocol):
    """The memory of the call in progress, and its rights."""

    shared: bool
    """True if several agents use the memory through this server: none of them may set its default session."""

    @property
    def rights(self) -> tuple[Right, ...]:
        """The rights of the caller."""

    @property
    def voice(self) -> Voice:
        """The voice of the caller: that of the agent keeps no words of the user."""

    def charge(self, items: int, size: int) -> None:
        """Count written items and bytes against the limits of the caller; Problem 429 if they are used up."""

    def open(self) -> Memory:
        """Return the caller's memory. The first call waits until the store is open."""


class StoreLoader:
    """Open a store on a thread of its own, then load its embedder. A failed opening is tried again by the next call."""

    def __init__(self, open_store: Callable[[], Store], is_alive: Callable[[], object] = lambda: True) -> None:
        """`is_alive` tells if the resident process still runs, should `open_store` return a store on it."""
        self._open_store = open_store
        self._is_alive = is_alive
        self._lock = threading.Lock()
        self._opened: Future[Views] | None = None
        self._store: Store | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> Future[Views]:
        """Begin to open the store, unless that was done."""
        with self._lock:
            if self._opened is None:
                self._opened = Future()
                # Not a daemon: a native load that is cut off at exit may crash.
                self._thread = threading.Thread(target=self._load, args=(self._opened,), name="engrain-open")
                self._thread.start()
            return self._opened

    def get_memory(self, scope: Scope, reads: tuple[Scope, ...] = ()) -> Memory:
        """Return the view of a scope as soon as the store is open, or raise the error of opening it."""
        self._leave_ended_process()
        opened = self.start()
        try:
            views = opened.result()
        except EngrainError:
            with self._lock:
                if self._opened is opened:
                    self._opened = None
            raise
        return views.get(scope, VIEW, "recall", reads)

    def _leave_ended_process(self) -> None:
        """Open the store itself if the resident process that had it has ended."""
        if isinstance(self._store, RemoteStore) and not self._is_alive():
            with self._lock:
                self._opened = None

    def close(self) -> None:
        """Close the store, if it was opened."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        if self._store is not None:
            self._store.close()

    def _load(self, opened: Future[Views]) -> None:
        try:
            store = self._store = self._open_store()
        except BaseException as exc:  # noqa: BLE001  # raised by the call that needs the store
            _log.warning("the store does not open: %s", exc)
            opened.set_exception(exc)
            return
        opened.set_result(Views(store))
        if not isinstance(store, RemoteStore):
            warm_up_embedder(store)


class SingleMemory:
    """The memory of one scope, for the one agent of a stdio server."""

    shared = False
    voice: Voice = "user"

    def __init__(self, loader: StoreLoader, scope: Scope, rights: tuple[Right, ...] = RIGHTS) -> None:
        self._loader = loader
        self._scope = scope
        self.rights = rights

    def charge(self, items: int, size: int) -> None:
        """The agent has no limits."""

    def open(self) -> Memory:
        return self._loader.get_memory(self._scope)


@dataclass(frozen=True)
class HttpCall:
    """The caller of an HTTP request, and the limits of its key."""

    caller: Caller
    limits: KeyLimits


class KeyedMemories:
    """The memories that keys are bound to. The transport sets `current` for each message."""

    shared = True

    def __init__(self, loader: StoreLoader, limiter: Limiter, allowed: tuple[Right, ...] = RIGHTS) -> None:
        self._loader = loader
        self._limiter = limiter
        self._allowed = allowed
        self.current: ContextVar[HttpCall] = ContextVar("engrain_mcp_call")

    @property
    def rights(self) -> tuple[Right, ...]:
        return tuple(right for right in self.current.get().caller.rights if right in self._allowed)

    @property
    def voice(self) -> Voice:
        return self.current.get().caller.voice

    def charge(self, items: int, size: int) -> None:
        call = self.current.get()
        self._limiter.charge(call.caller.key, call.limits, items=items, size=size)

    def open(self) -> Memory:
        caller = self.current.get().caller
        return self._loader.get_memory(caller.scope, caller.reads)
