"""Keep episodes and cached session state in Redis, each with a TTL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.identity import Scope
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, RawOutput
from engrain.stores.composite import ErasureGuard
from engrain.stores.redis.connection import (
    RedisConnection,
    ScopeRegistry,
    load_scripts,
    new_call_id,
    pair_fields,
    parse_time,
)

_LUA = load_scripts("episodes.lua")
# Redis expires by its own clock, which may be ahead of the caller's: it must never expire what is still shown.
GRACE = timedelta(hours=1)
GRACE_MICROS = GRACE // timedelta(microseconds=1)
_MAX_EPISODES = TIERS["episodic"].max_items or 0
_PAGE_SIZE = 500


class RedisEpisodes:
    """The `episodes` port of a RedisStore.

    It knows no items: the caller removes the episodes of forgotten ones. Data on hold is not removed and has no TTL.
    """

    def __init__(self, link: RedisConnection, guard: ErasureGuard) -> None:
        self._link = link
        self._guard = guard
        self._scopes = ScopeRegistry(link, "episodes", spare=True)

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        self._scopes.note(scope)
        most = "" if self._guard.has_hold(scope) else _MAX_EPISODES
        count, importance, expires = self._run("add", scope, episode.id, most, *encode_arguments(episode, raw))
        return replace(episode, count=int(count), importance=float(importance), expires_at=parse_time(expires))

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        index = "all" if session is None else f"of:{session}"
        found: dict[str, Episode] = {}
        top, seen = "+inf", "0"
        while top and len(found) < n:
            most = min(n - len(found), _PAGE_SIZE)
            page, top, seen = self._ask("recent", scope, index, to_micros(now), most, top, seen)
            # The first entry of a page may repeat the last page's, if somebody wrote in between.
            for id, flat in map(json.loads, page):
                found.setdefault(id, decode_episode(id, pair_fields(flat)))
        return list(found.values())[:n]

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        text: str | None = self._ask("raw", scope, id, to_micros(now))
        return text

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        self._guard.check_no_hold(scope)
        pages = [ids[start : start + _PAGE_SIZE] for start in range(0, len(ids), _PAGE_SIZE)]
        return sum(int(self._run("remove", scope, *page)) for page in pages)

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        return 0 if self._guard.has_hold(scope) else int(self._run("trim", scope, session, keep))

    def hold(self, scope: Scope) -> None:
        """Remove the TTL of all existing data."""
        cursor = "0"
        while (cursor := str(self._run("hold", scope, cursor))) != "0":
            pass

    def expire(self, now: datetime) -> int:
        at = to_micros(now)
        gone, held = 0, self._guard.has_any_hold()
        for page in self._scopes.pages():
            bases = [episode_prefix(entry.scope) for entry in page]
            over = self._link.commands(
                [("ZCOUNT", f"{start}{name}", "-inf", at) for start in bases for name in ("due", "raws")]
            )
            for entry in page if held else []:
                # Written while the hold began, or put on hold by a program that did not know this server.
                if self._guard.has_hold(entry.scope):
                    self.hold(entry.scope)
            for entry, *counts in zip(page, over[::2], over[1::2], strict=True):
                gone += self._expire(entry.scope, at) if any(counts) and not self._guard.has_hold(entry.scope) else 0
            left = self._link.commands([("EXISTS", f"{start}all") for start in bases])
            self._scopes.forget([entry for entry, there in zip(page, left, strict=True) if not there])
        return gone

    def _expire(self, scope: Scope, at: int) -> int:
        gone, done = 0, 0
        while not done:
            went, done = self._run("expire", scope, at, _PAGE_SIZE)
            gone += int(went)
        return gone

    def _run(self, name: str, scope: Scope, *args: str | int) -> Any:
        return self._link.run(_LUA[name], episode_prefix(scope), [new_call_id(), GRACE_MICROS, *args], spare=True)

    def _ask(self, name: str, scope: Scope, *args: str | int) -> Any:
        return self._link.ask(_LUA[name], episode_prefix(scope), ["", GRACE_MICROS, *args], spare=True)


def episode_prefix(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:episodes:"


def encode_episode(episode: Episode) -> dict[str, str | int]:
    """Encode an episode as the fields of a hash. Missing values have no field."""
    fields: dict[str, str | int | None] = {
        "session": episode.session,
        "kind": episode.kind,
        "text": episode.text,
        "importance": repr(float(episode.importance)),
        "happened": to_micros(episode.happened_at),
        "expires": None if episode.expires_at is None else to_micros(episode.expires_at),
        "count": episode.count,
        "data": json.dumps(episode.data, ensure_ascii=False) if episode.data else None,
        "item": episode.item,
        "key": episode.key,
    }
    return {name: value for name, value in fields.items() if value is not None}


def encode_arguments(episode: Episode, raw: RawOutput | None) -> list[str | int]:
    """Encode an episode and its raw output for a script."""
    output = ("", "0") if raw is None else (f"={raw.text}", to_micros(raw.expires_at))
    return [*output, *(part for pair in encode_episode(episode).items() for part in pair)]


def decode_episode(id: str, fields: Mapping[str, str]) -> Episode:
    return Episode(
        id=id,
        session=fields["session"],
        kind=fields["kind"],
        text=fields["text"],
        importance=float(fields["importance"]),
        happened_at=from_micros(int(fields["happened"])),
        expires_at=parse_time(fields.get("expires")),
        count=int(fields["count"]),
        data=json.loads(fields.get("data", "{}")),
        item=fields.get("item"),
        key=fields.get("key"),
    )


_STATE_LUA = load_scripts("state.lua")
STATE_LIFETIME = timedelta(days=1)
_STATE_LIFETIME_MS = STATE_LIFETIME // timedelta(milliseconds=1)


class RedisSessionState:
    """The `state` port of a RedisStore. A blocked scope stores and returns nothing: it is only a cache."""

    def __init__(self, link: RedisConnection, guard: ErasureGuard) -> None:
        self._link = link
        self._guard = guard

    def save(self, scope: Scope, session: str, text: str) -> None:
        if not self._guard.find_block_cached(scope):
            args: list[str | int] = [f"working:{session}", _STATE_LIFETIME_MS, text]
            self._link.run(_STATE_LUA["save"], _state_prefix(scope), args, spare=True)

    def load(self, scope: Scope, session: str) -> str | None:
        if self._guard.find_block_cached(scope):
            return None
        text: str | None = self._link.command("GET", f"{_state_prefix(scope)}working:{session}", spare=True)
        return text

    def drop(self, scope: Scope, session: str) -> None:
        self._link.check_writable()
        self._link.command("DEL", f"{_state_prefix(scope)}working:{session}", spare=True)

    def clear(self, scope: Scope) -> int:
        return int(self._link.run(_STATE_LUA["clear"], _state_prefix(scope), [], spare=True))


def _state_prefix(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:sessions:"
