"""The command that removes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.session import Session, whole_id
from engrain.cli.shown import faint, many, wrapped
from engrain.cli.verbs import verb
from engrain.cli.where import parsed_where, where_option
from engrain.core.errors import Conflict

if TYPE_CHECKING:
    from engrain.core.answers import Forgotten
    from engrain.core.items import Item
    from engrain.memory import Memory

SHOWN = 5
PAGE = 1_000


@verb(
    "forget",
    examples=(
        "engrain forget cr2pvv0vpt",
        "engrain forget --where 'source = old-wiki'",
        "engrain forget --where 'session = monday' --yes --json",
    ),
    prints="How many items went, and whether their bytes are gone from every file or still pending.",
)
@click.argument("id", required=False)
@where_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask when a filter matches several items.")
@click.option("--keep-source", is_flag=True, help="Leave the log as it is; hide only what was taken from it.")
def forget(cli: Session, id: str | None, where: tuple[str, ...], yes: bool, keep_source: bool) -> None:
    """Remove one item, or all that match a filter, with everything derived from it, from every file of the store."""
    if (id is None) == (not where):
        raise click.UsageError("Give one id, or a --where filter.")
    with cli.looking() as memory:
        what: str | dict[str, Any]
        if id is not None:
            what = whole_id(memory, id)
        else:
            what = parsed_where(where) or {}
            if not yes:
                _agree(memory, what, cli.json)
        gone = memory.forget(what, keep_source=keep_source)
    cli.answer(gone, lambda: _told(gone))


def _agree(memory: Memory, where: dict[str, Any], as_json: bool) -> None:
    count, after = 0, None
    first: list[Item] = []
    while page := memory.list(where, history=True, limit=PAGE, after=after):
        first += page[: SHOWN - len(first)]
        count += len(page)
        after = page[-1].id
    if count < 2:
        return
    if as_json or not sys.stdin.isatty():
        raise Conflict(f"the filter matches {many(count, 'item')}, so nothing was removed. Add --yes to remove them.")
    for item in first:
        for line in wrapped(item.text, "  ", longest=150):
            click.echo(line, err=True)
    if count > len(first):
        click.echo(faint(f"  … and {many(count - len(first), 'other')}"), err=True)
    click.confirm(f"Remove {count:,} items for good?", abort=True, err=True)


def _told(gone: Forgotten) -> Iterator[str]:
    if not gone:
        yield "Nothing matches, so nothing was removed."
        return
    more = f" {many(len(gone.marked), 'message')} had a span cut out." if gone.marked else ""
    yield f"Forgot {many(len(gone.ids), 'item')}.{more}"
    if gone.pending:
        yield "The bytes are pending: another process still reads them. They go by themselves; `engrain status` tells."
    else:
        yield "The bytes are gone from every file of the store."
