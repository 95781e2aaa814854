"""The contract of erasing all of a subject's data, and of keeping it out from then on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, AuditResult
from engrain.core.model.erasure import ErasedSubject, Erasure, Hold, Impact, ReasonChoice, Subject

NONE: Mapping[str, Any] = MappingProxyType({})


class Erasing(Protocol):
    """Where one store has all the ports, this one is its `erasing`.

    An erasure goes from stage to stage, each one transaction that may be repeated: begin, take, unname, finish. A store
    may do what `take` does in `begin` already.
    """

    def mark(self, subject: Subject) -> str:
        """The subject's keyed hash."""

    def reach(self, subject: Subject) -> Impact:
        """What `take` would remove now, counted as it will count; nothing is changed.

        A user: every row of every scope of the tenant with exactly this user. A session: its items, what was derived
        from them, its episodes, summary and progress. A source: the items that have no other, the answers of tools
        that were called with this address, what the agent said after an answer of either until the user spoke again,
        and what was derived from all these. An item: as Forget."""

    def begin(self, id: str, subject: Subject, notes: Mapping[str, Any] = NONE) -> Erasure:
        """Stage `shut`, with these notes. From now on a user's scopes read as empty, and every write to them is
        BeingErased; whatever is written afterwards has a later time. An erasure of this id that is under way is
        returned as it stands.

        OnHold if there is a hold on the user that it belongs to; a user's scopes are then hidden: they read as empty,
        and every write to them is OnHold, until the release."""

    def pieces(self, subject: Subject | None) -> Iterator[bytes]:
        """Every text, name and vector of the subject that can be looked for in files; None: of the whole store."""

    def keep(self, id: str, notes: Mapping[str, Any], prints: bytes) -> None:
        """Store with the erasure what a run needs to go on; nothing once it is `named`."""

    def take(self, id: str) -> Erasure:
        """Stage `rows`: everything in reach is gone in one transaction, with a tombstone of each text, so that nothing
        derived from a copy of it comes in again; readers of the change sequence learn of it.

        What remains is put right: a slot's value that a removed one had replaced holds again, a corrected version
        stands again (not for an item, as Forget). Something derived that rests on what remains too leaves no tombstone,
        and the work on the sessions that it cites goes back to there, so that it is derived again. An item with other
        sources loses the one that is erased. A later stage is left as it is, but for what `left` finds of a user: where
        that can come in meanwhile, it goes now, unless a hold keeps it or it may be new, by a clock that is behind.

        OnHold, as of `begin`, if there is a hold by now and everything is still there: the erasure is over then."""

    def unname(self, id: str, notes: Mapping[str, Any] | None = None) -> Erasure:
        """Stage `named`: the names in the erasure and in the user's scopes are gone; a later write to such a scope
        begins an empty one. With `notes`, these take the place of those that were there."""

    def left(self, erasure: Erasure) -> Mapping[str, int]:
        """Rows by kind that are still there of what was erased: all 0 when it was."""

    def finish(self, id: str, receipt: Mapping[str, Any]) -> AuditEntry:
        """Keep what the receipt says in the audit log as "erase" and an Erased; the erasure is no longer under way.
        The Erased of a user has the time of `begin`, or one before the names went: the user may have come back since;
        that of a part the time of `take`, or one before something new of it came in. Whatever is written afterwards has
        a later time."""

    def running(self) -> list[Erasure]:
        """Those that are under way, oldest first."""

    def erased(self, subject: Subject) -> ErasedSubject | None:
        """The last erasure of exactly this subject: an old copy of what was recorded before it stays out."""

    def all_erased(self) -> list[ErasedSubject]: ...

    def barred(self, scope: Scope, texts: Sequence[str]) -> list[bool]:
        """For each text whether it was forgotten or erased in this scope, so that no import brings it back."""

    def replay(self, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        """Take out again what was erased or forgotten elsewhere, in a store that was restored from an older copy under
        the same key: rows of each kind. Tombstones are (scope id, hash), as `tombstones` gives them."""

    def tombstones(self) -> Iterator[tuple[str, str]]:
        """Of what a hold hides too, by the scope's own id."""

    def hold(self, subject: Subject, reason: str) -> Hold:
        """Removing anything of this user is OnHold until every reason is released, and what would go by itself stays.
        A reason that is there already changes nothing; InvalidInput if it is no code word."""

    def release(self, subject: Subject, reason: ReasonChoice = None) -> bool:
        """End a reason, or several in one transaction, and with the last the hold: what was hidden is shown again.
        False, and nothing is changed, if one of them is not there. Without a reason it is the only one; Conflict if
        there are several."""

    def holds(self) -> list[Hold]:
        """By their marks; the names of the users are in `users`."""

    def users(self) -> list[Subject]:
        """Everybody of whom there is something here, hidden by a hold or not; nobody who is being erased."""

    def held(self, scope: Scope) -> bool:
        """Whether there is a hold on the user whose scope it is; then nothing of it expires or is trimmed or pruned."""

    def copies(self) -> list[str]:
        """Paths of files beside the store that are copies of it and none of its own: nobody but people removes them."""

    def raw(self) -> Iterator[bytes]:
        """Every byte of every file of the store that can be read here, in pieces that overlap; of a server none."""


@runtime_checkable
class Erasable(Protocol):
    """A server that holds a part of a memory and can be rid of a scope."""

    def known(self) -> list[Scope]:
        """Every scope that it holds something of, as far as it knows names."""

    def scopes(self, user: Subject) -> list[Scope]:
        """Those of exactly this user that it holds something of, whatever the agent, as far as it knows names: the
        store of the items may have nothing of them."""

    def hold(self, user: Subject) -> None:
        """A hold has begun: nothing of this user ends by itself from now on."""

    def erase(self, scope: Scope) -> int:
        """Everything of this scope, and its names; how many keys or points went. An index that is fed from the items:
        points of whatever went from there, in any scope, and StoreError if some are still there."""

    def left(self, scope: Scope) -> int:
        """How many keys or points of this scope are still there."""

    def remains(self, scope: Scope, before: datetime, back: bool) -> int:
        """How many of them are from before that moment. Of a user who is `back`, or of whom something here is later,
        those that tell their time; else all. An index that is fed from the items: points of whatever went from there,
        in any scope."""


class AuditLog(Protocol):
    """Append-only and without content: counts, code words and keyed hashes. Where one store has all the ports, this one
    is its `audit`. Forgetting writes its entry in the transaction that forgets."""

    def append(self, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        """Durable when it returns, chained to the entry before it, whoever else appends at the same time. `subject` is
        a keyed hash. InvalidInput if there is anything but numbers and code words in it."""

    def entries(self, after: int, limit: int) -> list[AuditEntry]:
        """Those with a higher number, in order."""

    def verify(self) -> AuditResult:
        """Finds an entry that was changed, removed, moved or cut off at the end."""
