"""Which scopes have something in this store, for the work that goes through all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from engrain.core.scope import Scope
from engrain.stores.redis.link import Link
from engrain.stores.redis.scripts import load

_FORGET = load("registry.lua")["forget"]
# A scope is noted before it is written to, by each process at most so often (seconds); one that was not noted for a day
# can have no writer, and is let go of once it is empty. So no write ever waits for this list. Not rarer: an erasure
# takes the name out, and who comes back is listed again only with the next note.
_EVERY, _KEPT = 60, 86_400
_MOST_KNOWN = 100_000
SHARDS = "0123456789abcdef"  # the list of a large deployment lies on many servers of a cluster
_PAGE = 500


class Noted(NamedTuple):
    scope: Scope
    member: str
    at: float

    @property
    def old(self) -> bool:
        return self.at < time.time() - _KEPT


class Registry:
    def __init__(self, link: Link, of: str, spare: bool = False) -> None:
        self._link = link
        self._of = of
        self._spare = spare
        self._known: dict[Scope, float] = {}

    def note(self, scope: Scope, again: bool = False) -> None:
        """With `again` also if it was noted just now."""
        if not again and self._known.get(scope, 0.0) > time.monotonic():
            return
        self._link.prove_writable()
        member = json.dumps([scope.tenant, scope.agent, scope.user])
        self._link.command("ZADD", self._key(scope.id[0]), int(time.time()), member, spare=self._spare)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[scope] = time.monotonic() + _EVERY

    def pages(self) -> Iterator[list[Noted]]:
        """All scopes; one that is noted meanwhile may be left out."""
        for shard in SHARDS:
            yield from self.shard(shard)

    def shard(self, shard: str) -> Iterator[list[Noted]]:
        """Those whose ids begin with this digit."""
        cursor: Any = 0
        while True:
            cursor, found = self._link.command("ZSCAN", self._key(shard), cursor, "COUNT", _PAGE)
            noted = [Noted(Scope(*json.loads(member)), member, float(at)) for member, at in found]
            for start in range(0, len(noted), _PAGE):
                yield noted[start : start + _PAGE]
            if int(cursor) == 0:
                break

    def forget(self, empty: Sequence[Noted]) -> None:
        for one in empty:
            if one.old:
                self._link.run(_FORGET, self._key(one.scope.id[0]), [one.member, str(int(one.at))])

    def _key(self, shard: str) -> str:
        return f"engrain:scopes:{self._of}:{shard}"
