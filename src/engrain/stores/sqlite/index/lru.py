"""The indexes of all stores of a process: the least recently used ones leave memory above a cap."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from engrain.stores.sqlite.index.columns import Allocate
    from engrain.stores.sqlite.index.view import ScopeIndex

FilterKey = tuple[Any, ...]


class CachedList(NamedTuple):
    newest: tuple[int, int]  # the number of the scope and of its last change
    begins: int
    ends: int
    ids: list[str]


class Slot:
    """The cached index of one scope, and the lock around it."""

    __slots__ = ("index", "is_large", "is_mapped", "lists", "lock", "nbytes", "scope_id", "slots", "speakers")

    def __init__(self, slots: Slots, scope_id: str) -> None:
        self.slots, self.scope_id = slots, scope_id  # where it is found
        self.is_large = False  # larger than the cap by itself
        self.is_mapped = False  # in files, as far as it can be
        self.lock = threading.Lock()
        self.index: ScopeIndex | None = None
        self.nbytes = 0
        self.lists: dict[tuple[FilterKey, int, int], CachedList] = {}
        self.speakers: tuple[int, int, frozenset[str]] | None = None  # with the scope's number and its last change

    def map_index(self) -> int | None:
        """Move the index to files, and return what is left in memory; None if it is in use or there is no folder."""
        files = self.slots.open_files()
        if files is None or not self.lock.acquire(blocking=False):
            return None
        try:
            if self.index is None:
                return None
            self.index.map_files(files)
            self.is_mapped = True
            return self.index.nbytes
        finally:
            self.lock.release()


class Slots(dict[str, Slot]):
    """The slots of one store, by the ids of the scopes. Indexes that do not fit into memory are in the folder."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self.reset()

    def reset(self) -> None:
        self.clear()
        self.dropped = 0
        self._files: Allocate | None = None  # after a fork the parent goes on with the old ones

    def open_files(self) -> Allocate | None:
        if self._files is None and self.folder is not None:
            from engrain.stores.sqlite.index.columns import MappedFiles

            self._files = MappedFiles(self.folder)
        return self._files


class IndexLru:
    """All indexes of this process, of whatever stores.

    Above the cap the least recently used one is moved to files. If what is left in memory of those is still too much,
    the one that was moved first is dropped."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._lock = threading.RLock()  # a store may be collected, and drop its slots, while this thread holds it
        self._slots: OrderedDict[int, Slot] = OrderedDict()  # by their identity
        self._mapped: OrderedDict[int, Slot] = OrderedDict()  # those that were moved since they were last used
        self.nbytes = 0

    def use(self, slots: Slots, scope_id: str) -> Slot:
        with self._lock:
            slot = slots.get(scope_id)
            if slot is None:
                slot = slots[scope_id] = Slot(slots, scope_id)
            self._mapped.pop(id(slot), None)
            self._slots[id(slot)] = slot
            self._slots.move_to_end(id(slot))
            return slot

    def resize(self, slot: Slot, nbytes: int, cap: int) -> None:
        """Note the size of an index, and move or drop others until all fit."""
        self._set_size(slot, nbytes)
        while oldest := self._find_oldest(cap):
            left = None if oldest.is_mapped else oldest.map_index()  # without the lock, since it takes a while
            if left is not None:
                self._set_size(oldest, left)
                continue
            with self._lock:
                oldest.slots.dropped += 1
                self._drop(oldest)

    def _set_size(self, slot: Slot, nbytes: int) -> None:
        with self._lock:
            if id(slot) in self._slots or id(slot) in self._mapped:
                self.nbytes += nbytes - slot.nbytes
                slot.nbytes = nbytes

    def _find_oldest(self, cap: int) -> Slot | None:
        """The next index to be moved to files or dropped; None if all fit."""
        with self._lock:
            if self.nbytes <= cap:
                return None
            oldest = next(iter(self._slots.values()), None)
            # A moved one was used longer ago, and goes before one that cannot be moved.
            if oldest is None or len(self._slots) == 1 or (self._mapped and oldest.slots.folder is None):
                return next(iter(self._mapped.values()), None)
            self._mapped[id(oldest)] = self._slots.pop(id(oldest))
            oldest.is_mapped = False
            return oldest

    def drop(self, slots: Slots) -> None:
        with self._lock:
            for slot in list(slots.values()):
                self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        if self._slots.pop(id(slot), None) or self._mapped.pop(id(slot), None):
            self.nbytes -= slot.nbytes
        slot.slots.pop(slot.scope_id, None)


loaded_indexes = IndexLru()
