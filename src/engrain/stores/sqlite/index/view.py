"""Answer searches from an index of each scope in memory, which reads all changes before every answer."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Item
from engrain.core.model.queries import (
    BY_MEANING,
    BY_TRAITS,
    BY_WORDS,
    CandidateQuery,
    Candidates,
    ListQuery,
    Nearest,
    VectorQuery,
    WordColumns,
    WordHit,
    WordMatches,
    WordQuery,
)
from engrain.stores.relational.reads import ItemReads
from engrain.stores.relational.rows import decoding
from engrain.stores.sqlite.connection import Reader
from engrain.stores.sqlite.index.lru import CachedList, FilterKey, Slot, Slots, loaded_indexes
from engrain.stores.sqlite.syntax import build_where, load_sql

# Opening a store must not load numpy: the modules that need it are imported by the first search.
if TYPE_CHECKING:
    from engrain.stores.sqlite.dialect import SqliteDialect
    from engrain.stores.sqlite.index.columns import Allocate, Ints
    from engrain.stores.sqlite.index.items import EntryTable, ItemTable, Mask
    from engrain.stores.sqlite.index.vectors import VectorIndex
    from engrain.stores.sqlite.index.words import BestPassages, Scores, WordIndex
    from engrain.stores.vector_math import Floats

Answer = TypeVar("Answer")
SQL = load_sql()

# The rows of so many filters are cached until the scope changes: the searches of one recall share a filter.
_CACHED_FILTERS = 8
_CACHED_LISTS = 16
# A guess at the bytes of an item's words and vectors, by which a scope is mapped before it is read.
_ENTRY_BYTES = 600
_ARM_BITS = BY_TRAITS.bit_length()
# A quarter of the time of WordHit(…), which is a call into Python for each.
_word_hit: Callable[[tuple[Any, ...]], WordHit] = partial(tuple.__new__, WordHit)


class Read(Protocol):
    """Runs a function in a read transaction."""

    def __call__(self, fn: Callable[[Reader], Answer], /) -> Answer: ...


class IndexCache:
    """The indexes of a store's scopes in use. All stores of a process together hold no more than the cap.

    Above it indexes are kept in files of `folder`, which are mapped. Without a folder one that is larger than the cap
    by itself is read for each answer, and others are dropped until they are asked again."""

    def __init__(self, read: Read, now: Callable[[int], int], max_bytes: int, folder: str | None = None) -> None:
        self._read = read
        self._now = now
        self._max_bytes = max_bytes
        self._over_cap = 0
        self._slots = Slots(folder)
        weakref.finalize(self, loaded_indexes.drop, self._slots)

    def reset(self) -> None:
        """Return to the unused state, in a forked child that has none of the threads."""
        loaded_indexes.reset()
        self._slots.reset()
        self._over_cap = 0

    # Answers

    def nearest(self, query: VectorQuery) -> Nearest:
        def search(index: ScopeIndex, db: Reader) -> Nearest:
            vectors = index.vectors(db, query.model)
            if vectors is None:
                return Nearest([], [])
            mask = index.mask_matching(
                db, query.where, index.items.mask_visible(self._micros(index.recorded, query.at))
            )
            vector = vectors.normalize(query.vector)
            rows, cosines, background = vectors.find_nearest(db, index.items, vector, mask, query.limit)
            return Nearest(index.items.ids.read(rows), cosines.tolist(), background=background)

        return self._search(query.scope, search)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        def search(index: ScopeIndex, db: Reader) -> list[float]:
            vectors = index.vectors(db, query.model)
            if vectors is None:
                return [nan] * len(ids)
            rows = index.items.find_visible_rows(ids, self._micros(index.recorded, query.at))
            found: list[float] = vectors.score_rows(db, index.items, vectors.normalize(query.vector), rows).tolist()
            return found

        return self._search(query.scope, search)

    def best(self, query: WordQuery) -> WordMatches:
        def search(index: ScopeIndex, db: Reader) -> WordMatches:
            words = index.words(db)
            visible = index.items.mask_visible(self._micros(index.recorded, query.at))
            chosen = index.mask_matching(db, query.where, visible)
            scores = words.score(query.terms, visible)
            newness = index.items.ids.order_by_newness()
            return _make_matches(index, scores, words.find_best(scores, chosen, newness, query.limit))

        return self._search(query.scope, search)

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        def search(index: ScopeIndex, db: Reader) -> WordMatches:
            words, at = index.words(db), self._micros(index.recorded, query.at)
            scores = words.score(query.terms, index.items.mask_visible(at))
            return _make_matches(index, scores, words.describe_rows(scores, index.items.find_visible_rows(ids, at)))

        return self._search(query.scope, search)

    def collect(self, query: CandidateQuery) -> Candidates:
        def search(index: ScopeIndex, db: Reader) -> Candidates:
            return Collection(index, db, query, self._micros(index.recorded, query.words.at)).collect()

        return self._search(query.words.scope, search)

    def list_newest(self, query: ListQuery, traits: int = 0) -> list[str] | None:
        """The newest visible items, the newest first: with traits, of those that have any of them.

        None if the scope's index is not in memory: reading it for a list is not worth it."""
        slot = self._slots.get(query.scope.id)
        if slot is None or slot.speakers is None:
            return None
        key = (_make_filter_key(query.where), traits, query.limit)

        def search(index: ScopeIndex, db: Reader) -> list[str]:
            items = index.items
            mask = index.mask_matching(db, query.where, items.mask_visible(self._micros(index.recorded, query.at)))
            rows = items.find_with_traits(traits, mask, query.limit) if traits else items.find_newest(mask, query.limit)
            ids = items.ids.read(rows)
            if len(slot.lists) >= _CACHED_LISTS:
                slot.lists.clear()
            slot.lists[key] = CachedList((items.scope, items.last_change), *items.visible_between, ids)
            return ids

        # Without the lock: no search changes a cached list.
        if known := slot.lists.get(key):
            *newest, recorded = self._find_newest(query.scope)
            at = self._micros(recorded, query.at)
            if known.newest == tuple(newest) and known.begins <= at < known.ends:
                return known.ids
        return self._search(query.scope, search)

    def speakers(self, scope: Scope) -> frozenset[str]:
        slot = self._slots.get(scope.id)
        known = slot.speakers if slot else None
        # Without the lock: no search changes this tuple.
        if known and known[:2] == self._find_newest(scope)[:2]:
            return known[2]
        return self._search(scope, lambda index, db: index.items.speakers)

    # The cache

    def usage(self) -> dict[str, int]:
        """`mapped` scopes are in files. `over_cap` counts answers for which one larger than the cap was read anew.

        `bytes` are those in memory; `process` has those of all stores."""
        slots = list(self._slots.values())
        return {
            "scopes": len(slots),
            "bytes": sum(slot.nbytes for slot in slots),
            "process": loaded_indexes.nbytes,
            "cap": self._max_bytes,
            "dropped": self._slots.dropped,
            "mapped": sum(slot.is_large or slot.is_mapped for slot in slots),
            "over_cap": self._over_cap,
        }

    def clear(self) -> None:
        loaded_indexes.drop(self._slots)

    def _micros(self, recorded: int, at: datetime | None) -> int:
        return self._now(recorded) if at is None else to_micros(at)

    def _find_newest(self, scope: Scope) -> tuple[int, int, int]:
        return self._read(lambda db: _find_newest(db, scope.id))

    def _search(self, scope: Scope, search: Callable[[ScopeIndex, Reader], Answer]) -> Answer:
        slot = loaded_indexes.use(self._slots, scope.id)
        if slot.index is None:  # before the snapshot: loading numpy takes a while
            from engrain.stores.sqlite.index import vectors, words  # noqa: F401

        nbytes = 0

        def answer_from(db: Reader) -> Answer:
            nonlocal nbytes
            # Taken out while it changes: an index whose refresh was interrupted is not used again.
            index, slot.index = slot.index, None
            index = self._refresh(index, db, slot)
            found = search(index, db)
            slot.index, nbytes = index, index.nbytes
            slot.speakers = index.items.scope, index.items.last_change, index.items.speakers
            return found

        # The lock before the snapshot: a snapshot taken earlier could be older than the index.
        with slot.lock, decoding:
            answer = self._read(answer_from)
        if nbytes > self._max_bytes and not (slot.is_large and self._slots.folder):
            # The next search maps it, if it can be.
            slot.is_large, slot.index, nbytes = True, None, 0
            self._over_cap += 1
        loaded_indexes.resize(slot, nbytes, self._max_bytes)
        return answer

    def _refresh(self, index: ScopeIndex | None, db: Reader, slot: Slot) -> ScopeIndex:
        scope, newest, recorded = _find_newest(db, slot.scope_id)
        # Change numbers that went back belong to another file.
        if index is not None and (index.items.scope != scope or index.items.last_change > newest):
            index = None
        if index is not None:
            index.items.refresh(db, newest)
        if index is None or index.items.is_stale:
            index = ScopeIndex(scope)
            index.items.refresh(db, newest)
            slot.is_large = slot.is_large or index.items.nbytes + _ENTRY_BYTES * len(index.items) > self._max_bytes
            if slot.is_large and (files := self._slots.open_files()):
                index.map_files(files)
        index.recorded = recorded
        return index


class IndexedReads(ItemReads):
    """Reads that take short lists from an index in memory, which need not read all of a scope."""

    dialect: SqliteDialect
    index: IndexCache

    def short_page(self, query: ListQuery) -> list[Item]:
        plain = not query.history and query.after is None and query.where is not None
        ids = self.index.list_newest(query) if plain and self.dialect.reads_newest else None
        if ids is None:
            return self.page(query)
        return self.get_many(query.scope, ids) if ids else []

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        query = ListQuery(scope, where, at, limit=limit)
        ids = self.index.list_newest(query, traits) if self.dialect.reads_newest else None
        return super().having(scope, traits, where, limit, at) if ids is None else ids


class ScopeIndex:
    """The index of one scope. Not safe for several threads at once: IndexCache holds a lock around it."""

    def __init__(self, scope: int) -> None:
        from engrain.stores.sqlite.index.items import ItemTable
        from engrain.stores.sqlite.index.words import WordIndex

        self.items = ItemTable(scope)
        self.recorded = 0  # the newest time that the store had recorded at the last refresh
        self._words = WordIndex()
        self._vectors: dict[str, VectorIndex] = {}
        self._allocate: Allocate | None = None
        self._filtered: OrderedDict[FilterKey, tuple[Mask, Mask]] = OrderedDict()

    def map_files(self, files: Allocate) -> None:
        """Keep the words and vectors in mapped files, and drop what is made of them."""
        for entries in (self._words, *self._vectors.values()):
            if self._allocate is None:
                entries.move(files)
            entries.drop_cached()
        self._allocate = files

    @property
    def nbytes(self) -> int:
        """The bytes in memory. Those of mapped files do not count: the system takes them back when it has to."""
        entries: list[WordIndex | VectorIndex] = [self._words, *self._vectors.values()]
        cached = self.items.nbytes + sum(one.cached_bytes for one in entries)
        return cached if self._allocate else cached + sum(one.nbytes for one in entries)

    def words(self, db: Reader) -> WordIndex:
        _refresh_entries(self._words, db, self.items)
        if self._words.is_stale:
            self._words = type(self._words)(*([self._allocate] if self._allocate else []))
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

            index = self._vectors[model] = VectorIndex(*known[0], *([self._allocate] if self._allocate else []))
            _refresh_entries(index, db, self.items)
        return index

    def mask_matching(self, db: Reader, where: Filter | None, visible: Mask) -> Mask:
        """The visible rows that match the filter."""
        if where is None or not where.conditions:
            return visible
        key = _make_filter_key(where)
        cached = self._filtered.get(key)
        # Every change of a row makes a new visible mask, so the same mask object means the same rows.
        if cached is not None and cached[0] is visible:
            return cached[1]
        mask = self.items.mask_profiles(where, visible)
        if mask is None:
            expression, values = build_where(where)
            sql = f"select item.n from item where item.scope = :scope and {expression}"
            found = db.rows(sql, {**values, "scope": self.items.scope})
            mask = self.items.mask_numbers([n for (n,) in found], visible)
        self._filtered[key] = (visible, mask)
        while len(self._filtered) > _CACHED_FILTERS:
            self._filtered.popitem(last=False)
        return mask


class Collection:
    """The candidates for one query, collected in one snapshot of one index."""

    def __init__(self, index: ScopeIndex, db: Reader, query: CandidateQuery, at: int) -> None:
        self._index, self._db, self._query, self._items = index, db, query, index.items
        self._visible = index.items.mask_visible(at)
        self._words = index.words(db)
        self._scored = self._words.score(query.words.terms, self._visible)
        self._vectors = self._vector = None
        if query.vector and (vectors := index.vectors(db, query.vector.model)) is not None:
            self._vectors, self._vector = vectors, vectors.normalize(query.vector.vector)

    def collect(self) -> Candidates:
        import numpy as np

        query, items = self._query, self._items
        chosen = self._index.mask_matching(self._db, query.words.where, self._visible)
        having = items.find_with_traits(query.traits, chosen, query.max_with_traits)
        by_words, by_meaning, cosines, background = self._search_both(chosen)
        nearest = len(cosines), float(cosines[0]) if len(cosines) else 0.0, background
        rows, found_by = self._join(chosen, by_meaning, by_words, having)
        columns = items.read_columns(rows)
        full = max(len(by_words), len(by_meaning)) >= query.words.limit
        trusted = (columns.trust >= query.trust) & (columns.traits & query.foreign_traits == 0)
        if full and int(trusted.sum()) < query.min_trusted:
            # Texts of others fill both arms: what the user said is searched for on its own.
            more_words, more_meaning, more_cosines, _ = self._search_both(
                items.mask_trusted(chosen, query.trust, query.foreign_traits)
            )
            by_words, by_meaning = np.concatenate((by_words, more_words)), np.concatenate((by_meaning, more_meaning))
            cosines = np.concatenate((cosines, more_cosines))
            rows, found_by = self._join(chosen, by_meaning, by_words, having)
            columns = items.read_columns(rows)
        cosine = np.full(len(rows), nan)
        if self._vectors is not None and self._vector is not None:
            cosine[rows.searchsorted(by_meaning)] = cosines
            far = (found_by & BY_MEANING == 0).nonzero()[0]
            cosine[far] = self._vectors.score_rows(self._db, items, self._vector, rows[far])
        return Candidates(columns, self._describe_words(rows), cosine, found_by, nearest)

    def _search_both(self, mask: Mask) -> tuple[Ints, Ints, Floats, float | None]:
        """The best rows by words, and by meaning with their cosines and the background."""
        import numpy as np

        query, items = self._query, self._items
        by_words = self._words.find_best_rows(self._scored, mask, items.ids.order_by_newness(), query.words.limit)
        if self._vectors is None or self._vector is None:
            ids = query.near.ids if query.near else []
            rows = items.ids.find(ids)
            return by_words, rows[rows >= 0], np.empty(0), None
        limit = query.words.limit
        rows, cosines, background = self._vectors.find_nearest(self._db, items, self._vector, mask, limit)
        return by_words, rows, cosines, background

    def _join(self, chosen: Mask, by_meaning: Ints, by_words: Ints, having: Ints) -> tuple[Ints, Ints]:
        """All rows in order with their neighbours, and the arms that found each."""
        import numpy as np

        from engrain.stores.sqlite.index.columns import mark_firsts

        near = self._items.find_neighbours(np.concatenate((by_meaning, by_words, having)), self._query.reach)
        arms = (by_meaning, BY_MEANING), (by_words, BY_WORDS), (having, BY_TRAITS), (near, 0)
        # A row and its arm in one number: it sorts without a permutation.
        keys = np.concatenate([(some << _ARM_BITS) + arm for some, arm in arms])
        if not chosen.everything:
            keys = keys[chosen.rows[keys >> _ARM_BITS]]  # a vector server may name what is not visible here
        keys.sort()
        rows = keys >> _ARM_BITS
        firsts = mark_firsts(rows).nonzero()[0]
        arms_of = keys & (1 << _ARM_BITS) - 1
        return rows[firsts], np.bitwise_or.reduceat(arms_of, firsts) if len(rows) else arms_of

    def _describe_words(self, rows: Ints) -> WordColumns:
        import numpy as np

        best, statistics = self._words.describe_rows(self._scored, rows), self._scored.statistics
        return WordColumns(
            rows.searchsorted(best.rows), best.numbers, best.lengths, best.counts.astype(np.float64),
            statistics.passages, statistics.average, self._scored.frequency,
        )  # fmt: skip


def _make_filter_key(where: Filter | None) -> FilterKey:
    """With the types of the values: True and 1 are equal in Python, and different to a filter."""
    key: list[Any] = []
    for one in where.conditions if where else ():
        values = one.value if isinstance(one.value, (tuple, list)) else (one.value,)
        key += (one.field, one.operator, len(values), *values, *map(type, values))
    return tuple(key)


def _find_newest(db: Reader, scope_id: str) -> tuple[int, int, int]:
    """The number of a scope and of its last change, and the newest time that the store has recorded."""
    ((scope, changed, deleted, recorded),) = db.rows(SQL["find_scope_changes"], {"id": scope_id})
    # Scope numbers begin at 1: scope 0 is always empty.
    return scope or 0, max(changed or 0, deleted or 0), recorded


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
    ids = index.items.ids.read(best.rows)
    counts = map(tuple, best.counts.tolist())
    hits = zip(ids, best.numbers.tolist(), best.lengths.tolist(), counts, strict=True)
    statistics = scores.statistics
    return WordMatches(list(map(_word_hit, hits)), statistics.passages, statistics.average, scores.frequency)
