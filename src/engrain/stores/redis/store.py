"""A Redis server or cluster as a store of episodes, durable tasks and what sessions have at hand."""

from __future__ import annotations

import warnings
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import BackendUnavailableWarning, ConfigError, StoreClosed, StoreError, StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.queries import Finding
from engrain.stores.composite import Door
from engrain.stores.redis import transfer
from engrain.stores.redis.connection import Link
from engrain.stores.redis.episodes import RedisEpisodes, RedisSessionState
from engrain.stores.redis.tasks import RedisJournal
from engrain.stores.redis.transfer import RedisMoving
from engrain.stores.urls import read_url

_NEEDED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
_OLDEST = (6, 2)


class Promise(NamedTuple):
    """`lacks` are the settings that a journal needs and that are otherwise; None if the server does not tell."""

    version: str
    settings: dict[str, str] | None

    @property
    def lacks(self) -> dict[str, str] | None:
        if self.settings is None:
            return None
        return {name: value for name, value in self.settings.items() if value != _NEEDED[name]}


def promised(link: Link, patience: float = 0.0) -> Promise:
    """The least that any of the servers promises. ConfigError for one that is too old."""
    versions = [_version(told) for told in link.each_server("INFO", "server", patience=patience)]
    oldest = min(versions, key=_numbers)
    if _numbers(oldest) < _OLDEST:
        raise ConfigError(f"Redis at {link.address.shown} is {oldest}; engrain needs 6.2 or newer.")
    return Promise(oldest, _settings(link))


def proved(link: Link, promise: Promise) -> None:
    """ConfigError if a journal here could lose what was acknowledged and nobody has said that it may."""
    if link.address.durability == "relaxed" or promise.lacks == {}:
        return
    needs = ", ".join(f"{name} {value}" for name, value in _NEEDED.items())
    found = "does not let us look at its settings (CONFIG GET)" if promise.lacks is None else f"has {_told(promise)}"
    raise ConfigError(
        f"a task journal needs a Redis with {needs}; the one at {link.address.shown} {found}. Set it so, or accept "
        "that a crash may lose the last steps: add durability=relaxed to the URL."
    )


def findings(link: Link, promise: Promise, journal: bool) -> list[Finding]:
    """For `doctor`: what the server is, and what it keeps."""
    where = Finding("redis", "pass", f"Redis {promise.version} at {link.address.shown} answers.")
    if promise.lacks is None:
        kept = Finding("redis durability", "warn", "The server does not tell whether it keeps what it acknowledges.")
    elif promise.lacks and journal:
        mend = f"Set {', '.join(f'{name} {_NEEDED[name]}' for name in promise.lacks)}."
        why = f"Opened with durability=relaxed: with {_told(promise)} a crash may lose the last steps of tasks."
        kept = Finding("redis durability", "warn", why, mend)
    elif promise.lacks:
        why = f"{_told(promise)}: enough for episodes, whose words are in the log; not for tasks."
        kept = Finding("redis durability", "pass", why)
    else:
        kept = Finding("redis durability", "pass", "What it acknowledges is on disk, and nothing is evicted.")
    return [where, kept]


def _told(promise: Promise) -> str:
    return ", ".join(f"{name} {value or 'unknown'}" for name, value in (promise.lacks or {}).items())


def _settings(link: Link) -> dict[str, str] | None:
    found = {}
    try:
        for name, needed in _NEEDED.items():
            values = {str(told.get(name, "")) for told in link.each_server("CONFIG GET", name)}
            found[name] = needed if values == {needed} else ", ".join(sorted(values - {needed}))
    except (ConfigError, StoreError):
        return None
    return found


def _version(told: dict[str, object]) -> str:
    return str(told["redis_version"])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


class RedisStore:
    """`episodes`, `journal` and `state` are its ports. Redis holds no items: a memory needs another store for those.

    It can be opened while the server is away, but for the journal, which must know what the server keeps and waits for
    one that is starting. Safe to use from several threads and, after a fork, from several processes.
    """

    def __init__(self, url: str, *, clock: Clock = system_clock, read_only: bool = False) -> None:
        self._clock = clock
        # Set by whoever opens it beside a store that knows of erasures and legal holds.
        self.door = Door()
        self._link = Link(read_url(url), read_only)
        try:
            promised(self._link)
        except StoreUnavailable as exc:
            warnings.warn(f"engrain: {exc}", BackendUnavailableWarning, stacklevel=2)
        except BaseException:
            self._link.close()
            raise

    @property
    def where(self) -> str:
        return self._link.address.shown

    @property
    def trouble(self) -> str | None:
        return self._link.trouble

    @cached_property
    def episodes(self) -> RedisEpisodes:
        return RedisEpisodes(self._link, self.door)

    @cached_property
    def state(self) -> RedisSessionState:
        return RedisSessionState(self._link, self.door)

    @cached_property
    def journal(self) -> RedisJournal:
        """ConfigError if the server may lose what it acknowledges, unless the URL says durability=relaxed."""
        proved(self._link, promised(self._link, self._link.address.patience))
        return RedisJournal(self._link, self._clock, self.door)

    @cached_property
    def moving(self) -> RedisMoving:
        return RedisMoving(self._link)

    def known(self) -> list[Scope]:
        return transfer.known(self._link)

    def scopes(self, user: Subject) -> list[Scope]:
        return transfer.scopes_of(self._link, user)

    def hold(self, user: Subject) -> None:
        for scope in self.scopes(user):
            self.episodes.hold(scope)

    def erase(self, scope: Scope) -> int:
        return transfer.erase(self._link, scope)

    def left(self, scope: Scope) -> int:
        return transfer.left(self._link, scope)

    def remains(self, scope: Scope, before: datetime, back: bool) -> int:
        return transfer.remains(self._link, self.moving, scope, before, back)

    def check(self) -> list[Finding]:
        try:
            promise = promised(self._link)
        except StoreClosed:
            raise
        except (ConfigError, StoreError) as exc:
            return [Finding("redis", "fail", str(exc))]
        return findings(self._link, promise, "journal" in self.__dict__)

    def close(self) -> None:
        self._link.close()
