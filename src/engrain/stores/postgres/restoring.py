"""Rows of another store, written as they are inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.audit import AuditHead, encode_details
from engrain.core.model.items import Vectors, Words
from engrain.core.model.rows import Row, StoredItem
from engrain.core.text.passages import index_words
from engrain.stores.postgres.dialect import load_statements
from engrain.stores.postgres.filters import encode_filters
from engrain.stores.postgres.index_rows import word_count, write_vectors, write_words
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work
from engrain.stores.relational.episodes import write_episode
from engrain.stores.relational.rows import write_answer, write_metadata, write_time

_SQL, _FORGET = load("moving.sql"), load("forget.sql")
PAGE = 1_000  # rows that are written with one look at what is there
Name = tuple[Scope, str]


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
                # A row that is given twice counts as given last: one statement does not write it twice.
                getattr(self, f"_{kind}")(list({row.key: row for row in page}.values()))
                if done:
                    done(len(page))
        if self._changed:
            self.db.run(_SQL["end_restore"], ([scope.id for scope in self._changed],))
        if self._newest > self._now:
            self.db.run(_SQL["reach_time"], (self._newest,))

    # Items

    def _item(self, rows: Sequence[Row]) -> None:
        given = [moving.row_to_item(row) for row in rows]
        words = [index_words(one.item.text, one.item.speaker, one.item.slot) for one in given]
        names = [(one.scope, one.item.id) for one in given]
        self._clear(self._there({id_: scope.id for scope, id_ in names}))
        self.db.run_all(_SQL["keep_item"], map(_values, given, words))
        self._find(names)
        self._beside(given)
        for scope in {one.scope for one in given}:
            self._index(scope, [(kept, each) for kept, each in zip(given, words, strict=True) if kept.scope == scope])
        self._changed |= {one.scope for one in given}
        self._newest = max(self._newest, *(row.values["recorded_at"] for row in rows))

    def _there(self, owners: Mapping[str, str]) -> dict[str, list[tuple[str, int]]]:
        """Those of these items that are here already, as (id, number) by scope."""
        found = self.db.rows(_SQL["numbers"], (list(owners),))
        for owner, id_, _ in found:
            if owner != owners[id_]:
                raise Conflict(f"the item {id_!r} belongs to another memory of this store.")
        there: dict[str, list[tuple[str, int]]] = {}
        for owner, id_, n in found:
            there.setdefault(owner, []).append((id_, n))
        return there

    def _clear(self, there: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        for owner, items in there.items():
            for statement in (_FORGET["remove_words"], _FORGET["remove_vectors"]):
                self.db.run(statement, (owner, [n for _, n in items]))
            for statement in (_SQL["drop_sources"], _SQL["drop_entities"]):
                self.db.run(statement, ([id_ for id_, _ in items],))

    def _beside(self, given: Sequence[StoredItem]) -> None:
        """Their sources, and the entities of relations."""
        numbered = [(self._numbers[one.scope, one.item.id], one) for one in given]
        sources = [
            {"scope": one.scope.id, "item": n, "number": place, "kind": source.kind, "name": source.name}
            for n, one in numbered
            for place, source in enumerate(one.item.sources)
        ]
        entities = [
            {"scope": one.scope.id, "item": n, "name": name.casefold()}
            for n, one in numbered
            if (relation := one.item.relation)
            for name in (relation.subject, relation.object)
        ]
        self.db.run_all(_SQL["keep_source"], sources)
        self.db.run_all(_SQL["keep_entity"], entities)

    def _index(self, scope: Scope, given: Sequence[tuple[StoredItem, Words]]) -> None:
        numbered = [(self._numbers[scope, kept.item.id], kept, words) for kept, words in given]
        # What was corrected away is found at no moment.
        write_words(self.db, scope.id, [(n, words) for n, kept, words in numbered if kept.item.retracted_at is None])
        work = Work(self.db, scope.id, from_micros(self._now), self._now, b"", self._models)
        write_vectors(
            work, [(n, Vectors(model, rows)) for n, kept, _ in numbered for model, rows in kept.vectors.items()]
        )

    def _cites(self, rows: Sequence[Row]) -> None:
        cites = [(row.scope, row.key[0], moving.row_to_cites(row)) for row in rows]
        self._find([(scope, id_) for scope, id_, _ in cites])
        self._find([(scope, cite.item) for scope, _, found in cites for _, cite in found])
        citing = [self._known(scope, id_) for scope, id_, _ in cites]
        ids = [id_ for _, id_, _ in cites]
        self.db.run(_SQL["drop_cites"], (ids,))
        kept = [
            {"scope": scope.id, "item": number, "number": place, "cited": self._known(scope, cite.item)}
            | {"span_start": cite.start, "span_end": cite.end}
            for number, (scope, _, found) in zip(citing, cites, strict=True)
            for place, cite in found
        ]
        self.db.run_all(_SQL["keep_cite"], kept)
        self.db.run(_SQL["mark_items"], (ids,))
        self._changed |= {scope for scope, _, _ in cites}

    # What is beside the items

    def _tombstone(self, rows: Sequence[Row]) -> None:
        self._graves((row.scope.id, row.key[1]) for row in rows)

    def _request(self, rows: Sequence[Row]) -> None:
        given = [(row, *moving.row_to_request(row)) for row in rows]
        kept = (
            {"scope": row.scope.id, "id": row.key[1], "answer": write_answer(answer, bytes.fromhex(asked))}
            for row, asked, answer in given
        )
        self.db.run_all(_SQL["keep_request"], ({**one, "at": self._now} for one in kept))

    def _session(self, rows: Sequence[Row]) -> None:
        kept = (
            {
                "scope": row.scope.id,
                "session": row.key[1],
                "length": row.values["length"],
                "changed": row.values["rank"],
            }
            for row in rows
        )
        self.db.run_all(_SQL["keep_session"], kept)
        self.db.run(_SQL["reach_change"], {"rank": max(row.values["rank"] for row in rows)})

    def _summary(self, rows: Sequence[Row]) -> None:
        given = [(row, moving.row_to_summary(row)) for row in rows]
        kept = (
            {"scope": row.scope.id, "session": row.key[1], "text": one.text, "upto": one.upto}
            | {"version": one.version, "made_by": one.by}
            for row, one in given
        )
        self.db.run_all(_SQL["keep_summary"], kept)

    def _progress(self, rows: Sequence[Row]) -> None:
        kept = (
            {"scope": row.scope.id, "session": row.key[1], "work": row.key[2], "upto": row.values["upto"]}
            for row in rows
        )
        self.db.run_all(_SQL["keep_progress"], kept)

    def _episode(self, rows: Sequence[Row]) -> None:
        self._find([(row.scope, row.values["item"]) for row in rows if row.values["item"] is not None])
        given = [(row.scope, *moving.row_to_episode(row)) for row in rows]
        kept = [
            {"scope": scope.id, **write_episode(one, None if one.item is None else self._known(scope, one.item))}
            for scope, one, _ in given
        ]
        for scope, some in _by_scope(rows).items():
            self.db.run(
                load_statements()["delete_episodes"].sql, {"scope": scope.id, "ids": [row.key[1] for row in some]}
            )
        self.db.run_all(_SQL["keep_episode"], kept)
        raws = (
            {"scope": scope.id, "id": one.id, "expires_at": write_time(raw.expires_at), "text": raw.text}
            for scope, one, raw in given
            if raw
        )
        self.db.run_all(_SQL["keep_raw"], raws)

    def _trial(self, rows: Sequence[Row]) -> None:
        self._find([(row.scope, row.key[1]) for row in rows])
        trials = [(row.scope, moving.row_to_trial(row)) for row in rows]
        kept = (
            {"scope": owner.id, "item": self._known(owner, one.procedure), "task": one.task, "success": one.success}
            | {"at": write_time(one.at), "note": one.note}
            for owner, one in trials
        )
        self.db.run_all(_SQL["keep_trial"], kept)

    # Tasks

    def _task(self, rows: Sequence[Row]) -> None:
        self.db.run_all(
            _SQL["keep_task"],
            ({**row.values, "lease_until": row.values["until"], "scope": row.scope.id} for row in rows),
        )
        self._find_tasks({(row.scope, row.key[1]) for row in rows})
        self.db.run(_SQL["drop_snapshots"], ([scope.id for scope, _ in self._tasks], list(self._tasks.values())))
        taken = ((row, self._tasks[row.scope, row.key[1]]) for row in rows if row.values["snapshot"] is not None)
        bodies = ({"scope": row.scope.id, "task": task, "body": row.values["snapshot"]} for row, task in taken)
        self.db.run_all(_SQL["keep_snapshot"], bodies)
        times = (row.values[name] or 0 for row in rows for name in ("started_at", "ended_at"))
        self._newest = max(self._newest, *times)

    def _step(self, rows: Sequence[Row]) -> None:
        self._find_tasks({(row.scope, row.key[1]) for row in rows})
        for row in rows:
            if (row.scope, row.key[1]) not in self._tasks:
                raise Conflict(f"the task {row.key[1]!r} of a step is not there: the source has changed. Copy anew.")
        kept = (
            {**row.values, "started_at": row.values["began_at"], "scope": row.scope.id}
            | {"task": self._tasks[row.scope, row.key[1]]}
            for row in rows
        )
        self.db.run_all(_SQL["keep_step"], kept)

    def _event(self, rows: Sequence[Row]) -> None:
        kept = (
            {"scope": row.scope.id, "task": row.key[1], "event": row.key[2], "payload": row.values["payload"]}
            for row in rows
        )
        self.db.run_all(_SQL["keep_event"], ({**one, "at": self._now} for one in kept))

    # What is the store's own

    def _grave(self, rows: Sequence[Row]) -> None:
        self._graves((row.key[0], row.key[1]) for row in rows)

    def _graves(self, hashes: Iterable[tuple[str, str]]) -> None:
        kept = ({"scope": scope, "hash": f"\\x{hash_}", "at": self._now} for scope, hash_ in hashes)
        self.db.run_all(_SQL["keep_tombstone"], kept)

    def _erased(self, rows: Sequence[Row]) -> None:
        kept = ({**row.values, "subject_hash": row.values["mark"], "subject_kind": row.values["by"]} for row in rows)
        self.db.run_all(_SQL["keep_erased"], kept)
        # Whoever comes back begins to write after it.
        self._newest = max(self._newest, *(row.values["at"] + 1 for row in rows))

    def _hold(self, rows: Sequence[Row]) -> None:
        self.db.run_all(_SQL["keep_hold"], ({**row.values, "subject_hash": row.values["mark"]} for row in rows))

    def _audit(self, rows: Sequence[Row]) -> None:
        found = list(map(moving.row_to_audit, rows))
        for head in (one for one in found if isinstance(one, AuditHead)):
            self.db.run(_SQL["keep_head"], (json.dumps([head.n, head.hash, head.seal]),))
        entries = (row.values for row, one in zip(rows, found, strict=True) if not isinstance(one, AuditHead))
        self.db.run_all(_SQL["keep_entry"], ({**one, "details": encode_details(one["details"])} for one in entries))

    # By name

    def _find(self, names: Iterable[Name]) -> None:
        wanted = {name for name in names if name not in self._numbers}
        self._numbers |= self._named(wanted, self.db.rows(_SQL["numbers"], ([id_ for _, id_ in wanted],)))

    def _find_tasks(self, names: set[Name]) -> None:
        asked = ([scope.id for scope, _ in names], [task for _, task in names])
        self._tasks = self._named(names, self.db.rows(_SQL["task_numbers"], asked))

    def _named(self, names: set[Name], found: list[tuple[Any, ...]]) -> dict[Name, int]:
        """Those that were asked for: a query of scopes and of names finds others too."""
        scopes = {scope.id: scope for scope, _ in names}
        there = {(scopes[owner], name): n for owner, name, n in found if owner in scopes}
        return {name: n for name, n in there.items() if name in names}

    def _known(self, scope: Scope, id_: str) -> int:
        number = self._numbers.get((scope, id_))
        if number is None:
            raise Conflict(f"the item {id_!r}, which others rest on, is not there: the source has changed. Copy anew.")
        return number


def _by_scope(rows: Sequence[Row]) -> dict[Scope, list[Row]]:
    found: dict[Scope, list[Row]] = {}
    for row in rows:
        found.setdefault(row.scope, []).append(row)
    return found


def _values(kept: StoredItem, words: Words) -> Mapping[str, Any]:
    """The row of an item."""
    item, relation = kept.item, kept.item.relation
    names = (
        "id", "kind", "importance", "trust", "pinned", "place", "session", "speaker", "role", "slot", "access_count",
        "replaced_by", "text",
    )  # fmt: skip
    times = ("occurred_at", "recorded_at", "valid_from", "valid_to", "retracted_at", "expires_at", "last_accessed")
    return {
        **{name: getattr(item, name) for name in names},
        **{name: write_time(getattr(item, name)) for name in times},
        "scope": kept.scope.id,
        "hash": f"\\x{kept.hash}",
        "traits": kept.traits,
        "passages": words.passages,
        "words": word_count(words),
        "subject": relation and relation.subject,
        "relation": relation and relation.relation,
        "object": relation and relation.object,
        "metadata": write_metadata(item.metadata),
        "filters": encode_filters(item.metadata),
    }
