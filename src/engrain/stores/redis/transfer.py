"""Dump and restore the rows that Redis holds of a memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind
from engrain.core.model.sessions import RawOutput
from engrain.stores.redis import episodes, tasks
from engrain.stores.redis.connection import SHARDS, RedisConnection, ScopeRegistry, load_scripts, new_call_id
from engrain.stores.redis.tasks import decode_steps, decode_task, encode_optional, step_field

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
        rows = (
            row for known in self._iterate_scopes(kind, after, scope) for row in _DUMPS[kind](self, known, after or ())
        )
        return list(islice(rows, limit))

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
        """Return the names in a scope from the last one on, or after it if a name has one row only."""
        known, names = self._names.get(kind, (None, []))
        if known != scope:
            names = sorted(set(read()))
            self._names[kind] = scope, names
        exact = kind in ("episode", "task")
        if len(last) < 2 or last[0] != scope.id:
            return names
        return [name for name in names if name > last[1] or (not exact and name == last[1])]

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
            rows = (
                moving.step_to_row(scope, task, number, step) for number, step in enumerate(decode_steps(fields), 1)
            )
            yield from (row for row in rows if row.key > tuple(last))

    def events(self, scope: Scope, last: Key) -> Iterator[Row]:
        """Yield the events, even of tasks that have not begun."""
        for task in self._list_names("event", scope, lambda: self._list_signalled_tasks().get(scope.id, []), last):
            found = self._link.command("HGETALL", f"{tasks.task_prefix(scope)}events:{task}")
            rows = (moving.event_to_row(scope, task, event, payload) for event, payload in sorted(found.items()))
            yield from (row for row in rows if row.key > tuple(last))

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
