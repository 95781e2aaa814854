"""Whose memory a thread of LangGraph belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.records import RecordKey
from engrain.memory.memory import Memory
from engrain.memory.store import Store
from engrain.tiers.records import ScopedRecords

UserOf = Callable[[Any], str | None]  # the user of a RunnableConfig


class Owners:
    """The records of one memory, or those of each user of a store."""

    def __init__(
        self, memory: Memory | Store, user_of: UserOf | None, tenant: str | None = None, agent: str | None = None
    ) -> None:
        if isinstance(memory, Store) and user_of is None:
            raise InvalidInput("with a Store give user_of=, such as lambda config: config['configurable']['user_id'].")
        if isinstance(memory, Memory) and (user_of or tenant or agent):
            raise InvalidInput("user_of, tenant and agent belong to a Store. A Memory has them already.")
        self._memory, self._user_of = memory, user_of
        self._tenant, self._agent = tenant, agent

    def find(self, config: Any) -> ScopedRecords:
        """Return the records of the user of a config."""
        if isinstance(self._memory, Memory):
            return self._memory.records
        user = self._user_of(config) if self._user_of else None
        if not user:
            raise InvalidInput("user_of found no user in this config. Pass it with every call, such as get_state.")
        return self._open(Scope(self._tenant, self._agent, user))

    def list_all(self, space: str, *prefixes: RecordKey) -> Iterable[ScopedRecords]:
        """Return the records of everybody who has some under one of these prefixes."""
        if isinstance(self._memory, Memory):
            return [self._memory.records]
        found = [scope for one in prefixes for scope in self._memory.find_records(space, one, tenant=self._tenant)]
        return [self._open(scope) for scope in dict.fromkeys(found) if scope.agent == self._agent]

    def _open(self, scope: Scope) -> ScopedRecords:
        assert isinstance(self._memory, Store)
        return self._memory.memory(user=scope.user, agent=scope.agent, tenant=scope.tenant).records
