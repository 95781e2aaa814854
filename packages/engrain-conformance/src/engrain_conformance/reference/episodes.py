"""Episodes in memory: the oracle of the Episodes port."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import merge_episodes
from engrain.ports import Episode, EpisodeDraft, RawOutput
from engrain_conformance.reference.state import Holder, State, check_held, held

Key = tuple[Scope, str]


class EpisodeBook:
    """A view of the store: its `expire` is not that of the tasks."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        with self._holder.writing() as state:
            return keep(state, self._holder._key, scope, EpisodeDraft(episode, raw))

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        with self._holder.reading() as state:
            return [one for one in _newest(state, scope, session) if one.alive(now)][:n]

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        with self._holder.reading() as state:
            episode, raw = state.episodes.get((scope, id)), state.raws.get((scope, id))
            shown = episode and raw and episode.alive(now) and now < raw.expires_at
            return raw.text if raw and shown else None

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        with self._holder.writing() as state:
            check_held(state, self._holder._key, scope)
            return _drop(state, ((scope, id) for id in ids))

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        with self._holder.writing() as state:
            return 0 if held(state, self._holder._key, scope) else _trim(state, scope, session, keep)

    def expire(self, now: datetime) -> int:
        with self._holder.writing() as state:
            over = [key for key, raw in state.raws.items() if raw.expires_at <= now]
            for key in self._free(state, over):
                del state.raws[key]
            over = [key for key, one in state.episodes.items() if not one.alive(now)]
            return _drop(state, self._free(state, over))

    def _free(self, state: State, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if not held(state, self._holder._key, key[0])]


def keep(state: State, key: bytes, scope: Scope, happening: EpisodeDraft) -> Episode:
    episode, raw, on_hold = happening.episode, happening.raw, held(state, key, scope)
    if episode.item is not None and not state.known(scope, episode.item):
        raise NotFound(f"the item {episode.item!r} of the episode is not in this scope.")
    same = [one for one in _newest(state, scope, episode.session) if _again(episode, one) and not on_hold]
    stands = merge_episodes(episode, same)
    _drop(state, [(scope, one.id) for one in (episode, *same)])
    state.episodes[scope, episode.id] = stands
    if raw:
        state.raws[scope, episode.id] = raw
    _trim(state, scope, episode.session, None if on_hold else TIERS["episodic"].max_items)
    return stands


def drop_over(state: State, scope: Scope, item: str) -> None:
    """Those of an item that is forgotten or cut."""
    _drop(state, [key for key, one in state.episodes.items() if key[0] == scope and one.item == item])


def _again(episode: Episode, other: Episode) -> bool:
    same = episode.key is not None and other.key == episode.key and other.id != episode.id
    return same and other.alive(episode.happened_at)


def _newest(state: State, scope: Scope, session: str | None) -> list[Episode]:
    mine = [one for (owner, _), one in state.episodes.items() if owner == scope and session in (None, one.session)]
    return sorted(mine, key=lambda one: (one.happened_at, one.id), reverse=True)


def _trim(state: State, scope: Scope, session: str, keep: int | None) -> int:
    if keep is None:
        return 0
    return _drop(state, [(scope, one.id) for one in _newest(state, scope, session)[keep:]])


def _drop(state: State, keys: Iterable[tuple[Scope, str]]) -> int:
    """How many were there."""
    there = 0
    for key in keys:
        there += state.episodes.pop(key, None) is not None
        state.raws.pop(key, None)
    return there
