"""Commands for a person's view of a connected repository: what happened, and what agents are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext, complete_id
from engrain.cli.output import bold, dim, escape, format_day, wrap
from engrain.connect.home import ConnectHome, open_store
from engrain.core.errors import NotFound
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.memory import Memory

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
    from engrain.connect.blocks import get_kind, get_time

    since = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
    with _open_memories() as (memory, _):
        items = sorted(_list_since(memory, since), key=get_time, reverse=True)
    prompts = [item for item in reversed(items) if item.kind == "message" and item.role == "user"]
    sessions = {name: [one for one in prompts if one.session == name] for name in {one.session: 0 for one in prompts}}
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
    from engrain.connect.blocks import list_rules, list_sections
    from engrain.connect.repository import find_repository
    from engrain.connect.rule_files import list_rule_files, load_rule_files, write_rule_block

    if sum(map(bool, (edit, forget, read, write))) > 1:
        raise click.UsageError("--edit, --forget, --read and --write stand alone.")
    with _open_memories() as (memory, wishes):
        if read:
            files = [str(path) for path in load_rule_files(memory, find_repository(Path.cwd()))]
            cli.print_result(files, lambda: [f"Kept {escape(name)}." for name in files] or ["No file changed."])
        elif write is not None:
            changed, kept = write_rule_block(Path(write), found := list_rules(memory)), len(found)
            said = f"{count_noun(kept, 'rule')} written into {write}." if changed else f"{write} has them already."
            cli.print_result({"file": write, "rules": kept, "changed": changed}, lambda: [escape(said)])
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
