"""Say what else somebody may mean by a source that nothing came from."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engrain.cli.shown import safe
from engrain.core.brought import addresses
from engrain.core.messages import calls_of
from engrain.core.near import near

if TYPE_CHECKING:
    from engrain.memory import Memory

LOOKED_AT = 5_000  # newest items
SHOWN = 5


def nothing_from(memory: Memory, source: str) -> list[str]:
    """With the names that are like it."""
    items = memory.list({"source": {"exists": True}}, history=True, limit=LOOKED_AT)
    known = {one.name for item in items for one in item.sources if one.name}
    said = memory.list({"role": "assistant"}, history=True, limit=LOOKED_AT)
    known |= {one for item in said for call in calls_of(item.text, item.metadata) for one in addresses(call)}
    like = list(dict.fromkeys([*_of_host(source, known), *near(source, known, SHOWN)]))[:SHOWN]
    named = [f"Sources that are like it: {', '.join(map(safe, like))}"] if like else []
    return [f"Nothing came from {safe(source)}.", *named]


def _of_host(source: str, known: set[str]) -> list[str]:
    host = urlsplit(source).netloc
    return sorted(one for one in known if one.startswith(source) or (host and urlsplit(one).netloc == host))
