"""Commands for coding agents: connect, disconnect, recap, rules."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext, complete_id, is_typed
from engrain.cli.output import bold, dim, escape, format_day, format_table, wrap
from engrain.connect.connect_home import ConnectHome, open_store
from engrain.core.errors import ConfigError, Conflict, InvalidInput, NotFound
from engrain.core.validation import count_noun, to_plain

if TYPE_CHECKING:
    from engrain.connect.connector import Connector
    from engrain.connect.settings_changes import FileChange
    from engrain.core.model.items import Item
    from engrain.memory import Memory


ON_OFF = ("on", "off")
STOP_SECONDS = 5.0  # for the resident process to end by itself
project_option = click.option("--project", is_flag=True, help="For the repository of this folder alone.")
print_option = click.option("--dry-run", "show", is_flag=True, help="Show the changes, and make none.")


@memory_command(
    "connect",
    examples=(
        "engrain connect",
        "engrain connect claude codex",
        "engrain connect gemini --project --dry-run",
        "engrain connect --status",
        "engrain connect off --project",
        "engrain connect claude --plugin ~/engrain-plugin",
    ),
    prints="The files that were changed, or with --dry-run the changes. With --status the state of each client.",
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
    examples=("engrain disconnect", "engrain disconnect codex", "engrain disconnect --project --dry-run"),
    prints="The files that were restored, or with --dry-run the changes.",
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
        connection for connection in list_connections(home) if not project or connection[1].project == connector.project
    ]
    if not found:
        raise NotFound(f"nothing is connected{' in this repository' if project else ''}.")
    if show:
        _print_changes(cli, [change for name, connector in found for change in connector.preview(name, remove=True)])
        return
    changed: dict[str, list[FileChange]] = {}
    for name, connector in found:
        changed.setdefault(name, []).extend(connector.disconnect(name))
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
    from engrain.connect.connect_home import switch
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
    shown = [*findings, *(client.judge() for client in status.clients if not client.connected)]
    rows = [
        ("store", status.store),
        *((finding.name, f"{finding.why}{f'. {finding.fix}' if finding.fix else ''}") for finding in shown),
    ]
    cli.print_result({**to_plain(status), "findings": findings}, lambda: format_table(rows))


MAX_DAYS = 3_650
PAGE = 1_000
MAX_LINE = 160
SHORT_ID = 14  # enough to name one item; --json has the whole ids
_TITLES = {
    "rule": "Rules", "correction": "Corrections", "decision": "Decisions", "cause": "Causes", "fix": "Errors and fixes",
    "command": "Commands", "file": "Files",
}  # fmt: skip


@memory_command(
    "recap",
    examples=("engrain recap", "engrain recap --days 7"),
    prints="Sessions and prompts of these days, then what was kept from them, newest first.",
    of_agents=True,
)
@click.option("--days", type=click.IntRange(1, MAX_DAYS), default=1, show_default=True, help="How many days back.")
def recap(cli: CommandContext, days: int) -> None:
    """Show what happened in the repository of this folder, today or in some days."""
    from engrain.connect.session_texts import get_kind, get_time

    since = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
    with _open_memories() as (memory, _):
        items = sorted(_list_since(memory, since), key=get_time, reverse=True)
    prompts = [item for item in reversed(items) if item.kind == "message" and item.role == "user"]
    sessions = {
        name: [prompt for prompt in prompts if prompt.session == name]
        for name in {prompt.session: 0 for prompt in prompts}
    }
    kept = {kind: [item for item in items if get_kind(item) == kind] for kind in _TITLES}
    value = {"since": since, "sessions": len(sessions), "prompts": len(prompts), "kept": kept}
    cli.print_result(value, lambda: _format_recap(since, list(sessions.values()), kept))


@memory_command(
    "rules",
    examples=(
        "engrain rules",
        "engrain rules --edit cr3z39t8 'we use pnpm'",
        "engrain rules --forget cr3z39t8",
        "engrain rules --read",
        "engrain rules --write AGENTS.md",
    ),
    prints="What a session is told at its start, with ids; or what was changed.",
    of_agents=True,
)
@click.option("--edit", nargs=2, metavar="ID TEXT", help="Replace a text.")
@click.option("--forget", metavar="ID", help="Remove an item, with the words that it came from.")
@click.option("--read", is_flag=True, help="Keep CLAUDE.md, AGENTS.md and other files with rules, pinned.")
@click.option("--write", metavar="FILE", help="Write the rules of this repository into a block of this file.")
def rules(cli: CommandContext, edit: tuple[str, str] | None, forget: str | None, read: bool, write: str | None) -> None:
    """Show what agents are told in the repository of this folder, and change it.

    --write changes nothing outside of its block, which begins and ends with a comment.
    """
    from engrain.connect.repository import find_repository
    from engrain.connect.rule_files import list_rule_files, load_rule_files, write_rule_block
    from engrain.connect.session_texts import list_rules, list_sections

    if sum(map(bool, (edit, forget, read, write))) > 1:
        raise click.UsageError("--edit, --forget, --read and --write stand alone.")
    with _open_memories() as (memory, wishes):
        if read:
            files = [str(path) for path in load_rule_files(memory, find_repository(Path.cwd()))]
            cli.print_result(files, lambda: [f"Kept {escape(name)}." for name in files] or ["No file changed."])
        elif write is not None:
            changed, count = write_rule_block(Path(write), found := list_rules(memory)), len(found)
            message = f"{count_noun(count, 'rule')} written into {write}." if changed else f"{write} has them already."
            cli.print_result({"file": write, "rules": count, "changed": changed}, lambda: [escape(message)])
        elif edit is not None:
            owner, id = _find_owner(edit[0], memory, wishes)
            new = owner.correct(id, edit[1])
            cli.print_result({"id": new}, lambda: [f"Corrected: {new}."])
        elif forget is not None:
            owner, id = _find_owner(forget, memory, wishes)
            owner.forget(id)
            cli.print_result({"forgotten": id}, lambda: [f"Forgotten: {id}."])
        else:
            sections = [*list_sections(memory, wishes), *list_rule_files(memory)]
            cli.print_result(dict(sections), lambda: _format_sections(sections) or ["Nothing is known here yet."])


@contextmanager
def _open_memories() -> Iterator[tuple[Memory, Memory]]:
    """The memory of this repository, and the user's own wishes."""
    from engrain.connect.repository import find_repository, make_scopes

    home = ConnectHome.find()
    if not home.folder.exists():
        raise NotFound("no coding agent was connected yet: engrain connect.")
    own, personal = make_scopes(find_repository(Path.cwd()))
    with open_store(home.prepare(), background=False) as store:
        yield store.memory(agent=own.agent, user=own.user), store.memory(user=personal.user)


def _list_since(memory: Memory, since: datetime) -> Iterator[Item]:
    """Yield what happened since then. Of a loaded past that is less than what was recorded since then."""
    undated = {"occurred_at": {"exists": False}, "recorded_at": {">=": since}}
    for where in ({"occurred_at": {">=": since}}, undated):
        page = memory.list(where, limit=PAGE)
        while page:
            yield from page
            page = memory.list(where, limit=PAGE, after=page[-1].id)


def _find_owner(id: str, *memories: Memory) -> tuple[Memory, str]:
    for memory in memories:
        full = complete_id(memory, id)
        if memory.get(full) is not None:
            return memory, full
    raise NotFound(f"there is no item {id!r} here. `engrain rules` lists them.")


def _format_recap(since: datetime, sessions: Sequence[Sequence[Item]], kept: dict[str, list[Item]]) -> Iterator[str]:
    """The sessions, each with its first prompt, and what was kept from them."""
    prompts = count_noun(sum(map(len, sessions)), "prompt")
    yield f"Since {since:%A, %-d %B}: {count_noun(len(sessions), 'session')}, {prompts}."
    for prompted in sessions:
        first = prompted[0]
        at = (first.occurred_at or first.recorded_at).astimezone()
        more = f" (+{len(prompted) - 1})" if len(prompted) > 1 else ""
        yield from wrap(f"{at:%a %H:%M}  {first.metadata.get('client', '')}: {_shorten(first.text)}{more}", "  ")
    for kind, items in kept.items():
        if items:
            yield bold(_TITLES[kind])
            for item in items:
                yield from wrap(_describe_item(item), "  ")


def _format_sections(sections: Sequence[tuple[str, Sequence[Item]]]) -> list[str]:
    lines = []
    for title, items in sections:
        lines.append(bold(title))
        for item in items:
            lines += wrap(_describe_item(item), "  ")
            lines.append(dim(f"    {item.id[:SHORT_ID]} · {format_day(item.occurred_at or item.recorded_at)}"))
    return lines


def _describe_item(item: Item) -> str:
    """The text of an item; an error and its solution in one line."""
    if path := item.metadata.get("path"):
        return str(path)
    error, _, solution = item.text.partition("\nResolved: ")
    return f"{_shorten(error.removeprefix('Error: ').splitlines()[0])} → {solution}" if solution else item.text


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
