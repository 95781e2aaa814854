"""The commands that give coding agents this memory, and take it away again."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext, is_typed
from engrain.cli.output import dim, escape, format_table
from engrain.connect.home import ConnectHome
from engrain.core.errors import ConfigError, Conflict, InvalidInput, NotFound
from engrain.core.validation import to_plain

if TYPE_CHECKING:
    from engrain.connect.changes import FileChange
    from engrain.connect.connector import Connector

ON_OFF = ("on", "off")
STOP_SECONDS = 5.0  # for the resident process to end by itself
project_option = click.option("--project", is_flag=True, help="For the repository of this folder alone.")
print_option = click.option("--print", "show", is_flag=True, help="Show the changes, and make none.")


@memory_command(
    "connect",
    examples=(
        "engrain connect",
        "engrain connect claude codex",
        "engrain connect gemini --project --print",
        "engrain connect --status",
        "engrain connect off --project",
        "engrain connect claude --plugin ~/engrain-plugin",
    ),
    prints="The files that were changed, or with --print the changes. With --status the state of each client.",
    whole_store=True,
)
@click.argument("clients", nargs=-1, metavar="[CLIENT…|on|off]")
@project_option
@print_option
@click.option("--status", is_flag=True, help="Show what is connected, and when it was last heard.")
@click.option(
    "--plugin", type=click.Path(path_type=Path), help="Write a plugin of Claude Code into this folder instead."
)
@click.option("--yes", "-y", is_flag=True, help="Connect what is installed, without a question.")
def connect(cli: CommandContext, clients: Sequence[str], project: bool, show: bool, status: bool, **other: Any) -> None:
    """Give the coding agents on this machine a memory: local, without a key, without a model call.

    CLIENT is claude, codex, gemini, copilot, opencode, cursor or vscode; without one, those that are installed.
    `off` keeps everything connected, but nothing is kept and nothing shown until `on`. --store PATH keeps the memory
    in another file than ~/.local/share/engrain/memory.db. docs/how-to/connect.md says what is kept.
    """
    home = ConnectHome.find()
    if clients and clients[0] in ON_OFF:
        _switch(cli, home, clients, project)
        return
    connector = _make_connector(home, project)
    if status:
        _print_status(cli, home)
        return
    if other["plugin"] is not None:
        _write_plugin(cli, home, other["plugin"].absolute())
        return
    names = list(clients) or _choose_installed(connector, show or other["yes"])
    if show:
        _print_changes(cli, [change for name in names for change in connector.preview(name)])
        return
    if is_typed(click.get_current_context(), "store"):
        _choose_store(home, str(cli.store))
    changed = {name: connector.connect(name) for name in names}
    if any(change.changes for changes in changed.values() for change in changes):
        _stop_resident(home)  # it may be of another installation
    cli.print_result(_list_paths(changed), lambda: _describe_connected(changed, project))


@memory_command(
    "disconnect",
    examples=("engrain disconnect", "engrain disconnect codex", "engrain disconnect --project --print"),
    prints="The files that were restored, or with --print the changes.",
    of_agents=True,
)
@click.argument("clients", nargs=-1, metavar="[CLIENT…]")
@project_option
@print_option
def disconnect(cli: CommandContext, clients: Sequence[str], project: bool, show: bool) -> None:
    """Take the memory away from coding agents: every changed file is restored.

    CLIENT is one of `engrain connect`; without one, all that are connected, also in repositories. A file that somebody
    else changed since loses only our entries. The memory itself stays: `engrain erase` removes it.
    """
    from engrain.connect.connector import list_connections

    home = ConnectHome.find()
    connector = _make_connector(home, project)
    found = [(name, connector) for name in clients] or [
        one for one in list_connections(home) if not project or one[1].project == connector.project
    ]
    if not found:
        raise NotFound(f"nothing is connected{' in this repository' if project else ''}.")
    if show:
        _print_changes(cli, [change for name, one in found for change in one.preview(name, remove=True)])
        return
    changed: dict[str, list[FileChange]] = {}
    for name, one in found:
        changed.setdefault(name, []).extend(one.disconnect(name))
    if not list_connections(home):
        _stop_resident(home)
    cli.print_result(_list_paths(changed), lambda: _describe_disconnected(changed))


def _make_connector(home: ConnectHome, project: bool) -> Connector:
    if os.name != "posix":
        raise ConfigError("agents are connected on Linux and macOS. On Windows give them the MCP server: engrain mcp.")
    from engrain.connect.connector import Connector
    from engrain.connect.repository import find_repository

    return Connector(home, find_repository(Path.cwd()).folder if project else None)


def _choose_store(home: ConnectHome, store: str) -> None:
    """Keep the memory in another store from now on. ConfigError for one that has no resident process."""
    from engrain.server.resident import find_place

    _stop_resident(home)
    location = store if "://" in store else str(Path(store).expanduser().absolute())
    find_place(location)
    home.prepare().write_state({**home.read_state(), "store": location})


def _choose_installed(connector: Connector, yes: bool) -> list[str]:
    found = connector.find_installed()
    if not found:
        raise NotFound("no coding agent was found. Name one: engrain connect claude.")
    if yes:
        return [client.name for client in found]
    if not sys.stdin.isatty():
        raise Conflict("nothing was changed: name the clients, or add --yes to connect all that are installed.")
    chosen = [client.name for client in found if click.confirm(f"Connect {client.title}?", default=True, err=True)]
    if not chosen:
        raise click.Abort
    return chosen


def _switch(cli: CommandContext, home: ConnectHome, words: Sequence[str], project: bool) -> None:
    from engrain.connect.home import switch
    from engrain.connect.repository import find_repository

    if len(words) > 1:
        raise InvalidInput(f"`{words[0]}` stands alone, with --project for this repository.")
    switch(home, words[0] == "on", find_repository(Path.cwd()).name if project else None)
    where = "in this repository" if project else "everywhere"
    cli.print_result({"switched": words[0], "where": where}, lambda: [f"The memory is {words[0]} {where}."])


def _write_plugin(cli: CommandContext, home: ConnectHome, folder: Path) -> None:
    from engrain.connect.clients import Place, write_plugin

    paths = write_plugin(Place(home.prepare(), Path.home()), folder)
    install = [f"claude plugin marketplace add {shlex.quote(str(folder))}", "claude plugin install engrain@engrain"]
    cli.print_result([str(path) for path in paths], lambda: ["The plugin is written. Install it:", *install])


def _stop_resident(home: ConnectHome) -> None:
    from engrain.server.resident import stop

    stop(home.store, STOP_SECONDS, kill=True)


def _list_paths(changed: dict[str, list[FileChange]]) -> dict[str, list[str]]:
    return {name: [str(change.path) for change in changes if change.changes] for name, changes in changed.items()}


def _print_changes(cli: CommandContext, changes: Sequence[FileChange]) -> None:
    value = [{"path": str(change.path), "diff": "\n".join(change.diff())} for change in changes if change.changes]
    cli.print_result(value, lambda: [escape(line) for change in changes for line in change.diff()] or ["No change."])


def _describe_connected(changed: dict[str, list[FileChange]], project: bool) -> Iterator[str]:
    from engrain.connect.clients import CLIENTS

    for name, changes in changed.items():
        done = "connected" if any(change.changes for change in changes) else "was connected already"
        yield f"{CLIENTS[name].title} {done}."
        yield from _list_changed(changes)
        if CLIENTS[name].advice:
            yield dim(f"  {CLIENTS[name].advice}")
    if project:
        yield "These files name paths of this machine: keep them out of commits."
    yield "The next session remembers. For those of the past: engrain load --from CLIENT"


def _describe_disconnected(changed: dict[str, list[FileChange]]) -> Iterator[str]:
    from engrain.connect.clients import CLIENTS

    for name, changes in changed.items():
        yield f"{CLIENTS[name].title} disconnected."
        yield from _list_changed(changes)


def _list_changed(changes: Iterable[FileChange]) -> Iterator[str]:
    for change in changes:
        if change.changes:
            yield dim(f"  {escape(str(change.path))}{'' if change.after is not None else ' (removed)'}")


def _print_status(cli: CommandContext, home: ConnectHome) -> None:
    from engrain.connect.status import read_status

    status = read_status(home, Path.cwd())
    findings = list(status.list_findings())
    shown = [*findings, *(one.judge() for one in status.clients if not one.connected)]
    rows = [("store", status.store), *((one.name, f"{one.why}{f'. {one.fix}' if one.fix else ''}") for one in shown)]
    cli.print_result({**to_plain(status), "findings": findings}, lambda: format_table(rows))
