"""Whose memory the data of a framework belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engrain.core.errors import InvalidInput
from engrain.core.model.records import RecordKey
from engrain.memory.async_memory import AsyncMemory, AsyncStore
from engrain.memory.memory import Memory
from engrain.memory.store import Store

AnyMemory = Memory | AsyncMemory
AnyStore = Store | AsyncStore
UserOf = Callable[[Any], str | None]  # the user of a config, or of whatever else the framework passes


def open_memory(memory: AnyMemory) -> Memory:
    """Return the memory whose verbs an adapter calls, by itself on threads: that of an AsyncMemory is opened."""
    opened = memory.opened() if isinstance(memory, AsyncMemory) else memory
    if not isinstance(opened, Memory):
        raise InvalidInput(f"give a Memory, such as store.memory(user='ana'), not {type(memory).__name__}.")
    return opened


def open_store(store: AnyStore) -> Store:
    opened = store.opened() if isinstance(store, AsyncStore) else store
    if not isinstance(opened, Store):
        raise InvalidInput(f"give a Store, such as Store('agent.db'), not {type(store).__name__}.")
    return opened


class Owners:
    """One memory, or that of each user of a store."""

    def __init__(
        self,
        memory: AnyMemory | AnyStore,
        user_of: UserOf | None,
        tenant: str | None = None,
        agent: str | None = None,
    ) -> None:
        self._memory = open_store(memory) if isinstance(memory, (Store, AsyncStore)) else open_memory(memory)
        if isinstance(self._memory, Store) and user_of is None:
            raise InvalidInput("with a Store give user_of=, such as lambda config: config['configurable']['user_id'].")
        if isinstance(self._memory, Memory) and (user_of or tenant or agent):
            raise InvalidInput("user_of, tenant and agent belong to a Store. A Memory has them already.")
        self._user_of, self._tenant, self._agent = user_of, tenant, agent

    def find(self, what: Any) -> Memory:
        """Return the memory of the user that `user_of` finds. InvalidInput if it finds none."""
        if isinstance(self._memory, Memory):
            return self._memory
        user = self.find_user(what)
        if not user:
            raise _no_user_error(what)
        return self._memory.memory(user=user, agent=self._agent, tenant=self._tenant)

    def find_user(self, what: Any) -> str | None:
        try:
            return self._user_of(what) if self._user_of else None
        except LookupError as exc:  # a config or a namespace without the user
            raise _no_user_error(what) from exc

    def list_all(self, space: str, *prefixes: RecordKey) -> list[Memory]:
        """Return the memories of everybody who has records under one of these prefixes."""
        if isinstance(self._memory, Memory):
            return [self._memory]
        store = self._memory
        found = [scope for one in prefixes for scope in store.find_records(space, one, tenant=self._tenant)]
        own = [scope for scope in dict.fromkeys(found) if scope.agent == self._agent]
        return [store.memory(user=scope.user, agent=scope.agent, tenant=scope.tenant) for scope in own]


def _no_user_error(what: Any) -> InvalidInput:
    return InvalidInput(f"user_of found no user in {str(what)[:200]}. Pass the user with every call.")
