"""Rows of another store, written as they are inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.audit import AuditHead, encode_details
from engrain.core.model.rows import Row
from engrain.stores.relational.episodes import write_episode
from engrain.stores.relational.rows import write_answer, write_time
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.dialect import load_statements
from engrain.stores.sqlite.ready import COLUMNS, Ready
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import item_number

_SQL = load("moving.sql")
_QUERIES = load("queries.sql")
_ERASING = load("erasing.sql")


class Restoring:
    def __init__(self, db: Connection, number_of: Callable[[Connection, Scope], int], key: bytes) -> None:
        self.db = db
        self._number_of = number_of
        self._key = key
        ((seq, now),) = db.rows(_QUERIES["counters"])
        self._seq, self._now = int(seq), int(now)
        self._numbers: dict[tuple[int, str], int] = {}
        self._scopes: dict[tuple[str | None, ...], int] = {}

    def keep(self, rows: Sequence[Row], items: Sequence[Ready]) -> None:
        """`items` are those of the rows that are items, in the same order."""
        given = [row for row in rows if row.kind == "item"]
        # One that is given twice counts as given last.
        self._items({one.id: (one, self._scope(row)) for one, row in zip(items, given, strict=True)})
        for row in rows:
            if row.kind in moving.STORE_KINDS - {"store"}:
                getattr(self, f"_{row.kind}")(row)
            elif row.kind not in ("store", "item"):
                getattr(self, f"_{row.kind}")(row, self._scope(row))
        self._now = max(self._now, *(row.values["recorded_at"] for row in given), 0)

    def _scope(self, row: Row) -> int:
        """Nobody shuts one before the transaction ends."""
        name = tuple(row.values["scope"])
        if name not in self._scopes:
            self._scopes[name] = self._number_of(self.db, row.scope)
        return self._scopes[name]

    def finish(self) -> None:
        self.db.run(_QUERIES["set_counters"], {"seq": self._seq, "now": self._now})

    def _mark(self) -> int:
        self._seq += 1
        return self._seq

    def _items(self, items: Mapping[str, tuple[Ready, int]]) -> None:
        """With the scopes that they are in."""
        from engrain.stores.sqlite.index.rows import write_index_many

        there = {id_: (n, scope) for id_, n, scope in self.db.rows(_SQL["there"], (as_json(items),))}
        ((last,),) = self.db.rows(_SQL["last_item"])
        numbered: list[tuple[int, int, Ready]] = []
        new: list[tuple[Any, ...]] = []
        for id_, (one, scope) in items.items():
            if id_ in there:
                number, owner = there[id_]
                if owner != scope:
                    raise Conflict(f"the item {id_!r} belongs to another memory of this store.")
                self._again(one, scope, number)
            else:
                number = last = last + 1
                new.append((number, scope, self._mark(), *one.columns))
            numbered.append((number, scope, one))
            self._numbers[scope, id_] = number
        self.db.many(_SQL["add_item"], new)
        sources = ((scope, n, place, *source) for n, scope, one in numbered for place, source in enumerate(one.sources))
        self.db.many(_QUERIES["add_source"], sources)
        self.db.many(_QUERIES["add_entity"], ((scope, name, n) for n, scope, one in numbered for name in one.entities))
        write_index_many(self.db, [(n, one.words, each) for n, _, one in numbered for each in one.vectors or (None,)])

    def _again(self, one: Ready, scope: int, number: int) -> None:
        """In place of what is there; its sources and index follow."""
        from engrain.stores.sqlite.index.rows import drop_vectors

        values = dict(zip(COLUMNS, one.columns, strict=True))
        self.db.run(_SQL["keep_item"], {**values, "n": number, "changed": self._mark()})
        self.db.run(_SQL["drop_sources"], (scope, number))
        self.db.run(_SQL["drop_entities"], (scope, number))
        drop_vectors(self.db, number)

    def _cites(self, row: Row, scope: int) -> None:
        number = self._known(scope, row.key[0])
        self.db.run(_SQL["drop_cites"], (scope, number))
        for place, cite in moving.row_to_cites(row):
            cited = self._known(scope, cite.item)
            self.db.run(_QUERIES["add_cite"], (scope, number, place, cited, cite.start, cite.end))
        self.db.run(_QUERIES["mark_item"], (self._mark(), number))

    def _tombstone(self, row: Row, scope: int) -> None:
        self.db.run(_SQL["keep_tombstone"], (scope, bytes.fromhex(row.key[1]), self._now))

    def _request(self, row: Row, scope: int) -> None:
        asked, answer = moving.row_to_request(row)
        self.db.run(_SQL["keep_request"], (scope, row.key[1], write_answer(answer, bytes.fromhex(asked)), self._now))

    def _session(self, row: Row, scope: int) -> None:
        values = {"length": row.values["length"], "changed": row.values["rank"]}
        self.db.run(_SQL["keep_session"], {**values, "scope": scope, "session": row.key[1]})
        self._seq = max(self._seq, row.values["rank"])

    def _summary(self, row: Row, scope: int) -> None:
        summary = moving.row_to_summary(row)
        values = {"text": summary.text, "upto": summary.upto, "version": summary.version, "by": summary.by}
        self.db.run(_SQL["keep_summary"], {**values, "scope": scope, "session": row.key[1]})

    def _progress(self, row: Row, scope: int) -> None:
        self.db.run(_SQL["keep_progress"], (scope, *row.key[1:], row.values["upto"]))

    def _episode(self, row: Row, scope: int) -> None:
        episode, raw = moving.row_to_episode(row)
        item = None if episode.item is None else self._known(scope, episode.item)
        shared, where = load_statements(), {"scope": scope, "id": episode.id}
        self.db.run(shared["delete_episode"].sql, where)
        self.db.run(shared["add_episode"].sql, {"scope": scope, **write_episode(episode, item)})
        if raw:
            values = {**where, "expires_at": write_time(raw.expires_at), "text": raw.text}
            self.db.run(shared["add_raw_text"].sql, values)

    def _trial(self, row: Row, scope: int) -> None:
        trial = moving.row_to_trial(row)
        item = self._known(scope, trial.procedure)
        self.db.run(_SQL["keep_trial"], (scope, item, trial.task, write_time(trial.at), trial.success, trial.note))

    def _task(self, row: Row, scope: int) -> None:
        names = (
            "task", "goal", "version", "status", "epoch", "worker", "until", "started_at", "ended_at", "outcome",
            "deadline",
        )  # fmt: skip
        self.db.run(_SQL["keep_task"], {**{name: row.values[name] for name in names}, "scope": scope})
        task = self._task_number(scope, row.key[1])
        self.db.run(_SQL["drop_snapshot"], (scope, task))
        if row.values["snapshot"] is not None:
            values = {"scope": scope, "task": task, "body": row.values["snapshot"]}
            self.db.run(load_statements()["store_snapshot"].sql, values)
        self._now = max(self._now, row.values["started_at"], row.values["ended_at"] or 0)

    def _step(self, row: Row, scope: int) -> None:
        step, task = moving.row_to_step(row), self._task_number(scope, row.key[1])
        result = step.result, None
        times = write_time(step.began_at), write_time(step.ended_at)
        values = (step.name, step.occurrence, step.kind, step.status, step.attempt, step.epoch, step.input, step.key)
        self.db.run(_SQL["keep_step"], (scope, task, *values, step.version, *times, *result, step.error))

    def _event(self, row: Row, scope: int) -> None:
        self.db.run(_SQL["keep_event"], (scope, *row.key[1:], self._now, row.values["payload"]))

    def _grave(self, row: Row) -> None:
        aside, hash_ = f"shut:{row.key[0]}", row.key[1]
        self.db.run(_SQL["keep_grave"], (aside, aside))
        ((scope, _),) = self.db.rows(_ERASING["aside"], (aside,))
        self.db.run(_SQL["keep_tombstone"], (scope, bytes.fromhex(hash_), self._now))

    def _erased(self, row: Row) -> None:
        self.db.run(_SQL["keep_erased"], tuple(row.values[name] for name in ("mark", "by", "at", "receipt")))
        # Whoever comes back begins to write after it.
        self._now = max(self._now, row.values["at"] + 1)

    def _hold(self, row: Row) -> None:
        self.db.run(_SQL["keep_hold"], tuple(row.values[name] for name in ("mark", "at", "reason", "hidden")))

    def _audit(self, row: Row) -> None:
        found = moving.row_to_audit(row)
        if isinstance(found, AuditHead):
            self.db.run(_QUERIES["set_meta"], ("audit", json.dumps([found.n, found.hash, found.seal])))
            return
        told = (found.what, found.subject, encode_details(found.details), found.previous, found.hash)
        self.db.run(_SQL["keep_entry"], (found.n, write_time(found.at), *told))

    def _known(self, scope: int, id_: str) -> int:
        number = self._numbers.get((scope, id_)) or item_number(self.db, scope, id_)
        if number is None:
            raise Conflict(f"the item {id_!r}, which others rest on, is not there: the source has changed. Copy anew.")
        return number

    def _task_number(self, scope: int, task: str) -> int:
        rows = self.db.rows("select n from task where scope = ? and task = ?", (scope, task))
        if not rows:
            raise Conflict(f"the task {task!r} of a step is not there: the source has changed. Copy anew.")
        return int(rows[0][0])
