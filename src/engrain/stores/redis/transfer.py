"""The rows that Redis holds of a memory: read one after the other, and written as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.erasure import Subject
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind
from engrain.core.model.sessions import RawOutput
from engrain.stores.redis import episodes, tasks
from engrain.stores.redis.connection import SHARDS, Link, Registry, load, new_call
from engrain.stores.redis.tasks import optional, own_name, stands, steps_of

_EPISODES, _JOURNAL = load("episodes.lua"), load("journal.lua")
_AT_ONCE = 100
_TIMES = {"until": "until", "ended_at": "ended", "deadline": "deadline"}
_TEXTS = ("goal", "version", "status", "epoch", "worker", "outcome", "snapshot")


class RedisMoving:
    """A part of a Movable: episodes, tasks, steps and events. Each row is restored by itself, so that a call that fails
    may have kept some of its rows: it is made again."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._registries = {name: Registry(link, name) for name in ("episodes", "tasks")}
        # While a kind is read page by page: its scopes, by the first digit of their ids, and the names in the last one.
        # Another reader's beginning makes it read them anew.
        self._scopes: dict[str, list[Scope]] = {}
        self._names: dict[str, tuple[Scope, list[str]]] = {}
        self._signalled: dict[str, list[str]] | None = None

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        if after is None:
            self._link.command("PING")  # a closed store says so
            self._scopes, self._names, self._signalled = {}, {}, None
        rows = (row for one in self._from(kind, after, scope) for row in _DUMPS[kind](self, one, after or ()))
        return list(islice(rows, limit))

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        """`since` is the matter of the store that has the items."""
        for row in rows:
            self._registries["episodes" if row.kind == "episode" else "tasks"].note(row.scope)
            _RESTORES[row.kind](self, row)
            if done:
                done(1)

    # Reading

    def _from(self, kind: RowKind, after: Key | None, scope: Scope | None) -> Iterator[Scope]:
        """The scopes that may hold rows after this key, in the order of their ids."""
        first = after[0] if after else ""
        if scope is not None:
            yield from [scope] if scope.id >= first else []
            return
        registry = self._registries["episodes" if kind == "episode" else "tasks"]
        for shard in SHARDS:
            if shard >= first[:1]:
                if shard not in self._scopes:
                    found = {one.scope for page in registry.shard(shard) for one in page}
                    self._scopes[shard] = sorted(found, key=lambda one: one.id)
                yield from (one for one in self._scopes[shard] if one.id >= first)

    def _named(self, kind: RowKind, scope: Scope, read: Callable[[], Sequence[str]], last: Key) -> list[str]:
        """The names in a scope from the last one on; after it, where a name has one row."""
        known, names = self._names.get(kind, (None, []))
        if known != scope:
            names = sorted(set(read()))
            self._names[kind] = scope, names
        exact = kind in ("episode", "task")
        if len(last) < 2 or last[0] != scope.id:
            return names
        return [one for one in names if one > last[1] or (not exact and one == last[1])]

    def episodes(self, scope: Scope, last: Key) -> Iterator[Row]:
        base = episodes.base(scope)
        ids = self._named("episode", scope, lambda: self._link.command("ZRANGE", f"{base}all", 0, -1), last)
        for start in range(0, len(ids), _AT_ONCE):
            page = ids[start : start + _AT_ONCE]
            asked = [("HGETALL", f"{base}{kind}:{id_}") for id_ in page for kind in ("episode", "raw")]
            found = self._link.commands(asked)
            for id_, fields, raw in zip(page, found[::2], found[1::2], strict=True):
                if fields:
                    kept = RawOutput(raw["text"], from_micros(int(raw["expires"]))) if raw else None
                    yield moving.episode_to_row(scope, episodes.episode_of(id_, fields), kept)

    def tasks(self, scope: Scope, last: Key) -> Iterator[Row]:
        for task in self._tasks("task", scope, last):
            fields = self._link.command("HGETALL", f"{tasks.base(scope)}task:{task}")
            if fields:
                yield moving.task_to_row(stands(scope, task, fields))

    def steps(self, scope: Scope, last: Key) -> Iterator[Row]:
        for task in self._tasks("step", scope, last):
            fields = self._link.command("HGETALL", f"{tasks.base(scope)}steps:{task}")
            rows = (moving.step_to_row(scope, task, number, one) for number, one in enumerate(steps_of(fields), 1))
            yield from (row for row in rows if row.key > tuple(last))

    def events(self, scope: Scope, last: Key) -> Iterator[Row]:
        """Also those that came before their task."""
        for task in self._named("event", scope, lambda: self._with_events().get(scope.id, []), last):
            found = self._link.command("HGETALL", f"{tasks.base(scope)}events:{task}")
            rows = (moving.event_to_row(scope, task, event, payload) for event, payload in sorted(found.items()))
            yield from (row for row in rows if row.key > tuple(last))

    def _with_events(self) -> dict[str, list[str]]:
        """The names of tasks that have events, by scope."""
        found = self._signalled
        if found is None:
            found = {}
            for key in self._link.keys("engrain:{*}:tasks:events:*"):
                tag, _, rest = key.removeprefix("engrain:{").partition("}:tasks:events:")
                found.setdefault(tag, []).append(rest)
            self._signalled = found
        return found

    def _tasks(self, kind: RowKind, scope: Scope, last: Key) -> list[str]:
        base = tasks.base(scope)
        return self._named(kind, scope, lambda: self._link.command("ZRANGE", f"{base}tasks", 0, -1), last)

    # Writing

    def keep_episode(self, row: Row) -> None:
        episode, raw = moving.row_to_episode(row)
        kept = ("", "0") if raw is None else (f"={raw.text}", row.values["raw"]["expires_at"])
        fields = [part for pair in episodes.fields_of(episode).items() for part in pair]
        args = [new_call(), episodes.GRACE_MICROS, episode.id, *kept, *fields]
        self._link.run(_EPISODES["restore"], episodes.base(row.scope), args)

    def keep_task(self, row: Row) -> None:
        given = {name: row.values[name] for name in _TEXTS}
        given |= {name: row.values[told] for told, name in _TIMES.items()}
        fields = [part for name, value in given.items() if value is not None for part in (name, value)]
        self._run("restore_task", row.scope, row.key[1], row.values["started_at"], *fields)

    def keep_step(self, row: Row) -> None:
        step, task = moving.row_to_step(row), row.key[1]
        name = own_name(step.name, step.occurrence)
        what = (int(row.key[2]), step.kind, step.status, step.attempt, step.epoch, step.input, step.key, step.version)
        times = (row.values["began_at"], "" if step.ended_at is None else row.values["ended_at"])
        texts = [str(one) for one in (*what, *times)]
        reply = self._run("restore_step", row.scope, task, name, optional(step.result), optional(step.error), *texts)
        if reply[0] == "missing":
            raise Conflict(f"the task {task!r} of a step is not there: the source has changed. Copy anew.")

    def keep_event(self, row: Row) -> None:
        _, task, event = row.key
        self._link.prove_writable()
        self._link.command("HSET", f"{tasks.base(row.scope)}events:{task}", event, row.values["payload"])

    def _run(self, name: str, scope: Scope, *args: str | int) -> Any:
        return self._link.run(_JOURNAL[name], tasks.base(scope), ["", new_call(), *args])


_DUMPS: Mapping[RowKind, Callable[[RedisMoving, Scope, Key], Iterator[Row]]] = {
    "episode": RedisMoving.episodes,
    "task": RedisMoving.tasks,
    "step": RedisMoving.steps,
    "event": RedisMoving.events,
}
_RESTORES: Mapping[RowKind, Callable[[RedisMoving, Row], None]] = {
    "episode": RedisMoving.keep_episode,
    "task": RedisMoving.keep_task,
    "step": RedisMoving.keep_step,
    "event": RedisMoving.keep_event,
}


_LISTS = ("episodes", "tasks")
_ERASE_AT_ONCE = 500
_ALL = 1_000_000


def known(link: Link) -> list[Scope]:
    """Those that are listed."""
    listed = (one.scope for of in _LISTS for page in Registry(link, of).pages() for one in page)
    return list(dict.fromkeys(listed))


def scopes_of(link: Link, user: Subject) -> list[Scope]:
    """Names are compared as they are."""
    return [one for one in known(link) if (one.tenant, one.user) == (user.scope.tenant, user.name)]


def erase(link: Link, scope: Scope) -> int:
    link.prove_writable()
    keys, gone = _keys(link, scope), 0
    for start in range(0, len(keys), _ERASE_AT_ONCE):
        # All share the scope's hash tag, and so lie in one slot of a cluster.
        gone += int(link.command("UNLINK", *keys[start : start + _ERASE_AT_ONCE]))
    for of in _LISTS:
        link.command("ZREM", _list(of, scope), _member(scope))
    return gone


def left(link: Link, scope: Scope) -> int:
    named = [link.command("ZSCORE", _list(of, scope), _member(scope)) for of in _LISTS]
    return len(_keys(link, scope)) + sum(one is not None for one in named)


def remains(link: Link, moving: RedisMoving, scope: Scope, before: datetime, back: bool) -> int:
    at, entries = to_micros(before), f"{episodes.base(scope)}all"
    old = int(link.command("ZCOUNT", entries, "-inf", at))
    later = int(link.command("ZCOUNT", entries, f"({at}", "+inf"))
    started: list[int] = [row.values["started_at"] for row in moving.dump("task", None, _ALL, scope)]
    if back or later or any(one > at for one in started):
        return old + sum(one <= at for one in started)
    return left(link, scope)


def _keys(link: Link, scope: Scope) -> list[str]:
    # Looked for a few at a time, so that nobody waits: no index knows answers to lost calls, or events without a task.
    return list(dict.fromkeys(link.keys(f"engrain:{{{scope.id}}}:*")))


def _list(of: str, scope: Scope) -> str:
    return f"engrain:scopes:{of}:{scope.id[0]}"


def _member(scope: Scope) -> str:
    return json.dumps([scope.tenant, scope.agent, scope.user])
