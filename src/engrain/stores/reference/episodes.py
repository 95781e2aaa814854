"""Episodes in memory: the oracle of the Episodes port."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engrain.core.scope import Scope
from engrain.ports import Episode
from engrain.stores.reference.state import Holder, State


class EpisodeBook:
    """A view of the store: its `expire` is not that of the tasks."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def add(self, scope: Scope, episode: Episode) -> None:
        with self._holder.writing() as state:
            state.episodes[scope, episode.id] = episode

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        with self._holder.reading() as state:
            alive = [one for one in _newest(state, scope, session) if one.expires_at is None or one.expires_at > now]
            return alive[:n]

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        with self._holder.writing() as state:
            there = {id for id in ids if (scope, id) in state.episodes}
            for id in there:
                del state.episodes[scope, id]
            return len(there)

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        with self._holder.reading() as state:
            return self.remove(scope, [one.id for one in _newest(state, scope, session)[keep:]])

    def expire(self, now: datetime) -> int:
        with self._holder.writing() as state:
            over = [key for key, one in state.episodes.items() if one.expires_at is not None and one.expires_at <= now]
            for key in over:
                del state.episodes[key]
            return len(over)


def _newest(state: State, scope: Scope, session: str | None) -> list[Episode]:
    mine = [one for (owner, _), one in state.episodes.items() if owner == scope and session in (None, one.session)]
    return sorted(mine, key=lambda one: (one.happened_at, one.id), reverse=True)
