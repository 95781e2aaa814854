"""Episodes and outcomes of procedures in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.procedures import Tally, Trial
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput, merge_episodes
from engrain_conformance.reference.state import State, StateView, check_not_held, is_held, reads, writes

Key = tuple[Scope, str]


class ReferenceEpisodes(StateView):
    @writes
    def add(self, state: State, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        return store_episode(state, scope, EpisodeDraft(episode, raw))

    @reads
    def recent(self, state: State, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        return [older for older in _newest(state, scope, session) if older.alive(now)][:n]

    @reads
    def raw(self, state: State, scope: Scope, id: str, now: datetime) -> str | None:
        episode, raw = state.episodes.get((scope, id)), state.raw_outputs.get((scope, id))
        shown = episode and raw and episode.alive(now) and now < raw.expires_at
        return raw.text if raw and shown else None

    @writes
    def remove(self, state: State, scope: Scope, ids: Sequence[str]) -> int:
        check_not_held(state, scope)
        return _drop(state, ((scope, id) for id in ids))

    @writes
    def trim(self, state: State, scope: Scope, session: str, keep: int) -> int:
        return 0 if is_held(state, scope) else _trim(state, scope, session, keep)

    @writes
    def expire(self, state: State, now: datetime) -> int:
        over = [key for key, raw in state.raw_outputs.items() if raw.expires_at <= now]
        for key in self._free(state, over):
            del state.raw_outputs[key]
        over = [key for key, episode in state.episodes.items() if not episode.alive(now)]
        return _drop(state, self._free(state, over))

    def _free(self, state: State, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if not is_held(state, key[0])]


def store_episode(state: State, scope: Scope, draft: EpisodeDraft) -> Episode:
    episode, raw, on_hold = draft.episode, draft.raw, is_held(state, scope)
    if episode.item is not None and not state.find_item(scope, episode.item):
        raise NotFound(f"the item {episode.item!r} of the episode is not in this scope.")
    same = [older for older in _newest(state, scope, episode.session) if _is_same_event(episode, older) and not on_hold]
    stands = merge_episodes(episode, same)
    _drop(state, [(scope, one.id) for one in (episode, *same)])
    state.episodes[scope, episode.id] = stands
    if raw:
        state.raw_outputs[scope, episode.id] = raw
    _trim(state, scope, episode.session, None if on_hold else TIERS["episodic"].max_items)
    return stands


def drop_item_episodes(state: State, scope: Scope, item: str) -> None:
    """Drop the episodes of an item that is forgotten or cut."""
    _drop(state, [key for key, episode in state.episodes.items() if key[0] == scope and episode.item == item])


def _is_same_event(episode: Episode, other: Episode) -> bool:
    same = episode.key is not None and other.key == episode.key and other.id != episode.id
    return same and other.alive(episode.happened_at)


def _newest(state: State, scope: Scope, session: str | None) -> list[Episode]:
    mine = [
        episode
        for (owner, _), episode in state.episodes.items()
        if owner == scope and session in (None, episode.session)
    ]
    return sorted(mine, key=lambda one: (one.happened_at, one.id), reverse=True)


def _trim(state: State, scope: Scope, session: str, keep: int | None) -> int:
    if keep is None:
        return 0
    return _drop(state, [(scope, older.id) for older in _newest(state, scope, session)[keep:]])


def _drop(state: State, keys: Iterable[tuple[Scope, str]]) -> int:
    """Drop the episodes and return how many there were."""
    there = 0
    for key in keys:
        there += state.episodes.pop(key, None) is not None
        state.raw_outputs.pop(key, None)
    return there


class ReferenceOutcomes(StateView):
    @writes
    def count(self, state: State, scope: Scope, trial: Trial) -> bool:
        if not state.find_item(scope, trial.procedure):
            raise NotFound(f"there is no procedure {trial.procedure!r} in this scope.")
        key = (scope, trial.procedure, trial.task)
        first = key not in state.trials
        state.trials.setdefault(key, trial)
        return first

    @reads
    def tallies(self, state: State, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        tried = {id: _list_trials(state, scope, id) for id in ids}
        return {id: _count_trials(trials) for id, trials in tried.items() if trials}

    @reads
    def trials(self, state: State, scope: Scope, id: str, limit: int) -> list[Trial]:
        return _list_trials(state, scope, id)[:limit]


def _list_trials(state: State, scope: Scope, id: str) -> list[Trial]:
    mine = [trial for key, trial in state.trials.items() if key[:2] == (scope, id)]
    return sorted(mine, key=lambda trial: (trial.at, trial.task), reverse=True)


def _count_trials(trials: Sequence[Trial]) -> Tally:
    successes = sum(trial.success for trial in trials)
    return Tally(successes, len(trials) - successes, max(trial.at for trial in trials))
