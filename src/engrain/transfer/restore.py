"""Decide which rows of an export are new here, and restore those."""

from __future__ import annotations

import math
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from engrain.core.errors import BadFile, BadLine, Conflict, OnHold
from engrain.core.formats.consistency import circular, edges_of, held_by
from engrain.core.formats.jsonl import line_of
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.erasure import item_hash
from engrain.core.model.rows import Key, Row, RowKind, Standing
from engrain.core.rules.statements import traits
from engrain.core.secrets.redact import Redact, redacted_json
from engrain.ports import Embedder, Kit, Movable
from engrain.privacy.tombstones import TombstoneFilter
from engrain.transfer.export import every, movable
from engrain.transfer.verify import numbered

TASKS: tuple[RowKind, ...] = ("task", "step", "event")
TRIES = 3
# What an item is. The rest may have changed since the export, and what is here is newer.
CONTENT = ("kind", "text", "recorded_at", "occurred_at", "slot", "session", "place", "speaker", "role", "relation")


@dataclass(slots=True)
class Decision:
    """`new` in the order in which rows are restored; `there` counts what is here already, `kept_out` are the lines of
    what was forgotten here, with what rests on it. `joined` are episodes here that happened again where the file comes
    from: one of the file counts for them."""

    new: list[Row] = field(default_factory=list)
    there: int = 0
    kept_out: list[int] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)


def restore(
    rows: Sequence[Row], scope: Scope, kit: Kit, done: Callable[[int], None], dry_run: bool, origin: Scope
) -> Decision:
    """All in one transaction. `origin` is the memory that the rows were exported from. BadFile names every line that
    says something else than what is here under the same name; then nothing is written."""
    store = movable(kit)
    # A file may say that it is of another tenant; nobody learns from it what was erased there.
    scopes = (scope, origin) if origin.tenant == scope.tenant and origin != scope else (scope,)
    for _ in range(TRIES):
        # Looked up before anything is decided: what is forgotten or erased from here on makes the writing fail.
        since = store.standing(scopes)
        decision = _Deciding(rows, scope, kit, store, scopes).decided()
        if dry_run or _written(decision, store, since, done):
            break
    else:
        raise Conflict("some of this memory was forgotten or erased while it was loaded, three times. Load it again.")
    if kit.episodes is not None and decision.joined and not dry_run:
        with suppress(OnHold):  # under a hold nothing is joined; a load after the release does it
            kit.episodes.remove(scope, decision.joined)
    return decision


def _written(decision: Decision, store: Movable, since: Standing, done: Callable[[int], None]) -> bool:
    """False if something was forgotten or erased since: then it is decided anew."""
    try:
        if decision.new:
            store.restore(decision.new, since, done)
        return True
    except Conflict as exc:
        if store.standing(since.scopes) != since:
            return False
        raise Conflict(
            "this file cannot go into this store: it has the ids of another memory there, or the memory was "
            f"written to meanwhile ({exc}) Load it into a store of its own, or once more."
        ) from exc


class _Deciding:
    """`scopes` are where the rows are to go, and where they were."""

    def __init__(self, rows: Sequence[Row], scope: Scope, kit: Kit, store: Movable, scopes: Collection[Scope]) -> None:
        self._scope, self._kit, self._store = scope, kit, store
        self._numbers = numbered(rows)
        self._rows = [_redacted(row, kit.redact) for row in rows] if kit.redact else rows
        # Where a text was redacted, the spans that others cite of it are no longer where they were.
        self._reworded = {
            row.key[0]
            for row, was in zip(self._rows, rows, strict=True)
            if row.kind == "item" and row.values["text"] != was.values["text"]
        }
        self._key = bytes.fromhex(store.dump("store", None, 1)[0].values["key"])
        self._tombstones = TombstoneFilter(self._rows, scopes, kit, store)
        self._items = {row.key[0]: row for row in self._all("item")}
        self._bad: list[BadLine] = []
        self._out: set[str] = set()  # items that were forgotten here
        self._same: dict[str, str] = {}  # items that are here under another id
        self._fresh: dict[str, Row] = {}
        self._closed: list[Row] = []
        self._touched: set[str | None] = set()
        self._silenced: set[str | None] = set()
        self._first = kit.items.status().seq
        self._result = Decision()

    def decided(self) -> Decision:
        self._choose_items()
        cites = {row.key[0]: row for row in self._rows if row.kind == "cites"}
        self._leave_out(cites)
        self._look_for_circles(cites)
        if self._bad:
            raise BadFile(sorted(self._bad))
        self._look_at_sessions()
        self._result.new = sorted(
            [*self._closed, *(self._stored(row) for row in self._fresh.values())], key=lambda row: row.key
        )
        self._choose_the_rest()
        return self._result

    def _look_at_sessions(self) -> None:
        """Of which something stays out, and of which nothing is left."""
        given = [row for row in self._rows if row.kind == "item"]
        self._touched = {row.values["session"] for row in given if row.key[0] in self._out}
        self._silenced = self._touched - {row.values["session"] for row in self._fresh.values()}
        self._silenced -= {row.values["session"] for row in self._items.values()}

    def _all(self, kind: RowKind) -> Iterator[Row]:
        for row in every(self._store, kind, self._scope):
            yield replace(row, values={**row.values, "vectors": {}}) if kind == "item" else row

    def _choose_items(self) -> None:
        given = [row for row in self._rows if row.kind == "item"]
        for row in given:
            here = self._items.get(row.key[0])
            if here is not None and _equal(here, row):
                self._result.there += 1
                self._close(here, row)
        held = {one: id for id, row in self._items.items() for one in held_by(row.values)}
        for row in given:
            id = row.key[0]
            here = self._items.get(id)
            if here is not None and _equal(here, row):
                continue
            if self._tombstones.rejects(row):
                self._out.add(id)
            elif here is not None:
                self._conflict(row, f"an item {id!r} with another content is here already.")
            else:
                self._choose(row, {one: held[one] for one in held_by(row.values) if one in held})
                held |= {one: id for one in held_by(row.values) if id in self._fresh}

    def _close(self, here: Row, row: Row) -> None:
        """What was replaced or corrected since, where the file comes from, is so here too."""
        ended = ("valid_to", "retracted_at")
        if any(here.values[name] is None and row.values[name] is not None for name in ended):
            since = {name: row.values[name] for name in (*ended, "replaced_by") if row.values[name] is not None}
            self._items[here.key[0]] = closed = replace(here, values={**here.values, **since})
            self._closed.append(closed)

    def _choose(self, row: Row, taken: dict[tuple[Any, ...], str]) -> None:
        for what, id in taken.items():
            if what[0] == "words":
                self._same[row.key[0]] = id
                self._result.there += 1
                return
            self._conflict(row, f"its {what[0]} {what[1]!r} is held by another item here, {id!r}.")
        self._fresh[row.key[0]] = row

    def _leave_out(self, cites: dict[str, Row]) -> None:
        """What rests on something that was forgotten here stays out with it."""
        resting: dict[str, list[str]] = {}
        for id, to in edges_of(cites.values()).items():
            for one in to:
                resting.setdefault(one, []).append(id)
        reached = list(self._out)
        for id in reached:
            fallen = [one for one in resting.get(id, ()) if self._fresh.pop(one, None)]
            self._out.update(fallen)
            reached += fallen
        self._result.kept_out = [self._numbers["item", (id,)] for id in self._out]

    def _look_for_circles(self, cites: dict[str, Row]) -> None:
        """Together with what is here."""
        known = edges_of(self._all("cites"))
        given = {id: to for id, to in edges_of(cites.values()).items() if id in self._fresh or id not in known}
        chains = edges_of(self._items.values()) | edges_of(self._fresh.values())
        for edges, kind in ((known | given, "cites"), (chains, "item")):
            named = {id: [self._same.get(one, one) for one in to] for id, to in edges.items()}
            for id in circular(named):
                number = self._numbers.get((kind, (id,)), 1)
                self._bad.append(BadLine(number, "Conflict", f"{id!r} would lead back to itself."))

    def _stored(self, row: Row) -> Row:
        """With what the store itself knows a text by."""
        values = {**row.values, "replaced_by": self._same.get(row.values["replaced_by"], row.values["replaced_by"])}
        values["vectors"] = _fitting(values["vectors"], self._kit.embedder)
        item = moving.item_of(replace(row, values=values)).item
        own = {"hash": item_hash(self._key, item), "traits": traits(item.text, item.role)}
        return replace(row, values={**values, **own})

    def _choose_the_rest(self) -> None:
        here = {kind: {row.key: row for row in self._all(kind)} for kind in _RESTING}
        begun = self._begun(here["task"])
        repeats = _repeats(here["episode"].values())
        stopped = {row.key[1] for row in self._rows if row.kind == "task" and self._tombstones.rejects(row)}
        if self._tombstones.user_was_erased:
            # Nothing says when an event came that no task has taken yet.
            known_tasks = {row.key[1] for row in self._rows if row.kind == "task"}
            stopped |= {row.key[1] for row in self._rows if row.kind == "event"} - known_tasks
        for row in self._rows:
            if row.kind == "item":
                continue
            known = here.get(row.kind, {}).get(row.key)
            if row.kind == "session" and known and known.values["length"] < row.values["length"]:
                self._result.new.append(replace(known, values={**known.values, "length": row.values["length"]}))
            elif known is not None or (row.kind in TASKS and _came(row, begun)) or _again(row, repeats):
                self._result.there += 1
            elif (chosen := self._chosen(row)) and not (row.kind in TASKS and row.key[1] in stopped):
                self._result.new.append(chosen)
            else:
                self._result.kept_out.append(self._numbers[row.kind, row.key])
        # Also by those that are here already: a load may have been cut off before it came to this.
        kept = {row.key for row in self._result.new if row.kind == "episode"} | here["episode"].keys()
        given = _repeats(row for row in self._rows if row.kind == "episode" and row.key in kept)
        self._result.joined = [key[1] for key, row in here["episode"].items() if _again(row, given)]

    def _begun(self, here: Mapping[Key, Row]) -> dict[str, float]:
        """Of each task that is here, how many of its first steps are here too, since a load may have been cut off in a
        store that keeps one row at a time; no end of them if the task went on since."""
        given = {row.key: line_of(row) for row in self._rows if row.kind == "task"}
        journal = self._kit.journal
        return {
            key[1]: len(journal.steps(self._scope, key[1])) if journal and given.get(key) == line_of(row) else math.inf
            for key, row in here.items()
        }

    def _chosen(self, row: Row) -> Row | None:
        """The row with the names that its items have here; None if it stays out."""
        if self._tombstones.rejects(row):
            return None
        if row.kind == "cites":
            return self._cites(row)
        if row.kind == "session":
            rank = self._first + row.values["rank"]
            return None if row.key[1] in self._silenced else replace(row, values={**row.values, "rank": rank})
        if row.kind == "summary" and row.key[1] in self._touched:
            return None
        if row.kind == "progress" and row.key[1] in self._silenced:
            return None
        if row.kind == "episode" and row.values["item"] is not None:
            item = self._same.get(row.values["item"], row.values["item"])
            return replace(row, values={**row.values, "item": item}) if self._known(item) else None
        return row if row.kind != "trial" or self._known(row.key[1]) else None

    def _cites(self, row: Row) -> Row | None:
        id = row.key[0]
        cites = [[number, self._same.get(item, item), *span] for number, item, *span in row.values["cites"]]
        here = self._items.get(id)
        # One that is here may have fewer sources than it had where the file comes from.
        fits = here is None or all(one[0] < len(here.values["sources"]) for one in cites)
        if id in self._same or not self._known(id) or not fits or not all(self._known(one[1]) for one in cites):
            return None
        cites = [[*one[:2], None, None] if one[1] in self._reworded else one for one in cites]
        return replace(row, values={**row.values, "cites": cites})

    def _known(self, id: str) -> bool:
        return (id in self._fresh or id in self._items or id in self._same) and id not in self._out

    def _conflict(self, row: Row, why: str) -> None:
        self._bad.append(BadLine(self._numbers[row.kind, row.key], "Conflict", why))


def _came(row: Row, begun: Mapping[str, float]) -> bool:
    """Whether a step or an event is a matter of the past for its task."""
    here = begun.get(row.key[1], 0)
    return here >= int(row.key[2]) if row.kind == "step" else here == math.inf


def _repeats(episodes: Iterable[Row]) -> dict[tuple[str, str], list[int]]:
    """When the same thing happened, by session and key, in order."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in episodes:
        if row.values["key"] is not None:
            found.setdefault((row.values["session"], row.values["key"]), []).append(row.values["happened_at"])
    return {name: sorted(times) for name, times in found.items()}


def _again(row: Row, repeats: Mapping[tuple[str, str], Sequence[int]]) -> bool:
    """Whether an episode was counted in a later one, as Episodes.add does."""
    if row.kind != "episode" or row.values["key"] is None:
        return False
    happened, expires = row.values["happened_at"], row.values["expires_at"]
    times = repeats.get((row.values["session"], row.values["key"]), ())
    later = bisect_right(times, happened)
    return later < len(times) and (expires is None or times[later] < expires)


def _equal(here: Row, row: Row) -> bool:
    return all(here.values[name] == row.values[name] for name in CONTENT)


_RESTING: tuple[RowKind, ...] = ("cites", "session", "summary", "progress", "episode", "trial", "task", "event")


def _redacted(row: Row, redact: Redact) -> Row:
    """What people and models said in it; a task's own values are its program's, and stay."""
    values = dict(row.values)
    for name in _SAID.get(row.kind, ()):
        values[name] = redacted_json(values[name], redact)
    return replace(row, values=values)


_SAID: Mapping[str, tuple[str, ...]] = {
    "item": ("text", "metadata", "relation"),
    "summary": ("text",),
    "episode": ("text", "data", "raw"),
    "trial": ("note",),
}


def _fitting(vectors: Mapping[str, Sequence[str]], embedder: Embedder) -> dict[str, list[str]]:
    """Those of the present model that could be its own; the rest are made anew."""
    rows = vectors.get(embedder.model.key)
    if not rows:
        return {}
    import numpy as np

    for row in rows:
        vector = np.frombuffer(b64decode(row), dtype="<f4")
        if len(vector) != embedder.model.dimension or not np.isclose(float(np.linalg.norm(vector)), 1.0, atol=1e-3):
            return {}
    return {embedder.model.key: list(rows)}
