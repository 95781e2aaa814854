"""Commands that change items: remember, add-message, relate, correct, pin, forget."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command, parse_metadata, parse_where, where_option
from engrain.cli.context import CommandContext, complete_id, read_text
from engrain.cli.output import dim, wrap
from engrain.core.errors import Conflict
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.core.model.messages import MessageResult
    from engrain.core.model.results import ForgetResult
    from engrain.memory import Memory

MAX_SHOWN = 5
EFFECT_INDENT = " " * 12
PAGE_SIZE = 1_000
METADATA = click.option(
    "--metadata", "-m", multiple=True, metavar="KEY=VALUE", help="Your own data about the item; repeatable."
)
REQUEST_ID = click.option("--request-id", metavar="ID", help="A repeated write with the same ID changes nothing.")
IMPORTANCE = click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
SOURCE = click.option("--source", metavar="NAME", help="Where it comes from, such as a page, a file or a tool.")


@memory_command(
    "remember",
    examples=(
        'engrain remember "Ana prefers Python over JavaScript." --importance 0.8',
        'engrain remember "Quito" --slot user.city --occurred-at 2026-06-01',
        "git log -1 --format=%B | engrain remember --source git -m repo=engrain",
    ),
    prints="The item's id, alone when the output is piped. The text is then on disk and can be found.",
)
@click.argument("text", required=False)
@IMPORTANCE
@click.option(
    "--slot", metavar="NAME", help="A name for one value, such as user.city: a new value replaces the old one."
)
@SOURCE
@METADATA
@click.option("--occurred-at", metavar="TIME", help="When it happened, ISO 8601; default: now.")
@click.option("--session", metavar="ID", help="Add the text to this session, after its last message.")
@click.option("--speaker", metavar="NAME", help="Who said it; needs --session.")
@click.option("--role", metavar="ROLE", help="user, assistant, system or tool; needs --session.")
@REQUEST_ID
def remember(cli: CommandContext, text: str | None, metadata: tuple[str, ...], **options: Any) -> None:
    """Save a text, word for word.

    Without TEXT, or with "-", the text is read from stdin without its last line break. Saving the same text again
    returns the same id.
    """
    position = _parse_position(options.pop("session"), options.pop("speaker"), options.pop("role"))
    content, own_data = read_text(text, "text"), parse_metadata(metadata)
    with cli.open_memory(create=True, embed_first=content[:20]) as memory:
        id = memory.remember(content, metadata=own_data, position=position, **options)
    cli.print_result({"id": id}, lambda: _format_id(id, "Remembered."))


@memory_command(
    "add-message",
    examples=(
        'engrain add-message "I moved to Quito." --user ana --session monday',
        'engrain add-message "Noted." --role assistant --session monday',
        "engrain add-message --json < message.txt",
    ),
    prints="The message's id, then each fact that was kept, replaced or forgotten with it.",
)
@click.argument("text", required=False)
@click.option(
    "--role",
    type=click.Choice(["user", "assistant", "system", "tool"]),
    default="user",
    show_default=True,
    help="Who wrote it.",
)
@click.option("--session", metavar="ID", help="The session to which it belongs; default: a new one.")
@click.option("--speaker", metavar="NAME", help="The person, if several talk.")
@click.option("--occurred-at", metavar="TIME", help="When it was said, ISO 8601; default: now.")
@REQUEST_ID
def add_message(cli: CommandContext, text: str | None, role: str, **options: Any) -> None:
    """Keep a message of a conversation word for word, and the lasting facts that the user states in it.

    A request to forget is obeyed. Without TEXT, or with "-", the text is read from stdin.
    """
    content = read_text(text, "text")
    with cli.open_memory(create=True, embed_first=content) as memory:
        done = memory.add_message(role, content, **options)
        lines = [done.id] if cli.json else [done.id, *_describe_effects(memory, done)]
    cli.print_result(done, lambda: lines)


def _describe_effects(memory: Memory, done: MessageResult) -> Iterator[str]:
    """Describe the items that were kept, replaced and forgotten with a message, or may be meant to be forgotten."""
    for label, ids in (("fact", done.facts), ("replaced", done.replaced), ("proposed", done.proposed)):
        for item in filter(None, map(memory.get, ids)):
            slot = f"{item.slot}: " if item.slot else ""
            first, *others = wrap(f"{slot}{item.text}", EFFECT_INDENT)
            yield from (f"  {label:<8}  {first.removeprefix(EFFECT_INDENT)}", *others)
            if ids is done.proposed:
                yield dim(f"{EFFECT_INDENT}to forget it: engrain forget {item.id}")
    if done.forgotten:
        yield f"  {'forgot':<8}  {count_noun(len(done.forgotten), 'item')}"


@memory_command(
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
def relate(
    cli: CommandContext, subject: str, relation: str, object: str, metadata: tuple[str, ...], **options: Any
) -> None:
    """Save a relation between two entities; `engrain about ENTITY` finds it for either one."""
    with cli.open_memory(create=True) as memory:
        id = memory.relations.add(subject, relation, object, metadata=parse_metadata(metadata), **options)
    cli.print_result({"id": id}, lambda: _format_id(id, "Related."))


@memory_command(
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
def correct(cli: CommandContext, id: str, text: str | None, request_id: str | None) -> None:
    """Replace a text that was wrong from the start.

    The old version stays in the history, but recall never returns it, not even for the past. If the old text was
    right and things have changed, `remember` the new value in the same --slot instead.
    """
    content = read_text(text, "new text")
    with cli.open_memory() as memory:
        old = complete_id(memory, id)
        new = memory.correct(old, content, request_id=request_id)
    cli.print_result({"id": new, "corrected": old}, lambda: _format_id(new, "Corrected."))


@memory_command(
    "pin",
    examples=("engrain pin cr2pvv0vpt", "engrain pin cr2pvv0vpt --off"),
    prints="Whether the item is pinned now.",
)
@click.argument("id")
@click.option("--off", is_flag=True, help="Remove the pin.")
def pin(cli: CommandContext, id: str, off: bool) -> None:
    """Protect an item from consolidation: it is never merged away."""
    with cli.open_memory() as memory:
        whole = complete_id(memory, id)
        memory.update(whole, pinned=not off)
    cli.print_result({"id": whole, "pinned": not off}, lambda: [f"{whole} is {'no longer ' if off else ''}pinned."])


def _parse_position(session: str | None, speaker: str | None, role: str | None) -> Any:
    from engrain.core.model.items import SessionPosition

    if session is None and (speaker or role):
        raise click.UsageError("--speaker and --role describe a message of a session: add --session ID.")
    return None if session is None else SessionPosition(session, speaker=speaker, role=role)


def _format_id(id: str, verdict: str) -> list[str]:
    return [f"{verdict} {dim(id)}" if sys.stdout.isatty() else id]


@memory_command(
    "forget",
    examples=(
        "engrain forget cr2pvv0vpt",
        "engrain forget --where 'source = old-wiki'",
        "engrain forget --where 'session = monday' --yes --json",
    ),
    prints="The number of removed items, and whether their bytes are already gone from every file.",
)
@click.argument("id", required=False)
@where_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask when a filter matches several items.")
@click.option("--keep-source", is_flag=True, help="Keep the messages; forget only the facts taken from them.")
def forget(cli: CommandContext, id: str | None, where: tuple[str, ...], yes: bool, keep_source: bool) -> None:
    """Remove one item, or all that match a filter, and everything derived from them, from every file of the store."""
    if (id is None) == (not where):
        raise click.UsageError("Give one id, or a --where filter.")
    with cli.read_memory() as memory:
        target: str | dict[str, Any]
        if id is not None:
            target = complete_id(memory, id)
        else:
            target = parse_where(where) or {}
            if not yes:
                _confirm_forget(memory, target, cli.json)
        result = memory.forget(target, keep_source=keep_source)
    cli.print_result(result, lambda: _format_result(result))


def _confirm_forget(memory: Memory, where: dict[str, Any], as_json: bool) -> None:
    count, after = 0, None
    first: list[Item] = []
    while page := memory.list(where, history=True, limit=PAGE_SIZE, after=after):
        first += page[: MAX_SHOWN - len(first)]
        count += len(page)
        after = page[-1].id
    if count < 2:
        return
    if as_json or not sys.stdin.isatty():
        raise Conflict(
            f"the filter matches {count_noun(count, 'item')}, so nothing was removed. Add --yes to remove them."
        )
    for item in first:
        for line in wrap(item.text, "  ", limit=150):
            click.echo(line, err=True)
    if count > len(first):
        click.echo(dim(f"  … and {count_noun(count - len(first), 'other')}"), err=True)
    click.confirm(f"Remove {count:,} items for good?", abort=True, err=True)


def _format_result(result: ForgetResult) -> Iterator[str]:
    if not result:
        yield "Nothing matches, so nothing was removed."
        return
    more = f" A passage was cut out of {count_noun(len(result.marked), 'message')}." if result.marked else ""
    yield f"Forgot {count_noun(len(result.ids), 'item')}.{more}"
    if result.pending:
        yield "The bytes are pending: another process still reads them. They are removed later: see `engrain status`."
    else:
        yield "The bytes are gone from every file of the store."
