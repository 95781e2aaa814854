"""The memory that a command works on, and how the command prints its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from engrain.cli.command import SCOPE_OPTIONS, STORE_OPTIONS
from engrain.cli.output import escape, print_lines, to_json, to_json_line
from engrain.core.errors import (
    AccessDenied,
    BadText,
    ConfigError,
    Conflict,
    EngrainError,
    InvalidInput,
    NotFound,
    ReadOnlyStore,
)
from engrain.core.identity import Scope
from engrain.core.validation import count_noun, suggest_name

if TYPE_CHECKING:
    from engrain.core.model.erasure import Hold
    from engrain.core.model.results import MemoryInfo
    from engrain.memory import Memory


DEFAULT_STORE = "engrain.db"
MAX_STDIN_BYTES = 1 << 26
MIN_ID_PREFIX = 6
ID_LENGTH = 26
HIDDEN = "hidden because an erasure was requested: nothing is shown until the hold is released"


@dataclass
class CommandContext:
    """Set by the options of `engrain`, then by those of the command: the later ones win."""

    store: str | None = None
    user: str | None = None
    agent: str | None = None
    tenant: str | None = None
    json: bool = False

    def open_memory(
        self, *, create: bool = False, embed_first: str = "", background: bool = False, read_only: bool = False
    ) -> Memory:
        """Open the memory. Without `create` a store that does not exist is an error: its path may be mistyped.

        The embedder loads while the store opens if `embed_first` has a text that will be embedded.
        """
        if not create:
            self.check_store_exists()
        if embed_first:
            _preload_embedder(self.store, embed_first)
        from engrain.memory import Memory

        owner = {"user": self.user, "agent": self.agent, "tenant": self.tenant}
        reading = {"stores": {"read_only": True}}
        try:
            settings = reading if read_only else None
            return Memory(self.store, background=background, settings=settings, **owner)  # type: ignore[arg-type]
        except ReadOnlyStore:
            if create:
                raise
            return Memory(self.store, background=False, settings=reading, **owner)  # type: ignore[arg-type]

    @contextmanager
    def read_memory(self, *, embed_first: str = "") -> Iterator[Memory]:
        """Open the memory for a command that reads it; warn if it is empty because of a legal hold or a wrong name."""
        with self.open_memory(embed_first=embed_first) as memory:
            for hold in list_hiding_holds(memory, self.user) if self.user else ():
                click.echo(f"warning: this memory is under a legal hold ({hold.reason}) and {HIDDEN}.", err=True)
            if hint := describe_other_memories(memory):
                click.echo(f"note: {escape(hint)}", err=True)
            yield memory

    def print_result(self, value: Any, lines: Callable[[], Iterable[str]]) -> None:
        """Print one JSON document, or the lines for people."""
        if self.json:
            click.echo(to_json(value))
        else:
            print_lines(lines())

    def print_all(self, values: Sequence[Any], lines: Callable[[Any], Iterable[str]], if_empty: str = "") -> None:
        """Print one JSON document with all values, or the lines for people of each."""
        shown = (line for value in values for line in lines(value))
        self.print_result(values, lambda: shown if values or not if_empty else [if_empty])

    def print_each(self, values: Iterable[Any], lines: Callable[[Any], Iterable[str]]) -> int:
        """Print JSON Lines, or the lines for people, of each value; return the number of values."""
        count = 0
        for value in values:
            count += 1
            if self.json:
                click.echo(to_json_line(value))
            else:
                print_lines(lines(value))
        return count

    def format_command(self, *words: str) -> str:
        """Another command for this memory, safe to paste. Options from environment variables are not repeated."""
        from engrain.core.model.results import format_command

        ctx = click.get_current_context()
        options = {name: getattr(self, name) if is_typed(ctx, name) else None for name in STORE_OPTIONS}
        return format_command(*words, store=options.pop("store"), owner=Scope(**options))

    def check_store_exists(self) -> None:
        if path := self.find_missing_file():
            raise NotFound(f'there is no store {path}. `engrain remember "…"` creates one; --store names another.')

    def is_on_server(self) -> bool:
        """True if the store is named by the URL of an engrain server."""
        from engrain.client.connection import is_server_url
        from engrain.config import load_settings

        return is_server_url(load_settings(self.store).store)

    def find_missing_file(self) -> Path | None:
        """The store's file if it does not exist. A missing server shows when it is opened."""
        file = self.find_store_file()
        return file if file is not None and not file.exists() else None

    def find_store_file(self) -> Path | None:
        """The store's file; None for a server."""
        from engrain.config import load_settings

        file = load_settings(self.store).file
        return file.absolute() if file is not None and file.name != ":memory:" else None


def confirm(question: str, yes: bool) -> None:
    """Ask before data is lost. Conflict if nobody can answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Conflict("nothing was changed: add --yes to do it without a question.")
    click.confirm(question, abort=True, err=True)


def is_typed(ctx: click.Context | None, option: str) -> bool:
    """True if the option is on the command line, here or before the command; not if a variable sets it."""
    if ctx is None:
        return False
    return ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE or is_typed(ctx.parent, option)


def _preload_embedder(store: str | None, text: str) -> None:
    from engrain.client.connection import is_server_url
    from engrain.config import load_settings

    def load() -> None:
        # The verb meets and reports the same error again.
        with suppress(EngrainError):
            chosen = load_settings(store)
            if chosen.embedder == "local" and not is_server_url(chosen.store):
                from engrain.providers.local import local_embedder

                local_embedder().embed([text], "query")

    # Not a daemon: a run that ends early waits for it, because a native load cut off at exit may crash.
    Thread(target=load, name="engrain-preload").start()


def complete_id(memory: Memory, id: str) -> str:
    """Complete the beginning of an id. Conflict if several items have it."""
    if 0 < len(id) < MIN_ID_PREFIX:
        raise InvalidInput(f"{id!r} is too short for the beginning of an id: write {MIN_ID_PREFIX} letters or more.")
    if not MIN_ID_PREFIX <= len(id) < ID_LENGTH:
        return id
    found = memory.list({"id": {"starts with": id}}, history=True, limit=2)
    if len(found) > 1:
        raise Conflict(f"several ids begin with {id!r}: write more of it. `engrain list` shows them.")
    return found[0].id if found else id


def read_text(argument: str | None, name: str) -> str:
    """The argument; or stdin if the argument is "-", or missing while something is piped in.

    One line break at the end of stdin is dropped: `echo` adds it.
    """
    if argument not in (None, "-"):
        return str(argument)
    if argument is None and sys.stdin.isatty():
        raise click.UsageError(f"Give the {name} as an argument, or pipe it in.")
    raw = sys.stdin.buffer.read(MAX_STDIN_BYTES)
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as exc:
        raise BadText(f"the {name} from stdin is not UTF-8: byte {exc.start} is 0x{raw[exc.start]:02x}.") from exc


def list_hiding_holds(memory: Memory, user: str | None = None) -> list[Hold]:
    """The legal holds that hide data; none in a store that cannot erase, or whose key may not see them."""
    try:
        return [hold for hold in memory.store.holds(user=user, tenant=memory.scope.tenant) if hold.hidden]
    except (AccessDenied, ConfigError):
        return []


def check_memory_exists(memory: Memory) -> None:
    """NotFound, with a similar name, if nothing was ever kept in this memory."""
    memories, scope = memory.store.memories(), memory.scope
    if not _is_listed(scope, memories) and not has_other_data(memory):
        raise NotFound(f"nothing is kept for {scope} here.{_suggest(scope, memories)} `engrain memories` lists all.")


def describe_other_memories(memory: Memory) -> str:
    """Say where the user's items are if this memory was never used; else an empty text.

    Another user is named only if the name is similar: it may be mistyped.
    """
    from engrain.core.model.results import list_first

    if memory.list(limit=1, history=True):
        return ""
    try:
        memories, scope = memory.store.memories(), memory.scope
        if not memories or _is_listed(scope, memories) or has_other_data(memory):
            return ""
    except AccessDenied:
        return ""  # a key of one memory sees no other
    same = [info for info in memories if scope.user and info.user == scope.user and scope.tenant in (None, info.tenant)]
    if not same:
        others = count_noun(len(memories), "other memory", "other memories")
        hint = _suggest(scope, memories) or f" The store has {others}."
        return f"this memory ({scope}) is empty.{hint} `engrain memories` lists all."
    named = list_first([f"{info.scope} ({count_noun(info.items, 'item')})" for info in same], separator="; ")
    return f"this memory ({scope}) is empty. The store has {named}: choose it with --agent, --tenant."


def has_other_data(memory: Memory) -> bool:
    """True if the memory is on hold or holds anything besides items."""
    return memory.store.status(memory.scope).hold is not None or has_tier_data(memory)


def has_tier_data(memory: Memory) -> bool:
    """True if the memory holds sessions, episodes, procedures or tasks, or a server that may hold them is down."""
    return any(count != 0 for count in memory.store.status(memory.scope).counts.values())


def _is_listed(scope: Scope, memories: Sequence[MemoryInfo]) -> bool:
    return any(info.scope == scope for info in memories)


def _suggest(scope: Scope, memories: Sequence[MemoryInfo]) -> str:
    for part in SCOPE_OPTIONS:
        name, known = getattr(scope, part), {value for info in memories if (value := getattr(info, part))}
        if name and name not in known and (hint := suggest_name(name, sorted(known))):
            return hint
    return ""
