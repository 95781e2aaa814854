"""Answer searches from an index of each scope in memory, which reads all changes before every answer."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.queries import Nearest, VectorQuery, WordHit, WordMatches, WordQuery
from engrain.stores.sqlite.connection import Reader
from engrain.stores.sqlite.syntax import build_where, load_sql

# Opening a store must not load numpy: the modules that need it are imported by the first search.
if TYPE_CHECKING:
    from engrain.stores.sqlite.index.items import EntryTable, ItemTable, Mask
    from engrain.stores.sqlite.index.vectors import VectorIndex
    from engrain.stores.sqlite.index.words import BestPassages, Scores, WordIndex

Answer = TypeVar("Answer")
SQL = load_sql()

# The rows of so many filters are cached until the scope changes: the searches of one recall share a filter.
_CACHED_FILTERS = 8
# A quarter of the time of WordHit(…), which is a call into Python for each.
_word_hit: Callable[[tuple[Any, ...]], WordHit] = partial(tuple.__new__, WordHit)


class Read(Protocol):
    """Runs a function in a read transaction."""

    def __call__(self, fn: Callable[[Reader], Answer], /) -> Answer: ...


class IndexCache:
    """The indexes of the scopes in use, up to a number of bytes. The least recently used one is dropped first."""

    def __init__(self, read: Read, now: Callable[[Reader], int], max_bytes: int) -> None:
        self._read = read
        self._now = now
        self._max_bytes = max_bytes
        self.reset()

    def reset(self) -> None:
        """Return to the unused state, in a forked child that has none of the threads."""
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._dropped = self._over_cap = 0

    # Answers

    def nearest(self, query: VectorQuery) -> Nearest:
        def search(index: ScopeIndex, db: Reader) -> Nearest:
            vectors = index.vectors(db, query.model)
            if vectors is None:
                return Nearest([], [])
            mask = index.mask_matching(db, query.where, index.items.mask_visible(self._micros(db, query.at)))
            rows, cosines, background = vectors.find_nearest(db, index.items, query.vector, mask, query.limit)
            return Nearest([index.items.ids[row] for row in rows.tolist()], cosines.tolist(), background=background)

        return self._search(query.scope, search)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        def search(index: ScopeIndex, db: Reader) -> list[float]:
            vectors = index.vectors(db, query.model)
            if vectors is None:
                return [nan] * len(ids)
            rows = index.items.find_visible_rows(ids, self._micros(db, query.at))
            found: list[float] = vectors.score_rows(db, index.items, query.vector, rows).tolist()
            return found

        return self._search(query.scope, search)

    def best(self, query: WordQuery) -> WordMatches:
        def search(index: ScopeIndex, db: Reader) -> WordMatches:
            words = index.words(db)
            visible = index.items.mask_visible(self._micros(db, query.at))
            chosen = index.mask_matching(db, query.where, visible)
            scores = words.score(query.terms, visible)
            newness = index.items.order_by_newness()
            return _make_matches(index, scores, words.find_best(scores, chosen, newness, query.limit))

        return self._search(query.scope, search)

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        def search(index: ScopeIndex, db: Reader) -> WordMatches:
            words, at = index.words(db), self._micros(db, query.at)
            scores = words.score(query.terms, index.items.mask_visible(at))
            return _make_matches(index, scores, words.describe_rows(scores, index.items.find_visible_rows(ids, at)))

        return self._search(query.scope, search)

    def speakers(self, scope: Scope) -> frozenset[str]:
        return self._search(scope, lambda index, db: index.items.speakers)

    # The cache

    def usage(self) -> dict[str, int]:
        """`over_cap` counts answers whose scope alone was over the cap, so that it was read for them only."""
        with self._lock:
            return {
                "scopes": len(self._slots),
                "bytes": sum(slot.nbytes for slot in self._slots.values()),
                "cap": self._max_bytes,
                "dropped": self._dropped,
                "over_cap": self._over_cap,
            }

    def clear(self) -> None:
        with self._lock:
            self._slots.clear()

    def _micros(self, db: Reader, at: datetime | None) -> int:
        return self._now(db) if at is None else to_micros(at)

    def _search(self, scope: Scope, search: Callable[[ScopeIndex, Reader], Answer]) -> Answer:
        # Before the snapshot: loading numpy takes a while.
        from engrain.stores.sqlite.index import vectors, words  # noqa: F401

        key = scope.id
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)

        def answer_from(db: Reader) -> Answer:
            # Taken out while it changes: an index whose refresh was interrupted is not used again.
            index, slot.index = slot.index, None
            index = _refresh(index, db, key)
            found = search(index, db)
            slot.index, slot.nbytes = index, index.nbytes
            return found

        # The lock before the snapshot: a snapshot taken earlier could be older than the index.
        with slot.lock:
            answer = self._read(answer_from)
        self._enforce_cap(key, slot)
        return answer

    def _enforce_cap(self, key: str, slot: _Slot) -> None:
        with self._lock:
            if self._slots.get(key) is not slot:
                return
            if slot.nbytes > self._max_bytes:
                del self._slots[key]
                self._over_cap += 1
            while sum(other.nbytes for other in self._slots.values()) > self._max_bytes:
                self._slots.popitem(last=False)
                self._dropped += 1


class ScopeIndex:
    """The index of one scope. Not safe for several threads at once: IndexCache holds a lock around it."""

    def __init__(self, scope: int) -> None:
        from engrain.stores.sqlite.index.items import ItemTable
        from engrain.stores.sqlite.index.words import WordIndex

        self.items = ItemTable(scope)
        self._words = WordIndex()
        self._vectors: dict[str, VectorIndex] = {}
        self._filtered: OrderedDict[tuple[str, tuple[Any, ...]], tuple[Mask, Mask]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        vectors = sum(index.nbytes for index in self._vectors.values())
        return self.items.nbytes + self._words.nbytes + vectors

    def words(self, db: Reader) -> WordIndex:
        _refresh_entries(self._words, db, self.items)
        if self._words.is_stale:
            self._words = type(self._words)()
            _refresh_entries(self._words, db, self.items)
        return self._words

    def vectors(self, db: Reader, model: str) -> VectorIndex | None:
        """None if the store has no vectors of the model at all."""
        index = self._vectors.get(model)
        if index is not None:
            _refresh_entries(index, db, self.items)
        if index is None or index.is_stale:
            known = list(db.rows(SQL["find_vector_model"], {"model": model}))
            if not known:
                return None
            from engrain.stores.sqlite.index.vectors import VectorIndex

            index = self._vectors[model] = VectorIndex(*known[0])
            _refresh_entries(index, db, self.items)
        return index

    def mask_matching(self, db: Reader, where: Filter | None, visible: Mask) -> Mask:
        """The visible rows that match the filter."""
        if where is None or not where.conditions:
            return visible
        expression, values = build_where(where)
        # The type as well: True and 1 are equal in Python, and different to a filter.
        key = (expression, tuple((type(value), value) for value in values.values()))
        cached = self._filtered.get(key)
        # Every change of a row makes a new visible mask, so the same mask object means the same rows.
        if cached is not None and cached[0] is visible:
            return cached[1]
        sql = f"select item.n from item where item.scope = :scope and {expression}"
        found = db.rows(sql, {**values, "scope": self.items.scope})
        mask = self.items.mask_numbers([n for (n,) in found], visible)
        self._filtered[key] = (visible, mask)
        while len(self._filtered) > _CACHED_FILTERS:
            self._filtered.popitem(last=False)
        return mask


class _Slot:
    """The cached index of one scope, and the lock around it."""

    __slots__ = ("index", "lock", "nbytes")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.index: ScopeIndex | None = None
        self.nbytes = 0


def _refresh(index: ScopeIndex | None, db: Reader, scope_id: str) -> ScopeIndex:
    found = list(db.rows(SQL["find_scope_changes"], {"id": scope_id}))
    # Scope numbers begin at 1: scope 0 is always empty.
    scope, changed, deleted = found[0] if found else (0, 0, 0)
    newest = max(changed or 0, deleted or 0)
    # Change numbers that went back belong to another file.
    if index is None or index.items.scope != scope or index.items.last_change > newest:
        index = ScopeIndex(scope)
    index.items.refresh(db, newest)
    if index.items.is_stale:
        index = ScopeIndex(scope)
        index.items.refresh(db, newest)
    return index


def _refresh_entries(entries: EntryTable, db: Reader, items: ItemTable) -> None:
    """Read the changes up to the last one that the items have."""
    entries.grow(len(items))
    if not entries.loaded:
        entries.loaded = True
        entries.load(db, items)
    elif items.last_change > entries.last_change:
        entries.update(db, items)
    entries.last_change = items.last_change


def _make_matches(index: ScopeIndex, scores: Scores, best: BestPassages) -> WordMatches:
    ids = map(index.items.ids.__getitem__, best.rows.tolist())
    counts = map(tuple, best.counts.tolist())
    hits = zip(ids, best.numbers.tolist(), best.lengths.tolist(), counts, strict=True)
    statistics = scores.statistics
    return WordMatches(list(map(_word_hit, hits)), statistics.passages, statistics.average, scores.frequency)
