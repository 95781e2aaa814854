"""The command `engrain ui`: a page to look into a memory and correct it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext
from engrain.cli.output import bold, dim, to_json_line
from engrain.core.errors import BackendMissing
from engrain.core.identity import Scope

if TYPE_CHECKING:
    from engrain.memory import Store


@memory_command(
    "ui",
    examples=("engrain ui", "engrain ui agent.db --user ana", "engrain ui agent.db --port 9000 --no-open"),
    prints="The address of the page, with a token that is new each time. With --json, a document with it.",
)
@click.argument("location", required=False, metavar="[STORE]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen at (default: 8377, or a free one).")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at. Keep it local.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
def ui(cli: CommandContext, location: str | None, port: int | None, host: str, no_open: bool) -> None:
    """Look into a memory in the browser, and correct it.

    Only this machine can reach the page, and only with the token of the printed address. It ends with Ctrl-C.
    """
    if location is not None:
        cli.store = location
    cli.check_store_exists()
    check_installed()
    with cli.open_memory(background=True) as memory:
        show_page(cli, memory.store, memory.scope, (host, port), no_open)


def check_installed() -> None:
    """BackendMissing before any work is done."""
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as exc:
        raise BackendMissing("the page", "ui") from exc


def show_page(
    cli: CommandContext, store: Store, home: Scope, where: tuple[str, int | None] = ("127.0.0.1", None),
    no_open: bool = False,
) -> None:  # fmt: skip
    """Serve the page of an opened store until Ctrl-C."""
    from engrain.ui.serve import Address, choose_home, open_browser, serve

    def announce(address: str) -> None:
        if cli.json:
            click.echo(to_json_line({"address": address}))
            return
        opened = not no_open and open_browser(address)
        click.echo(f"{bold('engrain ui')}  {click.style(address, fg='cyan')}")
        click.echo(dim("Opened in your browser. Ctrl-C ends it." if opened else "Open this address. Ctrl-C ends it."))

    read_only = store.services.read_only
    serve(store, choose_home(home, store), Address(*where), _shorten(cli.store), announce, read_only)


def _shorten(location: str | None) -> str:
    """The name of the store as the page shows it: no folders, and no password of a URL."""
    text = location or "engrain.db"
    return text.partition("://")[0] + " server" if "://" in text else os.path.basename(text)
