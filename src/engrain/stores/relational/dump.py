"""Read every row of the store in the order of its key, for a transfer to another store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model import rows as transfer
from engrain.core.model.audit import row_to_entry
from engrain.core.model.items import Citation
from engrain.core.model.procedures import Trial
from engrain.core.model.queries import Summary
from engrain.core.model.records import Record, decode_key
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind, StoredItem
from engrain.core.model.sessions import RawOutput
from engrain.stores.relational.audit import load_head
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.rows import (
    ITEM_WIDTH,
    read_answer,
    read_episode,
    read_hold,
    read_receipt,
    read_time,
)
from engrain.stores.relational.scopes import hash_scope
from engrain.stores.relational.tasks import read_step, read_task
from engrain.stores.relational.usage import UsageCounts

PAGE_BYTES = 32_000_000  # bodies that are in memory at once
_FIRST_SCOPE = "0" * 32  # most kinds begin their key with the id of a scope
_NO_SCOPE_FIRST = ("item", "cites", "erased", "hold")
Values = dict[str, Any]


class Dump:
    """A part of the store."""

    dialect: Dialect
    usage: UsageCounts

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        def do(tx: Transaction) -> list[Row]:
            if scope is None and after is None:
                self.dialect.check_full_access(tx)
            if kind == "store":
                return [] if after else [transfer.key_to_row(self.dialect.key)]
            if kind in transfer.STORE_KINDS and scope is not None:
                return []
            if kind == "audit":
                return list(_dump_audit(tx, after, limit))
            first = "" if kind in _NO_SCOPE_FIRST else _FIRST_SCOPE
            values: Values = {"a": first, "b": "", "c": "", **dict(zip("abc", after or (), strict=False))}
            if kind in ("tombstone", "erased_tombstone"):
                values["b"] = bytes.fromhex(values["b"])
            values |= {"within": scope and scope.id, "limit": limit}
            if kind == "item":
                return [transfer.item_to_row(item) for item in self._dump_items(tx, values)]
            return list(_DUMPS[kind](tx, values))

        return self.dialect.read(scope, do)

    def _dump_items(self, tx: Transaction, values: Values) -> Iterator[StoredItem]:
        rows = tx.rows("dump_items", **values)
        vectors = self._load_vectors(tx, [row[1] for row in rows])
        for row in rows:
            digest, traits, *owner = row[ITEM_WIDTH:]
            scope = Scope(*owner)
            (item,) = self.usage.read_items(scope, [row[:ITEM_WIDTH]])
            yield StoredItem(scope, item, digest.hex(), traits, vectors.get(item.id, {}))

    def _load_vectors(self, tx: Transaction, ids: Sequence[str]) -> dict[str, dict[str, tuple[bytes, ...]]]:
        """By item and model."""
        by_model: dict[str, list[tuple[Any, ...]]] = {}
        for model, *row in tx.rows("dump_vectors", ids=ids):
            by_model.setdefault(model, []).append(tuple(row))
        found: dict[str, dict[str, tuple[bytes, ...]]] = {}
        for model, rows in by_model.items():
            for id_, windows in self.dialect.read_vectors(rows).items():
                found.setdefault(id_, {})[model] = windows
        return found

    def change_token(self, scopes: Sequence[Scope]) -> ChangeToken:
        return self.dialect.read(None, lambda tx: find_change_token(tx, self.dialect.key, scopes))


def find_change_token(tx: Transaction, key: bytes, scopes: Sequence[Scope]) -> ChangeToken:
    ids = [id_ for scope in scopes for id_ in (scope.id, hash_scope(key, scope))]
    return ChangeToken(tuple(scopes), str(tx.rows("find_change_token", ids=ids)))


def _dump_citations(tx: Transaction, values: Values) -> Iterator[Row]:
    items = tx.rows("dump_citing_items", **values)
    found: dict[int, list[tuple[int, Citation]]] = {}
    for n, number, cited, start, end in tx.rows("dump_citations", ids=[row[1] for row in items]):
        found.setdefault(n, []).append((number, Citation(cited, start, end)))
    for n, id_, *owner in items:
        yield transfer.cites_to_row(Scope(*owner), id_, found[n])


def _dump_steps(tx: Transaction, values: Values) -> Iterator[Row]:
    """Task by task, since a step's number counts within its task."""
    last = values["a"], values["b"], values["c"]
    wanted = values["limit"]
    # One more, since the first may have no step left.
    for key, tenant, agent, user, task in tx.rows("dump_tasks_with_steps", **{**values, "limit": wanted + 1}):
        scope = Scope(tenant, agent, user)
        for number, row in enumerate(tx.rows("load_steps", scope=key, task=task), 1):
            step = transfer.step_to_row(scope, task, number, read_step(row))
            if step.key > last:
                yield step
                wanted -= 1
            if not wanted:
                return


def _dump_records(tx: Transaction, values: Values) -> Iterator[Row]:
    """Fewer than the limit if they are large, but always one if there is any."""
    sizes = accumulate(size for (size,) in tx.rows("dump_record_sizes", **values))
    limit = sum(total <= PAGE_BYTES for total in sizes)
    for *owner, space, key, rank, at, expires_at, body in tx.rows("dump_records", **{**values, "limit": max(limit, 1)}):
        record = Record(decode_key(key), bytes(body), from_micros(at), read_time(expires_at))
        yield transfer.record_to_row(Scope(*owner), space, rank, record)


def _dump_audit(tx: Transaction, after: Key | None, limit: int) -> Iterator[Row]:
    if after == ("head",):
        return
    rows = tx.rows("load_audit_entries", after=int(after[0]) if after else 0, limit=limit)
    yield from (transfer.audit_entry_to_row(row_to_entry(row)) for row in rows)
    head = load_head(tx)
    if len(rows) < limit and head.n:
        yield transfer.audit_head_to_row(head)


def _make_dump(statement: str, make_row: Callable[..., Row]) -> Callable[[Transaction, Values], Iterator[Row]]:
    """Dump the rows of a statement that begin with the names of their scope."""

    def dump(tx: Transaction, values: Values) -> Iterator[Row]:
        for tenant, agent, user, *columns in tx.rows(statement, **values):
            yield make_row(Scope(tenant, agent, user), *columns)

    return dump


def _make_own_dump(statement: str, make_row: Callable[..., Row]) -> Callable[[Transaction, Values], Iterator[Row]]:
    """Dump the rows of a statement that belong to no scope."""
    return lambda tx, values: (make_row(row) for row in tx.rows(statement, **values))


def _make_request(scope: Scope, id_: str, answer: str) -> Row:
    return transfer.request_to_row(scope, id_, json.loads(answer)[2], read_answer(answer, None))


def _make_summary(scope: Scope, session: str, *columns: Any) -> Row:
    return transfer.summary_to_row(scope, session, Summary(*columns))


def _make_episode(scope: Scope, text: str | None, until: int | None, *columns: Any) -> Row:
    raw = None if text is None or until is None else RawOutput(text, from_micros(until))
    return transfer.episode_to_row(scope, read_episode(columns), raw)


def _make_trial(scope: Scope, procedure: str, task: str, success: bool, at: int, note: str) -> Row:
    return transfer.trial_to_row(scope, Trial(procedure, task, bool(success), from_micros(at), note))


_DUMPS: Mapping[RowKind, Callable[[Transaction, Values], Iterator[Row]]] = {
    "cites": _dump_citations,
    "tombstone": _make_dump("dump_tombstones", lambda scope, digest: transfer.tombstone_to_row(scope, digest.hex())),
    "request": _make_dump("dump_requests", _make_request),
    "session": _make_dump("dump_sessions", transfer.session_to_row),
    "summary": _make_dump("dump_summaries", _make_summary),
    "progress": _make_dump("dump_progress", transfer.progress_to_row),
    "episode": _make_dump("dump_episodes", _make_episode),
    "trial": _make_dump("dump_trials", _make_trial),
    "task": _make_own_dump("dump_tasks", lambda row: transfer.task_to_row(read_task(row))),
    "step": _dump_steps,
    "record": _dump_records,
    "event": _make_dump("dump_events", transfer.event_to_row),
    "erased_tombstone": _make_own_dump(
        "dump_erased_tombstones", lambda row: transfer.erased_tombstone_to_row(row[0], row[1].hex())
    ),
    "erased": _make_own_dump("dump_receipts", lambda row: transfer.erased_to_row(read_receipt(row))),
    "hold": _make_own_dump("dump_holds", lambda row: transfer.hold_to_row(read_hold(row))),
}
