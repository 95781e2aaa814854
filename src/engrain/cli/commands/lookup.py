"""Commands that look things up without a search: list, get, why, slot, slots, about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from engrain.cli.command import parsed_where, verb, where_option
from engrain.cli.context import Session, whole_id
from engrain.cli.output import faint, item_lines, safe
from engrain.core.errors import NotFound

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.memory import Memory

AS_OF = click.option("--as-of", metavar="TIME", help="What held at that time, ISO 8601.")
FULL = click.option("--full", is_flag=True, help="Long texts whole.")
PAGE = 1_000


@verb(
    "list",
    examples=(
        "engrain list --limit 20",
        "engrain list --where 'importance >= 0.8' --where 'metadata.project = apollo'",
        "engrain list --history --where 'slot = user.city'",
    ),
    prints="Each item's text with its id and dates below it. With --json, JSON Lines: one item a line.",
)
@where_option
@click.option("--history", is_flag=True, help="Replaced and corrected versions too.")
@AS_OF
@click.option("--limit", "-n", type=int, default=100, show_default=True, help="At most so many; 0 for all.")
@FULL
def list_items(cli: Session, where: tuple[str, ...], history: bool, as_of: str | None, limit: int, full: bool) -> None:
    """List items, newest first."""
    query = parsed_where(where)
    with cli.looking() as memory:
        items = _paged(memory, query, history, as_of, limit)
        count = cli.answer_each(items, lambda item: item_lines(item, full=full, whole="--full or --json"))
    if not count and not cli.json:
        click.echo(faint("Nothing matches." if where else "Nothing is remembered here yet."), err=True)


@verb(
    "get",
    examples=("engrain get cr2pvv0vpt", "engrain get cr2pvv0vpt --json"),
    prints="The whole text, with its id and dates below it.",
)
@click.argument("id")
def get(cli: Session, id: str) -> None:
    """Show one item whole. The beginning of an id is enough where only one item has it."""
    with cli.looking() as memory:
        item = memory.get(whole_id(memory, id))
    if item is None:
        raise NotFound(f"there is no item {id!r} in this memory. `engrain list` shows what there is.")
    cli.answer(item, lambda: item_lines(item, full=True))


@verb(
    "why",
    examples=("engrain why cr2pvv0vpt", "engrain why cr2pvv0vpt --json"),
    prints="Its source, what it rests on, how far it is trusted, its other versions, how often it was used.",
)
@click.argument("id")
def why(cli: Session, id: str) -> None:
    """Say where an item came from, and what has become of it."""
    with cli.looking() as memory:
        answer = memory.explain(whole_id(memory, id))
    cli.answer(answer, lambda: safe(str(answer)).split("\n"))


@verb(
    "slot",
    examples=("engrain slot user.city", "engrain slot user.city --as-of 2025-12-24"),
    prints="The value, with its id and dates below it. Exit code 1 if the slot holds nothing.",
)
@click.argument("name")
@AS_OF
def slot(cli: Session, name: str, as_of: str | None) -> None:
    """Look up the one value that a slot holds."""
    with cli.looking() as memory:
        item = memory.slots.get(name, as_of=as_of)
    if item is None:
        when = f" as of {as_of}" if as_of else ""
        raise NotFound(f"the slot {name!r} holds nothing{when}. `engrain slots` lists those that do.")
    cli.answer(item, lambda: item_lines(item, full=True))


@verb(
    "slots",
    examples=("engrain slots", "engrain slots user.", "engrain slots user. --as-of 2025-12-24 --json"),
    prints="Each slot's value, by name. With --json, a list of items.",
)
@click.argument("prefix", default="")
@AS_OF
def slots(cli: Session, prefix: str, as_of: str | None) -> None:
    """List the filled slots whose name starts with PREFIX."""
    with cli.looking() as memory:
        items = memory.slots.list(prefix, as_of=as_of)
    cli.answer(items, lambda: _each(items, "No slot is filled."))


@verb(
    "about",
    examples=("engrain about Ana", 'engrain about "Order 42" --json'),
    prints="The relations that the entity is part of, newest first. With --json, a list of items.",
)
@click.argument("entity")
@AS_OF
def about(cli: Session, entity: str, as_of: str | None) -> None:
    """List the relations of an entity, on either side."""
    with cli.looking() as memory:
        items = memory.relations.about(entity, as_of=as_of)
    cli.answer(items, lambda: _each(items, f"No relation of {entity!r} is known."))


def _each(items: list[Item], none: str) -> Iterator[str]:
    for item in items:
        yield from item_lines(item)
    if not items:
        yield faint(safe(none))


def _paged(
    memory: Memory, where: dict[str, object] | None, history: bool, as_of: str | None, limit: int
) -> Iterator[Item]:
    left, after = limit, None
    while True:
        size = min(left, PAGE) if limit else PAGE
        page = memory.list(where, as_of=as_of, history=history, limit=size, after=after)
        yield from page
        left -= len(page)
        if len(page) < size or (limit and left <= 0):
            return
        after = page[-1].id
