"""Say what else somebody may mean by a source: names that are like it, and what tools brought from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engrain.cli.shown import faint, many, safe, wrapped
from engrain.core.messages import RESERVED
from engrain.core.near import near

if TYPE_CHECKING:
    from engrain.cli.session import Session
    from engrain.core.items import Item
    from engrain.memory import Memory

LOOKED_AT = 5_000  # newest items
SHOWN = 5


def nothing_from(memory: Memory, source: str) -> list[str]:
    """With the names that are like it."""
    items = memory.list({"source": {"exists": True}}, history=True, limit=LOOKED_AT)
    known = {one.name for item in items for one in item.sources if one.name}
    like = list(dict.fromkeys([*_of_host(source, known), *near(source, known, SHOWN)]))[:SHOWN]
    named = [f"Sources that are like it: {', '.join(map(safe, like))}"] if like else []
    return [f"Nothing came from {safe(source)}.", *named]


def by_tools(cli: Session, memory: Memory, source: str, found: Collection[str]) -> Iterator[str]:
    """What tools answered that were called with it, but for items that were found already, by their ids."""
    answers = [item for item in _answers(memory, source) if item.id not in found]
    if answers:
        yield "A tool was called with it, and what it answered has the tool for its source: it stays. To take it back:"
    for item in answers[:SHOWN]:
        yield f"  {cli.command('forget', item.id)}"
        yield from map(faint, wrapped(item.text, "    ", longest=150, whole=cli.command("get", item.id)))
    if len(answers) > SHOWN:
        yield f"  … and {many(len(answers) - SHOWN, 'other')}"


def _of_host(source: str, known: set[str]) -> list[str]:
    host = urlsplit(source).netloc
    return sorted(one for one in known if one.startswith(source) or (host and urlsplit(one).netloc == host))


def _answers(memory: Memory, source: str) -> Iterator[Item]:
    """The results of the calls that have exactly this among their arguments."""
    for call in memory.list({"text": {"contains": source}}, history=True, limit=LOOKED_AT):
        ids = {id for id, _, start, end, _ in _own(call).get("calls", ()) if source in _values(call.text[start:end])}
        if ids and call.session is not None:
            said = memory.list({"session": call.session, "role": "tool"}, history=True, limit=LOOKED_AT)
            yield from (item for item in said if _own(item).get("answers") in ids)


def _own(item: Item) -> dict[str, Any]:
    own = item.metadata.get(RESERVED)
    return own if isinstance(own, dict) else {}


def _values(arguments: str) -> set[str]:
    """Every text in them, however deep."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return set()
    found, left = set(), [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.add(one)
        elif isinstance(one, (dict, list)):
            left += one.values() if isinstance(one, dict) else one
    return found
