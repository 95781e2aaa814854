"""The memory of the repository in which a client started its MCP server."""

from __future__ import annotations

import os
import threading

from engrain.connect.home import ConnectHome
from engrain.connect.repository import find_repository, make_scopes
from engrain.connect.service import open_store
from engrain.core.http_routes import RIGHTS, Right
from engrain.mcp.memories import StoreLoader
from engrain.memory import Memory, Store
from engrain.server.voices import Voice


class RepositoryMemory:
    """A memory that also reads the personal wishes of its user."""

    shared = False
    voice: Voice = "user"

    def __init__(self, home: ConnectHome, folder: str | os.PathLike[str], rights: tuple[Right, ...] = RIGHTS) -> None:
        self.rights = rights
        self.loader = StoreLoader(self._open_store)
        self._home = home.prepare()
        self._scope, self._personal = make_scopes(find_repository(folder))
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._memory: Memory | None = None

    def charge(self, items: int, size: int) -> None:
        """The agent has no limits."""

    def open(self) -> Memory:
        self.loader.get_memory(self._scope)  # waits for the store, or raises its error
        with self._lock:
            if self._memory is None:
                assert self._store is not None, "the loader has opened it"
                self._memory = self._store.memory(
                    agent=self._scope.agent, user=self._scope.user, reads=[self._personal]
                )
            return self._memory

    def _open_store(self) -> Store:
        self._store = open_store(self._home)
        return self._store
