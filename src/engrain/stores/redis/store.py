"""Open a Redis server or cluster as a store of episodes, durable tasks and cached session state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from engrain.core.clock import Clock, from_micros, system_clock, to_micros
from engrain.core.errors import (
    BackendUnavailableWarning,
    ConfigError,
    Conflict,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.erasure import Subject
from engrain.core.model.queries import Finding
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind
from engrain.core.model.sessions import RawOutput
from engrain.stores.composite import ErasureGuard
from engrain.stores.redis import episodes, tasks
from engrain.stores.redis.connection import SHARDS, RedisConnection, ScopeRegistry, load_scripts, new_call_id
from engrain.stores.redis.episodes import RedisEpisodes, RedisSessionState, episode_prefix
from engrain.stores.redis.tasks import RedisJournal, decode_steps, decode_task, encode_optional, step_field
from engrain.stores.urls import parse_redis_url

_EPISODES, _JOURNAL = load_scripts("episodes.lua"), load_scripts("journal.lua")
_READ_BATCH_SIZE = 100
_TIME_FIELDS = {"until": "until", "ended_at": "ended", "deadline": "deadline"}
_TEXT_FIELDS = ("goal", "version", "status", "epoch", "worker", "outcome", "snapshot")


class RedisTransfer:
    """The part of a Movable with episodes, tasks, steps and events.

    Each row is restored on its own: a failed call may have written some of its rows, and is repeated.
    """

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._registries = {name: ScopeRegistry(link, name) for name in ("episodes", "tasks")}
        # Caches of a dump: the scopes by the first digit of their ids, and the names in the last scope.
        # Another reader that starts from the beginning resets them.
        self._scopes: dict[str, list[Scope]] = {}
        self._names: dict[str, tuple[Scope, list[str]]] = {}
        self._signalled: dict[str, list[str]] | None = None

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        if after is None:
            self._link.command("PING")  # raises StoreClosed
            self._scopes, self._names, self._signalled = {}, {}, None
        last = after or ()
        rows = (row for known in self._iterate_scopes(kind, after, scope) for row in _DUMPS[kind](self, known, last))
        return list(islice((row for row in rows if row.key > last), limit))

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        """Restore rows. The store of the items checks `since`."""
        for row in rows:
            self._registries["episodes" if row.kind == "episode" else "tasks"].note(row.scope)
            _RESTORES[row.kind](self, row)
            if done:
                done(1)

    # Reading

    def _iterate_scopes(self, kind: RowKind, after: Key | None, scope: Scope | None) -> Iterator[Scope]:
        """Yield the scopes that may hold rows after this key, in the order of their ids."""
        first = after[0] if after else ""
        if scope is not None:
            yield from [scope] if scope.id >= first else []
            return
        registry = self._registries["episodes" if kind == "episode" else "tasks"]
        for shard in SHARDS:
            if shard >= first[:1]:
                if shard not in self._scopes:
                    found = {entry.scope for page in registry.shard(shard) for entry in page}
                    self._scopes[shard] = sorted(found, key=lambda member: member.id)
                yield from (member for member in self._scopes[shard] if member.id >= first)

    def _list_names(self, kind: RowKind, scope: Scope, read: Callable[[], Sequence[str]], last: Key) -> list[str]:
        """Return the names in a scope from the last one on, which may have more rows."""
        known, names = self._names.get(kind, (None, []))
        if known != scope:
            names = sorted(set(read()))
            self._names[kind] = scope, names
        if len(last) < 2 or last[0] != scope.id:
            return names
        return [name for name in names if name >= last[1]]

    def episodes(self, scope: Scope, last: Key) -> Iterator[Row]:
        base = episodes.episode_prefix(scope)
        ids = self._list_names("episode", scope, lambda: self._link.command("ZRANGE", f"{base}all", 0, -1), last)
        for start in range(0, len(ids), _READ_BATCH_SIZE):
            page = ids[start : start + _READ_BATCH_SIZE]
            asked = [("HGETALL", f"{base}{kind}:{id_}") for id_ in page for kind in ("episode", "raw")]
            found = self._link.commands(asked)
            for id_, fields, raw in zip(page, found[::2], found[1::2], strict=True):
                if fields:
                    output = RawOutput(raw["text"], from_micros(int(raw["expires"]))) if raw else None
                    yield moving.episode_to_row(scope, episodes.decode_episode(id_, fields), output)

    def tasks(self, scope: Scope, last: Key) -> Iterator[Row]:
        for task in self._list_tasks("task", scope, last):
            fields = self._link.command("HGETALL", f"{tasks.task_prefix(scope)}task:{task}")
            if fields:
                yield moving.task_to_row(decode_task(scope, task, fields))

    def steps(self, scope: Scope, last: Key) -> Iterator[Row]:
        for task in self._list_tasks("step", scope, last):
            fields = self._link.command("HGETALL", f"{tasks.task_prefix(scope)}steps:{task}")
            for number, step in enumerate(decode_steps(fields), 1):
                yield moving.step_to_row(scope, task, number, step)

    def events(self, scope: Scope, last: Key) -> Iterator[Row]:
        """Yield the events, even of tasks that have not begun."""
        for task in self._list_names("event", scope, lambda: self._list_signalled_tasks().get(scope.id, []), last):
            found = self._link.command("HGETALL", f"{tasks.task_prefix(scope)}events:{task}")
            for event, payload in sorted(found.items()):
                yield moving.event_to_row(scope, task, event, payload)

    def _list_signalled_tasks(self) -> dict[str, list[str]]:
        """Return the names of tasks with events, by scope id."""
        found = self._signalled
        if found is None:
            found = {}
            for key in self._link.keys("engrain:{*}:tasks:events:*"):
                tag, _, rest = key.removeprefix("engrain:{").partition("}:tasks:events:")
                found.setdefault(tag, []).append(rest)
            self._signalled = found
        return found

    def _list_tasks(self, kind: RowKind, scope: Scope, last: Key) -> list[str]:
        base = tasks.task_prefix(scope)
        return self._list_names(kind, scope, lambda: self._link.command("ZRANGE", f"{base}tasks", 0, -1), last)

    # Writing

    def restore_episode(self, row: Row) -> None:
        episode, raw = moving.row_to_episode(row)
        args = [new_call_id(), episodes.GRACE_MICROS, episode.id, *episodes.encode_arguments(episode, raw)]
        self._link.run(_EPISODES["restore"], episodes.episode_prefix(row.scope), args)

    def restore_task(self, row: Row) -> None:
        values = {name: row.values[name] for name in _TEXT_FIELDS}
        values |= {name: row.values[column] for column, name in _TIME_FIELDS.items()}
        fields = [part for name, value in values.items() if value is not None for part in (name, value)]
        self._run("restore_task", row.scope, row.key[1], row.values["started_at"], *fields)

    def restore_step(self, row: Row) -> None:
        step, task = moving.row_to_step(row), row.key[1]
        name = step_field(step.name, step.occurrence)
        what = (int(row.key[2]), step.kind, step.status, step.attempt, step.epoch, step.input, step.key, step.version)
        times = (row.values["began_at"], "" if step.ended_at is None else row.values["ended_at"])
        texts = [str(part) for part in (*what, *times)]
        reply = self._run(
            "restore_step", row.scope, task, name, encode_optional(step.result), encode_optional(step.error), *texts
        )
        if reply[0] == "missing":
            raise Conflict(f"the task {task!r} of a step is missing: the source has changed. Copy again.")

    def restore_event(self, row: Row) -> None:
        _, task, event = row.key
        self._link.check_writable()
        self._link.command("HSET", f"{tasks.task_prefix(row.scope)}events:{task}", event, row.values["payload"])

    def _run(self, name: str, scope: Scope, *args: str | int) -> Any:
        return self._link.run(_JOURNAL[name], tasks.task_prefix(scope), ["", new_call_id(), *args])


_DUMPS: Mapping[RowKind, Callable[[RedisTransfer, Scope, Key], Iterator[Row]]] = {
    "episode": RedisTransfer.episodes,
    "task": RedisTransfer.tasks,
    "step": RedisTransfer.steps,
    "event": RedisTransfer.events,
}
_RESTORES: Mapping[RowKind, Callable[[RedisTransfer, Row], None]] = {
    "episode": RedisTransfer.restore_episode,
    "task": RedisTransfer.restore_task,
    "step": RedisTransfer.restore_step,
    "event": RedisTransfer.restore_event,
}


_NEEDED_SETTINGS = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
_MIN_VERSION = (6, 2)
_ERASE_BATCH_SIZE = 500
_MAX_TASKS = 1_000_000


class ServerInfo(NamedTuple):
    version: str
    lacks: dict[str, str] | None  # settings that a journal needs with another value; None if the server does not tell


def read_server_info(link: RedisConnection, patience: float = 0.0) -> ServerInfo:
    """Read the oldest version and the weakest settings of all servers. ConfigError if one is too old."""
    servers = link.each_server("INFO", "server", patience=patience)
    oldest = min((str(reply["redis_version"]) for reply in servers), key=_parse_version)
    if _parse_version(oldest) < _MIN_VERSION:
        raise ConfigError(f"Redis at {link.address.shown} is {oldest}; engrain needs 6.2 or newer.")
    return ServerInfo(oldest, _find_lacks(link, patience))


def check_durability(link: RedisConnection, info: ServerInfo) -> None:
    """Raise ConfigError if a journal could lose acknowledged writes and the URL does not allow that."""
    if link.address.durability == "relaxed" or info.lacks == {}:
        return
    needs = ", ".join(f"{name} {value}" for name, value in _NEEDED_SETTINGS.items())
    found = "does not let us read its settings (CONFIG GET)" if info.lacks is None else f"has {_describe_lacks(info)}"
    raise ConfigError(
        f"a task journal needs a Redis with {needs}; the one at {link.address.shown} {found}. Change its settings, or "
        "accept that a crash may lose the last steps: add durability=relaxed to the URL."
    )


def build_findings(link: RedisConnection, info: ServerInfo, journal: bool) -> list[Finding]:
    """Build the doctor's findings about the server and its durability."""
    where = Finding("redis", "pass", f"Redis {info.version} at {link.address.shown} answers.")
    if info.lacks is None:
        durable = Finding("redis durability", "warn", "The server does not tell whether it keeps what it acknowledges.")
    elif info.lacks and journal:
        fix = f"Set {', '.join(f'{name} {_NEEDED_SETTINGS[name]}' for name in info.lacks)}."
        why = f"Opened with durability=relaxed: with {_describe_lacks(info)} a crash may lose the last steps of tasks."
        durable = Finding("redis durability", "warn", why, fix)
    elif info.lacks:
        why = f"{_describe_lacks(info)}: enough for episodes, whose words are in the log; not for tasks."
        durable = Finding("redis durability", "pass", why)
    else:
        durable = Finding("redis durability", "pass", "What it acknowledges is on disk, and nothing is evicted.")
    return [where, durable]


def _describe_lacks(info: ServerInfo) -> str:
    return ", ".join(f"{name} {value or 'unknown'}" for name, value in (info.lacks or {}).items())


def _find_lacks(link: RedisConnection, patience: float) -> dict[str, str] | None:
    lacks = {}
    try:
        for name, needed in _NEEDED_SETTINGS.items():
            if others := {
                str(reply.get(name, "")) for reply in link.each_server("CONFIG GET", name, patience=patience)
            } - {needed}:
                lacks[name] = ", ".join(sorted(others))
    except StoreUnavailable:
        raise  # it restarts: nobody knows its settings, and they may be right
    except (ConfigError, StoreError):
        return None
    return lacks


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


class RedisStore:
    """A Redis store with the ports `episodes`, `journal` and `state`. A memory needs another store for its items.

    It opens even if the server does not answer. The journal must know the server's durability, and waits for a
    starting server. Safe to use from several threads and, after a fork, from several processes.
    """

    def __init__(self, url: str, *, clock: Clock = system_clock, read_only: bool = False) -> None:
        self._clock = clock
        # Replaced if the items' store knows erasures and legal holds.
        self.guard = ErasureGuard()
        self._link = RedisConnection(parse_redis_url(url), read_only)
        self._registries = [ScopeRegistry(self._link, name) for name in ("episodes", "tasks")]
        self.where = self._link.address.shown
        try:
            read_server_info(self._link)
        except StoreUnavailable as exc:
            warnings.warn(f"engrain: {exc}", BackendUnavailableWarning, stacklevel=2)
        except BaseException:
            self._link.close()
            raise

    @property
    def last_error(self) -> str | None:
        return self._link.last_error

    @cached_property
    def episodes(self) -> RedisEpisodes:
        return RedisEpisodes(self._link, self.guard)

    @cached_property
    def state(self) -> RedisSessionState:
        return RedisSessionState(self._link, self.guard)

    @cached_property
    def journal(self) -> RedisJournal:
        """Open the journal. ConfigError if the server may lose acknowledged writes, unless durability=relaxed."""
        check_durability(self._link, read_server_info(self._link, self._link.address.patience))
        return RedisJournal(self._link, self._clock, self.guard)

    @cached_property
    def moving(self) -> RedisTransfer:
        return RedisTransfer(self._link)

    def hold(self, user: Subject) -> None:
        for scope in self.scopes(user):
            self.episodes.hold(scope)

    def check(self) -> list[Finding]:
        try:
            info = read_server_info(self._link)
        except StoreClosed:
            raise
        except (ConfigError, StoreError) as exc:
            return [Finding("redis", "fail", str(exc))]
        return build_findings(self._link, info, "journal" in self.__dict__)

    def close(self) -> None:
        self._link.close()

    # Erasure

    def known(self) -> list[Scope]:
        listed = (entry.scope for registry in self._registries for page in registry.pages() for entry in page)
        return list(dict.fromkeys(listed))

    def scopes(self, user: Subject) -> list[Scope]:
        return [scope for scope in self.known() if (scope.tenant, scope.user) == (user.scope.tenant, user.name)]

    def erase(self, scope: Scope) -> int:
        self._link.check_writable()
        keys, gone = self._find_keys(scope), 0
        for start in range(0, len(keys), _ERASE_BATCH_SIZE):
            # All keys share the scope's hash tag, and so are in one slot of a cluster.
            gone += int(self._link.command("UNLINK", *keys[start : start + _ERASE_BATCH_SIZE]))
        for registry in self._registries:
            registry.remove(scope)
        return gone

    def count_remaining(self, scope: Scope) -> int:
        return len(self._find_keys(scope)) + sum(registry.has(scope) for registry in self._registries)

    def count_older(self, scope: Scope, before: datetime, back: bool) -> int:
        at, entries = to_micros(before), f"{episode_prefix(scope)}all"
        old = int(self._link.command("ZCOUNT", entries, "-inf", at))
        later = int(self._link.command("ZCOUNT", entries, f"({at}", "+inf"))
        started: list[int] = [row.values["started_at"] for row in self.moving.dump("task", None, _MAX_TASKS, scope)]
        if back or later or any(time > at for time in started):
            return old + sum(time <= at for time in started)
        return self.count_remaining(scope)

    def _find_keys(self, scope: Scope) -> list[str]:
        # A scan, because no index has the answers to lost calls or events without a task. It does not block the server.
        return list(dict.fromkeys(self._link.keys(f"engrain:{{{scope.id}}}:*")))
