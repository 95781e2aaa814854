"""Hold the items of a scope as columns, and tell which of them are visible at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engrain.core.errors import StoreCorrupt
from engrain.core.model.filters import Filter
from engrain.core.model.queries import ItemColumns
from engrain.stores.sqlite.connection import Reader, read_pages
from engrain.stores.sqlite.index.columns import Allocate, Array, Column, Flags, Ints, allocate_in_memory, mark_firsts
from engrain.stores.sqlite.index.profiles import IdColumn, ProfileTable
from engrain.stores.sqlite.syntax import load_sql

SQL = load_sql()
_NEVER, _ALWAYS = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# Fewer removed rows than this are kept: reading so small a scope again would gain nothing.
MIN_REMOVED = 256
# A session and a place in it as one number.
_PLACE_BITS = 40
# Scores are compared in so many rows: the best of each column is above all others of it.
_BLOCK_ROWS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """The rows that count. Results that are derived from a mask are cached by its identity."""

    rows: Flags
    everything: bool


class ItemTable:
    """The items of one scope, ordered by number. The row of an item never changes."""

    def __init__(self, scope: int) -> None:
        self.scope = scope
        self.last_change = 0
        self.numbers = Column(np.int64)
        self.valid_from = Column(np.int64)
        self.valid_until = Column(np.int64)
        self.passages = Column(np.int64)
        self.ids = IdColumn()
        self._occurred_at = Column(np.int64)
        self._session = Column(np.int64)
        self._place = Column(np.int64)
        self._sessions: dict[str | None, int] = {None: -1}
        self._profiles = ProfileTable()
        self._profile = Column(np.int32)
        self._sources: dict[int, str] = {}  # the first named source of a row
        self._places: tuple[Ints, Ints, Ints] | None = None  # see _order_places
        self.removed = 0
        self._visible = Mask(np.empty(0, dtype=np.bool_), True)
        self._masked = (0, 0, 0)  # the last change when it was made, and the times from and until which it holds

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return (94 + self.ids.width) * len(self.ids) + self._profiles.nbytes

    @property
    def is_stale(self) -> bool:
        return is_mostly_removed(self.removed, len(self.ids))

    @property
    def speakers(self) -> frozenset[str]:
        return self._profiles.speakers

    def refresh(self, db: Reader, newest: int) -> None:
        """Read the changes up to the newest one."""
        if newest <= self.last_change:
            return
        values = {"scope": self.scope, "since": self.last_change}
        if self.last_change:
            # Additions first: an item may have been added and deleted since.
            self._update(db, db.rows(SQL["load_changed_index_items"], values))
            deleted = db.rows(SQL["load_deleted_numbers"], values)
            self._remove(np.array([number for (number,) in deleted], dtype=np.int64))
        else:
            for columns in read_pages(db, SQL["load_index_items"], values):
                self._append(columns)
            self._read_sources(db.rows(SQL["load_index_sources"], values))
        self.last_change = newest

    def _update(self, db: Reader, rows: list[tuple[Any, ...]]) -> None:
        # Numbers rise with every insert, so new items stand behind all known ones.
        last = int(self.numbers.values[-1]) if len(self.numbers) else -1
        new = [row for row in rows if row[0] > last]
        if new:
            self._append(list(zip(*new, strict=True)))
        for number, _, valid_from, valid_until, passages, occurred_at, session, place, *profile in rows[
            : len(rows) - len(new)
        ]:
            row = int(np.searchsorted(self.numbers.values, number))
            self.valid_from.values[row] = valid_from
            self.valid_until.values[row] = _ALWAYS if valid_until is None else valid_until
            self.passages.values[row] = passages
            self._occurred_at.values[row] = occurred_at
            self._session.values[row] = self._sessions.setdefault(session, len(self._sessions) - 1)
            self._place.values[row] = -1 if place is None else place
            self._profiles.drop(int(self._profile.values[row]))
            self._profile.values[row] = self._profiles.add(tuple(profile))
            self._sources.pop(row, None)
            self._places = None
        numbers = str([row[0] for row in rows])  # a list of integers as JSON
        self._read_sources(db.rows(SQL["load_changed_index_sources"], {"scope": self.scope, "items": numbers}))

    def _append(self, columns: list[tuple[Any, ...]]) -> None:
        numbers, ids, valid_from, valid_until, passages, occurred_at, sessions, places, *profiles = columns
        self.numbers.extend(numbers)
        self.valid_from.extend(valid_from)
        self.valid_until.extend(replace_nulls(valid_until, _ALWAYS))
        self.passages.extend(passages)
        self._occurred_at.extend(occurred_at)
        known = self._sessions
        self._session.extend([known.setdefault(name, len(known) - 1) for name in sessions])
        self._place.extend(replace_nulls(places, -1))
        self._profile.extend(list(map(self._profiles.add, zip(*profiles, strict=True))))
        self.ids.extend(ids)
        self._places = None

    def _read_sources(self, rows: list[tuple[int, str]]) -> None:
        found = self.find_rows(np.array([number for number, _ in rows], dtype=np.int64)).tolist()
        for row, (_, name) in zip(found, rows, strict=True):
            self._sources.setdefault(row, name)

    def _remove(self, numbers: Ints) -> None:
        for row in self.find_rows(numbers).tolist():
            if row < 0:
                continue
            self._profiles.drop(int(self._profile.values[row]))
            self.removed += 1
            self.valid_until.values[row] = _NEVER
            self._places = None

    # Columns

    def read_columns(self, rows: Ints) -> ItemColumns:
        """The fields of these rows."""
        profile, profiles = self._profile.values[rows], self._profiles
        source = np.full(len(rows), None, dtype=object)
        if self._sources:
            source[:] = list(map(self._sources.get, rows.tolist()))
        return ItemColumns(
            self.ids.read(rows), profiles.kind.values[profile],
            profiles.role.values[profile], profiles.speaker.values[profile], source, self._session.values[rows],
            self._place.values[rows], self._occurred_at.values[rows] / 1e6, profiles.traits.values[profile],
            profiles.importance.values[profile], profiles.pinned.values[profile], profiles.trust.values[profile],
        )  # fmt: skip

    def find_neighbours(self, rows: Ints, reach: int) -> Ints:
        """The rows up to so many places away in the same sessions."""
        keys, order, positions = self._places = self._places or self._order_places()
        place = positions[rows]
        place = place[place >= 0]
        found = []
        # No two rows have the same place, so a row that is near is as near in this order.
        for step in (step for step in range(-reach, reach + 1) if step):
            near = np.minimum(np.maximum(place + step, 0), len(keys) - 1)  # for few rows faster than clip
            found.append(order[near[np.abs(keys[near] - keys[place]) <= reach]])
        return np.concatenate(found) if found else rows[:0]

    def _order_places(self) -> tuple[Ints, Ints, Ints]:
        """All places in order with their rows, and for each row its position there, -1 for none.

        A corrected item has given its place to another, and is nobody's neighbour."""
        session, place = self._session.values, self._place.values
        placed = (session >= 0) & (place >= 0) & (place < 1 << _PLACE_BITS - 1) & (self.valid_until.values != _NEVER)
        rows = np.flatnonzero(placed)
        keys = (session[rows] << _PLACE_BITS) + place[rows]
        order = np.argsort(keys, kind="stable")
        positions = np.full(len(session), -1)
        positions[rows[order]] = np.arange(len(rows))
        return keys[order], rows[order], positions

    def find_newest(self, mask: Mask, limit: int) -> Ints:
        """The rows of the mask that were added last, the last first."""
        return np.flatnonzero(mask.rows)[::-1][:limit]

    def find_with_traits(self, traits: int, mask: Mask, limit: int) -> Ints:
        """The rows of the mask that have any of these traits, the newest id first."""
        if not traits:
            return np.empty(0, dtype=np.int64)
        having = (self._profiles.traits.values & traits) != 0
        rows = np.flatnonzero(having[self._profile.values] & mask.rows) if having.any() else np.empty(0, np.int64)
        newness = self.ids.order_by_newness()
        if newness is not None:
            rows = rows[np.argsort(newness[rows])]
        return rows[::-1][:limit]

    def mask_profiles(self, where: Filter, mask: Mask) -> Mask | None:
        """The rows of the mask that match the filter; None if their profiles do not tell."""
        matching = self._profiles.match(where)
        return None if matching is None else Mask(mask.rows & matching[self._profile.values], False)

    def mask_trusted(self, mask: Mask, trust: float, foreign: int) -> Mask:
        """The rows of the mask of at least this trust that have none of the foreign traits."""
        trusted = (self._profiles.trust.values >= trust) & (self._profiles.traits.values & foreign == 0)
        return Mask(mask.rows & trusted[self._profile.values], False)

    def find_rows(self, numbers: Ints) -> Ints:
        """The row of each item number, -1 for an unknown one."""
        if not len(self.numbers):
            return np.full(len(numbers), -1, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.numbers.values, numbers), len(self.numbers) - 1)
        return np.where(self.numbers.values[rows] == numbers, rows, -1)

    def find_visible_rows(self, ids: Sequence[str], at: int) -> Ints:
        """The row of each id, -1 for one that is unknown or not visible then."""
        rows = self.ids.find(ids)
        visible = self.mask_visible(at)
        if not visible.everything:
            rows[~np.append(visible.rows, False)[rows]] = -1
        return rows

    def mask_numbers(self, numbers: Sequence[int], visible: Mask) -> Mask:
        """The visible rows of these item numbers."""
        flags = np.zeros(len(self.ids), dtype=np.bool_)
        flags[self.find_rows(np.array(numbers, dtype=np.int64))] = True
        return Mask(flags & visible.rows, False)

    @property
    def visible_between(self) -> tuple[int, int]:
        """The times from and until which the last mask of visible rows holds."""
        return self._masked[1:]

    def mask_visible(self, at: int) -> Mask:
        """The same mask object as long as the same rows are visible and nothing has changed."""
        change, begins, ends = self._masked
        if change == self.last_change and begins <= at < ends:
            return self._visible
        starts, stops = self.valid_from.values, self.valid_until.values
        flags = (starts <= at) & (at < stops)
        if change != self.last_change or not np.array_equal(flags, self._visible.rows):
            self._visible = Mask(flags, bool(flags.all()))
        moments = np.concatenate((starts, stops))
        later = moments > at
        self._masked = (
            self.last_change,
            int(moments.max(where=~later, initial=_NEVER)),
            int(moments.min(where=later, initial=_ALWAYS)),
        )
        return self._visible


class EntryTable:
    """The entries that items own: passages, or windows of vectors. The entries of one item stand together.

    An entry that was replaced or removed has the owner -1."""

    def __init__(self, allocate: Allocate = allocate_in_memory) -> None:
        self.loaded = False
        self.last_change = 0
        self._owners = Column(np.int64, allocate=allocate)  # the item's row, for each entry
        self._firsts = Column(np.int64, allocate=allocate)  # the first entry, for each item
        self._counts = Column(np.int64, allocate=allocate)
        self._removed = 0
        self._several = False  # some item has more than one entry

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def is_stale(self) -> bool:
        return is_mostly_removed(self._removed, len(self._owners))

    def grow(self, items: int) -> None:
        """Make room for so many items."""
        self._firsts.grow(items, 0)
        self._counts.grow(items, 0)

    def load(self, db: Reader, items: ItemTable) -> None:
        """Read all entries of the items."""
        raise NotImplementedError

    def update(self, db: Reader, items: ItemTable) -> None:
        """Read the changes since the last one."""
        raise NotImplementedError

    def move(self, allocate: Allocate) -> None:
        """Keep the entries elsewhere from now on."""
        for column in (self._owners, self._firsts, self._counts):
            column.move(allocate)

    def drop_cached(self) -> None:
        """Drop everything that `cached_bytes` counts."""
        self._clear_cache()

    def _clear_cache(self) -> None:
        """Drop results that were derived from the entries."""

    def _append_owners(self, rows: Ints, counts: Ints) -> None:
        """Give these items, which have no entries, so many each."""
        self._firsts.values[rows] = len(self._owners) + np.cumsum(counts) - counts
        self._counts.values[rows] = counts
        self._several = self._several or bool(counts.max(initial=0) > 1)
        self._owners.extend(np.repeat(rows, counts))
        self._clear_cache()

    def _remove_entries(self, row: int) -> None:
        first, count = int(self._firsts.values[row]), int(self._counts.values[row])
        self._owners.values[first : first + count] = -1
        self._counts.values[row] = 0
        self._removed += count
        self._clear_cache()

    def _mask_entries(self, mask: Mask) -> Flags | None:
        """The entries of the mask's items; None if all entries count."""
        if mask.everything and not self._removed:
            return None
        # Owner -1 reads the extra place at the end.
        return np.append(mask.rows, False)[self._owners.values]

    def _find_floor(self, scores: Array, limit: int, among: Ints | None = None, lowest: float = -np.inf) -> Any:
        """A score that at least `limit` different items reach, or the lowest. `among` are the entries scored."""
        wanted = max(limit, 1)
        while wanted < len(scores):
            floor = find_nth_highest(scores, wanted)
            if not self._several or floor <= lowest:
                return floor
            reached = np.flatnonzero(scores >= floor)
            if len(np.unique(self._owners.values[reached if among is None else among[reached]])) >= limit:
                return floor
            wanted *= 2
        return lowest


def find_nth_highest(scores: Array, nth: int) -> Any:
    """The nth highest of more than n scores. Most are ruled out by the highest of each block: np.partition is slow."""
    width = len(scores) // _BLOCK_ROWS
    if width > 2 * nth:
        highest = scores[: width * _BLOCK_ROWS].reshape(_BLOCK_ROWS, width).max(axis=0)
        # In n blocks there is a score that is at least as high.
        scores = scores[scores >= np.partition(highest, width - nth)[width - nth]]
    return np.partition(scores, len(scores) - nth)[len(scores) - nth]


def count_entries(blobs: Sequence[bytes], size: int, table: str) -> Ints:
    """Count the entries of this size in each blob. The index is read without checksums, so sizes are checked here."""
    lengths = np.fromiter(map(len, blobs), np.int64, len(blobs))
    if (lengths % size).any():
        raise make_damage_error(table)
    return lengths // size


def make_damage_error(table: str) -> StoreCorrupt:
    return StoreCorrupt(f"a row of table {table} is damaged. Run: engrain doctor --rebuild.")


def is_mostly_removed(removed: int, total: int) -> bool:
    """So much is removed that reading everything again is cheaper than stepping over it."""
    return removed > MIN_REMOVED and 4 * removed > total


def replace_nulls(values: Sequence[int | None], missing: int) -> Ints:
    """A column of SQL integers, with a number in place of null."""
    nulls = values.count(None)
    if nulls == len(values):
        return np.full(len(values), missing, dtype=np.int64)
    if nulls:
        values = [missing if value is None else value for value in values]
    return np.array(values, dtype=np.int64)


def find_first_of_each(groups: Ints, *keys: Array) -> Ints:
    """The place of the first of each group, where the last key counts most."""
    order = np.lexsort((*keys, groups))
    first: Ints = order[mark_firsts(groups[order])]
    return first


def expand_ranges(starts: Ints, counts: Ints) -> Ints:
    """start, start + 1, … for each start, as many as its count says, one after the other."""
    total = int(counts.sum())
    if total == len(starts) and (counts == 1).all():
        return starts
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return offsets + np.arange(total)
