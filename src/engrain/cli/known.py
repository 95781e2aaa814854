"""Know whether anything was ever kept in the memory that a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engrain.cli.shown import many
from engrain.core.errors import NotFound
from engrain.core.near import hint
from engrain.core.scope import Scope

if TYPE_CHECKING:
    from engrain.core.answers import Owned
    from engrain.memory import Memory

PARTS = ("user", "agent", "tenant")
MOST = 3


def check_known(memory: Memory) -> None:
    """NotFound, with the name that may have been meant, if nothing ever was."""
    every, scope = memory.memories(), memory.scope
    if _is_among(scope, every) or something(memory):
        return
    raise NotFound(f"nothing is kept of {scope} here.{_guess(scope, every)} `engrain memories` lists all.")


def elsewhere(memory: Memory) -> str:
    """Where the user's items are, or how to find out, if nothing was ever kept here and something is in other memories
    of the store; else an empty text. Of other users it names none but one that is spelled alike."""
    if memory.list(limit=1, history=True):
        return ""
    every, scope = memory.memories(), memory.scope
    if not every or _is_among(scope, every) or something(memory):
        return ""
    same = [one for one in every if scope.user and one.user == scope.user and scope.tenant in (None, one.tenant)]
    if not same:
        guess = _guess(scope, every) or f" The store has {many(len(every), 'other memory', 'other memories')}."
        return f"this memory ({scope}) is empty.{guess} `engrain memories` lists all."
    told = "; ".join(f"{_scope(one)} ({many(one.items, 'item')})" for one in same[:MOST])
    more = f" and {len(same) - MOST} more" if len(same) > MOST else ""
    return f"this memory ({scope}) is empty. The store has {told}{more}: name it with --agent, --tenant."


def _is_among(scope: Scope, every: Sequence[Owned]) -> bool:
    return any(_scope(one) == scope for one in every)


def _scope(one: Owned) -> Scope:
    return Scope(one.tenant, one.agent, one.user)


def _guess(scope: Scope, every: Sequence[Owned]) -> str:
    for part in PARTS:
        name, names = getattr(scope, part), {one for owned in every if (one := getattr(owned, part))}
        if name and name not in names and (told := hint(name, sorted(names))):
            return told
    return ""


def something(memory: Memory) -> bool:
    """On a server beside, or hidden."""
    return memory.status().hold is not None or counted(memory)


def counted(memory: Memory) -> bool:
    """Whether it has anything besides items, or a server that may have it does not answer."""
    return any(count != 0 for count in memory.status().holds.values())
