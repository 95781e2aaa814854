"""The command that offers a memory to agents over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command
from engrain.cli.commands.serve import check_listener, choose_access, log_to_stderr
from engrain.cli.context import CommandContext
from engrain.core.errors import BackendMissing
from engrain.core.http_routes import RIGHTS, Right
from engrain.core.identity import check_scope

if TYPE_CHECKING:
    from engrain.mcp.http import McpApi
    from engrain.mcp.memories import StoreLoader
    from engrain.memory import Store
    from engrain.server.access import Access

DEFAULT_HOST, DEFAULT_PORT, DRAIN_SECONDS = "127.0.0.1", 8378, 5


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
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0 = any.")
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
        from engrain.mcp.memories import READ_ONLY_RIGHTS, OneMemory, StoreLoader
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
        serve_stdio(OneMemory(loader, scope, READ_ONLY_RIGHTS if read_only else RIGHTS), loader, names)


def _serve_repository(home: str | None, names: Sequence[str], rights: tuple[Right, ...]) -> None:
    from engrain.connect.home import ConnectHome
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
        ApiServer(api, DRAIN_SECONDS).serve_until_stopped(listener)
    finally:
        listener.socket.close()
        loader.close()
