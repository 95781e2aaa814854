"""A Redis server or cluster as a store of episodes and durable tasks."""

from __future__ import annotations

from functools import cached_property

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import ConfigError, StoreClosed, StoreError
from engrain.core.queries import Finding
from engrain.stores.redis.address import read_url
from engrain.stores.redis.durability import findings, promised, proved
from engrain.stores.redis.episodes import RedisEpisodes
from engrain.stores.redis.journal import RedisJournal
from engrain.stores.redis.link import Link


class RedisStore:
    """`episodes` and `journal` are its ports. Redis holds no items: a memory needs another store for those.

    Safe to use from several threads and, after a fork, from several processes.
    """

    def __init__(self, url: str, *, clock: Clock = system_clock, read_only: bool = False) -> None:
        self._clock = clock
        self._link = Link(read_url(url), read_only)
        try:
            self._promise = promised(self._link)
        except BaseException:
            self._link.close()
            raise

    @cached_property
    def episodes(self) -> RedisEpisodes:
        return RedisEpisodes(self._link)

    @cached_property
    def journal(self) -> RedisJournal:
        """ConfigError if the server may lose what it acknowledges, unless the URL says durability=relaxed."""
        proved(self._link, self._promise)
        return RedisJournal(self._link, self._clock)

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
