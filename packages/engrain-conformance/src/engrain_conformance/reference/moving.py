"""Everything in memory as rows, and back: the oracle of the Movable port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.audit import AuditHead
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind, StoredItem
from engrain.core.text.passages import index_words
from engrain_conformance.reference.erasing import hide
from engrain_conformance.reference.state import Changed, Holder, State, Stored

Answer = TypeVar("Answer")


class Moving(Holder):
    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        with self.reading() as state:
            if kind == "store":
                return [moving.key_to_row(self._key)] if after is None else []
            if kind in moving.STORE_KINDS and scope is not None:
                return []
            rows = (row for row in _DUMPS[kind](state) if scope is None or row.scope == scope)
            return sorted((row for row in rows if after is None or row.key > after), key=lambda row: row.key)[:limit]

    def still(self, do: Callable[[], Answer]) -> Answer:
        with self.whole():
            return do()

    def standing(self, scopes: Sequence[Scope]) -> ChangeToken:
        with self.reading() as state:
            return self._standing(state, scopes)

    def _standing(self, state: State, scopes: Sequence[Scope]) -> ChangeToken:
        forgotten = sum(scope in scopes for scope, _ in state.tombstones)
        removed = max((one.seq for one in state.changes.values() if one.gone and one.scope in scopes), default=0)
        over = sorted((one.mark, one.at) for one in state.erased.values())
        return ChangeToken(tuple(scopes), str([forgotten, removed, over, sorted(state.erasing)]))

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        key = next((bytes.fromhex(row.values["key"]) for row in rows if row.kind == "store"), self._key)
        with self.writing() as state:
            if since is not None and self._standing(state, since.scopes) != since:
                raise Conflict("something was forgotten or erased here meanwhile.")
            if key != self._key and any(getattr(state, name) for name in _INHABITED):
                raise Conflict("this store holds a memory already. Copy into a new one.")
            for row in rows:
                if row.kind != "store":
                    _RESTORES[row.kind](state, row)
                if row.kind == "hold" and row.values["hidden"]:
                    hide(state, key, row.key[0])
            self._key = key
        if done:
            done(len(rows))


_INHABITED = ("items", "tombstones", "requests", "tasks", "episodes", "graves", "erased", "holds", "audit")


def _items(state: State) -> Iterator[Row]:
    for one in state.items.values():
        bare = tuple(replace(source, cites=()) for source in one.item.sources)
        yield moving.item_to_row(
            StoredItem(one.scope, replace(one.item, sources=bare), one.hash, one.traits, dict(one.vectors))
        )


def _cites(state: State) -> Iterator[Row]:
    for one in state.items.values():
        cites = [(number, cite) for number, source in enumerate(one.item.sources) for cite in source.cites]
        if cites:
            yield moving.cites_to_row(one.scope, one.item.id, cites)


def _sessions(state: State) -> Iterator[Row]:
    for (scope, session), length in state.numbers.items():
        yield moving.session_to_row(scope, session, length, state.written[scope, session])


def _audit(state: State) -> Iterator[Row]:
    yield from map(moving.audit_entry_to_row, state.audit)
    if state.head.n:
        yield moving.audit_head_to_row(state.head)


def _steps(state: State) -> Iterator[Row]:
    count: dict[tuple[Scope, str], int] = {}
    for (scope, task, _, _), step in state.steps.items():
        number = count[scope, task] = count.get((scope, task), 0) + 1
        yield moving.step_to_row(scope, task, number, step)


_DUMPS: Mapping[RowKind, Callable[[State], Iterator[Row]]] = {
    "item": _items,
    "cites": _cites,
    "tombstone": lambda state: (moving.tombstone_to_row(scope, hash) for scope, hash in state.tombstones),
    "request": lambda state: (moving.request_to_row(*key, *known) for key, known in state.requests.items()),
    "session": _sessions,
    "summary": lambda state: (moving.summary_to_row(*key, one) for key, one in state.summaries.items()),
    "progress": lambda state: (moving.progress_to_row(*key, upto) for key, upto in state.marks.items()),
    "episode": lambda state: (
        moving.episode_to_row(key[0], one, state.raws.get(key)) for key, one in state.episodes.items()
    ),
    "trial": lambda state: (moving.trial_to_row(key[0], one) for key, one in state.trials.items()),
    "task": lambda state: (moving.task_to_row(one) for one in state.tasks.values()),
    "step": _steps,
    "event": lambda state: (moving.event_to_row(*key, payload) for key, payload in state.events.items()),
    "grave": lambda state: (moving.erased_tombstone_to_row(*one) for one in state.graves),
    "erased": lambda state: map(moving.erased_to_row, state.erased.values()),
    "hold": lambda state: map(moving.hold_to_row, state.holds.values()),
    "audit": _audit,
}


def _keep_item(state: State, row: Row) -> None:
    kept = moving.row_to_item(row)
    item = kept.item
    before = state.items.get(item.id)
    if before:
        _known(state, kept.scope, item.id)
        known = zip(item.sources, before.item.sources, strict=False)
        cites = [replace(source, cites=old.cites) for source, old in known]
        item = replace(item, sources=(*cites, *item.sources[len(cites) :]))
    words = index_words(item.text, item.speaker, item.slot)
    state.items[item.id] = Stored(kept.scope, item, kept.hash, words, kept.traits, kept.vectors)
    state.newest = max(state.newest, item.recorded_at)
    _mark(state, kept.scope, item.id)


def _keep_cites(state: State, row: Row) -> None:
    (id,) = row.key
    stored = _known(state, row.scope, id)
    given = moving.row_to_cites(row)
    for _, cite in given:
        _known(state, row.scope, cite.item)
    sources = tuple(
        replace(source, cites=tuple(cite for number, cite in given if number == place))
        for place, source in enumerate(stored.item.sources)
    )
    state.items[id] = replace(stored, item=replace(stored.item, sources=sources))
    _mark(state, stored.scope, id)


def _keep_session(state: State, row: Row) -> None:
    session = row.scope, row.key[1]
    state.numbers[session] = row.values["length"]
    state.written[session] = row.values["rank"]
    state.seq = max(state.seq, row.values["rank"])


def _keep_episode(state: State, row: Row) -> None:
    key = row.scope, row.key[1]
    episode, raw = moving.row_to_episode(row)
    if episode.item is not None:
        _known(state, row.scope, episode.item)
    state.episodes[key] = episode
    state.raws.pop(key, None)
    if raw:
        state.raws[key] = raw


def _keep_trial(state: State, row: Row) -> None:
    trial = moving.row_to_trial(row)
    _known(state, row.scope, trial.procedure)
    state.trials[row.scope, trial.procedure, trial.task] = trial


def _keep_step(state: State, row: Row) -> None:
    step = moving.row_to_step(row)
    if (row.scope, row.key[1]) not in state.tasks:
        raise Conflict(f"the task {row.key[1]!r} of a step is not there: the source has changed. Copy anew.")
    state.steps[row.scope, row.key[1], step.name, step.occurrence] = step


def _keep_audit(state: State, row: Row) -> None:
    found = moving.row_to_audit(row)
    if isinstance(found, AuditHead):
        state.head = found
    else:
        others = [one for one in state.audit if one.n != found.n]
        state.audit = sorted([*others, found], key=lambda one: one.n)


def _keep_erased(state: State, row: Row) -> None:
    one = state.erased[row.key[0]] = moving.row_to_erased(row)
    # Whoever comes back begins to write after it.
    state.newest = max(state.newest, one.at + timedelta(microseconds=1))


def _known(state: State, scope: Scope, id: str) -> Stored:
    stored = state.known(scope, id)
    if stored is None:
        raise Conflict(f"the item {id!r}, which others rest on, is not there: the source has changed. Copy anew.")
    return stored


def _mark(state: State, scope: Scope, id: str) -> None:
    state.seq += 1
    state.changes[id] = Changed(state.seq, scope, id, False)


_RESTORES: Mapping[RowKind, Callable[[State, Row], object]] = {
    "item": _keep_item,
    "cites": _keep_cites,
    "tombstone": lambda state, row: state.tombstones.add((row.scope, row.key[1])),
    "request": lambda state, row: state.requests.update({(row.scope, row.key[1]): moving.row_to_request(row)}),
    "session": _keep_session,
    "summary": lambda state, row: state.summaries.update({(row.scope, row.key[1]): moving.row_to_summary(row)}),
    "progress": lambda state, row: state.marks.update({(row.scope, row.key[1], row.key[2]): row.values["upto"]}),
    "episode": _keep_episode,
    "trial": _keep_trial,
    "task": lambda state, row: state.tasks.update({(row.scope, row.key[1]): moving.row_to_task(row)}),
    "step": _keep_step,
    "event": lambda state, row: state.events.update({(row.scope, row.key[1], row.key[2]): row.values["payload"]}),
    "grave": lambda state, row: state.graves.add((row.key[0], row.key[1])),
    "erased": _keep_erased,
    "hold": lambda state, row: state.holds.update({row.key[0]: moving.row_to_hold(row)}),
    "audit": _keep_audit,
}
