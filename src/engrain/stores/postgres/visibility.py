"""Know which items of a scope are hidden at a moment, without a join in every search."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from engrain.core.clock import to_micros
from engrain.core.model.filters import Filter
from engrain.stores.postgres.syntax import BigintArray, build_where
from engrain.stores.relational.dialect import Dialect, Pending, Transaction

_MAX_SCOPES = 1_000
_MAX_HIDDEN = 1_000_000
_MAX_IDS = 200_000
# An item list of this length or less goes to the server.
_MAX_LISTED = 5_000
_ALWAYS, _NEVER = -(2**63), 2**63
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Visibility:
    """The hidden items of a scope, and the size of the others. True between two moments, until the next change."""

    change: int
    since: int
    until: int
    passages: int
    words: int
    hidden: Ints

    @property
    def average_length(self) -> float:
        return self.words / self.passages if self.passages else 0.0

    def is_visible(self, items: Ints) -> Flags:
        return np.isin(items, self.hidden, invert=True)


class VisibilityCache:
    """Computing a scope's visibility reads every item of it, so the last one is kept until something changes.

    A search joins no tables. The server chooses a join by statistics, which are wrong in the first minute of a store
    and for a scope unlike the others; the wrong join reads every item for every word."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scopes: OrderedDict[str, Visibility] = OrderedDict()
        self._ids: dict[int, str] = {}

    def load(self, tx: Transaction, at: datetime | None, clock: Pending | None = None) -> Visibility:
        """`clock` is the answer to find_scope_moment, if it was asked early together with other questions."""
        ((now, change),) = (clock or tx.ask("find_scope_moment")).fetchall()
        micros, change, scope = now if at is None else to_micros(at), change or 0, _scope_id(tx)
        with self._lock:
            known = self._scopes.get(scope)
        if known and known.change == change and known.since <= micros < known.until:
            return known
        ((hidden, passages, words, since, until),) = tx.rows("load_visibility", at=micros)
        since, until = _ALWAYS if since is None else since, _NEVER if until is None else until
        found = Visibility(change, since, until, passages, words, _to_ints(hidden))
        if len(found.hidden) <= _MAX_HIDDEN:
            with self._lock:
                self._scopes[scope] = found
                self._scopes.move_to_end(scope)
                if len(self._scopes) > _MAX_SCOPES:
                    self._scopes.popitem(last=False)
        return found

    def load_ids(self, tx: Transaction, items: Ints) -> dict[int, str]:
        """The ids of stored items, by number. An item that was removed and restored has another number than before."""
        asked = items.tolist()
        found = {n: self._ids[n] for n in asked if n in self._ids}
        missing = [n for n in asked if n not in found]
        if missing:
            rows: dict[int, str] = dict(tx.rows("load_item_ids", items=missing))
            found |= rows
            with self._lock:
                self._ids = rows if len(self._ids) > _MAX_IDS else self._ids | rows
        return found


def match_filter(tx: Transaction, dialect: Dialect, items: Ints, where: Filter | None) -> Flags:
    """Tell for each of these items if it passes the filter."""
    if where is None or not where.conditions or not len(items):
        return np.ones(len(items), dtype=np.bool_)
    test, values = build_where(where)
    if len(items) <= _MAX_LISTED:
        statement = dialect.statements["filter_items"].fill(where=test)
        ((found,),) = tx.rows(statement, items=BigintArray(np.unique(items)), **values)
    else:
        ((found,),) = tx.rows(dialect.statements["filter_scope"].fill(where=test), **values)
    return np.isin(items, _to_ints(found))


def _scope_id(tx: Transaction) -> str:
    assert tx.scope is not None
    return tx.scope.id


def _to_ints(found: Ints | None) -> Ints:
    return np.empty(0, dtype=np.int64) if found is None else found
