"""Kits for episodic memory: items and episodes in one store, and in two that do not know each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.reference import ReferenceStore

from engrain.core.identity import Scope
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.tokens import estimate_tokens
from engrain.ports import Services
from engrain.stores.sqlite import SqliteStore

ANA = Scope(user="ana")


class Elsewhere:
    """Episodes in a store of their own, where nobody knows the items."""

    def __init__(self, clock: SetClock) -> None:
        self._book = ReferenceStore(clock=clock).episodes

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        hidden = replace(episode, item=None, data={**episode.data, "over": episode.item})
        return _seen(self._book.add(scope, hidden, raw))

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        return [_seen(one) for one in self._book.recent(scope, session, n, now)]

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        return self._book.raw(scope, id, now)

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        return self._book.remove(scope, ids)

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        return self._book.trim(scope, session, keep)

    def expire(self, now: datetime) -> int:
        return self._book.expire(now)


def _seen(episode: Episode) -> Episode:
    data = dict(episode.data)
    return replace(episode, item=data.pop("over"), data=data)


def opened(kind: str, folder: Path, clock: SetClock) -> Services:
    store = ReferenceStore(clock=clock) if kind == "reference" else SqliteStore(folder / "agent.db", clock=clock)
    apart = kind == "apart"
    return Services(
        store, store, store, store, HashEmbedder(), clock, estimate_tokens,
        episodes=Elsewhere(clock) if apart else store.episodes, journal=store.journal, together=not apart,
    )  # fmt: skip
