"""Erase a scope from Redis: its keys, and its name in the lists of scopes."""

from __future__ import annotations

import json
from datetime import datetime

from engrain.core.clock import to_micros
from engrain.core.erasure import Subject
from engrain.core.scope import Scope
from engrain.stores.redis import episodes
from engrain.stores.redis.link import Link
from engrain.stores.redis.moving import RedisMoving
from engrain.stores.redis.registry import Registry

_LISTS = ("episodes", "tasks")
_AT_ONCE = 500
_ALL = 1_000_000


def known(link: Link) -> list[Scope]:
    """Those that are listed."""
    listed = (one.scope for of in _LISTS for page in Registry(link, of).pages() for one in page)
    return list(dict.fromkeys(listed))


def scopes_of(link: Link, user: Subject) -> list[Scope]:
    """Names are compared as they are."""
    return [one for one in known(link) if (one.tenant, one.user) == (user.scope.tenant, user.name)]


def erase(link: Link, scope: Scope) -> int:
    link.prove_writable()
    keys, gone = _keys(link, scope), 0
    for start in range(0, len(keys), _AT_ONCE):
        # All share the scope's hash tag, and so lie in one slot of a cluster.
        gone += int(link.command("UNLINK", *keys[start : start + _AT_ONCE]))
    for of in _LISTS:
        link.command("ZREM", _list(of, scope), _member(scope))
    return gone


def left(link: Link, scope: Scope) -> int:
    named = [link.command("ZSCORE", _list(of, scope), _member(scope)) for of in _LISTS]
    return len(_keys(link, scope)) + sum(one is not None for one in named)


def remains(link: Link, moving: RedisMoving, scope: Scope, before: datetime, back: bool) -> int:
    at, entries = to_micros(before), f"{episodes.base(scope)}all"
    old = int(link.command("ZCOUNT", entries, "-inf", at))
    later = int(link.command("ZCOUNT", entries, f"({at}", "+inf"))
    started: list[int] = [row.values["started_at"] for row in moving.dump("task", None, _ALL, scope)]
    if back or later or any(one > at for one in started):
        return old + sum(one <= at for one in started)
    return left(link, scope)


def _keys(link: Link, scope: Scope) -> list[str]:
    # Looked for a few at a time, so that nobody waits: no index knows answers to lost calls, or events without a task.
    return list(dict.fromkeys(link.keys(f"engrain:{{{scope.id}}}:*")))


def _list(of: str, scope: Scope) -> str:
    return f"engrain:scopes:{of}:{scope.id[0]}"


def _member(scope: Scope) -> str:
    return json.dumps([scope.tenant, scope.agent, scope.user])
