"""Load an export: decide which of its rows are new here, and write those in one transaction."""

from __future__ import annotations

import math
import time
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from engrain.core.errors import BadFile, BadLine, Conflict, OnHold, TooLarge
from engrain.core.formats.export_rows import collect_edges, find_cycles, row_to_line, unique_keys
from engrain.core.identity import Scope
from engrain.core.model import rows as moving
from engrain.core.model.items import TRUST, limit_kind
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind
from engrain.core.rules.own_words import detect_stored_traits
from engrain.core.rules.tombstone_hashes import hash_item
from engrain.core.secrets.redact import RedactFunction, redact_json
from engrain.ports import Services
from engrain.ports.search import Embedder
from engrain.ports.storage import Movable, iterate_rows
from engrain.privacy.tombstones import TombstoneFilter
from engrain.transfer.export import number_lines, require_movable

TASK_KINDS: tuple[RowKind, ...] = ("task", "step", "event")
MAX_ATTEMPTS = 3
# Other writers wait for a preview: in SQLite those of the file, in Postgres those of the scope.
MAX_PREVIEW_SECONDS = 60.0
Answer = TypeVar("Answer")
# Fields that identify an item's content. The others may have changed since the export; the stored ones are newer.
CONTENT_FIELDS = (
    "kind", "text", "recorded_at", "occurred_at", "slot", "session", "place", "speaker", "role", "relation",
)  # fmt: skip
_OTHER_KINDS: tuple[RowKind, ...] = (
    "cites", "session", "summary", "progress", "episode", "trial", "task", "event",
    "record",
)  # fmt: skip
# Large values that no decision needs.
_UNREAD: Mapping[str, Mapping[str, Any]] = {"item": {"vectors": {}}, "record": {"body": ""}}
_REDACTED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "item": ("text", "metadata", "relation"),
    "summary": ("text",),
    "episode": ("text", "data", "raw"),
    "trial": ("note",),
}


@dataclass(slots=True)
class Decision:
    new: list[Row] = field(default_factory=list)  # in the order of restoring
    there: int = 0  # rows that are stored already
    kept_out: list[int] = field(default_factory=list)  # lines of forgotten rows, and of rows derived from them
    joined: list[str] = field(default_factory=list)  # stored episodes that a later one of the file counts


def limit_row_trust(row: Row) -> Row:
    """Return an item with no more than the trust of an import, and not pinned; another row as it is."""
    if row.kind != "item":
        return row
    sources = [[limit_kind(kind), name] for kind, name in row.values["sources"]]
    trust = min(row.values["trust"], TRUST["import"])
    return replace(row, values={**row.values, "sources": sources, "trust": trust, "pinned": False})


def load_rows(
    rows: Sequence[Row], scope: Scope, services: Services, done: Callable[[int], None], dry_run: bool, origin: Scope
) -> Decision:
    """Write an export's new rows in one transaction, which a dry run rolls back.

    `origin` is the memory that was exported. BadFile names every line whose id is stored with other content; then
    nothing is written.
    """
    store = require_movable(services)
    # A file may claim another tenant: it must not reveal what was erased there.
    scopes = (scope, origin) if origin.tenant == scope.tenant and origin != scope else (scope,)
    for _ in range(MAX_ATTEMPTS):
        # Read before anything is decided: a later forget or erasure makes the write fail.
        since = store.change_token(scopes)
        decision = _Decider(rows, scope, services, store, scopes).decide()
        if _write_rows(decision, services, since, None if dry_run else done):
            break
    else:
        raise Conflict("parts of this memory were forgotten or erased during the load, three times. Load it again.")
    if services.episodes is not None and decision.joined and not dry_run:
        with suppress(OnHold):  # a hold prevents it; a load after its release does it
            services.episodes.remove(scope, decision.joined)
    return decision


def _write_rows(decision: Decision, services: Services, since: ChangeToken, done: Callable[[int], None] | None) -> bool:
    """Write the rows, or roll them back without `done`. False if something was forgotten or erased since."""
    store = require_movable(services)
    try:
        if decision.new and done:
            store.restore(decision.new, since, done)
        elif decision.new:
            preview(services, lambda check: store.restore(decision.new, since, check))
        return True
    except Conflict as exc:
        if store.change_token(since.scopes) != since:
            return False
        raise Conflict(
            "this file cannot be loaded here: another memory of the store has the same ids, or the memory was "
            f"written to meanwhile ({exc}) Load it again, or into a store of its own."
        ) from exc


class _Decider:
    """Decides which rows are new. `scopes` are the rows' new and old scopes."""

    def __init__(
        self, rows: Sequence[Row], scope: Scope, services: Services, store: Movable, scopes: Collection[Scope]
    ) -> None:
        self._scope, self._services, self._store = scope, services, store
        self._numbers = number_lines(rows)
        self._rows = [_redact_row(row, services.redact) for row in rows] if services.redact else rows
        # Citations of a redacted text lose their spans, because its words have moved.
        self._reworded = {
            row.key[0]
            for row, was in zip(self._rows, rows, strict=True)
            if row.kind == "item" and row.values["text"] != was.values["text"]
        }
        self._key = bytes.fromhex(store.dump("store", None, 1)[0].values["key"])
        self._tombstones = TombstoneFilter(self._rows, scopes, services, store)
        self._items = {row.key[0]: row for row in self._iterate_stored("item")}
        self._bad: list[BadLine] = []
        self._out: set[str] = set()  # items that were forgotten here
        self._same: dict[str, str] = {}  # items that are here under another id
        self._fresh: dict[str, Row] = {}
        self._closed: list[Row] = []
        self._partly_forgotten: set[str | None] = set()
        self._emptied: set[str | None] = set()
        self._first = services.items.status().seq
        self._result = Decision()

    def decide(self) -> Decision:
        self._choose_items()
        cites = {row.key[0]: row for row in self._rows if row.kind == "cites"}
        self._drop_dependents(cites)
        self._find_circles(cites)
        if self._bad:
            raise BadFile(sorted(self._bad))
        self._classify_sessions()
        self._result.new = sorted(
            [*self._closed, *(self._prepare_item(row) for row in self._fresh.values())], key=lambda row: row.key
        )
        self._choose_other_rows()
        return self._result

    def _classify_sessions(self) -> None:
        """Find the sessions that lose some of their items, and those that lose all."""
        items = [row for row in self._rows if row.kind == "item"]
        self._partly_forgotten = {row.values["session"] for row in items if row.key[0] in self._out}
        self._emptied = self._partly_forgotten - {row.values["session"] for row in self._fresh.values()}
        self._emptied -= {row.values["session"] for row in self._items.values()}

    def _iterate_stored(self, kind: RowKind) -> Iterator[Row]:
        for row in iterate_rows(self._store, kind, self._scope):
            unread = _UNREAD.get(kind)
            yield replace(row, values={**row.values, **unread}) if unread else row

    def _choose_items(self) -> None:
        items = [row for row in self._rows if row.kind == "item"]
        for row in items:
            here = self._items.get(row.key[0])
            if here is not None and _has_same_content(here, row):
                self._result.there += 1
                self._close_version(here, row)
        owners = {key: id for id, row in self._items.items() for key in unique_keys(row.values)}
        for row in items:
            id = row.key[0]
            here = self._items.get(id)
            if here is not None and _has_same_content(here, row):
                continue
            if self._tombstones.rejects(row):
                self._out.add(id)
            elif here is not None:
                self._conflict(row, f"an item {id!r} with another content is here already.")
            else:
                self._choose_item(row, {key: owners[key] for key in unique_keys(row.values) if key in owners})
                owners |= {key: id for key in unique_keys(row.values) if id in self._fresh}

    def _close_version(self, here: Row, row: Row) -> None:
        """Close a stored item that the file has as replaced or corrected, unless the file is less trusted."""
        ended = ("valid_to", "retracted_at")
        if row.values["trust"] >= here.values["trust"] and any(
            here.values[name] is None and row.values[name] is not None for name in ended
        ):
            since = {name: row.values[name] for name in (*ended, "replaced_by") if row.values[name] is not None}
            self._items[here.key[0]] = closed = replace(here, values={**here.values, **since})
            self._closed.append(closed)

    def _choose_item(self, row: Row, taken: dict[tuple[Any, ...], str]) -> None:
        for what, id in taken.items():
            if what[0] == "words":
                self._same[row.key[0]] = id
                self._result.there += 1
                return
            self._conflict(row, f"its {what[0]} {what[1]!r} is held by another item here, {id!r}.")
        self._fresh[row.key[0]] = row

    def _drop_dependents(self, cites: dict[str, Row]) -> None:
        """Keep out the items that are derived from forgotten ones."""
        resting: dict[str, list[str]] = {}
        for id, to in collect_edges(cites.values()).items():
            for cited in to:
                resting.setdefault(cited, []).append(id)
        reached = list(self._out)
        for id in reached:
            fallen = [dependent for dependent in resting.get(id, ()) if self._fresh.pop(dependent, None)]
            self._out.update(fallen)
            reached += fallen
        self._result.kept_out = [self._numbers["item", (id,)] for id in self._out]

    def _find_circles(self, cites: dict[str, Row]) -> None:
        """Find circles of citations and replacements, including stored items."""
        known = collect_edges(list(self._iterate_stored("cites")))
        new = {id: to for id, to in collect_edges(cites.values()).items() if id in self._fresh or id not in known}
        chains = collect_edges(self._items.values()) | collect_edges(self._fresh.values())
        for edges, kind in ((known | new, "cites"), (chains, "item")):
            named = {id: [self._same.get(target, target) for target in to] for id, to in edges.items()}
            for id in find_cycles(named):
                number = self._numbers.get((kind, (id,)), 1)
                self._bad.append(BadLine(number, "Conflict", f"{id!r} would lead back to itself."))

    def _prepare_item(self, row: Row) -> Row:
        """Add the store's own hash and traits to an item."""
        values = {**row.values, "replaced_by": self._same.get(row.values["replaced_by"], row.values["replaced_by"])}
        values["vectors"] = _keep_valid_vectors(values["vectors"], self._services.embedder)
        item = moving.row_to_item(replace(row, values=values)).item
        own = {"hash": hash_item(self._key, item), "traits": detect_stored_traits(item.text, item.role)}
        return replace(row, values={**values, **own})

    def _choose_other_rows(self) -> None:
        here = {kind: {row.key: row for row in self._iterate_stored(kind)} for kind in _OTHER_KINDS}
        begun = self._count_steps(here["task"])
        repeats = _group_repeats(here["episode"].values())
        stopped = {row.key[1] for row in self._rows if row.kind == "task" and self._tombstones.rejects(row)}
        if self._tombstones.user_was_erased:
            # An event that no task has taken yet has no time.
            known_tasks = {row.key[1] for row in self._rows if row.kind == "task"}
            stopped |= {row.key[1] for row in self._rows if row.kind == "event"} - known_tasks
        for row in self._rows:
            if row.kind == "item":
                continue
            known = here.get(row.kind, {}).get(row.key)
            if row.kind == "session" and known and known.values["length"] < row.values["length"]:
                self._result.new.append(replace(known, values={**known.values, "length": row.values["length"]}))
            elif known is not None or (row.kind in TASK_KINDS and _is_past(row, begun)) or _was_counted(row, repeats):
                self._result.there += 1
            elif (chosen := self._adapt_row(row)) and not (row.kind in TASK_KINDS and row.key[1] in stopped):
                self._result.new.append(chosen)
            else:
                self._result.kept_out.append(self._numbers[row.kind, row.key])
        # Includes stored episodes: an earlier load may have stopped before this point.
        stored = {row.key for row in self._result.new if row.kind == "episode"} | here["episode"].keys()
        file_repeats = _group_repeats(row for row in self._rows if row.kind == "episode" and row.key in stored)
        self._result.joined = [key[1] for key, row in here["episode"].items() if _was_counted(row, file_repeats)]

    def _count_steps(self, here: Mapping[Key, Row]) -> dict[str, float]:
        """Count each stored task's stored steps: a load may have stopped in a store that writes row by row.

        A task that went on since has infinitely many.
        """
        tasks = {row.key: row_to_line(row) for row in self._rows if row.kind == "task"}
        journal = self._services.journal
        return {
            key[1]: len(journal.steps(self._scope, key[1]))
            if journal and tasks.get(key) == row_to_line(row)
            else math.inf
            for key, row in here.items()
        }

    def _adapt_row(self, row: Row) -> Row | None:
        """Return the row with the ids that its items have here; None if it is kept out."""
        if self._tombstones.rejects(row):
            return None
        if row.kind == "cites":
            return self._adapt_cites(row)
        if row.kind == "session":
            rank = self._first + row.values["rank"]
            return None if row.key[1] in self._emptied else replace(row, values={**row.values, "rank": rank})
        if row.kind == "record":
            return replace(row, values={**row.values, "rank": self._first + row.values["rank"]})
        if row.kind == "summary" and row.key[1] in self._partly_forgotten:
            return None
        if row.kind == "progress" and row.key[1] in self._emptied:
            return None
        if row.kind == "episode" and row.values["item"] is not None:
            item = self._same.get(row.values["item"], row.values["item"])
            return replace(row, values={**row.values, "item": item}) if self._is_known(item) else None
        return row if row.kind != "trial" or self._is_known(row.key[1]) else None

    def _adapt_cites(self, row: Row) -> Row | None:
        id = row.key[0]
        cites = [[number, self._same.get(item, item), *span] for number, item, *span in row.values["cites"]]
        here = self._items.get(id)
        # A stored item may have fewer sources than the file's.
        fits = here is None or all(cite[0] < len(here.values["sources"]) for cite in cites)
        if id in self._same or not self._is_known(id) or not fits or not all(self._is_known(cite[1]) for cite in cites):
            return None
        cites = [[*cite[:2], None, None] if cite[1] in self._reworded else cite for cite in cites]
        return replace(row, values={**row.values, "cites": cites})

    def _is_known(self, id: str) -> bool:
        return (id in self._fresh or id in self._items or id in self._same) and id not in self._out

    def _conflict(self, row: Row, why: str) -> None:
        self._bad.append(BadLine(self._numbers[row.kind, row.key], "Conflict", why))


def _is_past(row: Row, begun: Mapping[str, float]) -> bool:
    """Check whether a task has already passed a step or an event."""
    here = begun.get(row.key[1], 0)
    return here >= int(row.key[2]) if row.kind == "step" else here == math.inf


def _group_repeats(episodes: Iterable[Row]) -> dict[tuple[str, str], list[int]]:
    """Group the times of episodes by session and key, in order."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in episodes:
        if row.values["key"] is not None:
            found.setdefault((row.values["session"], row.values["key"]), []).append(row.values["happened_at"])
    return {name: sorted(times) for name, times in found.items()}


def _was_counted(row: Row, repeats: Mapping[tuple[str, str], Sequence[int]]) -> bool:
    """Check whether a later episode counts this one, as Episodes.add does."""
    if row.kind != "episode" or row.values["key"] is None:
        return False
    happened, expires = row.values["happened_at"], row.values["expires_at"]
    times = repeats.get((row.values["session"], row.values["key"]), ())
    later = bisect_right(times, happened)
    return later < len(times) and (expires is None or times[later] < expires)


def _has_same_content(here: Row, row: Row) -> bool:
    return all(here.values[name] == row.values[name] for name in CONTENT_FIELDS)


def _redact_row(row: Row, redact: RedactFunction) -> Row:
    """Redact the words of people and models. A task's values belong to its program and stay."""
    values = dict(row.values)
    for name in _REDACTED_FIELDS.get(row.kind, ()):
        values[name] = redact_json(values[name], redact)
    return replace(row, values=values)


def _keep_valid_vectors(vectors: Mapping[str, Sequence[str]], embedder: Embedder) -> dict[str, list[str]]:
    """Keep the vectors of the current model if they are valid. Others are embedded again."""
    rows = vectors.get(embedder.model.key)
    if not rows:
        return {}
    import numpy as np

    for row in rows:
        vector = np.frombuffer(b64decode(row), dtype="<f4")
        if len(vector) != embedder.model.dimension or not np.isclose(float(np.linalg.norm(vector)), 1.0, atol=1e-3):
            return {}
    return {embedder.model.key: list(rows)}


def preview(services: Services, do: Callable[[Callable[[int], None]], Answer]) -> Answer:
    """Run `do` in one transaction that is rolled back, so that a dry run is exact.

    `do` gets a function to call now and then, which raises TooLarge if the run takes too long.
    """

    def run() -> Answer:
        until = time.monotonic() + MAX_PREVIEW_SECONDS

        def check(_: int) -> None:
            if time.monotonic() > until:
                raise TooLarge(
                    f"a dry run keeps other writers waiting, so it ends after {MAX_PREVIEW_SECONDS:g} seconds, and "
                    "this file takes longer. Nothing was written. Split the file, or try it on a copy of the store."
                )

        return do(check)

    return require_movable(services).preview(run)
