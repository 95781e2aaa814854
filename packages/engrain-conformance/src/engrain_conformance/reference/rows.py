"""Dump and restore everything as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from engrain.core.clock import from_micros
from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as row_format
from engrain.core.model.audit import AuditHead
from engrain.core.model.records import Record, decode_key
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind, StoredItem
from engrain.core.text.passages import index_words
from engrain_conformance.reference.erasure import hide_user
from engrain_conformance.reference.state import ChangeRow, State, StateHolder, StoredRecord, StoredRow, reads

Answer = TypeVar("Answer")


class ReferenceRows(StateHolder):
    @reads
    def dump(self, state: State, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        if kind == "store":
            return [row_format.key_to_row(state.key)] if after is None else []
        if kind in row_format.STORE_KINDS and scope is not None:
            return []
        rows = (row for row in _DUMPS[kind](state) if scope is None or row.scope == scope)
        return sorted((row for row in rows if after is None or row.key > after), key=lambda row: row.key)[:limit]

    def on_snapshot(self, do: Callable[[], Answer]) -> Answer:
        with self.whole():
            return do()

    def preview(self, do: Callable[[], Answer]) -> Answer:
        with self.whole() as before:
            try:
                return do()
            finally:
                self._state = before  # every write replaced it by a changed copy

    @reads
    def change_token(self, state: State, scopes: Sequence[Scope]) -> ChangeToken:
        return self._make_token(state, scopes)

    def _make_token(self, state: State, scopes: Sequence[Scope]) -> ChangeToken:
        forgotten = sum(scope in scopes for scope, _ in state.tombstones)
        removed = max(
            (change.seq for change in state.changes.values() if change.deleted and change.scope in scopes), default=0
        )
        over = sorted((erasure.subject_hash, erasure.at) for erasure in state.erased.values())
        return ChangeToken(tuple(scopes), str([forgotten, removed, over, sorted(state.erasing)]))

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        with self.writing() as state:
            key = next((bytes.fromhex(row.values["key"]) for row in rows if row.kind == "store"), state.key)
            if since is not None and self._make_token(state, since.scopes) != since:
                raise Conflict("something was forgotten or erased here meanwhile.")
            if key != state.key and any(getattr(state, name) for name in _NOT_EMPTY):
                raise Conflict("this store holds a memory already. Copy into a new one.")
            state.key = key
            for row in rows:
                if row.kind != "store":
                    _RESTORES[row.kind](state, row)
                if row.kind == "hold" and row.values["hidden"]:
                    hide_user(state, row.key[0])
        if done:
            done(len(rows))


_NOT_EMPTY = (
    "items",
    "tombstones",
    "requests",
    "tasks",
    "episodes",
    "records",
    "erased_tombstones",
    "erased",
    "holds",
    "audit",
)


def _dump_items(state: State) -> Iterator[Row]:
    for item in state.items.values():
        bare = tuple(replace(source, cites=()) for source in item.item.sources)
        yield row_format.item_to_row(
            StoredItem(item.scope, replace(item.item, sources=bare), item.hash, item.traits, dict(item.vectors))
        )


def _dump_cites(state: State) -> Iterator[Row]:
    for item in state.items.values():
        cites = [(number, cite) for number, source in enumerate(item.item.sources) for cite in source.cites]
        if cites:
            yield row_format.cites_to_row(item.scope, item.item.id, cites)


def _dump_sessions(state: State) -> Iterator[Row]:
    for (scope, session), length in state.lengths.items():
        yield row_format.session_to_row(scope, session, length, state.last_writes[scope, session])


def _dump_records(state: State) -> Iterator[Row]:
    for (scope, space, _), record in state.records.items():
        yield row_format.record_to_row(scope, space, record.rank, record.record)


def _dump_audit(state: State) -> Iterator[Row]:
    yield from map(row_format.audit_entry_to_row, state.audit)
    if state.head.n:
        yield row_format.audit_head_to_row(state.head)


def _dump_steps(state: State) -> Iterator[Row]:
    count: dict[tuple[Scope, str], int] = {}
    for (scope, task, _, _), step in state.steps.items():
        number = count[scope, task] = count.get((scope, task), 0) + 1
        yield row_format.step_to_row(scope, task, number, step)


_DUMPS: Mapping[RowKind, Callable[[State], Iterator[Row]]] = {
    "item": _dump_items,
    "cites": _dump_cites,
    "tombstone": lambda state: (row_format.tombstone_to_row(scope, hash) for scope, hash in state.tombstones),
    "request": lambda state: (row_format.request_to_row(*key, *known) for key, known in state.requests.items()),
    "session": _dump_sessions,
    "summary": lambda state: (row_format.summary_to_row(*key, summary) for key, summary in state.summaries.items()),
    "progress": lambda state: (row_format.progress_to_row(*key, upto) for key, upto in state.progress.items()),
    "episode": lambda state: (
        row_format.episode_to_row(key[0], episode, state.raw_outputs.get(key))
        for key, episode in state.episodes.items()
    ),
    "trial": lambda state: (row_format.trial_to_row(key[0], trial) for key, trial in state.trials.items()),
    "task": lambda state: (row_format.task_to_row(task) for task in state.tasks.values()),
    "step": _dump_steps,
    "event": lambda state: (row_format.event_to_row(*key, payload) for key, payload in state.events.items()),
    "record": _dump_records,
    "erased_tombstone": lambda state: (
        row_format.erased_tombstone_to_row(*tombstone) for tombstone in state.erased_tombstones
    ),
    "erased": lambda state: map(row_format.erased_to_row, state.erased.values()),
    "hold": lambda state: map(row_format.hold_to_row, state.holds.values()),
    "audit": _dump_audit,
}


def _restore_item(state: State, row: Row) -> None:
    kept = row_format.row_to_item(row)
    item = kept.item
    before = state.items.get(item.id)
    if before:
        _require_item(state, kept.scope, item.id)
        known = zip(item.sources, before.item.sources, strict=False)
        cites = [replace(source, cites=old.cites) for source, old in known]
        item = replace(item, sources=(*cites, *item.sources[len(cites) :]))
    words = index_words(item.text, item.speaker, item.slot)
    state.items[item.id] = StoredRow(kept.scope, item, kept.hash, words, kept.traits, kept.vectors)
    state.newest = max(state.newest, item.recorded_at)
    _mark_changed(state, kept.scope, item.id)


def _restore_cites(state: State, row: Row) -> None:
    (id,) = row.key
    stored = _require_item(state, row.scope, id)
    given = row_format.row_to_cites(row)
    for _, cite in given:
        _require_item(state, row.scope, cite.item)
    sources = tuple(
        replace(source, cites=tuple(cite for number, cite in given if number == place))
        for place, source in enumerate(stored.item.sources)
    )
    state.items[id] = replace(stored, item=replace(stored.item, sources=sources))
    _mark_changed(state, stored.scope, id)


def _restore_session(state: State, row: Row) -> None:
    session = row.scope, row.key[1]
    state.lengths[session] = row.values["length"]
    state.last_writes[session] = row.values["rank"]
    state.seq = max(state.seq, row.values["rank"])


def _restore_episode(state: State, row: Row) -> None:
    key = row.scope, row.key[1]
    episode, raw = row_format.row_to_episode(row)
    if episode.item is not None:
        _require_item(state, row.scope, episode.item)
    state.episodes[key] = episode
    state.raw_outputs.pop(key, None)
    if raw:
        state.raw_outputs[key] = raw


def _restore_trial(state: State, row: Row) -> None:
    trial = row_format.row_to_trial(row)
    _require_item(state, row.scope, trial.procedure)
    state.trials[row.scope, trial.procedure, trial.task] = trial


def _restore_step(state: State, row: Row) -> None:
    step = row_format.row_to_step(row)
    if (row.scope, row.key[1]) not in state.tasks:
        raise Conflict(f"the task {row.key[1]!r} of a step is not there: the source has changed. Copy anew.")
    state.steps[row.scope, row.key[1], step.name, step.occurrence] = step


def _restore_record(state: State, row: Row) -> None:
    times = (row.values[name] for name in ("written_at", "expires_at"))
    written_at, expires_at = (None if at is None else from_micros(at) for at in times)
    assert written_at is not None
    record = Record(decode_key(row.key[2]), row_format.row_to_body(row), written_at, expires_at)
    state.records[row.scope, row.key[1], record.key] = StoredRecord(record, row.values["rank"])
    state.seq = max(state.seq, row.values["rank"])
    state.newest = max(state.newest, written_at)


def _restore_audit(state: State, row: Row) -> None:
    found = row_format.row_to_audit(row)
    if isinstance(found, AuditHead):
        state.head = found
    else:
        others = [entry for entry in state.audit if entry.n != found.n]
        state.audit = sorted([*others, found], key=lambda one: one.n)


def _restore_erased(state: State, row: Row) -> None:
    erased = state.erased[row.key[0]] = row_format.row_to_erased(row)
    # Whoever comes back begins to write after it.
    state.newest = max(state.newest, erased.at + timedelta(microseconds=1))


def _require_item(state: State, scope: Scope, id: str) -> StoredRow:
    stored = state.find_item(scope, id)
    if stored is None:
        raise Conflict(f"the item {id!r}, which others rest on, is not there: the source has changed. Copy anew.")
    return stored


def _mark_changed(state: State, scope: Scope, id: str) -> None:
    state.seq += 1
    state.changes[id] = ChangeRow(state.seq, scope, id, False)


_RESTORES: Mapping[RowKind, Callable[[State, Row], object]] = {
    "item": _restore_item,
    "cites": _restore_cites,
    "tombstone": lambda state, row: state.tombstones.add((row.scope, row.key[1])),
    "request": lambda state, row: state.requests.update({(row.scope, row.key[1]): row_format.row_to_request(row)}),
    "session": _restore_session,
    "summary": lambda state, row: state.summaries.update({(row.scope, row.key[1]): row_format.row_to_summary(row)}),
    "progress": lambda state, row: state.progress.update({(row.scope, row.key[1], row.key[2]): row.values["upto"]}),
    "episode": _restore_episode,
    "trial": _restore_trial,
    "task": lambda state, row: state.tasks.update({(row.scope, row.key[1]): row_format.row_to_task(row)}),
    "step": _restore_step,
    "event": lambda state, row: state.events.update({(row.scope, row.key[1], row.key[2]): row.values["payload"]}),
    "record": _restore_record,
    "erased_tombstone": lambda state, row: state.erased_tombstones.add((row.key[0], row.key[1])),
    "erased": _restore_erased,
    "hold": lambda state, row: state.holds.update({row.key[0]: row_format.row_to_hold(row)}),
    "audit": _restore_audit,
}
