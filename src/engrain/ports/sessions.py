"""The contracts of what happens in sessions: the log, what is at hand, episodes, how procedures turned out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Item
from engrain.core.model.plans import Applied
from engrain.core.model.procedures import Tally, Trial
from engrain.core.model.queries import Summary, UnprocessedSession
from engrain.core.model.sessions import Episode, RawOutput

# The names under which a SessionState keeps what a session has at hand.
WORKING, WINDOW = "working", "window"


class SessionLog(Protocol):
    """Append-only messages: items of kind "message" in the same domain, so get_many, search and forget see them.

    A session's numbers are the places of its items: a text that is added with a place is appended as well.
    """

    def append(self, scope: Scope, session: str, drafts: Sequence[Draft], expect: int | None) -> Applied:
        """Consecutive numbers, all or none. With `expect`, the session must have that length, else Conflict.

        A draft of another kind, or whose place names another session or a number, is InvalidInput."""

    def length(self, scope: Scope, session: str) -> int:
        """The next number: one more than the highest ever given, forgotten ones too; 0 for an unknown session."""

    def read(self, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        """The messages from number `start` on, in order, as they stand: of a corrected one, its correction."""

    def last(self, scope: Scope, session: str, n: int) -> list[Item]:
        """The newest n of the same, in order."""

    def sessions(self, scope: Scope, limit: int) -> list[str]:
        """The sessions last added to, newest first, as far as an item that was not corrected still stands in them."""

    def summary(self, scope: Scope, session: str) -> Summary | None:
        """None if there never was one. Forgetting or cutting an item of the session raises its version, even if there
        was none yet, and takes the text of one that covers the item: that begins at 0 again. No version comes back,
        also not after the session or its user was erased: whoever was still summing it up comes too late."""

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        """Stores it if its version is one more than the stored one's (1 for the first), else Conflict. Who reads the
        stored one before the messages puts nothing into it that was forgotten meanwhile."""

    def progress(self, scope: Scope, session: str, work: str) -> int:
        """How far some work on the session has come: the number of the first message it has not seen; 0 if none."""

    def advance(self, scope: Scope, session: str, work: str, upto: int) -> None:
        """Sets it; a smaller number than before changes nothing."""

    def behind(self, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        """The scope's sessions whose length is beyond what this work has seen, last added to first. For upkeep."""


class Episodes(Protocol):
    """Where one store has all the ports, this one is its `episodes`."""

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        """The episode as it now stands.

        An id that is there already in this scope is replaced, in whatever session it was. Others of its session with
        the same key that have not expired at its happened_at are joined into it and gone: the counts are added, the
        highest importance and the latest expiry (none is later than any) stay. Of a session the newest
        TIERS["episodic"].max_items (happened_at, then id) stay. What was kept raw for an id that is replaced, joined or
        removed goes with it. Where the items are in the same store, an unknown item is NotFound."""

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        """At most n, newest first (happened_at, then id), of one session or of all; never one whose expires_at is not
        after now, nor, where the items are in the same store, one whose item was forgotten."""

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        """What was kept raw with this episode; None if nothing was, or its own time or the episode's is over."""

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        """How many of them were there. Where the items are in the same store, `purge` takes the bytes."""

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        """Keep the newest (happened_at, then id) of a session; how many went."""

    def expire(self, now: datetime) -> int:
        """Remove what has expired, episodes and raw texts, in every scope; how many episodes went. Never early."""


class SessionState(Protocol):
    """What sessions have at hand, kept for a day outside the process. Never the truth: what is not there is read or
    made anew. Every call raises StoreUnavailable if the server does not answer."""

    def keep(self, scope: Scope, session: str, name: str, text: str) -> None:
        """In place of what was kept under this name; the day begins anew."""

    def kept(self, scope: Scope, session: str, name: str) -> str | None: ...

    def drop(self, scope: Scope, session: str, name: str) -> None: ...

    def clear(self, scope: Scope, name: str | None = None) -> int:
        """All that is kept of a scope, or what has this name in any of its sessions; how many."""


class Outcomes(Protocol):
    """How procedures turned out. Where one store has all the ports, this one is its `outcomes`."""

    def count(self, scope: Scope, trial: Trial) -> bool:
        """One task counts once for one version: False if it was counted before, and the first word stands. NotFound
        if there is no such item."""

    def tallies(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Tally]:
        """For each of these versions that was tried. Forgetting an item takes its trials along."""

    def trials(self, scope: Scope, id: str, limit: int) -> list[Trial]:
        """The newest trials (at, then task) of one version, newest first."""
