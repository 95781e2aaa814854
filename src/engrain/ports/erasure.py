"""The contracts of erasing a subject's data and keeping it out, and of the audit log."""

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
    """The erasure of subjects. If one store has all the ports, this one is its `erasing`.

    An erasure has four stages: begin, delete_rows, anonymize, complete. Each is one transaction that may be repeated.
    A store may do the work of `delete_rows` in `begin` already.
    """

    def hash_subject(self, subject: Subject) -> str:
        """Return the subject's keyed hash."""

    def measure(self, subject: Subject) -> Impact:
        """Count the rows that `delete_rows` would remove now. Nothing is changed.

        - A user: every row of every scope of the tenant with exactly this user.
        - A session: its items, what was derived from them, its episodes, summary and progress.
        - A source: the items that have no other source, and the answers of tools that were called with this address.
          Also what the agent said after such an answer until the user spoke again, and what was derived from all these.
        - An item: as Forget.
        """

    def begin(self, id: str, subject: Subject, notes: Mapping[str, Any] = NONE) -> Erasure:
        """Start an erasure with these notes, in stage `blocked`.

        From now on a user's scopes read as empty, and every write to them raises BeingErased. Everything written
        afterwards has a later time. A running erasure of this id is returned unchanged.

        OnHold if its user has a hold. The user's scopes are then hidden until the release: they read as empty, and
        every write to them raises OnHold.
        """

    def search_terms(self, subject: Subject | None) -> Iterator[bytes]:
        """Yield every text, name and vector of the subject, to search files for them; None means the whole store."""

    def save_progress(self, id: str, notes: Mapping[str, Any], prints: bytes) -> None:
        """Store what a later run needs to continue the erasure; nothing once it is `anonymized`."""

    def delete_rows(self, id: str) -> Erasure:
        """Delete everything that `measure` counts in one transaction: stage `deleted`.

        Each text leaves a tombstone, so that nothing derived from a copy of it is ingested again. Readers of the change
        sequence see the removals.

        The remaining data is made consistent. A slot's value that a removed one had replaced holds again, and a
        corrected version is valid again (not for an item, as Forget). A derived item that also depends on remaining
        data leaves no tombstone. The progress on the sessions that it cites is set back, so that it is derived again.
        An item with other sources loses the erased one.

        In a later stage only late arrivals of a user, which `count_remaining` finds, are deleted. Data on hold stays,
        and so does data that may be new by a clock that is behind.

        OnHold, as in `begin`, if a hold exists by now and nothing is deleted yet: the erasure is over then.
        """

    def anonymize(self, id: str, notes: Mapping[str, Any] | None = None) -> Erasure:
        """Delete the names in the erasure and in the user's scopes: stage `anonymized`.

        A later write to such a scope starts an empty one. `notes`, if given, replace the stored notes.
        """

    def count_remaining(self, erasure: Erasure) -> Mapping[str, int]:
        """Count the rows that are left of what was erased, by kind. All are 0 after a complete erasure."""

    def complete(self, id: str, receipt: Mapping[str, Any]) -> AuditEntry:
        """Write the receipt to the audit log as "erase", store an ErasedSubject, and end the erasure.

        That of a user has the time of `begin`, or one before the names were deleted: the user may have come back
        since. That of a part has the time of `delete_rows`, or one before new data of it arrived. Everything written
        afterwards has a later time.
        """

    def running(self) -> list[Erasure]:
        """Return the running erasures, oldest first."""

    def erased(self, subject: Subject) -> ErasedSubject | None:
        """Return the last erasure of exactly this subject: an old copy of data recorded before it is kept out."""

    def all_erased(self) -> list[ErasedSubject]: ...

    def find_tombstoned(self, scope: Scope, texts: Sequence[str]) -> list[bool]:
        """Return for each text whether it was forgotten or erased in this scope, so that no import brings it back."""

    def replay(self, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        """Remove again what was erased or forgotten, in a store restored from an older copy under the same key.

        Return the removed rows by kind. Tombstones are (scope id, hash), as `tombstones` yields them.
        """

    def tombstones(self) -> Iterator[tuple[str, str]]:
        """Yield (scope id, hash), under the scope's own id even if a hold hides it."""

    def hold(self, subject: Subject, reason: str) -> Hold:
        """Add a hold on this user: removing any of the data raises OnHold until every reason is released.

        Nothing expires by itself meanwhile. A reason that exists changes nothing. InvalidInput if it is no code word.
        """

    def release(self, subject: Subject, reason: ReasonChoice = None) -> bool:
        """Release a reason, or several in one transaction. The last one ends the hold, and hidden data is shown again.

        False, and nothing changes, if one of them does not exist. Without a reason, the only one is released; Conflict
        if there are several.
        """

    def holds(self) -> list[Hold]:
        """Return the holds, by the users' keyed hashes. `users` has their names."""

    def users(self) -> list[Subject]:
        """Return every user with data here, even if a hold hides it, but none who is being erased."""

    def is_on_hold(self, scope: Scope) -> bool:
        """Return True if the scope's user has a hold: then nothing of the scope expires or is trimmed or pruned."""

    def copies(self) -> list[str]:
        """Return the paths of files next to the store that are copies of it and not its own.

        Only people remove them.
        """

    def raw(self) -> Iterator[bytes]:
        """Yield every readable byte of every file of the store, in overlapping pieces. A server yields none."""


@runtime_checkable
class Erasable(Protocol):
    """A server that holds a part of a memory and can erase a scope."""

    def known(self) -> list[Scope]:
        """Return every scope with data on the server, as far as it knows names."""

    def scopes(self, user: Subject) -> list[Scope]:
        """Return the scopes of exactly this user with data on the server, for any agent, as far as it knows names.

        The store of the items may have nothing of them.
        """

    def hold(self, user: Subject) -> None:
        """Start a hold: nothing of this user expires from now on."""

    def erase(self, scope: Scope) -> int:
        """Remove everything of this scope, and its names. Return how many keys or points were removed.

        An index that is fed from the items removes the points of deleted items in any scope instead. StoreError if some
        are left.
        """

    def count_remaining(self, scope: Scope) -> int:
        """Count the keys or points of this scope that are left."""

    def count_older(self, scope: Scope, before: datetime, back: bool) -> int:
        """Count the keys or points of this scope from before that moment.

        For a user who is `back`, or of whom the server has something later, only those that carry a time count; else
        all do. An index that is fed from the items counts the points of deleted items, in any scope.
        """


class AuditLog(Protocol):
    """An append-only log without content: counts, code words and keyed hashes.

    If one store has all the ports, this one is its `audit`. Forgetting writes its entry in the same transaction.
    """

    def append(self, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        """Append an entry, chained to the previous one whoever else appends at the same time. It is durable on return.

        `subject` is a keyed hash. InvalidInput if the details have anything but numbers and code words.
        """

    def entries(self, after: int, limit: int) -> list[AuditEntry]:
        """Return the entries with a higher number, in order."""

    def verify(self) -> AuditResult:
        """Detect an entry that was changed, removed, moved or cut off at the end."""
