"""Commands that move data: export, load, backup, restore, replay, copy."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext, has_other_data, has_tier_data
from engrain.cli.output import dim, escape, show_progress, to_json_line
from engrain.core.errors import AccessDenied, BadFile, BadLine, Conflict, InvalidInput, NotFound, ReadOnlyStore
from engrain.core.model.results import describe_counts
from engrain.core.validation import count_noun, suggest_name
from engrain.ports.plain_files import open_plain
from engrain.transfer.foreign_databases import is_postgres_url

if TYPE_CHECKING:
    from engrain.core.formats.manifests import RestoreResult
    from engrain.core.model.audit import AuditEntry
    from engrain.memory import Memory
    from engrain.ports.erasure import AuditLog
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadResult


MAX_AGENT_CHARACTERS = 100  # of an agent's name in a file name
MAX_LINES_SHOWN = 20
FORMATS = ("engrain", "notes", "text", "csv", "mem0", "letta", "zep", "langgraph", "chatgpt", "claude")
UNITS = {
    **dict.fromkeys(("notes", "text", "csv"), ("note",)),
    **dict.fromkeys(("letta", "zep", "langgraph"), ("entry", "entries")),
    "engrain": ("row",),
    "mem0": ("memory", "memories"),
}
OUTCOMES = {
    "added": "new",
    "repeated": "already known",
    "replaced": "replaced an older value",
    "behind": "older than the value of their slot",
    "kept_out": "rejected as forgotten or erased here",
}


@memory_command(
    "export",
    examples=(
        "engrain export ana.jsonl --user ana",
        "engrain export ana.md --user ana --format markdown --all-agents",
        "engrain export whole.jsonl --vectors --overwrite",
    ),
    prints="The number of lines of each kind, and a hash of all lines.",
)
@click.argument("path", metavar="FILE")
@click.option(
    "--format",
    type=click.Choice(["jsonl", "markdown"]),
    default="jsonl",
    show_default=True,
    help="jsonl can be loaded again; markdown is for people.",
)
@click.option("--all-agents", is_flag=True, help="One file for each agent that knows --user.")
@click.option("--vectors", is_flag=True, help="Include the vectors, so that a load need not compute them.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def export(cli: CommandContext, path: str, all_agents: bool, **options: Any) -> None:
    """Write this memory to a file.

    The file has facts and their versions, messages, episodes, procedures, tasks and their steps, with ids, times,
    sources and trust. Only you can read it. The same memory gives the same JSON Lines.
    """
    if path == "-":
        raise click.UsageError("an export goes to a file, complete or not at all: give a file name instead of -.")
    if all_agents:
        _export_all_agents(cli, path, options)
        return
    with cli.open_memory() as memory:
        agents = _list_agents(cli, memory)
        others = [agent for agent in agents if agent != cli.agent] if cli.user else []
        if others:
            _check_not_empty(memory, others)
        exported = _export(cli, memory, path, options)
    if others:
        more = f"{count_noun(len(others), 'more memory', 'more memories')} here: {_format_agents(others)}"
        click.echo(f"note: {escape(str(cli.user))} has {more}. --all-agents writes them too.", err=True)
    cli.print_result(_to_dict(exported, path), lambda: [_format_export(exported, path)])


def _export_all_agents(cli: CommandContext, path: str, options: dict[str, Any]) -> None:
    if cli.user is None or cli.agent is not None:
        raise click.UsageError("--all-agents needs --user, and no --agent.")
    with cli.open_memory() as memory:
        agents = _list_agents(cli, memory) or [None]
    files: dict[str, str | None] = {}
    for agent in agents:
        files[_name_file(path, agent, {file.lower() for file in files})] = agent
    taken = [file for file in files if os.path.lexists(file)]
    if taken and not options["overwrite"]:
        exist = "exists" if len(taken) == 1 else "exist"
        raise Conflict(
            f"{', '.join(taken)} {exist} already, and nothing was written. Choose another name, or add --overwrite."
        )
    done: dict[str, ExportResult] = {}
    try:
        for file, agent in files.items():
            with replace(cli, agent=agent).open_memory() as memory:
                done[file] = _export(cli, memory, file, options)
    except BaseException:
        if done:
            click.echo(f"note: written before the error: {', '.join(map(escape, done))}.", err=True)
        raise
    for file, exported in done.items():
        click.echo(to_json_line(_to_dict(exported, file)) if cli.json else _format_export(exported, file))


def _export(cli: CommandContext, memory: Memory, path: str, options: dict[str, Any]) -> ExportResult:
    with show_progress("Exporting", None, cli.json) as progress:
        return memory.export(path, progress=progress, **options)


def _list_agents(cli: CommandContext, memory: Memory) -> list[str | None]:
    """The agents that know the user. NotFound if nothing is kept: a mistyped or missing name gets no file."""
    try:
        memories = memory.store.memories()
    except AccessDenied:
        return [cli.agent]  # a key of one memory sees no other
    same_tenant = [info for info in memories if info.tenant == cli.tenant]
    agents = [info.agent for info in same_tenant if info.user == cli.user]
    if cli.user is None:
        if cli.agent not in agents and any(info.user for info in memories) and not has_other_data(memory):
            whose = f"for the agent {cli.agent!r} alone" if cli.agent else "without a user"
            raise NotFound(f"nothing is kept here {whose}. Name a user with --user: `engrain memories` lists them.")
        return agents
    if agents or has_other_data(memory):
        return agents
    hint = suggest_name(cli.user, [info.user for info in same_tenant if info.user])
    raise NotFound(f"nothing is kept for the user {cli.user!r} here.{hint} `engrain memories` lists all.")


def _check_not_empty(memory: Memory, others: Sequence[str | None]) -> None:
    """NotFound if only other agents know the user: an empty file would claim that nothing is kept."""
    if memory.list(limit=1, history=True) or has_tier_data(memory):
        return
    raise NotFound(
        f"this memory ({memory.scope}) is empty, and no file was written. The user is known to: "
        f"{_format_agents(others)}. Choose one with --agent, or write a file for each with --all-agents."
    )


def _format_agents(agents: Sequence[str | None]) -> str:
    return ", ".join(f"agent={escape(agent)}" if agent else "no agent" for agent in agents)


def _name_file(path: str, agent: str | None, taken: set[str]) -> str:
    """Put the agent before the file's ending, in characters that every file system accepts."""
    if agent is None:
        return path
    file, name = Path(path), quote(agent, safe=" ")
    found = str(file.with_name(f"{file.stem}.{name[:MAX_AGENT_CHARACTERS]}{file.suffix}"))
    if len(name) <= MAX_AGENT_CHARACTERS and found.lower() not in taken:
        return found
    digest = hashlib.blake2b(agent.encode(), digest_size=4).hexdigest()
    return str(file.with_name(f"{file.stem}.{name[:MAX_AGENT_CHARACTERS]}-{digest}{file.suffix}"))


def _to_dict(exported: ExportResult, path: str) -> dict[str, Any]:
    return {"file": path, "rows": exported.rows, "hash": exported.hash}


def _format_export(exported: ExportResult, path: str) -> str:
    return f"Wrote {exported} to {escape(path)}{f'; hash {exported.hash}' if exported.hash else ''}."


@memory_command(
    "load",
    examples=(
        "engrain load ana.jsonl --trusted --dry-run",
        "engrain load notes.jsonl --skip-bad --source support-chat",
        "engrain load notes.md",
        "engrain load chatgpt-export.zip --facts",
        "engrain load conversations.json --format claude --skip-bad",
        "engrain load langgraph-store.sqlite",
        "engrain load --from codex",
        """echo '{"text": "Ana likes tea.", "importance": 0.7}' | engrain load -""",
    ),
    prints="How many were new, already known or rejected; each bad line with its number and what is wrong with it.",
)
@click.argument("file", metavar="FILE|-", required=False)
@click.option("--from", "client", metavar="CLIENT", help="Transcripts of claude, codex, gemini, copilot or opencode.")
@click.option("--format", type=click.Choice(FORMATS), help="The format, if it is not recognized.")
@click.option("--dry-run", is_flag=True, help="Check the file and say what would be loaded; write nothing.")
@click.option("--skip-bad", is_flag=True, help="Notes and chats: load the good lines even if others are bad.")
@click.option("--facts", is_flag=True, help="Chats: also extract facts that users state about themselves.")
@click.option("--source", metavar="NAME", help="The source of notes that name none.")
@click.option("--trusted", is_flag=True, help="Believe the sources, trust and pins in the file: you vouch for it.")
@click.option("--other-scope", is_flag=True, help="Accept an export of another user, agent or tenant.")
def load(cli: CommandContext, file: str | None, client: str | None, dry_run: bool, **options: object) -> None:
    """Import an export, notes, or what mem0, Letta, Zep, LangGraph, ChatGPT or Claude holds.

    An export of engrain is restored item for item. Notes are JSON Lines: each line is {"text": …} and may have
    importance, slot, metadata, source, occurred_at, position {session, number, speaker, role} and relation {subject,
    relation, object}. In a text or Markdown file each line or list entry is a note, in a CSV file each row. LangGraph's
    store is an SQLite file, or the URL of its Postgres database.

    All lines are checked first: one bad line, and nothing is written. Loading a file again adds only what is new.
    Forgotten items stay forgotten. No item gets more than the trust of an import, unless you vouch for the file with
    --trusted: an export that you made yourself.

    With --from, the sessions of a coding agent go into the memory of `engrain connect`, each to its repository.
    """
    if client is not None:
        _load_past(cli, client, dry_run or file is not None or any(options.values()))
        return
    if file is None:
        raise click.UsageError("name a file, or a coding agent with --from.")
    if file == "-":
        _load_file(cli, sys.stdin.buffer, dry_run, options)
        return
    if is_postgres_url(file):
        _load_file(cli, file, dry_run, options)
        return
    with open_plain(file) as opened:
        _load_file(cli, opened, dry_run, options)


def _load_file(cli: CommandContext, file: BinaryIO | str, dry_run: bool, options: dict[str, Any]) -> None:
    # A dry run into a store that does not exist uses one in memory, which leaves nothing behind.
    target = replace(cli, store=":memory:") if dry_run and cli.find_missing_file() else cli
    total = None if isinstance(file, str) else _count_rows(file)
    try:
        with target.open_memory(create=True) as memory, show_progress("Loading", total, cli.json) as progress:
            loaded = memory.load(file, dry_run=dry_run, progress=progress, **options)
    except BadFile as error:
        bad = error.lines
        cli.print_result({"written": False, "bad": bad}, lambda: _format_refusal(bad, is_export=total is not None))
        click.get_current_context().exit(1)
    cli.print_result(loaded, lambda: _format_load(loaded))


def _load_past(cli: CommandContext, client: str, has_options: bool) -> None:
    from engrain.connect.connect_home import ConnectHome, open_store
    from engrain.connect.transcripts import find_pattern, load_transcripts

    if has_options:
        raise click.UsageError("--from stands alone: it takes every transcript that the client keeps.")
    pattern, home = find_pattern(client), ConnectHome.find().prepare()
    with open_store(home) as store, show_progress("Loading", None, cli.json) as progress:
        loaded = load_transcripts(store, home, client, progress)
    read = f"{count_noun(loaded.transcripts, 'transcript')} with {count_noun(loaded.events, 'event')}"
    line = f"{read}; {loaded.unchanged} unchanged since the last load."
    none = f"No transcript was found: {client} keeps them in ~/{pattern}."
    cli.print_result(loaded, lambda: [line if loaded.transcripts or loaded.unchanged else none])


def _count_rows(file: BinaryIO) -> int | None:
    """The rows that an export announces in its first line, items twice: they get vectors too. None if unknown."""
    if not file.seekable():
        return None
    first = file.readline(65_536)
    file.seek(0)
    try:
        rows = json.loads(first)["rows"]
        return int(sum(rows.values()) + rows.get("item", 0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _format_load(loaded: LoadResult) -> Iterator[str]:
    yield from _format_bad_lines(loaded.bad)
    if lines := loaded.kept_out_lines:
        hidden = len(lines) - MAX_LINES_SHOWN
        more = f" and {count_noun(hidden, 'other')}; --json lists all" if hidden > 0 else ""
        yield dim(f"rejected: line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:MAX_LINES_SHOWN]))}{more}")
    counts = [(count, OUTCOMES[name]) for name in OUTCOMES if (count := getattr(loaded, name))]
    unit = UNITS.get(loaded.format, ("message",))
    skipped = f"; {count_noun(len(loaded.bad), 'bad line')} skipped" if loaded.bad else ""
    origin = "" if loaded.format in ("engrain", "notes", "text", "csv") else f" from {loaded.format}"
    if counts and not (loaded.added or loaded.replaced or loaded.behind):
        opening = f"Nothing {'was' if loaded.written else 'would be'} loaded{origin}"
        (first, meaning), *counts = counts
        parts = [f"{count_noun(first, *unit)} {meaning}"]
    else:
        opening = f"{'Loaded' if loaded.written else 'Would load'} {count_noun(loaded.read, *unit)}{origin}"
        parts = []
    parts += [f"{count:,} {meaning}" for count, meaning in counts]
    parts += [f"{count_noun(loaded.facts, 'fact')} extracted from them"] if loaded.facts else []
    yield f"{opening}: {', '.join(parts) or 'nothing to do'}{skipped}."


def _format_refusal(bad: Sequence[BadLine], is_export: bool) -> Iterator[str]:
    yield from _format_bad_lines(bad)
    advice = "Fix them, or add --skip-bad to load the others."
    if is_export:
        advice = "An export is loaded complete or not at all: use the unchanged file, or export again."
    yield f"Nothing was written: {count_noun(len(bad), 'bad line')}. {advice}"


def _format_bad_lines(bad: Sequence[BadLine]) -> Iterator[str]:
    for line in bad[:MAX_LINES_SHOWN]:
        yield f"{click.style(f'line {line.line}', fg='red')}: {escape(line.message)}"
    if len(bad) > MAX_LINES_SHOWN:
        yield dim(f"… and {count_noun(len(bad) - MAX_LINES_SHOWN, 'bad line')} more; --json lists all.")


KEY_VARIABLE = "ENGRAIN_BACKUP_KEY"


@memory_command(
    "backup",
    examples=("engrain backup agent-monday.db", "ENGRAIN_BACKUP_KEY=… engrain backup agent-monday.db --encrypt"),
    prints="The file, its number of items and bytes, and that it was verified.",
)
@click.argument("path", metavar="TO")
@click.option("--encrypt", is_flag=True, help="Encrypt with the key in ENGRAIN_BACKUP_KEY, or ask for one.")
def backup(cli: CommandContext, path: str, encrypt: bool) -> None:
    """Copy the whole store, with every memory in it, to a new file while it is in use.

    The backup is a snapshot of one moment, and it is verified. Its sha256 is in TO.json next to it: keep both. It has
    no bytes of items that were forgotten before. A backup of an encrypted store has the store's key.
    """
    key = _read_backup_key() if encrypt else None
    with cli.open_memory() as memory, show_progress("Backing up", None, cli.json):
        done = memory.store.backup(path, key=key)
    cli.print_result(done, lambda: [f"Backed up to {done}."])


@memory_command(
    "restore",
    examples=(
        "engrain restore agent-monday.db new.db",
        "engrain restore agent-monday.db agent.db --force --yes",
        "engrain restore agent-monday.db agent.db --receipts receipts",
    ),
    prints="The new store, its number of items, and what was left out because it was forgotten since.",
)
@click.argument("source", metavar="BACKUP")
@click.argument("target", metavar="TO")
@click.option("--force", is_flag=True, help="Replace the store at TO.")
@click.option("--yes", "-y", is_flag=True, help="Confirm --force: what was written to TO since the backup is lost.")
@click.option("--receipts", metavar="FILE|DIR", multiple=True, help="Receipts of erasures: leave their users out.")
def restore(cli: CommandContext, source: str, target: str, force: bool, yes: bool, receipts: tuple[str, ...]) -> None:
    """Restore a backup, without what was forgotten or erased since it was taken.

    Close the programs that use TO first. The backup is verified before anything is written, and never changed. After
    an error TO is unchanged.

    With --force the store at TO is replaced. Items that were forgotten or erased in it since the backup stay out. If
    TO is new or damaged, forgotten items may return; the output then says so. --receipts keeps erased users out in
    every case. Use only your own receipts: without its store a receipt cannot be verified.
    """
    from engrain.memory.transfer import restore_backup

    if force and not yes:
        raise click.UsageError(
            f"--force replaces {target}: what was written to it since the backup is lost. Add --yes."
        )
    key = os.environ.get(KEY_VARIABLE) or None
    with show_progress("Restoring", None, cli.json):
        done = restore_backup(source, target, key=key, force=force, receipts=receipts)
    cli.print_result(done, lambda: _format_restore(done))


def _format_restore(done: RestoreResult) -> Iterator[str]:
    yield f"Restored {done}."
    if out := describe_counts(done.kept_out):
        yield dim(f"Left out: {out}.")
    for id, rows in done.receipts.items():
        other = "it belongs to another store, or is older than this backup"
        yield f"Receipt {id}: {count_noun(rows, 'row') + ' left out' if rows else other}."
    if done.may_hold_forgotten:
        yield "Items that were forgotten after this backup may be back: no readable store lists them."
        yield f"If you have that store or receipts: engrain replay {done.path} --against STORE, or --receipts FILE|DIR."


def _read_backup_key() -> str:
    if key := os.environ.get(KEY_VARIABLE) or os.environ.get("ENGRAIN_KEY"):
        return key
    if not sys.stdin.isatty():
        raise InvalidInput(f"--encrypt needs a key: set {KEY_VARIABLE}.")
    asked: str = click.prompt("Key for the backup", hide_input=True, confirmation_prompt=True, err=True)
    return asked


@memory_command(
    "replay",
    examples=(
        "engrain replay postgresql://host/restored --against postgresql://host/engrain",
        "engrain replay postgresql://host/engrain --receipts receipts/",
        "engrain replay new.db --against agent.db",
    ),
    prints="The number of rows of each kind that were removed.",
    whole_store=True,
)
@click.argument("restored", metavar="RESTORED")
@click.option("--against", metavar="STORE", help="The current store, which lists what was forgotten and erased since.")
@click.option("--receipts", metavar="FILE|DIR", multiple=True, help="Receipts of erasures: remove their users again.")
def replay(cli: CommandContext, restored: str, against: str | None, receipts: tuple[str, ...]) -> None:
    """Remove from RESTORED what was forgotten or erased since its backup.

    Use it for a database that was restored by a tool such as pg_restore, and for a store that `engrain restore` made
    at a new path. Run it before any program opens RESTORED. It is one transaction: if it is interrupted, run it
    again. Redis and vector servers of RESTORED are not changed.
    """
    from engrain.memory.transfer import replay_erasures

    if not against and not receipts:
        raise click.UsageError(
            "say where the later erasures are listed: --against STORE, --receipts FILE|DIR, or both."
        )
    CommandContext(restored).check_store_exists()
    with show_progress("Removing", None, cli.json):
        done = replay_erasures(restored, against, receipts=receipts)
    cli.print_result(done, lambda: [str(done), *([f"Removed: {out}."] if (out := describe_counts(done.rows)) else [])])


@memory_command(
    "copy",
    examples=(
        "engrain copy agent.db backup.db",
        "engrain copy agent.db postgresql://host/engrain",
        "engrain copy agent.db large.toml",
    ),
    prints="The number of rows of each kind in both stores, and their common hash.",
    whole_store=True,
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy_store(cli: CommandContext, source: str, target: str) -> None:
    """Copy the whole store, with every memory in it, to another; then compare both.

    FROM and TO are each a path, a URL or a .toml file. TO is a new store, or one where an earlier copy was
    interrupted: the copy then continues. Items keep their ids, times, versions and sources. Forgotten items stay
    forgotten, and expired episodes are left out. Do not write to FROM meanwhile: if it changes, the command says so,
    and you run it again.

    Episodes and tasks that a .toml file keeps in Redis are copied too. In Postgres the role must see all memories: the
    policy "maintenance", or BYPASSRLS. To move a single memory use `engrain export` and `engrain load`.
    """
    if _is_same(source, target):
        raise InvalidInput("FROM and TO are the same store.")
    CommandContext(source).check_store_exists()
    from engrain.factory import open_whole_store
    from engrain.transfer.copy import copy_recorded

    def record(what: str, details: Mapping[str, Any]) -> AuditEntry | None:
        try:
            return _append(start, what, details)
        except ReadOnlyStore:
            # It was opened read-only, so that no missing store is created; now it is known to exist.
            with closing(open_whole_store(source)) as writable:
                return _append(writable, what, details)

    with (
        closing(open_whole_store(source, create=False)) as start,
        closing(open_whole_store(target)) as end,
        show_progress("Copying", None, cli.json) as progress,
    ):
        copied = copy_recorded(start, end, target, record, progress)
    if copied.unrecorded:
        click.echo(f"The copy is not recorded in the audit log of FROM: {copied.unrecorded}", err=True)
    cli.print_result(copied, lambda: [f"Copied: {copied}."])


def _append(store: object, what: str, details: Mapping[str, Any]) -> AuditEntry | None:
    audit: AuditLog | None = getattr(store, "audit", None)
    return None if audit is None else audit.append(what, details)


def _is_same(source: str, target: str) -> bool:
    return source == target or ("://" not in source + target and Path(source).resolve() == Path(target).resolve())
