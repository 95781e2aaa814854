"""Check whether the servers of a memory still have erased data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.erasure import Erasure, Subject, find_owner
from engrain.ports import Erasable, Services

_MAX_ENTRIES = 1_000_000
_BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ServerCheck:
    asked: tuple[str, ...] = ()  # servers that answered
    left: int = 0  # keys and points that they still have
    away: tuple[str, ...] = ()  # servers that did not answer, with the reason


def check_servers(services: Services, done: Erasure, own: Scope) -> ServerCheck:
    """Ask every server. `own` is the caller's scope, which may be the erased one."""
    asked: list[str] = []
    away: list[str] = []
    left = 0
    for server in services.servers:
        if isinstance(server, Erasable):
            try:
                left += _count_left(services, server, done, own)
                asked.append(server.where)
            except EngrainError as exc:
                away.append(f"{server.where}: {exc}")
    return ServerCheck(tuple(asked), left, tuple(away))


def _count_left(services: Services, server: Erasable, done: Erasure, own: Scope) -> int:
    fed: object = services.feed
    if server is fed:
        return server.remains(own, done.at, False)
    here = {*services.items.scopes()}
    named = server.known()
    if done.by != "user":
        return sum(1 for scope in {*here, *named} for _ in _list_left_entries(services, done, scope))
    mine = [scope for scope in {*here, *named, own} if _hash_subject(services, find_owner(scope)) == done.mark]
    return sum(server.remains(scope, done.at, scope in here) for scope in mine)


def _list_left_entries(services: Services, done: Erasure, scope: Scope) -> Iterator[str]:
    """Yield episodes that are left of an erased session, or whose item is gone."""
    if services.episodes is None or services.same_store:
        return
    there = [
        one
        for one in services.episodes.recent(scope, None, _MAX_ENTRIES, _BEGINNING_OF_TIME)
        if one.happened_at <= done.at
    ]
    if done.by == "session":
        yield from (
            one.id for one in there if _hash_subject(services, Subject(scope, "session", one.session)) == done.mark
        )
        return
    items = {item.id for item in services.items.get_many(scope, [one.item for one in there if one.item])}
    yield from (one.id for one in there if one.item and one.item not in items)


def _hash_subject(services: Services, subject: Subject | None) -> str:
    return services.erasing.mark(subject) if services.erasing and subject else ""
