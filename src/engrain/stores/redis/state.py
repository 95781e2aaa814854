"""The working memory of sessions, stored in Redis for a day."""

from __future__ import annotations

from datetime import timedelta

from engrain.core.scope import Scope
from engrain.stores.door import Door
from engrain.stores.redis.link import Link
from engrain.stores.redis.scripts import load

_LUA = load("state.lua")
LIFE = timedelta(days=1)
_LIFE = LIFE // timedelta(milliseconds=1)


class RedisSessionState:
    """A view of the store. While a scope is erased, its texts are neither stored nor returned."""

    def __init__(self, link: Link, door: Door) -> None:
        self._link = link
        self._door = door

    def save(self, scope: Scope, session: str, text: str) -> None:
        if not self._door.lately_shut(scope):
            self._link.run(_LUA["save"], _base(scope), [f"working:{session}", _LIFE, text], spare=True)

    def load(self, scope: Scope, session: str) -> str | None:
        if self._door.lately_shut(scope):
            return None
        text: str | None = self._link.command("GET", f"{_base(scope)}working:{session}", spare=True)
        return text

    def drop(self, scope: Scope, session: str) -> None:
        self._link.prove_writable()
        self._link.command("DEL", f"{_base(scope)}working:{session}", spare=True)

    def clear(self, scope: Scope) -> int:
        return int(self._link.run(_LUA["clear"], _base(scope), [], spare=True))


def _base(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:sessions:"
