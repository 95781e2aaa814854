"""What sessions have at hand, in Redis for a day."""

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
    """A view of the store. Of a scope that is shut nothing is kept or shown: none of it is the truth."""

    def __init__(self, link: Link, door: Door) -> None:
        self._link = link
        self._door = door

    def keep(self, scope: Scope, session: str, name: str, text: str) -> None:
        if not self._door.lately_shut(scope):
            self._link.run(_LUA["keep"], _base(scope), [f"{name}:{session}", _LIFE, text], spare=True)

    def kept(self, scope: Scope, session: str, name: str) -> str | None:
        if self._door.lately_shut(scope):
            return None
        text: str | None = self._link.command("GET", f"{_base(scope)}{name}:{session}", spare=True)
        return text

    def drop(self, scope: Scope, session: str, name: str) -> None:
        self._link.prove_writable()
        self._link.command("DEL", f"{_base(scope)}{name}:{session}", spare=True)

    def clear(self, scope: Scope, name: str | None = None) -> int:
        return int(self._link.run(_LUA["clear"], _base(scope), [f"{name}:" if name else ""], spare=True))


def _base(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:sessions:"
