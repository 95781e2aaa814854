"""The command that serves the store over HTTP."""

from __future__ import annotations

import logging
import sys
import threading
from os import _exit as exit_at_once
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import SCOPE_OPTIONS, memory_command
from engrain.cli.context import CommandContext, is_typed
from engrain.core.errors import BackendMissing, ConfigError
from engrain.core.identity import Scope
from engrain.server.keys import KeyFile, find_key_path

if TYPE_CHECKING:
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
