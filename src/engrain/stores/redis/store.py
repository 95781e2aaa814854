"""Open a Redis server or cluster as a store of episodes, durable tasks and cached session state."""

from __future__ import annotations

import warnings
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from engrain.core.clock import Clock, system_clock, to_micros
from engrain.core.errors import BackendUnavailableWarning, ConfigError, StoreClosed, StoreError, StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.queries import Finding
from engrain.stores.composite import ErasureGuard
from engrain.stores.redis.connection import RedisConnection, ScopeRegistry
from engrain.stores.redis.episodes import RedisEpisodes, RedisSessionState, episode_prefix
from engrain.stores.redis.tasks import RedisJournal
from engrain.stores.redis.transfer import RedisTransfer
from engrain.stores.urls import parse_redis_url

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
