"""Hold the items of a scope as columns, and tell which of them are visible at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, islice
from operator import gt
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.errors import StoreCorrupt
from engrain.stores.sqlite.connection import Reader, read_pages
from engrain.stores.sqlite.syntax import load_sql

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SQL = load_sql()
_NEVER, _ALWAYS = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# Fewer removed rows than this are kept: reading so small a scope again would gain nothing.
MIN_REMOVED = 256
# Room that is not yet touched costs address space, not memory.
_FIRST_CAPACITY = 64


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
        self.ids: list[str] = []
        self._speakers: list[str | None] = []  # by row
        self._same: dict[str | None, str | None] = {}  # one object for each name
        self._speaker_counts: Counter[str] = Counter()
        self.removed = 0
        self._row_by_id: dict[str, int] = {}
        self._visible = Mask(np.empty(0, dtype=np.bool_), True)
        self._masked_change = 0  # the last change when it was made
        self._newness: Ints | None = None
        self._ids_ascend = True

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        # An id is a str of some 80 bytes, with a place in a list and one in a dictionary.
        return 4 * self.numbers.nbytes + 210 * len(self.ids)

    @property
    def is_stale(self) -> bool:
        return is_mostly_removed(self.removed, len(self.ids))

    @property
    def speakers(self) -> frozenset[str]:
        return frozenset(self._speaker_counts)

    def refresh(self, db: Reader, newest: int) -> None:
        """Read the changes up to the newest one."""
        if newest <= self.last_change:
            return
        values = {"scope": self.scope, "since": self.last_change, "first": 0}
        if self.last_change:
            # Additions first: an item may have been added and deleted since.
            self._update(db.rows(SQL["load_changed_index_items"], values))
            deleted = db.rows(SQL["load_deleted_numbers"], values)
            self._remove(np.array([number for (number,) in deleted], dtype=np.int64))
        else:
            for columns in read_pages(db, SQL["load_index_items"], values):
                self._append(columns)
        self.last_change = newest

    def _update(self, rows: list[tuple[Any, ...]]) -> None:
        # Numbers rise with every insert, so new items stand behind all known ones.
        last = int(self.numbers.values[-1]) if len(self.numbers) else -1
        new = [row for row in rows if row[0] > last]
        if new:
            self._append(list(zip(*new, strict=True)))
        for number, _, valid_from, valid_until, passages, _ in rows[: len(rows) - len(new)]:
            row = int(np.searchsorted(self.numbers.values, number))
            self.valid_from.values[row] = valid_from
            self.valid_until.values[row] = _ALWAYS if valid_until is None else valid_until
            self.passages.values[row] = passages

    def _append(self, columns: list[tuple[Any, ...]]) -> None:
        numbers, ids, valid_from, valid_until, passages, speakers = columns
        first = len(self.ids)
        self.numbers.extend(numbers)
        self.valid_from.extend(valid_from)
        self.valid_until.extend(replace_nulls(valid_until, _ALWAYS))
        self.passages.extend(passages)
        if self._ids_ascend:
            self._ids_ascend = self.ids[-1:] < [ids[0]] and not any(map(gt, ids, islice(ids, 1, None)))
        self.ids.extend(ids)
        self._row_by_id.update(zip(ids, range(first, first + len(ids)), strict=True))
        self._speakers.extend(self._same.setdefault(name, name) for name in speakers)
        self._speaker_counts.update(filter(None, speakers))

    def _remove(self, numbers: Ints) -> None:
        for row in self.find_rows(numbers).tolist():
            if row < 0:
                continue
            # A later item may have the same id.
            if self._row_by_id.get(self.ids[row]) == row:
                del self._row_by_id[self.ids[row]]
            if speaker := self._speakers[row]:
                self._speaker_counts -= Counter((speaker,))  # drops a name whose count is 0
            self.removed += 1
            self.valid_until.values[row] = _NEVER

    @property
    def bounds(self) -> dict[str, int]:
        """The values of a statement that reads the whole scope."""
        numbers = self.numbers.values
        first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
        return {"scope": self.scope, "first": first, "last": last}

    @property
    def is_dense(self) -> bool:
        """Most numbers between the first and the last belong to this scope: reading the range beats a join."""
        numbers = self.numbers.values
        return bool(len(numbers)) and int(numbers[-1] - numbers[0]) < 3 * len(numbers)

    def find_rows(self, numbers: Ints) -> Ints:
        """The row of each item number, -1 for an unknown one."""
        if not len(self.numbers):
            return np.full(len(numbers), -1, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.numbers.values, numbers), len(self.numbers) - 1)
        return np.where(self.numbers.values[rows] == numbers, rows, -1)

    def select_own(self, numbers: Sequence[int], blobs: Sequence[bytes]) -> tuple[Ints, Sequence[bytes]]:
        """The rows of this scope among the item numbers, and their blobs."""
        rows = self.find_rows(np.array(numbers, dtype=np.int64))
        ours = rows >= 0
        return rows[ours], blobs if ours.all() else list(compress(blobs, ours.tolist()))

    def find_rows_by_id(self, ids: Sequence[str]) -> Ints:
        """The row of each id, -1 for an unknown one."""
        get = self._row_by_id.get
        return np.array([get(id, -1) for id in ids], dtype=np.int64)

    def find_visible_rows(self, ids: Sequence[str], at: int) -> Ints:
        """The row of each id, -1 for one that is unknown or not visible then."""
        rows = self.find_rows_by_id(ids)
        visible = self.mask_visible(at)
        if not visible.everything:
            rows[~np.append(visible.rows, False)[rows]] = -1
        return rows

    def mask_numbers(self, numbers: Sequence[int], visible: Mask) -> Mask:
        """The visible rows of these item numbers."""
        flags = np.zeros(len(self.ids), dtype=np.bool_)
        flags[self.find_rows(np.array(numbers, dtype=np.int64))] = True
        return Mask(flags & visible.rows, False)

    def order_by_newness(self) -> Ints | None:
        """A number for each row, higher for a newer id. None if the rows have that order themselves."""
        if self._ids_ascend:
            return None
        if self._newness is None or len(self._newness) != len(self.ids):
            order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
            self._newness = np.empty(len(order), dtype=np.int64)
            self._newness[order] = np.arange(len(order))
        return self._newness

    def mask_visible(self, at: int) -> Mask:
        """The same mask object as long as the same rows are visible and nothing has changed."""
        flags = (self.valid_from.values <= at) & (at < self.valid_until.values)
        if self._masked_change != self.last_change or not np.array_equal(flags, self._visible.rows):
            self._visible, self._masked_change = Mask(flags, bool(flags.all())), self.last_change
        return self._visible


class EntryTable:
    """The entries that items own: passages, or windows of vectors. The entries of one item stand together.

    An entry that was replaced or removed has the owner -1."""

    def __init__(self) -> None:
        self.loaded = False
        self.last_change = 0
        self._owners = Column(np.int64)  # the item's row, for each entry
        self._firsts = Column(np.int64)  # the first entry, for each item
        self._counts = Column(np.int64)
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
            floor = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
            if not self._several or floor <= lowest:
                return floor
            reached = np.flatnonzero(scores >= floor)
            if len(np.unique(self._owners.values[reached if among is None else among[reached]])) >= limit:
                return floor
            wanted *= 2
        return lowest


class Column:
    """An array that grows at its end at amortised cost; `values` is the part in use."""

    __slots__ = ("_buffer", "values")

    def __init__(self, dtype: npt.DTypeLike, *width: int) -> None:
        self._buffer = np.empty((_FIRST_CAPACITY, *width), dtype=dtype)
        self.values: Array = self._buffer[:0]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)

    def extend(self, more: Array | Sequence[Any]) -> None:
        length = len(self.values)
        end = length + len(more)
        self.reserve(end)
        self._buffer[length:end] = more
        self.values = self._buffer[:end]

    def reserve(self, length: int) -> None:
        """Make room, so that growing to this length copies nothing."""
        if length > len(self._buffer):
            used = len(self.values)
            wider = np.empty((max(length, 2 * len(self._buffer)), *self._buffer.shape[1:]), dtype=self._buffer.dtype)
            wider[:used] = self.values
            self._buffer, self.values = wider, wider[:used]

    def grow(self, length: int, fill: Any) -> None:
        """Grow to this length; the new places hold `fill`."""
        if length > len(self.values):
            self.extend(np.full((length - len(self.values), *self._buffer.shape[1:]), fill, dtype=self._buffer.dtype))


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
    ordered = groups[order]
    first: Ints = order[np.append(True, ordered[1:] != ordered[:-1])[: len(order)]]
    return first


def expand_ranges(starts: Ints, counts: Ints) -> Ints:
    """start, start + 1, … for each start, as many as its count says, one after the other."""
    total = int(counts.sum())
    if total == len(starts) and (counts == 1).all():
        return starts
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return offsets + np.arange(total)
