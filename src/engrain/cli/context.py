"""What every command is given: which memory it is about, and how it answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from engrain.cli.command import COMMON
from engrain.cli.output import document, line, many, safe
from engrain.core.errors import BadText, ConfigError, Conflict, EngrainError, InvalidInput, NotFound, ReadOnlyStore
from engrain.core.identity import Scope
from engrain.core.validation import find_similar_names, suggest_name

if TYPE_CHECKING:
    from engrain.core.model.erasure import Hold
    from engrain.core.model.results import MemoryInfo
    from engrain.memory import Memory


DEFAULT_STORE = "engrain.db"
MAX_STDIN = 1 << 26
SHORTEST_PREFIX = 6
ID_LENGTH = 26
HIDDEN = "hidden, because an erasure was asked for: nothing is shown until the release"


@dataclass
class Session:
    """Set by the group's options, then by the command's own: the later ones win."""

    store: str | None = None
    user: str | None = None
    agent: str | None = None
    tenant: str | None = None
    json: bool = False

    def memory(
        self, *, makes: bool = False, embeds: str = "", background: bool = False, read_only: bool = False
    ) -> Memory:
        """The opened memory. Only a command that `makes` items creates the file: a mistyped path is an error.

        `embeds` is a text that will be embedded: the embedder loads while the store opens. A command that stays open
        lets the `background` do its work.
        """
        if not makes:
            self.must_exist()
        if embeds:
            _warm(self.store, embeds)
        from engrain.memory import Memory

        who = {"user": self.user, "agent": self.agent, "tenant": self.tenant}
        reading = {"stores": {"read_only": True}}
        try:
            chosen = reading if read_only else None
            return Memory(self.store, background=background, settings=chosen, **who)  # type: ignore[arg-type]
        except ReadOnlyStore:
            if makes:
                raise
            return Memory(self.store, background=False, settings=reading, **who)  # type: ignore[arg-type]

    @contextmanager
    def looking(self, *, embeds: str = "") -> Iterator[Memory]:
        """The memory, for a command that looks into it: what a legal hold hides reads as empty, and so does the memory
        of a wrong name; both are told."""
        from engrain.cli.output import safe

        with self.memory(embeds=embeds) as memory:
            for one in hidden(memory, self.user) if self.user else ():
                click.echo(f"warning: this memory is under a legal hold ({one.reason}) and {HIDDEN}.", err=True)
            if told := elsewhere(memory):
                click.echo(f"note: {safe(told)}", err=True)
            yield memory

    def answer(self, value: Any, lines: Callable[[], Iterable[str]]) -> None:
        """One JSON document, or the lines for people."""
        if self.json:
            click.echo(document(value))
            return
        for text in lines():
            click.echo(text)

    def answer_each(self, values: Iterable[Any], lines: Callable[[Any], Iterable[str]]) -> int:
        """JSON Lines, or the lines of each value for people; how many there were."""
        count = 0
        for value in values:
            count += 1
            for text in [line(value)] if self.json else lines(value):
                click.echo(text)
        return count

    def command(self, *words: str) -> str:
        """Another command for the memory that was named on this command line, safe to paste. What a variable of the
        environment names it finds there again."""
        from engrain.core.identity import Scope
        from engrain.core.model.results import format_command

        here = click.get_current_context()
        given = {name: getattr(self, name) if typed(here, name) else None for name in COMMON}
        return format_command(*words, store=given.pop("store"), owner=Scope(**given))

    def must_exist(self) -> None:
        path = self._file()
        if path is not None and not path.exists():
            raise NotFound(f'there is no store {path}. `engrain remember "…"` makes one; --store names another.')

    def exists(self) -> bool:
        """A server is there, or opening it says that it is not."""
        path = self._file()
        return path is None or path.exists()

    def _file(self) -> Path | None:
        """None if the store is no file."""
        from engrain.config import settings

        scheme, found, rest = settings(self.store).store.partition("://")
        path = rest if found else scheme
        file = (not found or scheme in ("sqlite", "file")) and path != ":memory:"
        return Path(path).expanduser().absolute() if file else None


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost. Conflict if nobody can answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Conflict("nothing was changed: add --yes to do it without being asked.")
    click.confirm(question, abort=True, err=True)


def typed(ctx: click.Context | None, option: str) -> bool:
    """On the command line, here or before the command; not by a variable of the environment."""
    if ctx is None:
        return False
    return ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE or typed(ctx.parent, option)


def hidden(memory: Memory, user: str | None = None) -> list[Hold]:
    """The holds that hide something; none in a store that cannot erase."""
    try:
        return [one for one in memory.store.holds(user=user, tenant=memory.scope.tenant) if one.hidden]
    except ConfigError:
        return []


def _warm(store: str | None, text: str) -> None:
    def load() -> None:
        # An error here is met again, and reported, by the verb itself.
        with suppress(EngrainError):
            if settings(store).embedder == "local":
                from engrain.providers.local import local_embedder

                local_embedder().embed([text], "query")

    from engrain.config import settings

    # Not a daemon: a run that ends early waits for it, because a native load cut off at exit may crash.
    Thread(target=load, name="engrain-warm").start()


def whole_id(memory: Memory, given: str) -> str:
    """An id, or the beginning of one that only one item has."""
    if 0 < len(given) < SHORTEST_PREFIX:
        raise InvalidInput(
            f"{given!r} is too short for the beginning of an id: write {SHORTEST_PREFIX} letters or more."
        )
    if not SHORTEST_PREFIX <= len(given) < ID_LENGTH:
        return given
    found = memory.list({"id": {"starts with": given}}, history=True, limit=2)
    if len(found) > 1:
        raise Conflict(f"several ids begin with {given!r}: write more of it. `engrain list` shows them.")
    return found[0].id if found else given


def given_text(text: str | None, what: str) -> str:
    """The argument itself; from stdin if it is "-", or if there is none and something is piped in.

    From stdin, one line break at the end is not part of the text: `echo` puts it there.
    """
    if text not in (None, "-"):
        return str(text)
    if text is None and sys.stdin.isatty():
        raise click.UsageError(f"Give the {what} as an argument, or pipe it in.")
    raw = sys.stdin.buffer.read(MAX_STDIN)
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as exc:
        raise BadText(f"the {what} from stdin is not UTF-8: byte {exc.start} is 0x{raw[exc.start]:02x}.") from exc


PARTS = ("user", "agent", "tenant")
MOST = 3


def check_known(memory: Memory) -> None:
    """NotFound, with the name that may have been meant, if nothing ever was."""
    every, scope = memory.store.memories(), memory.scope
    if _is_among(scope, every) or something(memory):
        return
    raise NotFound(f"nothing is kept of {scope} here.{_guess(scope, every)} `engrain memories` lists all.")


def elsewhere(memory: Memory) -> str:
    """Where the user's items are, or how to find out, if nothing was ever kept here and something is in other memories
    of the store; else an empty text. Of other users it names none but one that is spelled alike."""
    if memory.list(limit=1, history=True):
        return ""
    every, scope = memory.store.memories(), memory.scope
    if not every or _is_among(scope, every) or something(memory):
        return ""
    same = [one for one in every if scope.user and one.user == scope.user and scope.tenant in (None, one.tenant)]
    if not same:
        guess = _guess(scope, every) or f" The store has {many(len(every), 'other memory', 'other memories')}."
        return f"this memory ({scope}) is empty.{guess} `engrain memories` lists all."
    told = "; ".join(f"{_scope(one)} ({many(one.items, 'item')})" for one in same[:MOST])
    more = f" and {len(same) - MOST} more" if len(same) > MOST else ""
    return f"this memory ({scope}) is empty. The store has {told}{more}: name it with --agent, --tenant."


def _is_among(scope: Scope, every: Sequence[MemoryInfo]) -> bool:
    return any(_scope(one) == scope for one in every)


def _scope(one: MemoryInfo) -> Scope:
    return Scope(one.tenant, one.agent, one.user)


def _guess(scope: Scope, every: Sequence[MemoryInfo]) -> str:
    for part in PARTS:
        name, names = getattr(scope, part), {one for owned in every if (one := getattr(owned, part))}
        if name and name not in names and (told := suggest_name(name, sorted(names))):
            return told
    return ""


def something(memory: Memory) -> bool:
    """On a server beside, or hidden."""
    return memory.store.status(memory.scope).hold is not None or counted(memory)


def counted(memory: Memory) -> bool:
    """Whether it has anything besides items, or a server that may have it does not answer."""
    return any(count != 0 for count in memory.store.status(memory.scope).holds.values())


LOOKED_AT = 5_000  # newest items
SHOWN = 5


def nothing_from(memory: Memory, source: str) -> list[str]:
    """With the names that are like it."""
    items = memory.list({"source": {"exists": True}}, history=True, limit=LOOKED_AT)
    known = {one.name for item in items for one in item.sources if one.name}
    said = memory.list({"role": "assistant"}, history=True, limit=LOOKED_AT)
    from engrain.core.model.messages import read_calls
    from engrain.core.rules.removal import find_addresses

    known |= {one for item in said for call in read_calls(item.text, item.metadata) for one in find_addresses(call)}
    like = list(dict.fromkeys([*_of_host(source, known), *find_similar_names(source, known, SHOWN)]))[:SHOWN]
    named = [f"Sources that are like it: {', '.join(map(safe, like))}"] if like else []
    return [f"Nothing came from {safe(source)}.", *named]


def _of_host(source: str, known: set[str]) -> list[str]:
    host = urlsplit(source).netloc
    return sorted(one for one in known if one.startswith(source) or (host and urlsplit(one).netloc == host))
