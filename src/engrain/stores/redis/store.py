"""A Redis server or cluster as a store of episodes, durable tasks and what sessions have at hand."""

from __future__ import annotations

import warnings
from datetime import datetime
from functools import cached_property

from engrain.core.clock import Clock, system_clock
from engrain.core.erasure import Subject
from engrain.core.errors import ConfigError, ServerAway, StoreClosed, StoreError, StoreUnavailable
from engrain.core.queries import Finding
from engrain.core.scope import Scope
from engrain.stores.door import Door
from engrain.stores.redis import erasing
from engrain.stores.redis.address import read_url
from engrain.stores.redis.durability import findings, promised, proved
from engrain.stores.redis.episodes import RedisEpisodes
from engrain.stores.redis.journal import RedisJournal
from engrain.stores.redis.link import Link
from engrain.stores.redis.moving import RedisMoving
from engrain.stores.redis.state import RedisSessionState


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
            warnings.warn(f"engrain: {exc}", ServerAway, stacklevel=2)
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
        return erasing.known(self._link)

    def scopes(self, user: Subject) -> list[Scope]:
        return erasing.scopes_of(self._link, user)

    def hold(self, user: Subject) -> None:
        for scope in self.scopes(user):
            self.episodes.hold(scope)

    def erase(self, scope: Scope) -> int:
        return erasing.erase(self._link, scope)

    def left(self, scope: Scope) -> int:
        return erasing.left(self._link, scope)

    def remains(self, scope: Scope, before: datetime, back: bool) -> int:
        return erasing.remains(self._link, self.moving, scope, before, back)

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
