"""Commands that write one item: remember, relate, correct, pin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from engrain.cli.session import Session, given_text, whole_id
from engrain.cli.shown import faint
from engrain.cli.verbs import verb
from engrain.cli.where import parsed_metadata

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
    from engrain.core.items import Place

    if session is None and (speaker or role):
        raise click.UsageError("--speaker and --role belong to a turn of a session: add --session ID.")
    return None if session is None else Place(session, speaker=speaker, role=role)


def _written(id: str, said: str) -> Iterator[str]:
    yield f"{said} {faint(id)}" if sys.stdout.isatty() else id
