"""Every row of the store, read one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.errors import ConfigError, Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.audit import AuditHead, read_head, row_to_entry
from engrain.core.model.items import Citation
from engrain.core.model.procedures import Trial
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind, StoredItem
from engrain.core.model.sessions import RawOutput
from engrain.ports import Summary
from engrain.stores.postgres.arrays import sent_vector
from engrain.stores.postgres.dialect import load_statements
from engrain.stores.postgres.erasing import aside
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.restoring import Restoring
from engrain.stores.postgres.sql import load
from engrain.stores.relational.episodes import read_episode
from engrain.stores.relational.rows import ITEM_WIDTH, read_answer, read_hold, read_item, read_receipt
from engrain.stores.relational.steps import read_step
from engrain.stores.relational.tasks import read_task

_SQL = load("moving.sql")
_STEPS = load_statements()["load_steps"].sql
_QUERIES, _ERASING = load("queries.sql"), load("erasing.sql")
_FIRST = "0" * 32
Values = dict[str, Any]


class Moving(Handle):
    """Without a scope, it looks through all of them as upkeep does."""

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        first = "" if kind in ("item", "cites") else _FIRST
        values = {"a": first, "b": "", "c": "", **dict(zip("abc", after or (), strict=False)), "limit": limit}
        values["scope"] = scope and scope.id
        if kind in moving.STORE_KINDS and scope is not None and kind != "store":
            return []

        def do(db: Db) -> list[Row]:
            if scope is None and after is None:
                self._sees_all(db)
            if kind == "store":
                return [moving.key_to_row(self._key)] if after is None else []
            if kind in moving.STORE_KINDS:
                return list(_OWN[kind](db, after or ("",), limit))
            if kind == "item":
                return [moving.item_to_row(self._used(one)) for one in _items(db, values)]
            return list(_DUMPS[kind](db, values))

        return self._reading(scope, do)

    def _sees_all(self, db: Db) -> None:
        hidden = [name for (name,) in db.rows(_SQL["hidden"])]
        if hidden:
            raise ConfigError(
                f"{self._link.address.shown}: row-level security hides rows of {', '.join(hidden)} from this role. "
                "Copy as a role that has BYPASSRLS or that the policy `upkeep` of these tables is for."
            )

    def _used(self, kept: StoredItem) -> StoredItem:
        """With the uses that are not written yet."""
        (item,) = self.usage.add_to(kept.scope, [kept.item])
        return replace(kept, item=item)

    def standing(self, scopes: Sequence[Scope]) -> ChangeToken:
        return self._reading(None, lambda db: self._standing(db, scopes))

    def _standing(self, db: Db, scopes: Sequence[Scope]) -> ChangeToken:
        ids = [id_ for scope in scopes for id_ in (scope.id, aside(self._key, scope))]
        return ChangeToken(tuple(scopes), str(db.rows(_SQL["standing"], {"ids": ids})))

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        key = next((bytes.fromhex(row.values["key"]) for row in rows if row.kind == "store"), self._key)
        kept = {row.key: moving.row_to_item(row) for row in rows if row.kind == "item"}
        self._know_models({model: len(given[0]) // 4 for one in kept.values() for model, given in one.vectors.items()})

        def do(db: Db) -> None:
            self._adopt(db, key)
            scopes = {row.scope for row in rows if row.kind not in moving.STORE_KINDS}
            for scope in sorted(scopes, key=lambda one: one.id):
                self._add_scope(db, scope)
            scopes |= {*since.scopes} if since else set()
            db.run(_SQL["lock_scopes"], (sorted(one.id for one in scopes),))
            if since is not None and self._standing(db, since.scopes) != since:
                raise Conflict("something was forgotten or erased here meanwhile.")
            ((micros, _),) = db.rows(_QUERIES["begin_write"], (self._clock_micros(),))
            Restoring(db, micros, self._models).keep_all(rows, done)
            for mark in (row.key[0] for row in rows if row.kind == "hold" and row.values["hidden"]):
                self.erasing.hide(db, mark)

        # Doing it twice changes nothing.
        self._writing(None, do, "repeat")
        self.dialect.key = key
        self._youth.wrote(len(kept))

    def _adopt(self, db: Db, key: bytes) -> None:
        db.run(_SQL["one_restorer"])
        ((known,),) = db.rows(_SQL["key"])
        if bytes.fromhex(known) == key:
            return
        if db.rows(_SQL["inhabited"])[0][0]:
            raise Conflict(f"{self._link.address.shown} holds a memory already. Copy into a new store.")
        db.run(_SQL["set_key"], (key.hex(),))


def _rows(db: Db, statement: str, values: Values) -> list[tuple[Any, ...]]:
    table = {"citing": "item", "stepped": "task"}.get(statement, statement)
    within = "scope.state = 0" if values["scope"] is None else f"{table}.scope = %(scope)s"
    return db.rows(_SQL[statement].replace("{within}", within), values)


def _items(db: Db, values: Values) -> Iterator[StoredItem]:
    rows = _rows(db, "item", values)
    vectors: dict[int, dict[str, tuple[bytes, ...]]] = {}
    for n, model, sent in db.rows(_SQL["item_vectors"], ([row[1] for row in rows],)):
        windows = vectors.setdefault(n, {})
        windows[model] = (*windows.get(model, ()), sent_vector(sent).astype("<f4").tobytes())
    for row in rows:
        hash_, traits, *owner = row[ITEM_WIDTH:]
        yield StoredItem(Scope(*owner), read_item(row[:ITEM_WIDTH]), hash_.hex(), traits, vectors.get(row[0], {}))


def _cites(db: Db, values: Values) -> Iterator[Row]:
    for id_, tenant, agent, user, found in _rows(db, "citing", values):
        cites = [(number, Citation(cited, start, end)) for number, cited, start, end in found]
        yield moving.cites_to_row(Scope(tenant, agent, user), id_, cites)


def _tasks(db: Db, values: Values) -> Iterator[Row]:
    return (moving.task_to_row(read_task(row)) for row in _rows(db, "task", values))


def _steps(db: Db, values: Values) -> Iterator[Row]:
    """Task by task, since a step's number counts within its task."""
    last = values["a"], values["b"], values["c"]
    wanted = values["limit"]
    # One more, since the first may have no step left.
    for tenant, agent, user, task in _rows(db, "stepped", {**values, "limit": wanted + 1}):
        scope = Scope(tenant, agent, user)
        for number, row in enumerate(db.rows(_STEPS, {"scope": scope.id, "task": task}), 1):
            step = moving.step_to_row(scope, task, number, read_step(row))
            if step.key > last:
                yield step
                wanted -= 1
            if not wanted:
                return


def _simple(statement: str, row: Callable[..., Row]) -> Callable[[Db, Values], Iterator[Row]]:
    def dump(db: Db, values: Values) -> Iterator[Row]:
        for tenant, agent, user, *rest in _rows(db, statement, values):
            yield row(Scope(tenant, agent, user), *rest)

    return dump


def _request(scope: Scope, id_: str, answer: str) -> Row:
    return moving.request_to_row(scope, id_, json.loads(answer)[2], read_answer(answer, None))


def _summary(scope: Scope, session: str, *values: Any) -> Row:
    return moving.summary_to_row(scope, session, Summary(*values))


def _episode(scope: Scope, text: str | None, until: int, *values: Any) -> Row:
    return moving.episode_to_row(
        scope, read_episode(values), None if text is None else RawOutput(text, from_micros(until))
    )


def _trial(scope: Scope, procedure: str, task: str, success: bool, at: int, note: str) -> Row:
    return moving.trial_to_row(scope, Trial(procedure, task, success, from_micros(at), note))


def _graves(db: Db, after: Key, limit: int) -> Iterator[Row]:
    values = {"a": after[0] or _FIRST, "b": after[1] if len(after) > 1 else "", "limit": limit}
    return (moving.erased_tombstone_to_row(*row) for row in db.rows(_SQL["grave"], values))


def _erased(db: Db, after: Key, limit: int) -> Iterator[Row]:
    return (moving.erased_to_row(read_receipt(row)) for row in db.rows(_SQL["erased"], (after[0], limit)))


def _holds(db: Db, after: Key, limit: int) -> Iterator[Row]:
    return (moving.hold_to_row(read_hold(row)) for row in db.rows(_SQL["held"], (after[0], limit)))


def _audit(db: Db, after: Key, limit: int) -> Iterator[Row]:
    if after == ("head",):
        return
    rows = db.rows(_ERASING["entries"], (int(after[0] or 0), limit))
    yield from (moving.audit_entry_to_row(row_to_entry(row)) for row in rows)
    found = db.rows(_ERASING["head"])
    head = read_head(found[0][0]) if found else AuditHead()
    if len(rows) < limit and head.n:
        yield moving.audit_head_to_row(head)


_OWN: Mapping[RowKind, Callable[[Db, Key, int], Iterator[Row]]] = {
    "grave": _graves,
    "erased": _erased,
    "hold": _holds,
    "audit": _audit,
}

_DUMPS: Mapping[RowKind, Callable[[Db, Values], Iterator[Row]]] = {
    "cites": _cites,
    "tombstone": _simple("tombstone", moving.tombstone_to_row),
    "request": _simple("request", _request),
    "session": _simple("session", moving.session_to_row),
    "summary": _simple("summary", _summary),
    "progress": _simple("progress", moving.progress_to_row),
    "episode": _simple("episode", _episode),
    "trial": _simple("trial", _trial),
    "task": _tasks,
    "step": _steps,
    "event": _simple("event", moving.event_to_row),
}
