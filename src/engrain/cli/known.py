"""Know whether anything was ever kept in the memory that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engrain.core.errors import NotFound
from engrain.core.near import hint

if TYPE_CHECKING:
    from engrain.memory import Memory

PARTS = ("user", "agent", "tenant")


def check_known(memory: Memory) -> None:
    """NotFound, with the name that may have been meant, if nothing ever was."""
    every, scope = memory.memories(), memory.scope
    if any(all(getattr(one, part) == getattr(scope, part) for part in PARTS) for one in every) or something(memory):
        return
    guess = ""
    for part in PARTS:
        name, names = getattr(scope, part), {one for owned in every if (one := getattr(owned, part))}
        if name and name not in names:
            guess = guess or hint(name, sorted(names))
    raise NotFound(f"nothing is kept of {scope} here.{guess} `engrain memories` lists all.")


def something(memory: Memory) -> bool:
    """On a server beside, or hidden."""
    status = memory.status()
    return status.hold is not None or any(count != 0 for count in status.holds.values())
