"""The newest messages of a session out of a cache, as long as the item store says that they still stand so."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any, TypeVar

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import StoreClosed, StoreError
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Draft, Item, Relation, Source
from engrain.core.model.plans import Applied
from engrain.ports import ItemStore, SessionLog, SessionState, Summary, UnprocessedSession
from engrain.ports.sessions import WINDOW

KEPT = 64  # messages of a session: more than a window shows
MOST = 200  # changes that are looked through before the log is read anew
T = TypeVar("T")
_TIMES = {one.name for one in fields(Item) if "datetime" in str(one.type)}

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class Tail:
    """The messages of a session from number `first` on, as they stood when the scope's changes were at `seq`."""

    seq: int
    first: int
    rows: tuple[Item, ...]


class CachedLog:
    """A cached message is shown only after the item store was asked what has changed in the scope since it was cached:
    what was forgotten, cut or corrected by any process is never among them. Without the cache, or with one that is
    empty, the log is read. How often a message was used may be behind.

    `store` names the item store: two that share a cache have nothing in common there.
    """

    def __init__(self, log: SessionLog, items: ItemStore, state: SessionState, store: str) -> None:
        self._log = log
        self._items = items
        self._state = state
        self._name = f"{WINDOW}:{store}"

    def read(self, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        tail = self._tail(scope, session)
        if tail is None or start < tail.first:
            return self._log.read(scope, session, start, limit)
        return [row for row in tail.rows if _place(row) >= start][:limit]

    def last(self, scope: Scope, session: str, n: int) -> list[Item]:
        tail = self._tail(scope, session) if n <= KEPT else None
        if tail is None or (len(tail.rows) < n and tail.first > 0):
            return self._log.last(scope, session, n)
        return list(tail.rows[max(0, len(tail.rows) - n) :])

    # The cache

    def _tail(self, scope: Scope, session: str) -> Tail | None:
        kept = self._asked(lambda: self._state.kept(scope, session, self._name) or "")
        if kept is None:
            return None
        known = _decoded(kept)
        fresh = known and self._caught_up(scope, session, known)
        if fresh is None:
            fresh = self._made(scope, session)
        if fresh is not known:
            self._keep(scope, session, fresh)
        return fresh

    def _caught_up(self, scope: Scope, session: str, known: Tail) -> Tail | None:
        """None if anything happened but new messages at the end."""
        found = self._items.changes(scope, known.seq, MOST)
        ids = {row.id for row in known.rows}
        if not found.complete or any(one.id in ids for one in found.changes):
            return None
        # The last one too: a cache of another store, or of one that was set back to a copy, has it not.
        newest = [row.id for row in known.rows[-1:]]
        there = self._items.get_many(scope, [*newest, *(one.id for one in found.changes if not one.gone)])
        if [item.id for item in there[: len(newest)]] != newest:
            return None
        new = [one for one in there[len(newest) :] if one.session == session and one.kind == "message"]
        new.sort(key=_place)
        after = _place(known.rows[-1]) if known.rows else -1
        if any(one.retracted_at or _place(one) <= after for one in new):
            return None
        if not found.changes:
            return known
        rows = (*known.rows, *new)
        first = known.first if len(rows) <= KEPT else _place(rows[-KEPT])
        return Tail(found.seq, first, rows[-KEPT:])

    def _made(self, scope: Scope, session: str) -> Tail:
        seq = self._items.newest(scope)
        # After the number: what changes from here on is found by it.
        rows = tuple(self._log.last(scope, session, KEPT))
        return Tail(seq, _place(rows[0]) if len(rows) == KEPT else 0, rows)

    def _keep(self, scope: Scope, session: str, tail: Tail) -> None:
        self._asked(lambda: self._state.keep(scope, session, self._name, _encoded(tail)))
        # Once more: what was forgotten in between has emptied the cache before this was put there.
        since = self._items.changes(scope, tail.seq, MOST)
        ids = {row.id for row in tail.rows}
        if not since.complete or any(one.id in ids for one in since.changes):
            self._asked(lambda: self._state.drop(scope, session, self._name))

    def _asked(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except StoreClosed:
            raise
        except StoreError as exc:
            _log.debug("the log is read without its cache: %s", exc)
            return None

    # As the log has it

    def append(self, scope: Scope, session: str, drafts: Sequence[Draft], expect: int | None) -> Applied:
        return self._log.append(scope, session, drafts, expect)

    def length(self, scope: Scope, session: str) -> int:
        return self._log.length(scope, session)

    def sessions(self, scope: Scope, limit: int) -> list[str]:
        return self._log.sessions(scope, limit)

    def summary(self, scope: Scope, session: str) -> Summary | None:
        return self._log.summary(scope, session)

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        self._log.summarize(scope, session, summary)

    def progress(self, scope: Scope, session: str, work: str) -> int:
        return self._log.progress(scope, session, work)

    def advance(self, scope: Scope, session: str, work: str, upto: int) -> None:
        self._log.advance(scope, session, work, upto)

    def behind(self, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        return self._log.behind(scope, work, limit)


def _place(row: Item) -> int:
    return -1 if row.place is None else row.place


def _encoded(tail: Tail) -> str:
    return json.dumps([tail.seq, tail.first, [_plain(row) for row in tail.rows]], separators=(",", ":"))


def _plain(item: Item) -> dict[str, Any]:
    """What an item has; times as microseconds since 1970."""
    given = asdict(replace(item, metadata=dict(item.metadata)))
    values = {name: to_micros(one) if isinstance(one, datetime) else one for name, one in given.items()}
    return {name: one for name, one in values.items() if one is not None}


def _decoded(text: str) -> Tail | None:
    """None for what cannot be read: another version of engrain may have written it."""
    try:
        seq, first, rows = json.loads(text)
        return Tail(int(seq), int(first), tuple(map(_item, rows)))
    except (ValueError, TypeError, KeyError):
        return None


def _item(values: dict[str, Any]) -> Item:
    given: dict[str, Any] = {name: from_micros(one) if name in _TIMES else one for name, one in values.items()}
    given["sources"] = tuple(
        Source(one["name"], one["kind"], tuple(Citation(**cite) for cite in one["cites"])) for one in values["sources"]
    )
    given["relation"] = Relation(**values["relation"]) if values.get("relation") else None
    return Item(**given)
