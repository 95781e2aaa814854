"""Lines for people about what came from a source, and what becomes of it when it is taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engrain.cli.shown import faint, many, safe, wrapped

if TYPE_CHECKING:
    from engrain.cli.session import Session
    from engrain.core.items import Item
    from engrain.lifecycle.erasure.erasing import Undone
    from engrain.memory import Memory

SHOWN = 20
VERSIONS = 1_000


def undone_lines(found: Undone, again: Sequence[Item], cli: Session) -> Iterator[str]:
    for item in found.items[:SHOWN]:
        yield from wrapped(f"{_way(item)}: {item.text}", "  ", longest=150)
        yield faint(f"    {item.id}{f' · slot {safe(item.slot)}' if item.slot else ''}")
    if len(found.items) > SHOWN:
        yield faint(f"  … and {many(len(found.items) - SHOWN, 'other')}: --json shows them")
    if found.kept:
        yield faint(f"{many(len(found.kept), 'item')} with another source too: they stay, without this one.")
    for item in again[:SHOWN]:
        yield from wrapped(f"{item.slot} will be again: {item.text}", longest=150)
    yield from _outcome(found, cli) if found else ()


def holds_again(memory: Memory, found: Undone) -> list[Item]:
    """Values that take their slots again. A slot that several versions may come back to is not foretold."""
    gone = {item.id: item for item in found.items}
    again = []
    for slot in {item.slot: None for item in found.items if item.slot and item.open}:
        versions = memory.list({"slot": slot}, history=True, limit=VERSIONS)
        back = [one for one in versions if one.id not in gone and one.replaced_by in gone]
        if len(back) == 1 and _last(back[0], gone).open:
            again += back
    return again


def _last(item: Item, gone: dict[str, Item]) -> Item:
    """Of those that took its place and go."""
    seen = set()
    while item.replaced_by in gone and item.replaced_by not in seen:
        seen.add(item.replaced_by)
        item = gone[item.replaced_by]
    return item


def _way(item: Item) -> str:
    """The tool that brought it, who said it, or what it is."""
    return item.source or "tool" if item.role == "tool" else item.role or item.kind


def _outcome(found: Undone, cli: Session) -> Iterator[str]:
    if found.done is None:
        told = "item came from it or rests on it", "items came from it or rest on it"
        yield f"{many(len(found.items), *told)}. Add --yes to take {'it' if len(found.items) == 1 else 'them'} back."
        return
    if found.done.over:
        yield str(found.done)
        return
    yield f"Took back {many(len(found.items), 'item')}."
    if found.done.pending:
        yield f"The bytes are pending: {found.done.why}"
        yield f"They go by themselves, or with: {cli.command('erase', '--resume')}"
