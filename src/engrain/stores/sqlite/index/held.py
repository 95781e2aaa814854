"""Hold the indexes of all stores of a process in memory, up to a cap."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from engrain.stores.sqlite.index.view import ScopeIndex

FilterKey = tuple[Any, ...]


class CachedList(NamedTuple):
    newest: tuple[int, int]  # the number of the scope and of its last change
    begins: int
    ends: int
    ids: list[str]


class Slot:
    """The cached index of one scope, and the lock around it."""

    __slots__ = ("index", "is_large", "lists", "lock", "nbytes", "scope_id", "slots", "speakers")

    def __init__(self, slots: Slots, scope_id: str) -> None:
        self.slots, self.scope_id = slots, scope_id  # where it is found
        self.is_large = False  # larger than the cap by itself
        self.lock = threading.Lock()
        self.index: ScopeIndex | None = None
        self.nbytes = 0
        self.lists: dict[tuple[FilterKey, int, int], CachedList] = {}
        self.speakers: tuple[int, int, frozenset[str]] | None = None  # with the scope's number and its last change


class Slots(dict[str, Slot]):
    """The slots of one store, by the ids of the scopes."""

    dropped = 0


class HeldIndexes:
    """All indexes in memory of this process, of whatever stores. The least recently used one is dropped first."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._lock = threading.RLock()  # a store may be collected, and drop its slots, while this thread holds it
        self._slots: OrderedDict[int, Slot] = OrderedDict()  # by their identity
        self.nbytes = 0

    def use(self, slots: Slots, scope_id: str) -> Slot:
        with self._lock:
            slot = slots.get(scope_id)
            if slot is None:
                slot = slots[scope_id] = Slot(slots, scope_id)
            self._slots[id(slot)] = slot
            self._slots.move_to_end(id(slot))
            return slot

    def resize(self, slot: Slot, nbytes: int, cap: int) -> None:
        """Note the size of an index, and drop others until all fit."""
        with self._lock:
            if id(slot) in self._slots:
                self.nbytes += nbytes - slot.nbytes
                slot.nbytes = nbytes
            while self.nbytes > cap and len(self._slots) > 1:
                oldest = next(iter(self._slots.values()))
                oldest.slots.dropped += 1
                self._drop(oldest)

    def drop(self, slots: Slots) -> None:
        with self._lock:
            for slot in list(slots.values()):
                self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        if self._slots.pop(id(slot), None):
            self.nbytes -= slot.nbytes
        slot.slots.pop(slot.scope_id, None)


held = HeldIndexes()
