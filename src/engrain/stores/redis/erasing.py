"""Erase a scope from Redis: its keys, and its name in the lists of scopes."""

from __future__ import annotations

import json

from engrain.core.scope import Scope
from engrain.stores.redis.link import Link
from engrain.stores.redis.scripts import load

_LUA = load("erasing.lua")
_LISTS = ("episodes", "tasks")


def erase(link: Link, scope: Scope) -> int:
    gone = int(link.run(_LUA["erase"], _base(scope), []))
    for of in _LISTS:
        link.command("ZREM", _list(of, scope), _member(scope))
    return gone


def left(link: Link, scope: Scope) -> int:
    named = [link.command("ZSCORE", _list(of, scope), _member(scope)) for of in _LISTS]
    return int(link.ask(_LUA["left"], _base(scope), [])) + sum(one is not None for one in named)


def _base(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:"


def _list(of: str, scope: Scope) -> str:
    return f"engrain:scopes:{of}:{scope.id[0]}"


def _member(scope: Scope) -> str:
    return json.dumps([scope.tenant, scope.agent, scope.user])
