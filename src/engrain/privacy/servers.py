"""Ask the servers beside a store whether something of what was erased is still there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.erasure import Erasure, Subject, find_owner
from engrain.ports import Erasable, Kit

_ALL = 1_000_000
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Beside:
    """Which servers answered, how many keys and points they still have, and why others could not be asked."""

    asked: tuple[str, ...] = ()
    left: int = 0
    away: tuple[str, ...] = ()


def look(kit: Kit, done: Erasure, own: Scope) -> Beside:
    """`own` is the scope of whoever asks, which may be the one that was erased."""
    asked: list[str] = []
    away: list[str] = []
    left = 0
    for server in kit.servers:
        if isinstance(server, Erasable):
            try:
                left += _left(kit, server, done, own)
                asked.append(server.where)
            except EngrainError as exc:
                away.append(f"{server.where}: {exc}")
    return Beside(tuple(asked), left, tuple(away))


def _left(kit: Kit, server: Erasable, done: Erasure, own: Scope) -> int:
    fed: object = kit.feed
    if server is fed:
        return server.remains(own, done.at, False)
    here = {*kit.items.scopes()}
    named = server.known()
    if done.by != "user":
        return sum(1 for scope in {*here, *named} for _ in _entries(kit, done, scope))
    mine = [scope for scope in {*here, *named, own} if _mark(kit, find_owner(scope)) == done.mark]
    return sum(server.remains(scope, done.at, scope in here) for scope in mine)


def _entries(kit: Kit, done: Erasure, scope: Scope) -> Iterator[str]:
    """Entries of episodic memory that are left of an erased session, or stand over an item that is gone."""
    if kit.episodes is None or kit.together:
        return
    there = [one for one in kit.episodes.recent(scope, None, _ALL, _EVER) if one.happened_at <= done.at]
    if done.by == "session":
        yield from (one.id for one in there if _mark(kit, Subject(scope, "session", one.session)) == done.mark)
        return
    items = {item.id for item in kit.items.get_many(scope, [one.item for one in there if one.item])}
    yield from (one.id for one in there if one.item and one.item not in items)


def _mark(kit: Kit, subject: Subject | None) -> str:
    return kit.erasing.mark(subject) if kit.erasing and subject else ""
