"""The memory of the repository in which a client started its MCP server."""

from __future__ import annotations

import os

from engrain.connect.connect_home import ConnectHome, is_off, open_store
from engrain.connect.repository import find_repository, make_scopes
from engrain.core.errors import Conflict
from engrain.core.http_routes import RIGHTS, Right
from engrain.mcp.memories import StoreLoader
from engrain.memory import Memory, Store
from engrain.server.key_trust import Voice
from engrain.server.resident import find


class RepositoryMemory:
    """A memory that also reads the personal wishes of its user: through the resident process while it runs."""

    shared = False
    voice: Voice = "agent"  # the hook keeps what the user said: a model cannot say it for them

    def __init__(self, home: ConnectHome, folder: str | os.PathLike[str], rights: tuple[Right, ...] = RIGHTS) -> None:
        self.rights = rights
        self.loader = StoreLoader(self._open_store, lambda: find(home.store))
        self._home = home.prepare()
        self._scope, self._personal = make_scopes(find_repository(folder))

    def charge(self, items: int, size: int) -> None:
        """The agent has no limits."""

    def open(self) -> Memory:
        """Open the memory for one call of a tool. Conflict while the memory is switched off."""
        if is_off(self._home, self._scope.agent or ""):
            raise Conflict("the memory is switched off here: nothing is kept or shown. `engrain connect on` ends that.")
        return self.loader.get_memory(self._scope, (self._personal,))

    def _open_store(self) -> Store:
        url = find(self._home.store)
        return Store(url) if url else open_store(self._home)
