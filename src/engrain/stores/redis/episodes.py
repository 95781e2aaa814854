"""Episodes in Redis, each with the engine's TTL."""

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
from engrain.stores.composite import Door
from engrain.stores.redis.connection import Link, Registry, load, new_call

_LUA = load("episodes.lua")
# The engine goes by its own clock, which may be ahead of the caller's: it must never take away what is still shown.
GRACE = timedelta(hours=1)
GRACE_MICROS = GRACE // timedelta(microseconds=1)
_MOST = TIERS["episodic"].max_items or 0
_PAGE = 500


class RedisEpisodes:
    """A view of the store. It knows no items: what stands over one that was forgotten is for others to remove.

    What is held is not removed, and the engine lets go of nothing of it."""

    def __init__(self, link: Link, door: Door) -> None:
        self._link = link
        self._door = door
        self._scopes = Registry(link, "episodes", spare=True)

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        self._scopes.note(scope)
        kept = ("", "0") if raw is None else (f"={raw.text}", to_micros(raw.expires_at))
        fields = [part for pair in fields_of(episode).items() for part in pair]
        most = "" if self._door.held(scope) else _MOST
        count, importance, expires = self._run("add", scope, episode.id, most, *kept, *fields)
        return replace(episode, count=int(count), importance=float(importance), expires_at=_moment(expires))

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        index = "all" if session is None else f"of:{session}"
        found: dict[str, Episode] = {}
        top, seen = "+inf", "0"
        while top and len(found) < n:
            most = min(n - len(found), _PAGE)
            page, top, seen = self._ask("recent", scope, index, to_micros(now), most, top, seen)
            # The first of a page may have been on the one before, if somebody wrote in between.
            for id, flat in map(json.loads, page):
                found.setdefault(id, episode_of(id, _paired(flat)))
        return list(found.values())[:n]

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        text: str | None = self._ask("raw", scope, id, to_micros(now))
        return text

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        self._door.check_held(scope)
        pages = [ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE)]
        return sum(int(self._run("remove", scope, *page)) for page in pages)

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        return 0 if self._door.held(scope) else int(self._run("trim", scope, session, keep))

    def hold(self, scope: Scope) -> None:
        """Take its TTL from all that is there."""
        cursor = "0"
        while (cursor := str(self._run("hold", scope, cursor))) != "0":
            pass

    def expire(self, now: datetime) -> int:
        at = to_micros(now)
        gone, held = 0, self._door.holds()
        for page in self._scopes.pages():
            bases = [base(one.scope) for one in page]
            over = self._link.commands([("ZCOUNT", f"{start}{name}", "-inf", at) for start in bases for name in _DUE])
            for one in page if held else []:
                # Written while the hold began, or held by somebody who did not know of this server.
                if self._door.held(one.scope):
                    self.hold(one.scope)
            for one, count in zip(page, map(any, zip(over[::2], over[1::2], strict=True)), strict=True):
                gone += self._expire(one.scope, at) if count and not self._door.held(one.scope) else 0
            left = self._link.commands([("EXISTS", f"{start}all") for start in bases])
            self._scopes.forget([one for one, there in zip(page, left, strict=True) if not there])
        return gone

    def _expire(self, scope: Scope, at: int) -> int:
        gone, done = 0, 0
        while not done:
            went, done = self._run("expire", scope, at, _PAGE)
            gone += int(went)
        return gone

    def _run(self, name: str, scope: Scope, *args: str | int) -> Any:
        return self._link.run(_LUA[name], base(scope), [new_call(), GRACE_MICROS, *args], spare=True)

    def _ask(self, name: str, scope: Scope, *args: str | int) -> Any:
        return self._link.ask(_LUA[name], base(scope), ["", GRACE_MICROS, *args], spare=True)


_DUE = ("due", "raws")


def base(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:episodes:"


def fields_of(episode: Episode) -> dict[str, str | int]:
    """What an episode is kept as; what it does not have is not there."""
    given: dict[str, str | int | None] = {
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
    return {name: value for name, value in given.items() if value is not None}


def episode_of(id: str, fields: Mapping[str, str]) -> Episode:
    return Episode(
        id=id,
        session=fields["session"],
        kind=fields["kind"],
        text=fields["text"],
        importance=float(fields["importance"]),
        happened_at=from_micros(int(fields["happened"])),
        expires_at=_moment(fields.get("expires", "")),
        count=int(fields["count"]),
        data=json.loads(fields.get("data", "{}")),
        item=fields.get("item"),
        key=fields.get("key"),
    )


def _paired(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _moment(micros: str) -> datetime | None:
    return from_micros(int(micros)) if micros else None


_STATE_LUA = load("state.lua")
LIFE = timedelta(days=1)
_LIFE = LIFE // timedelta(milliseconds=1)


class RedisSessionState:
    """A view of the store. Of a scope that is shut nothing is kept or shown: none of it is the truth."""

    def __init__(self, link: Link, door: Door) -> None:
        self._link = link
        self._door = door

    def keep(self, scope: Scope, session: str, name: str, text: str) -> None:
        if not self._door.lately_shut(scope):
            self._link.run(_STATE_LUA["keep"], _base(scope), [f"{name}:{session}", _LIFE, text], spare=True)

    def kept(self, scope: Scope, session: str, name: str) -> str | None:
        if self._door.lately_shut(scope):
            return None
        text: str | None = self._link.command("GET", f"{_base(scope)}{name}:{session}", spare=True)
        return text

    def drop(self, scope: Scope, session: str, name: str) -> None:
        self._link.prove_writable()
        self._link.command("DEL", f"{_base(scope)}{name}:{session}", spare=True)

    def clear(self, scope: Scope, name: str | None = None) -> int:
        return int(self._link.run(_STATE_LUA["clear"], _base(scope), [f"{name}:" if name else ""], spare=True))


def _base(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:sessions:"
