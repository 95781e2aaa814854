"""Rows of another store, written as they are inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from engrain.core import moving
from engrain.core.audit import Head, details_text
from engrain.core.clock import from_micros
from engrain.core.errors import Conflict
from engrain.core.items import Item, Vectors, Words
from engrain.core.moving import Kept, Row
from engrain.core.passages import index_words
from engrain.core.scope import Scope
from engrain.stores.postgres.episodes import insert
from engrain.stores.postgres.index_rows import word_count, write_vectors, write_words
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.rows import answer_text, filters_text, metadata_text, micros_of
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work

_SQL, _FORGET = load("moving.sql"), load("forget.sql")
_SESSIONS, _EPISODES = load("sessions.sql"), load("episodes.sql")
PAGE = 1_000  # rows that are written with one look at what is there
Name = tuple[Scope, str]
_TASK = (
    "task", "goal", "version", "status", "epoch", "worker", "until", "started_at", "ended_at", "outcome", "deadline",
    "snapshot",
)  # fmt: skip


class Restoring:
    """`models` are those of the rows: number and dimension by key."""

    def __init__(self, db: Db, now: int, models: Mapping[str, tuple[int, int]]) -> None:
        self.db = db
        self._now = self._newest = now
        self._models = models
        self._changed: set[Scope] = set()
        self._numbers: dict[Name, int] = {}
        self._tasks: dict[Name, int] = {}

    def keep_all(self, rows: Sequence[Row], done: Callable[[int], None] | None = None) -> None:
        for kind, group in groupby(rows, key=lambda row: row.kind):
            while kind != "store" and (page := list(islice(group, PAGE))):
                getattr(self, f"_{kind}")(page)
                if done:
                    done(len(page))
        if self._changed:
            self.db.run(_SQL["end_restore"], ([scope.id for scope in self._changed],))
        if self._newest > self._now:
            self.db.run(_SQL["reach_time"], (self._newest,))

    # Items

    def _item(self, rows: Sequence[Row]) -> None:
        given = [moving.item_of(row) for row in rows]
        words = [index_words(one.item.text, one.item.speaker, one.item.slot) for one in given]
        names = [(one.scope, one.item.id) for one in given]
        self._clear(self._there({id_: scope.id for scope, id_ in names}))
        for kept, each in zip(given, words, strict=True):
            self.db.run(_SQL["keep_item"], _values(kept, each))
        self._find(names)
        for kept in given:
            self._beside(kept.scope.id, self._numbers[kept.scope, kept.item.id], kept.item)
        for scope in {one.scope for one in given}:
            self._index(scope, [(kept, each) for kept, each in zip(given, words, strict=True) if kept.scope == scope])
        self._changed |= {one.scope for one in given}
        self._newest = max(self._newest, *(row.values["recorded_at"] for row in rows))

    def _there(self, owners: Mapping[str, str]) -> list[int]:
        """The numbers of these items, as far as they are here already."""
        found = self.db.rows(_SQL["numbers"], (list(owners),))
        for owner, id_, _ in found:
            if owner != owners[id_]:
                raise Conflict(f"the item {id_!r} belongs to another memory of this store.")
        return [n for _, _, n in found]

    def _clear(self, numbers: list[int]) -> None:
        if numbers:
            for statement in (_FORGET["remove_words"], _FORGET["remove_vectors"], _SQL["drop_sources"]):
                self.db.run(statement, (numbers,))
            self.db.run(_SQL["drop_entities"], (numbers,))

    def _beside(self, owner: str, number: int, item: Item) -> None:
        for place, source in enumerate(item.sources):
            self.db.run(_SQL["keep_source"], (owner, number, place, source.kind, source.name))
        for name in (item.relation.subject, item.relation.object) if item.relation else ():
            self.db.run(_SQL["keep_entity"], (owner, name.casefold(), number))

    def _index(self, scope: Scope, given: Sequence[tuple[Kept, Words]]) -> None:
        numbered = [(self._numbers[scope, kept.item.id], kept, words) for kept, words in given]
        # What was corrected away is found at no moment.
        write_words(self.db, scope.id, [(n, words) for n, kept, words in numbered if kept.item.retracted_at is None])
        work = Work(self.db, scope.id, from_micros(self._now), self._now, b"", self._models)
        write_vectors(
            work, [(n, Vectors(model, rows)) for n, kept, _ in numbered for model, rows in kept.vectors.items()]
        )

    def _cites(self, rows: Sequence[Row]) -> None:
        cites = [(row.scope, row.key[0], moving.cites_of(row)) for row in rows]
        self._find([(scope, id_) for scope, id_, _ in cites])
        self._find([(scope, cite.item) for scope, _, found in cites for _, cite in found])
        citing = [self._known(scope, id_) for scope, id_, _ in cites]
        self.db.run(_SQL["drop_cites"], (citing,))
        for number, (scope, _, found) in zip(citing, cites, strict=True):
            for place, cite in found:
                values = (scope.id, number, place, self._known(scope, cite.item), cite.start, cite.end)
                self.db.run(_SQL["keep_cite"], values)
        self.db.run(_SQL["mark_items"], (citing,))
        self._changed |= {scope for scope, _, _ in cites}

    # What is beside the items

    def _tombstone(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.db.run(_SQL["keep_tombstone"], (row.scope.id, bytes.fromhex(row.key[1]), self._now))

    def _request(self, rows: Sequence[Row]) -> None:
        for row in rows:
            asked, answer = moving.request_of(row)
            values = (row.scope.id, row.key[1], answer_text(answer, bytes.fromhex(asked)), self._now)
            self.db.run(_SQL["keep_request"], values)

    def _session(self, rows: Sequence[Row]) -> None:
        for row in rows:
            values = (row.scope.id, row.key[1], row.values["length"], row.values["rank"])
            self.db.run(_SQL["keep_session"], values)
        self.db.run(_SQL["reach_change"], {"rank": max(row.values["rank"] for row in rows)})

    def _summary(self, rows: Sequence[Row]) -> None:
        for row in rows:
            summary = moving.summary_of(row)
            values = {"text": summary.text, "upto": summary.upto, "version": summary.version, "by": summary.by}
            self.db.run(_SESSIONS["summarize"], {**values, "scope": row.scope.id, "session": row.key[1]})

    def _progress(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.db.run(_SQL["keep_progress"], (row.scope.id, *row.key[1:], row.values["upto"]))

    def _episode(self, rows: Sequence[Row]) -> None:
        self._find([(row.scope, row.values["item"]) for row in rows if row.values["item"] is not None])
        for row in rows:
            episode, raw = moving.episode_of(row)
            if episode.item is not None:
                self._known(row.scope, episode.item)
            self.db.run(_EPISODES["drop"], (row.scope.id, [episode.id]))
            insert(self.db, row.scope.id, episode, raw)

    def _trial(self, rows: Sequence[Row]) -> None:
        self._find([(row.scope, row.key[1]) for row in rows])
        for row in rows:
            trial = moving.trial_of(row)
            self._known(row.scope, trial.procedure)
            values = (trial.procedure, trial.task, trial.success, micros_of(trial.at), trial.note)
            self.db.run(_SQL["keep_trial"], (row.scope.id, *values))

    # Tasks

    def _task(self, rows: Sequence[Row]) -> None:
        for row in rows:
            values = {name: row.values[name] for name in _TASK}
            self.db.run(_SQL["keep_task"], {**values, "scope": row.scope.id})
            self._newest = max(self._newest, row.values["started_at"], row.values["ended_at"] or 0)

    def _step(self, rows: Sequence[Row]) -> None:
        self._find_tasks({(row.scope, row.key[1]) for row in rows})
        for row in rows:
            step, task = moving.step_of(row), self._tasks.get((row.scope, row.key[1]))
            if task is None:
                raise Conflict(f"the task {row.key[1]!r} of a step is not there: the source has changed. Copy anew.")
            what = (step.name, step.occurrence, step.kind, step.status, step.attempt, step.epoch, step.input, step.key)
            ended = (micros_of(step.began_at), micros_of(step.ended_at), step.result, step.error)
            self.db.run(_SQL["keep_step"], (row.scope.id, task, *what, step.version, *ended))

    def _event(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.db.run(_SQL["keep_event"], (row.scope.id, *row.key[1:], self._now, row.values["payload"]))

    # What is the store's own

    def _grave(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.db.run(_SQL["keep_tombstone"], (row.key[0], bytes.fromhex(row.key[1]), self._now))

    def _erased(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.db.run(_SQL["keep_erased"], tuple(row.values[name] for name in ("mark", "by", "at", "receipt")))

    def _hold(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.db.run(_SQL["keep_hold"], tuple(row.values[name] for name in ("mark", "at", "reason", "hidden")))

    def _audit(self, rows: Sequence[Row]) -> None:
        for found in map(moving.audited_of, rows):
            if isinstance(found, Head):
                self.db.run(_SQL["keep_head"], (json.dumps([found.n, found.hash, found.seal]),))
            else:
                told = (found.what, found.subject, details_text(found.details), found.previous, found.hash)
                self.db.run(_SQL["keep_entry"], (found.n, micros_of(found.at), *told))

    # By name

    def _find(self, names: Iterable[Name]) -> None:
        wanted = {name for name in names if name not in self._numbers}
        self._numbers |= self._named(wanted, self.db.rows(_SQL["numbers"], ([id_ for _, id_ in wanted],)))

    def _find_tasks(self, names: set[Name]) -> None:
        asked = ([scope.id for scope, _ in names], [task for _, task in names])
        self._tasks = self._named(names, self.db.rows(_SQL["task_numbers"], asked))

    def _named(self, names: set[Name], found: list[tuple[Any, ...]]) -> dict[Name, int]:
        scopes = {scope.id: scope for scope, _ in names}
        return {(scopes[owner], name): n for owner, name, n in found if owner in scopes}

    def _known(self, scope: Scope, id_: str) -> int:
        number = self._numbers.get((scope, id_))
        if number is None:
            raise Conflict(f"the item {id_!r}, which others rest on, is not there: the source has changed. Copy anew.")
        return number


def _values(kept: Kept, words: Words) -> Mapping[str, Any]:
    """The row of an item."""
    item, relation = kept.item, kept.item.relation
    names = (
        "id", "kind", "importance", "trust", "pinned", "place", "session", "speaker", "role", "slot", "access_count",
        "replaced_by", "text",
    )  # fmt: skip
    times = ("occurred_at", "recorded_at", "valid_from", "valid_to", "retracted_at", "expires_at", "last_accessed")
    return {
        **{name: getattr(item, name) for name in names},
        **{name: micros_of(getattr(item, name)) for name in times},
        "scope": kept.scope.id,
        "hash": bytes.fromhex(kept.hash),
        "traits": kept.traits,
        "passages": words.passages,
        "words": word_count(words),
        "subject": relation and relation.subject,
        "relation": relation and relation.relation,
        "object": relation and relation.object,
        "metadata": metadata_text(item.metadata),
        "filters": filters_text(item.metadata),
    }
