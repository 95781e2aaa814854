"""Commands that write one item: remember, relate, correct, pin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import parsed_metadata, parsed_where, verb, where_option
from engrain.cli.context import Session, given_text, whole_id
from engrain.cli.output import faint, many, wrapped
from engrain.core.errors import Conflict

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.core.model.results import ForgetResult
    from engrain.memory import Memory


METADATA = click.option("--metadata", "-m", multiple=True, metavar="KEY=VALUE", help="Your own data; repeatable.")
REQUEST_ID = click.option("--request-id", metavar="ID", help="Repeating a write with the same id changes nothing.")
IMPORTANCE = click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
SOURCE = click.option("--source", metavar="NAME", help="Where it comes from: a page, a file, a tool.")


@verb(
    "remember",
    examples=(
        'engrain remember "Ana prefers Python over JavaScript." --importance 0.8',
        'engrain remember "Quito" --slot user.city --occurred-at 2026-06-01',
        "git log -1 --format=%B | engrain remember --source git -m repo=engrain",
    ),
    prints="The item's id, alone when the output is piped. By then the text is on disk and can be found.",
)
@click.argument("text", required=False)
@IMPORTANCE
@click.option("--slot", metavar="NAME", help="A place for one value: a newer one closes the older one.")
@SOURCE
@METADATA
@click.option("--occurred-at", metavar="TIME", help="When it happened, ISO 8601; else it is now.")
@click.option("--session", metavar="ID", help="Makes it a turn of that session, after its last one.")
@click.option("--speaker", metavar="NAME", help="Who said it (needs --session).")
@click.option("--role", metavar="ROLE", help="user, assistant, system or tool (needs --session).")
@REQUEST_ID
def remember(cli: Session, text: str | None, metadata: tuple[str, ...], **given: Any) -> None:
    """Keep a text, word for word.

    TEXT is the argument; without one, or with "-", it is read from stdin, less the line break at its end. The same
    text again returns the id it has.
    """
    place = _place(given.pop("session"), given.pop("speaker"), given.pop("role"))
    words, more = given_text(text, "text"), parsed_metadata(metadata)
    with cli.memory(makes=True, embeds=words[:20]) as memory:
        id = memory.remember(words, metadata=more, place=place, **given)
    cli.answer({"id": id}, lambda: _written(id, "Remembered."))


@verb(
    "relate",
    examples=(
        'engrain relate Ana "works at" Acme',
        'engrain relate "Order 42" "was shipped by" DHL --source shop.csv',
    ),
    prints="The relation's id, alone when the output is piped.",
)
@click.argument("subject")
@click.argument("relation")
@click.argument("object", metavar="OBJECT")
@IMPORTANCE
@SOURCE
@METADATA
@REQUEST_ID
def relate(cli: Session, subject: str, relation: str, object: str, metadata: tuple[str, ...], **given: Any) -> None:
    """Keep a relation between two entities; `engrain about ENTITY` finds it from either side."""
    with cli.memory(makes=True) as memory:
        id = memory.relate(subject, relation, object, metadata=parsed_metadata(metadata), **given)
    cli.answer({"id": id}, lambda: _written(id, "Related."))


@verb(
    "correct",
    examples=(
        'engrain correct cr2pvv0v "Ana lives in Quito."',
        'echo "Ana lives in Quito." | engrain correct cr2pvv0v',
    ),
    prints="The id of the new version, alone when the output is piped.",
)
@click.argument("id")
@click.argument("text", required=False)
@REQUEST_ID
def correct(cli: Session, id: str, text: str | None, request_id: str | None) -> None:
    """Replace a text that was never so.

    The old version stays in the history and answers no question any more, not even about the past. If the old text was
    right and the world has changed, `remember` the new value in the same --slot instead.
    """
    words = given_text(text, "new text")
    with cli.memory() as memory:
        old = whole_id(memory, id)
        new = memory.correct(old, words, request_id=request_id)
    cli.answer({"id": new, "corrected": old}, lambda: _written(new, "Corrected."))


@verb(
    "pin",
    examples=("engrain pin cr2pvv0vpt", "engrain pin cr2pvv0vpt --off"),
    prints="Whether the item is pinned now.",
)
@click.argument("id")
@click.option("--off", is_flag=True, help="Take the pin out.")
def pin(cli: Session, id: str, off: bool) -> None:
    """Keep an item from ever being consolidated away."""
    with cli.memory() as memory:
        whole = whole_id(memory, id)
        memory.pin(whole, not off)
    cli.answer({"id": whole, "pinned": not off}, lambda: [f"{whole} is {'no longer ' if off else ''}pinned."])


def _place(session: str | None, speaker: str | None, role: str | None) -> Any:
    from engrain.core.model.items import SessionPosition

    if session is None and (speaker or role):
        raise click.UsageError("--speaker and --role belong to a turn of a session: add --session ID.")
    return None if session is None else SessionPosition(session, speaker=speaker, role=role)


def _written(id: str, said: str) -> Iterator[str]:
    yield f"{said} {faint(id)}" if sys.stdout.isatty() else id


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


def _told(gone: ForgetResult) -> Iterator[str]:
    if not gone:
        yield "Nothing matches, so nothing was removed."
        return
    more = f" {many(len(gone.marked), 'message')} had a span cut out." if gone.marked else ""
    yield f"Forgot {many(len(gone.ids), 'item')}.{more}"
    if gone.pending:
        yield "The bytes are pending: another process still reads them. They go by themselves; `engrain status` tells."
    else:
        yield "The bytes are gone from every file of the store."
