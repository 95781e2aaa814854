"""Know which items of a scope are not visible at a moment, without asking for every item in every search."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.stores.postgres.arrays import Longs
from engrain.stores.postgres.filters import build_where
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.sql import load

_SQL = load("census.sql")
_KEPT = 1_000
_MOST_HIDDEN = 1_000_000
_MOST_NAMES = 200_000
_MOST_NAMED = 5_000
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Asked = psycopg.Cursor[Row]


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """What holds of a scope from one moment to another, as long as nothing changes in it."""

    seq: int
    since: int
    until: int
    passages: int
    words: int
    hidden: Ints

    @property
    def average(self) -> float:
        return self.words / self.passages if self.passages else 0.0

    def visible(self, items: Ints) -> Flags:
        return np.isin(items, self.hidden, invert=True)


class Counted(Handle):
    """A census costs a look at every item of a scope, so the last one of each scope is kept until something changes.

    A search joins no tables: which join the server takes hangs on statistics that are wrong in the first minute of a
    store and for a scope unlike the others, and the wrong one looks at every item for every word.
    """

    def __init__(self, *args: Any, **values: Any) -> None:
        self._counting = threading.Lock()
        self._censuses: OrderedDict[str, Census] = OrderedDict()
        self._known_ids: dict[int, str] = {}
        self._known_numbers: OrderedDict[str, tuple[int, dict[str, int]]] = OrderedDict()
        super().__init__(*args, **values)

    def _ask_newest(self, db: Db, scope: Scope) -> Asked:
        """For `_census`, asked early so that other questions go along."""
        return db.ask(_SQL["newest"], {"clock": self._clock_micros(), "scope": scope.id})

    def _census(self, db: Db, scope: Scope, at: Any, newest: Asked | None = None) -> Census:
        ((now, seq),) = (newest or self._ask_newest(db, scope)).fetchall()
        moment, seq = now if at is None else to_micros(at), seq or 0
        with self._counting:
            kept = self._censuses.get(scope.id)
        if kept and kept.seq == seq and kept.since <= moment < kept.until:
            return kept
        ((hidden, passages, words, since, until),) = db.rows(_SQL["census"], {"scope": scope.id, "at": moment})
        since, until = -(2**63) if since is None else since, 2**63 if until is None else until
        found = Census(seq, since, until, passages, words, _ints(hidden))
        if len(found.hidden) <= _MOST_HIDDEN:
            with self._counting:
                self._censuses[scope.id] = found
                self._censuses.move_to_end(scope.id)
                if len(self._censuses) > _KEPT:
                    self._censuses.popitem(last=False)
        return found

    # Names and numbers of items

    def _ids_of(self, db: Db, scope: Scope, items: Ints, seq: int) -> dict[int, str]:
        """Of items that are there, at the scope's number in this transaction."""
        asked = items.tolist()
        found = {n: self._known_ids[n] for n in asked if n in self._known_ids}
        missing = [n for n in asked if n not in found]
        if missing:
            rows: dict[int, str] = dict(db.rows(_SQL["ids"], (scope.id, missing)))
            found |= rows
            with self._counting:
                self._known_ids = rows if len(self._known_ids) > _MOST_NAMES else self._known_ids | rows
        self._know(scope, seq, {id_: n for n, id_ in found.items()})
        return found

    def _numbers_of(self, db: Db, scope: Scope, ids: Sequence[str], seq: int) -> dict[str, int]:
        """What was removed and brought back has another number than before."""
        with self._counting:
            at, known = self._known_numbers.get(scope.id, (seq, {}))
        found = {id_: known[id_] for id_ in ids if id_ in known} if at == seq else {}
        missing = [id_ for id_ in ids if id_ not in found]
        if missing:
            found |= dict(db.rows(_SQL["numbers"], (scope.id, missing)))
            self._know(scope, seq, found)
        return found

    def _know(self, scope: Scope, seq: int, numbers: dict[str, int]) -> None:
        with self._counting:
            at, known = self._known_numbers.get(scope.id, (seq, {}))
            if at > seq:
                return
            more = {**known, **numbers} if at == seq and len(known) < _MOST_NAMED else numbers
            self._known_numbers[scope.id] = seq, more
            self._known_numbers.move_to_end(scope.id)
            if len(self._known_numbers) > _KEPT:
                self._known_numbers.popitem(last=False)


def fitting(db: Db, scope: Scope, items: Ints, where: Filter | None) -> Flags:
    if where is None or not where.conditions or not len(items):
        return np.ones(len(items), dtype=np.bool_)
    test, values = build_where(where)
    # So many are not named one by one: then it is asked which of the whole scope match.
    named = Longs(np.unique(items)) if len(items) <= _MOST_NAMED else None
    statement = _SQL["fitting" if named else "fitting_all"].replace("{where}", test)
    ((found,),) = db.rows(statement, {**values, "scope": scope.id, "items": named})
    return np.isin(items, _ints(found))


def _ints(found: Ints | None) -> Ints:
    return np.empty(0, dtype=np.int64) if found is None else found
