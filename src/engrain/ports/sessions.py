"""The contracts of sessions: the message log, cached session state, episodes, and the outcomes of procedures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.model.procedures import Tally, Trial
from engrain.core.model.queries import Summary, UnprocessedSession
from engrain.core.model.sessions import Episode, RawOutput


class SessionLog(Protocol):
    """Messages in order. They are items of kind "message", so get_many, search and forget see them.

    A plan appends them: an item that is added with a session position takes the session's next number.
    """

    def length(self, scope: Scope, session: str) -> int:
        """Return the next number: one more than the highest ever given, even if forgotten; 0 for an unknown session."""

    def read(self, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        """Return the messages from number `start` on, in order. A corrected message appears as its correction."""

    def last(self, scope: Scope, session: str, n: int) -> list[Item]:
        """Return the newest n of these messages, in order."""

    def sessions(self, scope: Scope, limit: int) -> list[str]:
        """Return the sessions with at least one standing, uncorrected item, the last added to first."""

    def summary(self, scope: Scope, session: str) -> Summary | None:
        """Return the session's summary; None if there never was one.

        Forgetting or cutting an item of the session raises the version, even if there was no summary. It deletes the
        text of a summary that covers the item, which then starts at 0 again. No version is used twice, even after the
        session or its user was erased: a summary that was being made at that time is refused.
        """

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        """Store the summary if its version is one more than the stored one's (1 for the first), else Conflict.

        A caller that reads the stored summary before the messages cannot store anything that was forgotten meanwhile.
        """

    def progress(self, scope: Scope, session: str, work: str) -> int:
        """Return how far some work on the session has come: the number of the first message it has not seen, else 0."""

    def advance(self, scope: Scope, session: str, work: str, upto: int) -> None:
        """Set the progress. A smaller number than before changes nothing."""

    def behind(self, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        """Return the scope's sessions that are longer than this work's progress, last added to first.

        For maintenance.
        """


class Episodes(Protocol):
    """Episodic memory. If one store has all the ports, this one is its `episodes`."""

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        """Add an episode and return it as stored.

        An id that exists in this scope is replaced, in whatever session it was. Unexpired episodes of its session with
        the same key, at its happened_at, are joined into it and removed: the counts are added, the highest importance
        and the latest expiry stay (none is later than any). A session keeps its newest TIERS["episodic"].max_items
        (happened_at, then id). The raw text of a replaced, joined or removed id is deleted. If the items are in the
        same store, an unknown item is NotFound.
        """

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        """Return at most n episodes, newest first (happened_at, then id), of one session or of all.

        Never one whose expires_at is not after now. If the items are in the same store, never one whose item was
        forgotten.
        """

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        """Return the raw text of this episode; None if there is none, or if its own time or the episode's is over."""

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove episodes. Return how many existed. If the items are in the same store, `purge` removes the bytes."""

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        """Keep the newest `keep` episodes (happened_at, then id) of a session. Return how many were removed."""

    def expire(self, now: datetime) -> int:
        """Remove expired episodes and raw texts in every scope, never early. Return how many episodes were removed."""


class SessionState(Protocol):
    """The working memory of sessions, stored for a day outside the process. A session without one starts empty.

    Every call raises StoreUnavailable if the server does not answer.
    """

    def save(self, scope: Scope, session: str, text: str) -> None:
        """Replace the session's stored text. The day starts again."""

    def load(self, scope: Scope, session: str) -> str | None: ...

    def drop(self, scope: Scope, session: str) -> None: ...

    def clear(self, scope: Scope) -> int:
        """Drop the texts of all sessions of a scope. Return how many there were."""


class Outcomes(Protocol):
    """The trials of procedures. If one store has all the ports, this one is its `outcomes`."""

    def count(self, scope: Scope, trial: Trial) -> bool:
        """Count a trial.

        One task counts once for one version: False if it was counted before, and the first outcome stays.

        NotFound if there is no such item.
        """

    def tallies(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        """Return a tally for each of these versions that was tried. Forgetting an item deletes its trials."""

    def trials(self, scope: Scope, id: str, limit: int) -> list[Trial]:
        """Return the newest trials (at, then task) of one version, newest first."""
