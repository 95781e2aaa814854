"""Tell which rows of an old copy were forgotten or erased here since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache

from engrain.core.clock import to_micros
from engrain.core.erasure import By, Subject, owner
from engrain.core.hashes import tombstone_hash
from engrain.core.moving import Row
from engrain.core.scope import Scope
from engrain.ports import Kit, Movable

PAGE = 1_000


class Barrier:
    """`texts` are those that will be asked about beside the rows'. `scopes` are where the rows are to go, and where
    they were: what was erased under one name does not come back under another."""

    def __init__(
        self, rows: Sequence[Row], scopes: Collection[Scope], kit: Kit, store: Movable, texts: Sequence[str] = ()
    ) -> None:
        self._scopes, self._erasing = scopes, kit.erasing
        self._texts = self._barred(list({*texts, *(text for row in rows if (text := _text(row)))}), store)
        self._running = kit.erasing.running() if kit.erasing else []
        self._all_before = max((self._at(user) for user in map(owner, scopes) if user), default=-1)
        self._before = cache(lambda by, name: max(self._at(Subject(scope, by, name)) for scope in scopes))

    @property
    def began_anew(self) -> bool:
        """Whether all of this user was erased once."""
        return self._all_before >= 0

    def bars(self, text: str) -> bool:
        return text in self._texts

    def keeps_out(self, row: Row) -> bool:
        """By its words, or because all of its user, session or source that is as old was erased."""
        if _text(row) in self._texts:
            return True
        began = _began(row)
        if began is None or self._erasing is None:
            return False
        return began <= self._all_before or any(began <= self._before(by, name) for by, name in _subjects(row))

    def _barred(self, texts: list[str], store: Movable) -> set[str]:
        if self._erasing is not None:
            found = (zip(texts, self._erasing.barred(scope, texts), strict=True) for scope in self._scopes)
            return {text for pairs in found for text, out in pairs if out}
        key = bytes.fromhex(store.dump("store", None, 1)[0].values["key"])
        forgotten: set[str] = set()
        for scope in self._scopes:
            after = None
            while rows := store.dump("tombstone", after, PAGE, scope):
                forgotten |= {row.key[1] for row in rows}
                after = rows[-1].key
        return {text for text in texts if tombstone_hash(key, text) in forgotten}

    def _at(self, subject: Subject) -> int:
        """When the last erasure of it was, done or under way; -1 for never."""
        if self._erasing is None:
            return -1
        done = self._erasing.erased(subject)
        mark = self._erasing.mark(subject)
        times = [one.at for one in self._running if one.mark == mark] + ([done.at] if done else [])
        return max(map(to_micros, times), default=-1)


def _text(row: Row) -> str:
    return str(row.values["text"]) if row.kind in ("item", "summary", "episode") else ""


def _began(row: Row) -> int | None:
    name = {"item": "recorded_at", "episode": "happened_at", "task": "started_at"}.get(row.kind)
    return row.values[name] if name else None


def _subjects(row: Row) -> Iterator[tuple[By, str]]:
    if row.values.get("session") is not None:
        yield "session", row.values["session"]
    names = [name for _, name in row.values.get("sources", ())]
    # One with other sources stayed when one was erased, and so it may come back.
    if names and names[0] is not None and len(set(names)) == 1:
        yield "source", names[0]
