"""Commands that serve a store: serve, mcp, keys."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from os import _exit as exit_at_once
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import SCOPE_OPTIONS, MemoryGroup, memory_command
from engrain.cli.context import CommandContext, confirm, is_typed
from engrain.cli.output import bold, dim
from engrain.core.errors import BackendMissing, ConfigError
from engrain.core.http_routes import RIGHTS, Right
from engrain.core.identity import Scope, check_scope
from engrain.server.key_trust import VOICES
from engrain.server.keys import SCOPE_PARTS, ApiKey, KeyFile, KeyLimits, find_key_path

if TYPE_CHECKING:
    from engrain.mcp.http import McpApi
    from engrain.mcp.memories import StoreLoader
    from engrain.memory import Store
    from engrain.server.access import Access
    from engrain.server.app import HttpApi
    from engrain.server.serve import ApiServer, Listener


DEFAULT_HOST, DEFAULT_PORT, DEFAULT_DRAIN_SECONDS = "127.0.0.1", 8377, 30
EXIT_NOT_DRAINED = 1


@memory_command(
    "serve",
    examples=(
        "engrain serve --user ana",
        "engrain keys add backend --tenant acme --choose user",
        "engrain serve --host 0.0.0.0 --port 8377",
        "engrain serve --socket /run/engrain/engrain.sock",
    ),
    prints="The address on stderr, then a line for each request, without content: method, route, status, time, key.",
)
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0 = any.")
@click.option(
    "--socket", "unix", type=click.Path(path_type=Path), help="Listen on this unix socket instead, for you alone."
)
@click.option("--idle", type=click.IntRange(1), help="Stop after these seconds without a request, with --socket.")
@click.option("--keys", metavar="PATH", help="File of keys (default: next to the store, STORE.keys.json).")
@click.option("--no-keys", is_flag=True, help="Let every local program in, to one memory or to the whole store.")
@click.option("--threads", type=click.IntRange(1, 256), default=32, show_default=True, help="Requests at work at once.")
@click.option("--queue", type=click.IntRange(0, 100_000), default=512, show_default=True, help="Requests that wait.")
@click.option("--max-body", type=click.IntRange(1_000), default=8 << 20, show_default=True, help="Bytes of a request.")
@click.option(
    "--drain", type=click.IntRange(0, 3_600), default=DEFAULT_DRAIN_SECONDS, show_default=True,
    help="Seconds that requests in progress get when the server stops.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print no line for each request.")
def serve(
    cli: CommandContext,
    host: str,
    port: int,
    unix: Path | None,
    keys: str | None,
    no_keys: bool,
    **options: Any,
) -> None:
    """Serve this store over HTTP, with the verbs of the Python API.

    Each request has a key, which is bound to a memory and to rights: `engrain keys add` makes one. Without any key
    the server starts only on this machine, for the one memory that --user, --agent and --tenant name.
    docs/how-to/serve-http.md has examples.
    """
    try:
        from engrain.server.app import ApiOptions, HttpApi
        from engrain.server.resident import log_path
        from engrain.server.serve import ApiServer, listen_tcp, listen_unix
    except ModuleNotFoundError as exc:
        raise BackendMissing(f"engrain serve needs {exc.name}, which", "server") from exc
    if options["idle"] is not None and unix is None:
        raise click.UsageError("--idle needs --socket: only a program of this user starts the server again.")
    access = choose_access(cli, keys, no_keys)
    listener = listen_unix(unix) if unix else listen_tcp(host, port)
    try:
        check_listener(access, listener, host)
        log_to_stderr(options["quiet"])
        store = _open_store(cli)
        try:
            bounds = ApiOptions(options["max_body"], threads=options["threads"], queue=options["queue"])
            api = HttpApi(store, access, bounds)
            server = _make_resident(api, options["idle"], listener, cli) or ApiServer(api, options["drain"])
            _announce(listener, access, cli)
            drained = server.serve_until_stopped(listener)
        except BaseException:
            store.close()
            raise
        _finish(store, drained)
        if unix is not None and options["idle"] is not None:
            log_path(unix).unlink(missing_ok=True)
    finally:
        listener.close()


def _make_resident(api: HttpApi, idle: int | None, listener: Listener, cli: CommandContext) -> ApiServer | None:
    """Return a server that stops by itself; None if it is to run until it is stopped."""
    if idle is None:
        return None
    from engrain.server.resident_server import ResidentApi, ResidentServer

    file = cli.find_store_file()
    return ResidentServer(ResidentApi(lambda: api), idle, listener, [file] if file else [])


def check_listener(access: Access, listener: Listener, host: str) -> None:
    """ConfigError for a server without keys that other machines could reach."""
    if access.keys is None and not listener.is_local:
        raise ConfigError(f"without keys the server does not listen on {host}: `engrain keys add NAME` makes one.")


def choose_access(cli: CommandContext, keys: str | None, no_keys: bool, command: str = "serve") -> Access:
    """Return the keys of the store, or open access for this machine to the memory that the options name."""
    from engrain.config import load_settings
    from engrain.server.access import Access, OpenAccess

    scope = Scope(cli.tenant, cli.agent, cli.user)
    if no_keys:
        return Access(None, OpenAccess(None if scope == Scope() else scope))
    found = find_keys(load_settings(cli.store).store, keys)
    if found is not None and (keys is not None or found.list()):
        ctx = click.get_current_context()
        if typed := [f"--{name}" for name in SCOPE_OPTIONS if is_typed(ctx, name)]:
            raise click.UsageError(f"each key has its memory: omit {typed[0]}, or add --no-keys to ask for no key.")
        return Access(found)
    if scope == Scope():
        raise ConfigError(
            "there are no keys. Make one: engrain keys add NAME --user USER. "
            f"Or serve one memory to this machine alone: engrain {command} --user USER."
        )
    return Access(None, OpenAccess(scope))


def find_keys(store: str, path: str | None) -> KeyFile | None:
    """Return the file of keys; None for a store that is not a file, if none is named."""
    try:
        return KeyFile(find_key_path(store, path))
    except ConfigError:
        if path is not None:
            raise
        return None


def _open_store(cli: CommandContext) -> Store:
    from engrain.memory import Store
    from engrain.memory.store import warm_up_embedder

    store = Store(cli.store)
    # The first request would wait for the model otherwise.
    threading.Thread(target=warm_up_embedder, args=(store,), name="engrain-warm-up").start()
    return store


def _announce(listener: Listener, access: Access, cli: CommandContext) -> None:
    listener.socket.listen()
    if access.keys is not None:
        count = len(access.keys.list())
        who = f"{count} {'key' if count == 1 else 'keys'} in {access.keys.path}"
    else:
        assert access.open_access is not None, "without keys there is open access"
        who = f"no keys, {access.open_access.scope or 'the whole store'}"
    click.echo(f"engrain serves {cli.store or 'engrain.db'} at {listener.address} ({who}). Ctrl-C stops it.", err=True)


def log_to_stderr(quiet: bool) -> None:
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("engrain.access").setLevel(logging.WARNING if quiet else logging.INFO)


def _finish(store: Store, drained: bool) -> None:
    if not drained:
        # Each write is one transaction: a verb that is cut off here has happened or has not.
        click.echo("Stopped while requests were still in progress.", err=True)
        sys.stderr.flush()
        exit_at_once(EXIT_NOT_DRAINED)
    store.close()
    click.echo("Stopped.", err=True)


MCP_PORT, MCP_DRAIN_SECONDS = 8378, 5


@memory_command(
    "mcp",
    examples=(
        "engrain mcp --store agent.db --user ana",
        "engrain mcp --user ana --read-only",
        "engrain mcp --user ana --tools recall,remember",
        "engrain mcp --repository",
        "engrain mcp --http --port 8378",
    ),
    prints="Messages of the protocol on stdout, and nothing else. With --http the address and the requests, on stderr.",
)
@click.option("--tools", metavar="NAMES", help="Offer only these tools: recall,remember.")
@click.option("--read-only", is_flag=True, help="Offer only recall, list_items and explain, and write nothing.")
@click.option("--repository", is_flag=True, help="Use the memory of `engrain connect` for this folder's repository.")
@click.option("--home", metavar="FOLDER", help="The folder of `engrain connect`, with --repository.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP at /mcp instead of stdin and stdout.")
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen on, with --http.")
@click.option("--port", type=click.IntRange(0, 65535), default=MCP_PORT, show_default=True, help="Port; 0 = any.")
@click.option("--keys", metavar="PATH", help="File of keys (default: next to the store, STORE.keys.json).")
@click.option("--no-keys", is_flag=True, help="Let every local program in, to one memory or to the whole store.")
@click.option("--quiet", is_flag=True, help="Print no line for each request, with --http.")
def mcp(
    cli: CommandContext, tools: str | None, read_only: bool, http: bool, host: str, port: int, **options: Any
) -> None:
    """Give an agent this memory as tools, over the Model Context Protocol.

    An agent starts the command itself and talks to it on stdin and stdout: --user, --agent and --tenant, or
    ENGRAIN_USER and so on, name its memory. With --http, keys name it. docs/how-to/use-mcp.md has settings for Claude
    Code, Codex, Cursor and others.
    """
    try:
        from engrain.mcp.memories import READ_ONLY_RIGHTS, SingleMemory, StoreLoader
        from engrain.mcp.stdio import serve_stdio
        from engrain.mcp.tools import choose_tools
        from engrain.server.resident import find
    except ModuleNotFoundError as exc:
        package = str(exc.name).partition(".")[0]
        raise BackendMissing(f"engrain mcp needs {package}, which", "mcp") from exc

    def find_resident() -> str | None:
        # Through a resident process recall counts its hits, which is a write.
        return None if read_only or http else find(cli.store)

    def open_store() -> Store:
        from engrain.memory import Store

        return Store(find_resident() or cli.store, read_only=read_only)

    log_to_stderr(quiet=not http or options["quiet"])
    names = choose_tools(None if tools is None else [name.strip() for name in tools.split(",")], read_only)
    if options["repository"]:
        _serve_repository(options["home"], names, READ_ONLY_RIGHTS if read_only else RIGHTS)
        return
    loader = StoreLoader(open_store, lambda: cli.is_on_server() or find_resident())
    if http:
        from engrain.mcp.http import McpApi

        access = choose_access(cli, options["keys"], options["no_keys"], "mcp --http")
        _serve_http(McpApi(loader, access, names, read_only), loader, access, (host, port))
    else:
        scope = check_scope(cli.tenant, cli.agent, cli.user)
        serve_stdio(SingleMemory(loader, scope, READ_ONLY_RIGHTS if read_only else RIGHTS), loader, names)


def _serve_repository(home: str | None, names: Sequence[str], rights: tuple[Right, ...]) -> None:
    from engrain.connect.connect_home import ConnectHome
    from engrain.connect.mcp_memory import RepositoryMemory
    from engrain.mcp.stdio import serve_stdio

    memory = RepositoryMemory(ConnectHome.find(home), Path.cwd(), rights)
    # Most sessions call no tool, because hooks bring the context: they should not pay for an open store.
    serve_stdio(memory, memory.loader, names, preload=False)


def _serve_http(api: McpApi, loader: StoreLoader, access: Access, address: tuple[str, int]) -> None:
    from engrain.server.serve import ApiServer, listen_tcp

    listener = listen_tcp(*address)
    try:
        check_listener(access, listener, address[0])
        loader.start()
        listener.socket.listen()
        click.echo(f"engrain mcp at {listener.address}/mcp. Ctrl-C stops it.", err=True)
        ApiServer(api, MCP_DRAIN_SECONDS).serve_until_stopped(listener)
    finally:
        listener.socket.close()
        loader.close()


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
    file.get(name)
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
