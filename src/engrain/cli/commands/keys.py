"""The commands that manage the API keys of a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import click

from engrain.cli.command import MemoryGroup
from engrain.cli.context import CommandContext, confirm
from engrain.cli.output import bold, dim
from engrain.core.http_routes import RIGHTS
from engrain.core.identity import Scope
from engrain.server.keys import SCOPE_PARTS, ApiKey, KeyFile, KeyLimits, find_key_path
from engrain.server.voices import VOICES

DEFAULT_RIGHTS = ("read", "write")
keys_option = click.option("--keys", "path", metavar="PATH", help="File of keys (default: STORE.keys.json).")


@click.group(
    "keys",
    cls=MemoryGroup,
    examples=("engrain keys add phone --user ana", "engrain keys list", "engrain keys revoke phone"),
    prints="Each command describes its own output.",
)
def keys() -> None:
    """Manage the keys of `engrain serve`: add, list, rotate or revoke them.

    The file STORE.keys.json next to the store has the hash of each key, its memory, rights and limits. Only you can
    read it. A running server notices a change with its next request.
    """


@keys.subcommand(
    "add",
    examples=(
        "engrain keys add phone --user ana",
        "engrain keys add dashboard --user ana --right read",
        "engrain keys add backend --tenant acme --choose user --choose agent",
        "engrain keys add admin --whole-store --right read --right erase --right operate",
    ),
    prints="The key, once: it is not stored and cannot be shown again.",
)
@click.argument("name")
@click.option(
    "--right", "rights", multiple=True, type=click.Choice(RIGHTS),
    help="read, write, erase or operate; several are allowed (default: read and write).",
)  # fmt: skip
@click.option(
    "--choose", "chooses", multiple=True, type=click.Choice(SCOPE_PARTS),
    help="Let the holder name this part of the memory in a header, such as Engrain-User.",
)  # fmt: skip
@click.option(
    "--reads", multiple=True, metavar="SCOPE",
    help="Let recall search this memory as well: agent=team, or tenant=acme,agent=team.",
)  # fmt: skip
@click.option(
    "--voice", type=click.Choice(VOICES), default="user", show_default=True,
    help="agent: for a key that a model holds. What it writes is never trusted as the user's words.",
)  # fmt: skip
@click.option("--whole-store", is_flag=True, help="Let the holder name every memory, and operate the whole store.")
@click.option("--requests-per-second", type=float, default=100.0, show_default=True, help="Requests a second; 0 = any.")
@click.option(
    "--concurrent-requests", type=int, default=64, show_default=True, help="Requests at the same time; 0 = any."
)
@click.option("--items-per-day", type=int, help="Items and messages written in 24 hours.")
@click.option("--bytes-per-day", type=int, help="Bytes written in 24 hours.")
@keys_option
def add(
    cli: CommandContext,
    name: str,
    rights: tuple[Any, ...],
    chooses: tuple[str, ...],
    reads: tuple[str, ...],
    whole_store: bool,
    **limits: Any,
) -> None:
    """Make a key for the memory that --user, --agent and --tenant name."""
    path, voice = limits.pop("path"), limits.pop("voice")
    parts: Sequence[str] = SCOPE_PARTS if whole_store else chooses
    if not parts and cli.user is None and cli.agent is None and cli.tenant is None:
        raise click.UsageError("Name the key's memory (--user, --agent, --tenant), or add --choose or --whole-store.")
    key = ApiKey(
        "",
        name,
        "",
        rights or DEFAULT_RIGHTS,
        *(cli.tenant, cli.agent, cli.user),
        chooses=tuple(dict.fromkeys(parts)),
        limits=KeyLimits(**{limit: value or None for limit, value in limits.items()}),
        reads=tuple(map(_parse_scope, reads)),
        voice=voice,
    )
    file = _open_file(cli, path)
    _print_secret(cli, name, file.add(key), file)


@keys.subcommand(
    "list",
    examples=("engrain keys list", "engrain keys list --json"),
    prints="Each key's name, id, memory and rights. With --json also its limits; never the key itself.",
)
@keys_option
def list_keys(cli: CommandContext, path: str | None) -> None:
    """List the keys, without their secrets."""
    file = _open_file(cli, path)
    found = file.list()
    cli.print_result([_describe(key) for key in found], lambda: _format_keys(found))
    if not found and not cli.json:
        click.echo(dim(f"There are no keys in {file.path}."), err=True)


@keys.subcommand(
    "rotate",
    examples=("engrain keys rotate backend", "engrain keys rotate backend --keep-old 3600"),
    prints="The new key, once.",
)
@click.argument("name")
@click.option("--keep-old", type=click.IntRange(0), default=0, help="Seconds for which the old key stays valid.")
@keys_option
def rotate(cli: CommandContext, name: str, keep_old: int, path: str | None) -> None:
    """Replace a key by a new one with the same name, memory, rights and limits."""
    file = _open_file(cli, path)
    _print_secret(cli, name, file.rotate(name, timedelta(seconds=keep_old)), file)


@keys.subcommand(
    "revoke",
    examples=("engrain keys revoke phone", "engrain keys revoke phone --yes"),
    prints="The name of the revoked key.",
)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@keys_option
def revoke(cli: CommandContext, name: str, yes: bool, path: str | None) -> None:
    """Make a key invalid for good. Running servers refuse it from the next request on."""
    file = _open_file(cli, path)
    confirm(f"Revoke the key {name!r}?", yes)
    key = file.revoke(name)
    cli.print_result({"revoked": key.name}, lambda: [f"Revoked {key.name}."])


def _parse_scope(text: str) -> Scope:
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if not set(parts) <= set(SCOPE_PARTS) or not all(parts.values()):
        raise click.UsageError(f"{text!r} is not a memory: write agent=team, or tenant=acme,agent=team.")
    return Scope(**parts)


def _open_file(cli: CommandContext, path: str | None) -> KeyFile:
    from engrain.config import load_settings

    return KeyFile(find_key_path(load_settings(cli.store).store, path))


def _print_secret(cli: CommandContext, name: str, text: str, file: KeyFile) -> None:
    if cli.json:
        cli.print_result({"name": name, "key": text}, lambda: ())
        return
    click.echo(text)
    click.echo(dim(f"This is the only time that the key is shown. Its hash is in {file.path}."), err=True)


def _describe(key: ApiKey) -> dict[str, Any]:
    from dataclasses import asdict

    return {name: value for name, value in asdict(key).items() if name not in ("sha256", "replaced")}


def _format_keys(found: Sequence[ApiKey]) -> Iterator[str]:
    for key in found:
        chosen = f"chooses {', '.join(key.chooses)}" if key.chooses else ""
        owner = "the whole store" if key.whole_store else ", ".join(filter(None, (_format_scope(key), chosen)))
        if key.voice != "user":
            owner += f" · voice of the {key.voice}"
        if key.reads:
            owner += f" · reads {'; '.join(map(str, key.reads))}"
        yield f"{bold(key.name)}  {owner} · {', '.join(key.rights)} · {dim(f'{key.id}, {key.created_at[:10]}')}"


def _format_scope(key: ApiKey) -> str:
    return str(key.scope) if any((key.tenant, key.agent, key.user)) else ""
