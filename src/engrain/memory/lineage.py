"""The items that rest on another, and so go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engrain.core.model.items import Item

if TYPE_CHECKING:
    from engrain.memory.memory import Memory

MAX_DERIVED = 200


def find_derived(memory: Memory, id: str) -> list[Item]:
    """The items that rest on this one, directly or through others, nearest first."""
    found: dict[str, Item] = {}
    pending = [id]
    while pending and len(found) < MAX_DERIVED:
        for item in memory.explain(pending.pop(0)).cited_by:
            if item.id not in found and item.id != id:
                found[item.id] = item
                pending.append(item.id)
    return list(found.values())
