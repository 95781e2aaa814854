"""Search a store through a view of each scope in memory, which catches up before every answer."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from math import nan
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from engrain.core.clock import to_micros
from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.ports import Nearest, Sketch, SketchQuery, VectorQuery, WordHit, WordMatches, WordQuery
from engrain.stores.sqlite.details import Details
from engrain.stores.sqlite.filters import build_where
from engrain.stores.sqlite.roster import Mask, Reader, Roster
from engrain.stores.sqlite.scan import Scan
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.wordbook import Best, Tally, Wordbook

Answer = TypeVar("Answer")

_SQL = load("index.sql")
# Filters whose rows are remembered until the scope changes: the arms of one recall share a filter.
_FILTERS = 8
# A quarter of the time of WordHit(…), which is a call into Python for each.
_word_hit: Callable[[tuple[Any, ...]], WordHit] = partial(tuple.__new__, WordHit)


class Read(Protocol):
    """Runs a function in a read transaction."""

    def __call__(self, fn: Callable[[Reader], Answer], /) -> Answer: ...


class Lens:
    """One scope as search sees it. Not safe for several threads at once: Lenses holds a lock around it."""

    def __init__(self, scope: int) -> None:
        self.roster = Roster(scope)
        self._words = Wordbook()
        self._scans: dict[str, Scan] = {}
        self._details = Details()
        self._filtered: OrderedDict[tuple[str, tuple[Any, ...]], tuple[Mask, Mask]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        scans = sum(scan.nbytes for scan in self._scans.values())
        return self.roster.nbytes + self._words.nbytes + self._details.nbytes + scans

    def words(self, db: Reader) -> Wordbook:
        self._words.catch_up(db, self.roster)
        if self._words.worn:
            self._words = Wordbook()
            self._words.catch_up(db, self.roster)
        return self._words

    def details(self, db: Reader) -> Details:
        self._details.catch_up(db, self.roster)
        return self._details

    def scan(self, db: Reader, model: str) -> Scan | None:
        """None if the store has no vectors of the model at all."""
        scan = self._scans.get(model)
        if scan is not None:
            scan.catch_up(db, self.roster)
        if scan is None or scan.worn:
            known = list(db.rows(_SQL["model"], (model,)))
            if not known:
                return None
            scan = self._scans[model] = Scan(*known[0])
            scan.catch_up(db, self.roster)
        return scan

    def speakers(self, db: Reader) -> frozenset[str]:
        return self.details(db).speakers(self.roster)

    def chosen(self, db: Reader, where: Filter | None, visible: Mask) -> Mask:
        """The visible rows that match."""
        if where is None or not where.conditions:
            return visible
        # A change of any row makes another mask, so a mask that is still the same vouches for the filter's rows.
        expression, values = build_where(where)
        # By type as well: True and 1 are equal to Python, and different to a filter.
        key = (expression, tuple((type(value), value) for value in values.values()))
        kept = self._filtered.get(key)
        if kept is not None and kept[0] is visible:
            return kept[1]
        sql = f"select item.n from item where item.scope = :scope and {expression}"
        found = db.rows(sql, {**values, "scope": self.roster.scope})
        flags = np.zeros(len(self.roster), dtype=np.bool_)
        flags[self.roster.places(np.fromiter((n for (n,) in found), np.int64, len(found)))] = True
        mask = Mask(flags & visible.rows, False)
        self._filtered[key] = (visible, mask)
        while len(self._filtered) > _FILTERS:
            self._filtered.popitem(last=False)
        return mask


class _Place:
    """Where a scope's lens stands, and the lock around it."""

    __slots__ = ("lens", "lock", "nbytes")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lens: Lens | None = None
        self.nbytes = 0


class Lenses:
    """A lens for each scope in use, as many as the cap allows, the one longest unused dropped first."""

    def __init__(self, read: Read, now: Callable[[Reader], int], cap_bytes: int) -> None:
        self._read = read
        self._now = now
        self._cap = cap_bytes
        self._lock = threading.Lock()
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._dropped = self._over_cap = 0

    # The answers

    def nearest(self, query: VectorQuery) -> Nearest:
        def look(lens: Lens, db: Reader) -> Nearest:
            scan = lens.scan(db, query.model)
            if scan is None:
                return Nearest([], [])
            mask = lens.chosen(db, query.where, lens.roster.visible(self._at(db, query.at)))
            vector = _unit(query.vector, scan.dimension)
            rows, cosines, background = scan.nearest(db, lens.roster, vector, mask, query.limit)
            newness = lens.roster.newness()
            newest = rows if newness is None else newness[rows]
            order = np.lexsort((-newest, -cosines))[: max(query.limit, 0)]
            ids = [lens.roster.ids[row] for row in rows[order].tolist()]
            return Nearest(ids, cosines[order].tolist(), background=background)

        return self._through(query.scope, look)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        def look(lens: Lens, db: Reader) -> list[float]:
            scan = lens.scan(db, query.model)
            if scan is None:
                return [nan] * len(ids)
            places = lens.roster.visible_places(ids, self._at(db, query.at))
            vector = _unit(query.vector, scan.dimension)
            found: list[float] = scan.cosines(db, lens.roster, vector, places).tolist()
            return found

        return self._through(query.scope, look)

    def best(self, query: WordQuery) -> WordMatches:
        def look(lens: Lens, db: Reader) -> WordMatches:
            words = lens.words(db)
            visible = lens.roster.visible(self._at(db, query.at))
            chosen = lens.chosen(db, query.where, visible)
            tally = words.tally(query.terms, visible)
            return _matches(lens, tally, words.best(tally, chosen, lens.roster.newness(), query.limit))

        return self._through(query.scope, look)

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        def look(lens: Lens, db: Reader) -> WordMatches:
            words, at = lens.words(db), self._at(db, query.at)
            tally = words.tally(query.terms, lens.roster.visible(at))
            return _matches(lens, tally, words.counts(tally, lens.roster.visible_places(ids, at)))

        return self._through(query.scope, look)

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        def look(lens: Lens, db: Reader) -> list[Sketch]:
            details = lens.details(db)
            at = self._at(db, query.at)
            mask = lens.chosen(db, query.where, lens.roster.visible(at))
            rows = lens.roster.places_of_ids(query.ids)
            rows = details.around(rows[rows >= 0], query.reach)
            rows = rows[mask.rows[rows]]
            return details.sketches(lens.roster, rows)

        return self._through(query.scope, look)

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        def look(lens: Lens, db: Reader) -> list[str]:
            mask = lens.chosen(db, where, lens.roster.visible(self._at(db, at)))
            rows = lens.details(db).having(traits, mask, limit)
            return [lens.roster.ids[row] for row in rows.tolist()]

        return self._through(scope, look)

    def speakers(self, scope: Scope) -> frozenset[str]:
        return self._through(scope, Lens.speakers)

    # The lenses themselves

    def memory(self) -> dict[str, int]:
        """`over_cap` counts answers whose scope alone was larger than the cap, so that it was read for them only."""
        with self._lock:
            held = sum(place.nbytes for place in self._places.values())
            return {
                "scopes": len(self._places),
                "bytes": held,
                "cap": self._cap,
                "dropped": self._dropped,
                "over_cap": self._over_cap,
            }

    def clear(self) -> None:
        with self._lock:
            self._places.clear()

    def _at(self, db: Reader, at: datetime | None) -> int:
        return self._now(db) if at is None else to_micros(at)

    def _through(self, scope: Scope, look: Callable[[Lens, Reader], Answer]) -> Answer:
        key = scope.id
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)

        def answer_from(db: Reader) -> Answer:
            # Taken out while it changes: one that was interrupted half way is not used again.
            lens, place.lens = place.lens, None
            lens = _fresh(lens, db, key)
            found = look(lens, db)
            place.lens, place.nbytes = lens, lens.nbytes
            return found

        # The lock before the snapshot: a snapshot taken earlier could be older than what the lens has seen.
        with place.lock:
            answer = self._read(answer_from)
        self._keep_to_cap(key, place)
        return answer

    def _keep_to_cap(self, key: str, place: _Place) -> None:
        with self._lock:
            if self._places.get(key) is not place:
                return
            if place.nbytes > self._cap:
                del self._places[key]
                self._over_cap += 1
            while sum(one.nbytes for one in self._places.values()) > self._cap:
                self._places.popitem(last=False)
                self._dropped += 1


def _fresh(lens: Lens | None, db: Reader, scope_id: str) -> Lens:
    found = list(db.rows(_SQL["newest"], (scope_id,)))
    # Numbers of scopes begin at 1: nothing is ever found in scope 0.
    scope, changed, gone = found[0] if found else (0, 0, 0)
    newest = max(changed or 0, gone or 0)
    # A sequence that has gone back is another file's.
    if lens is None or lens.roster.scope != scope or lens.roster.seen > newest:
        lens = Lens(scope)
    lens.roster.catch_up(db, newest)
    if lens.roster.worn:
        lens = Lens(scope)
        lens.roster.catch_up(db, newest)
    return lens


def _unit(vector: Any, dimension: int) -> npt.NDArray[np.float64]:
    query = np.asarray(vector, dtype=np.float64).ravel()
    if len(query) != dimension:
        raise InvalidInput(f"the vector has {len(query)} dimensions; those of its model have {dimension} here.")
    length = float(np.sqrt(np.square(query).sum()))
    if not np.isfinite(length):
        raise InvalidInput("the vector holds a value that is not a finite number.")
    return query / length if length else query


def _matches(lens: Lens, tally: Tally, best: Best) -> WordMatches:
    ids = lens.roster.ids
    names = map(ids.__getitem__, best.rows.tolist())
    counts = map(tuple, best.counts.tolist())
    fields = zip(names, best.numbers.tolist(), best.lengths.tolist(), counts, strict=True)
    return WordMatches(
        list(map(_word_hit, fields)), tally.statistics.passages, tally.statistics.average, tally.frequency
    )
