"""Every row of the store, read one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.audit import AuditHead, read_head, row_to_entry
from engrain.core.model.items import Citation
from engrain.core.model.procedures import Trial
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind, StoredItem
from engrain.core.model.sessions import RawOutput
from engrain.ports import Summary
from engrain.stores.relational.episodes import read_episode
from engrain.stores.relational.rows import ITEM_WIDTH, read_answer, read_hold, read_items, read_receipt
from engrain.stores.relational.steps import read_step
from engrain.stores.relational.tasks import read_task
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.dialect import load_statements
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.ready import ready
from engrain.stores.sqlite.restoring import Restoring
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load

_SQL = load("moving.sql")
_QUERIES = load("queries.sql")
_EPISODE = 11
PAGE = 500  # rows whose words and vectors are held until they are written together
Values = dict[str, Any]


class Moving(Handle):
    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        # One that is shut has an id beyond those.
        within = {"first": scope.id, "last": scope.id} if scope else {"first": "", "last": "g"}
        values = {**dict(zip("abc", after or (), strict=False)), "limit": limit, **within}

        def load(db: Connection) -> list[Row]:
            if kind == "store":
                return [moving.key_to_row(self._key)] if after is None else []
            if kind in moving.STORE_KINDS:
                return [] if scope else list(_OWN[kind](db, after or ("",), limit))
            if kind == "item":
                return [moving.item_to_row(self._used(one)) for one in _items(db, {"a": "", **values})]
            return list(_DUMPS[kind](db, {"a": "", "b": "", "c": "", **values}))

        return self.snapshot(load)

    def _used(self, kept: StoredItem) -> StoredItem:
        """With the uses that are not written yet."""
        (item,) = self.usage.add_to(kept.scope, [kept.item])
        return replace(kept, item=item)

    def standing(self, scopes: Sequence[Scope]) -> ChangeToken:
        return self.snapshot(lambda db: self._standing(db, scopes))

    def _standing(self, db: Connection, scopes: Sequence[Scope]) -> ChangeToken:
        ids = [id_ for scope in scopes for id_ in (scope.id, self.erasing.aside(scope))]
        return ChangeToken(tuple(scopes), str(db.rows(_SQL["standing"], (as_json(ids),))))

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        import engrain.stores.sqlite.index.rows  # noqa: F401  (numpy: not while others wait for their turn)

        key = next((bytes.fromhex(row.values["key"]) for row in rows if row.kind == "store"), None)
        pages = [rows[start : start + PAGE] for start in range(0, len(rows), PAGE)]
        items = [[ready(row) for row in page if row.kind == "item"] for page in pages]

        def write(db: Connection) -> None:
            if since is not None and self._standing(db, since.scopes) != since:
                raise Conflict("something was forgotten or erased here meanwhile.")
            if key is not None and key != self._key:
                self._adopt(db, key)
            work = Restoring(db, self._scope_or_new, key or self._key)
            for page, made in zip(pages, items, strict=True):
                work.keep(page, made)
            work.finish()
            for mark in (row.key[0] for row in rows if row.kind == "hold" and row.values["hidden"]):
                self.erasing.hide(db, mark)

        self.transaction(write)
        self.dialect.key = key or self._key
        # Not inside: it is the caller's code, which must not run in a transaction.
        for page in pages if done else ():
            done(len(page))  # type: ignore[misc]

    def _adopt(self, db: Connection, key: bytes) -> None:
        if db.rows(_SQL["inhabited"])[0][0]:
            raise Conflict(f"{self._name} holds a memory already. Copy into a new store.")
        db.run(_QUERIES["set_meta"], ("key", key))


def _items(db: Connection, values: Values) -> Iterator[StoredItem]:
    rows = db.rows(_SQL["item"], _only(values, "a"))
    vectors: dict[int, dict[str, tuple[bytes, ...]]] = {}
    for n, model, dimension, windows in db.rows(_SQL["item_vectors"], {"ns": as_json(row[0] for row in rows)}):
        size = 4 * dimension
        split = tuple(windows[start : start + size] for start in range(0, len(windows), size))
        vectors.setdefault(n, {})[model] = split
    for row, item in zip(rows, read_items(row[:ITEM_WIDTH] for row in rows), strict=True):
        hash_, traits, *owner = row[ITEM_WIDTH:]
        yield StoredItem(Scope(*owner), item, hash_.hex(), traits, vectors.get(row[0], {}))


def _cites(db: Connection, values: Values) -> Iterator[Row]:
    items = db.rows(_SQL["citing"], _only(values, "a"))
    cites: dict[int, list[tuple[int, Citation]]] = {}
    for n, number, cited, start, end in db.rows(_QUERIES["cites_of"], (as_json(row[0] for row in items),)):
        cites.setdefault(n, []).append((number, Citation(cited, start, end)))
    for n, id_, *owner in items:
        # By source; within one, in the order they were given.
        yield moving.cites_to_row(Scope(*owner), id_, sorted(cites[n], key=lambda one: one[0]))


def _requests(db: Connection, values: Values) -> Iterator[Row]:
    for *owner, id_, answer in db.rows(_SQL["request"], _only(values, "ab")):
        yield moving.request_to_row(Scope(*owner), id_, json.loads(answer)[2], read_answer(answer, None))


def _episodes(db: Connection, values: Values) -> Iterator[Row]:
    for row in db.rows(_SQL["episode"], _only(values, "ab")):
        text, expires, *owner = row[_EPISODE:]
        raw = None if text is None else RawOutput(text, from_micros(expires))
        yield moving.episode_to_row(Scope(*owner), read_episode(row[:_EPISODE]), raw)


def _trials(db: Connection, values: Values) -> Iterator[Row]:
    for *owner, item, task, success, at, note in db.rows(_SQL["trial"], _only(values, "abc")):
        yield moving.trial_to_row(Scope(*owner), Trial(item, task, bool(success), from_micros(at), note))


def _steps(db: Connection, values: Values) -> Iterator[Row]:
    """Task by task, since a step's number counts within its task."""
    last = values["a"], values["b"], values["c"]
    wanted = values["limit"]
    # One more, since the first may have no step left.
    for owner, _, tenant, agent, user, task in db.rows(_SQL["stepped"], {**_only(values, "ab"), "limit": wanted + 1}):
        scope = Scope(tenant, agent, user)
        for number, row in enumerate(db.rows(load_statements()["load_steps"].sql, {"scope": owner, "task": task}), 1):
            step = moving.step_to_row(scope, task, number, read_step(row))
            if step.key > last:
                yield step
                wanted -= 1
            if not wanted:
                return


def _simple(statement: str, row: Callable[..., Row]) -> Callable[[Connection, Values], Iterator[Row]]:
    def dump(db: Connection, values: Values) -> Iterator[Row]:
        keys = "abc" if ":c" in _SQL[statement] else "ab"
        for tenant, agent, user, *rest in db.rows(_SQL[statement], _only(values, keys)):
            yield row(Scope(tenant, agent, user), *rest)

    return dump


def _summary(scope: Scope, session: str, *values: Any) -> Row:
    return moving.summary_to_row(scope, session, Summary(*values))


def _tasks(db: Connection, values: Values) -> Iterator[Row]:
    return (moving.task_to_row(read_task(row)) for row in db.rows(_SQL["task"], _only(values, "ab")))


def _only(values: Values, keys: str) -> Values:
    return {name: values[name] for name in (*keys, "limit", "first", "last")}


def _graves(db: Connection, after: Key, limit: int) -> Iterator[Row]:
    values = {"a": after[0], "b": after[-1], "limit": limit}
    return (moving.erased_tombstone_to_row(*row) for row in db.rows(_SQL["grave"], values))


def _erased(db: Connection, after: Key, limit: int) -> Iterator[Row]:
    return (moving.erased_to_row(read_receipt(row)) for row in db.rows(_SQL["erased"], (after[0], limit)))


def _holds(db: Connection, after: Key, limit: int) -> Iterator[Row]:
    return (moving.hold_to_row(read_hold(row)) for row in db.rows(_SQL["held"], (after[0], limit)))


def _audit(db: Connection, after: Key, limit: int) -> Iterator[Row]:
    if after == ("head",):
        return
    rows = db.rows(_SQL["entries"], (int(after[0] or 0), limit))
    yield from (moving.audit_entry_to_row(row_to_entry(row)) for row in rows)
    found = db.rows(_QUERIES["meta"], ("audit",))
    head = read_head(found[0][0]) if found else AuditHead()
    if len(rows) < limit and head.n:
        yield moving.audit_head_to_row(head)


_OWN: Mapping[RowKind, Callable[[Connection, Key, int], Iterator[Row]]] = {
    "grave": _graves,
    "erased": _erased,
    "hold": _holds,
    "audit": _audit,
}

_DUMPS: Mapping[RowKind, Callable[[Connection, Values], Iterator[Row]]] = {
    "cites": _cites,
    "tombstone": _simple("tombstone", moving.tombstone_to_row),
    "request": _requests,
    "session": _simple("session", moving.session_to_row),
    "summary": _simple("summary", _summary),
    "progress": _simple("progress", moving.progress_to_row),
    "episode": _episodes,
    "trial": _trials,
    "task": _tasks,
    "step": _steps,
    "event": _simple("event", moving.event_to_row),
}
