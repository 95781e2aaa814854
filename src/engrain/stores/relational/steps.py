"""The steps of one durable task, inside a transaction that has locked the task."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.errors import Conflict, NotFound
from engrain.core.model.tasks import StepEnd, StepRecord, StepStart, StepStatus, StepWrite
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.rows import Row, read_time

_UNSETTLED = ("intent", "ambiguous")
_FINAL = ("done", "skipped")
_LARGE = 4096  # characters


@dataclass(frozen=True, slots=True)
class StepJournal:
    tx: Transaction
    key: bytes
    task: int
    epoch: int
    now: int

    def begin(self, start: StepStart, took: float = 0.0) -> StepRecord:
        added = self._add(start, StepEnd(start.name, start.occurrence, "intent", took=took))
        if added:
            return added
        found, n = self._load(start.name, start.occurrence)
        if found.status in _FINAL or start.attempt != found.attempt + 1:
            return found
        self.tx.run(
            "restart_step",
            n=n,
            kind=start.kind,
            attempt=start.attempt,
            epoch=self.epoch,
            input=start.input,
            key=start.key,
            version=start.version,
            started_at=self._subtract(took),
        )
        return self._load(start.name, start.occurrence)[0]

    def record(self, start: StepStart, end: StepEnd) -> StepRecord:
        added = self._add(start, end)
        if added:
            return added
        found = self.begin(start, end.took)
        return self.settle(end) if found.status in _UNSETTLED else found

    def finish(self, end: StepEnd) -> StepRecord:
        settled = self._settle(end)
        if settled:
            return settled
        found, _ = self._load(end.name, end.occurrence)
        if (found.status, found.result, found.error) != (end.status, end.result, end.error):
            raise _make_conflict(found)
        return found

    def settle(self, end: StepEnd) -> StepRecord:
        settled = self._settle(end)
        if settled is None:
            raise _make_conflict(self._load(end.name, end.occurrence)[0])
        return settled

    def find_status(self, name: str, occurrence: int) -> StepStatus:
        return self._load(name, occurrence)[0].status

    def begin_memory(self, write: StepWrite) -> list[str | None] | None:
        """Begin a step that writes memory: the ids that it wrote if it is done already, else None."""
        found = self.begin(write.start)
        if found.status == "done":
            return list(json.loads(found.result or "[]"))
        if found.status not in _UNSETTLED:
            raise _make_conflict(found)
        return None

    def finish_memory(self, write: StepWrite, ids: list[str | None]) -> None:
        self.settle(replace(write.end, result=json.dumps(ids)))

    def store_snapshot(self, body: str | None) -> None:
        if body is not None:
            self.tx.run("store_snapshot", task=self.task, body=body)

    def _add(self, start: StepStart, end: StepEnd) -> StepRecord | None:
        """None if it is there."""
        times = self._subtract(end.took), None if end.status == "intent" else self.now
        rows = self.tx.rows(
            "add_step",
            task=self.task,
            name=start.name,
            occurrence=start.occurrence,
            kind=start.kind,
            status=end.status,
            attempt=start.attempt,
            epoch=self.epoch,
            input=start.input,
            key=start.key,
            version=start.version,
            started_at=times[0],
            ended_at=times[1],
            error=end.error,
            **self._store_result(end.result),
        )
        if not rows:
            return None
        self.store_snapshot(end.snapshot)
        return StepRecord(
            start.name, start.occurrence, start.kind, end.status, start.attempt, self.epoch, start.input, start.key,
            start.version, from_micros(times[0]), read_time(times[1]), end.result, end.error,
        )  # fmt: skip

    def _settle(self, end: StepEnd) -> StepRecord | None:
        """None if it is settled already or was never begun."""
        rows = self.tx.rows(
            "settle_step",
            task=self.task,
            name=end.name,
            occurrence=end.occurrence,
            status=end.status,
            now=self.now,
            error=end.error,
            **self._store_result(end.result),
        )
        if not rows:
            return None
        self.store_snapshot(end.snapshot)
        return read_step((*rows[0], end.result, end.error))

    def _load(self, name: str, occurrence: int) -> tuple[StepRecord, int]:
        rows = self.tx.rows("load_step", task=self.task, name=name, occurrence=occurrence)
        if not rows:
            raise NotFound(f"the step {name!r} ({occurrence}) of this task was not begun.")
        return read_step(rows[0][:-1]), rows[0][-1]

    def _store_result(self, result: str | None) -> dict[str, Any]:
        """A large result is stored once, by its hash, however many steps returned it."""
        if result is None or len(result) <= _LARGE:
            return {"result": result, "hash": None}
        digest = hashlib.blake2b(result.encode(), key=self.key, digest_size=16).digest()
        self.tx.run("add_large_result", hash=digest, body=result)
        return {"result": None, "hash": digest}

    def _subtract(self, seconds: float) -> int:
        return self.now - round(seconds * 1_000_000)


def read_step(row: Row) -> StepRecord:
    name, occurrence, kind, status, attempt, epoch, input_, key, version, started, ended, result, error = row
    return StepRecord(
        name, occurrence, kind, status, attempt, epoch, input_, key, version, from_micros(started), read_time(ended),
        result, error,
    )  # fmt: skip


def _make_conflict(found: StepRecord) -> Conflict:
    return Conflict(f"the step {found.name!r} ({found.occurrence}) is settled already: {found.status}.")
