"""Where the words of a question stand in a scope; of words that are in much of it, kept from one search to the next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.identity import Scope
from engrain.stores.postgres.arrays import Integers, Longs
from engrain.stores.postgres.census import Asked, Ints
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

_SQL = load("words.sql")
# The bits of a key that are the passage, the others are the item.
_PASSAGE = 16
_MOST_CHANGED = 5_000
_CAP = 256 << 20
Terms = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Of one word, in the order of items and passages; a key is both."""

    keys: Ints
    lengths: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.lengths.nbytes + self.counts.nbytes

    def chosen(self, rows: npt.NDArray[np.bool_] | Ints) -> Places:
        return Places(self.keys[rows], self.lengths[rows], self.counts[rows])

    def without(self, items: Ints) -> Places:
        """`items` in rising order."""
        if not len(items):
            return self
        starts, ends = np.searchsorted(self.keys, [key_of(items), key_of(items + 1)])
        kept = np.ones(len(self.keys), dtype=np.bool_)
        kept[ranges(starts, ends)] = False
        return self.chosen(kept)

    def only(self, items: Ints) -> Places:
        """`items` in rising order."""
        return self.chosen(ranges(*np.searchsorted(self.keys, [key_of(items), key_of(items + 1)])))

    def joined(self, more: Places) -> Places:
        lengths, counts = np.append(self.lengths, more.lengths), np.append(self.counts, more.counts)
        return sorted_places(np.append(self.keys, more.keys), lengths, counts)


def key_of(items: Ints) -> Ints:
    return items << _PASSAGE


def item_of(keys: Ints) -> Ints:
    return keys >> _PASSAGE


def passage_of(keys: Ints) -> Ints:
    return keys & ((1 << _PASSAGE) - 1)


def ranges(starts: Ints, ends: Ints) -> Ints:
    """All numbers from each start up to its end."""
    sizes = ends - starts
    firsts = np.repeat(starts - np.append(0, np.cumsum(sizes)[:-1]), sizes) if len(sizes) else starts
    return firsts + np.arange(len(firsts))


def sorted_places(keys: Ints, lengths: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Places:
    # Of what lies in order already, this sort makes use.
    order = np.argsort(keys, kind="stable")
    return Places(keys[order], lengths[order].astype(np.int32), counts[order].astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What holds as long as the scope's number is this."""

    seq: int
    places: Mapping[int, Places]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.places.values())


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The terms of a question, and those that are being asked for."""

    terms: Sequence[int]
    missing: Sequence[int]
    asked: Asked | None


class Shelf:
    """Reading the places of a word that is in each of 100,000 items takes a quarter of a second, and most questions
    have such a word: so they stay here, and after a change those of the changed items are read."""

    def __init__(self, common: int) -> None:
        self.common = common
        self._guard = threading.Lock()
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def ask(self, db: Db, scope: Scope, terms: Terms) -> Search:
        """For `find`, before it is known how far the scope is, so that both questions go to the server in one go."""
        with self._guard:
            kept = self._kept.get(scope.id)
        known = kept.places if kept else {}
        missing = [term for term in terms.tolist() if term not in known]
        return Search(terms.tolist(), missing, _ask(db, "hits", {"scope": scope.id}, missing))

    def find(self, db: Db, scope: Scope, seq: int, search: Search) -> list[Places]:
        """Of each term, at the scope's number in this transaction."""
        kept = self._caught_up(db, scope, seq)
        read = _read(search.missing, search.asked)
        lost = [term for term in search.terms if term not in read and term not in kept.places]
        read |= _read(lost, _ask(db, "hits", {"scope": scope.id}, lost))
        common = {term: one for term, one in read.items() if len(one) > self.common}
        if common or kept.places:
            self._keep(scope.id, Kept(seq, {**kept.places, **common}))
        return [read[term] if term in read else kept.places[term] for term in search.terms]

    def _caught_up(self, db: Db, scope: Scope, seq: int) -> Kept:
        with self._guard:
            kept = self._kept.get(scope.id)
        if kept is None or kept.seq > seq:
            return Kept(seq, {})
        if kept.seq == seq:
            return kept
        ((gone, changed),) = db.rows(_SQL["changed"], {"scope": scope.id, "since": kept.seq})
        # Rows that went, or an index that was made anew, leave no trace by which to find what to drop.
        if gone or changed is None or len(changed) > _MOST_CHANGED:
            return Kept(seq, {})
        changed.sort()
        terms = list(kept.places)
        fresh = _read(terms, _ask(db, "hits_of", {"scope": scope.id, "items": Longs(changed)}, terms))
        return Kept(seq, {term: one.without(changed).joined(fresh[term]) for term, one in kept.places.items()})

    def _keep(self, owner: str, kept: Kept) -> None:
        with self._guard:
            there = self._kept.get(owner)
            if there is not None and there.seq > kept.seq:
                return
            self._kept[owner] = kept
            self._kept.move_to_end(owner)
            held = sum(one.nbytes for one in self._kept.values())
            while held > _CAP and self._kept:
                held -= self._kept.popitem(last=False)[1].nbytes


def _ask(db: Db, name: str, values: Mapping[str, object], terms: Sequence[int]) -> Asked | None:
    return db.ask(_SQL[name], {**values, "terms": Integers(np.array(terms, dtype=np.int32))}) if terms else None


def _read(terms: Sequence[int], asked: Asked | None) -> dict[int, Places]:
    if asked is None:
        return {}
    ((items, found, packed),) = asked.fetchall()
    if items is None:
        items, found, packed = np.empty((3, 0), dtype=np.int64)
    keys, lengths, counts = key_of(items) | (packed >> 40), (packed >> 16) & 0xFFFFFF, packed & 0xFFFF
    rows = {term: found == term for term in terms}
    return {term: sorted_places(keys[mine], lengths[mine], counts[mine]) for term, mine in rows.items()}
