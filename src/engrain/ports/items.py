"""The contract of the store that holds the truth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Item, Vectors
from engrain.core.model.plans import Applied, Plan
from engrain.core.model.queries import (
    Changes,
    Finding,
    ItemCitation,
    ListQuery,
    OutboxEntry,
    OutdatedSpan,
    Sketch,
    SketchQuery,
    StoreStatus,
    UnembeddedItem,
)


class ItemStore(Protocol):
    """The truth: items, versions, lineage, tombstones. Every method stays inside the scope it is given.

    Safe to use from several threads. A time that is not given is now; now never runs backwards in one store.
    """

    def apply(self, plan: Plan) -> Applied:
        """All steps in one transaction, or none and an error.

        When it returns, the write is durable and every reader of the store sees it. The answer has one outcome per
        step, in order, and the number of its last change. A plan whose request id was applied before in this scope
        changes nothing and returns the first answer with `repeated`, or is a Conflict if it asks for something else
        than the first did; one that failed was not applied. A session that
        is not as long as `expect` says: Conflict. Raises OutcomeUnknown if the commit failed in a way that may have
        kept the write.

        Add: merged, versioned or added as core.reconcile decides, where two texts are the same if text, kind and
        relation are equal: `added`; `repeated` (keeps the higher importance and trust and the later expiry, adds the
        source if it is new, takes the metadata's keys over the old ones, and leaves the rest); `replaced` (others = the
        version it closed); `behind` (a later value of the slot stands; others = the version it closed, if any).
        An Add whose own request id was applied before changes nothing and is `repeated`, with the first answer's id.
        A derived draft whose text was forgotten in this scope is `kept_out`: no id, no place. A place without a number
        takes the session's next one, counting from 0; a place that a standing item holds with the same text is
        `repeated`, with another it is a Conflict. Trust is the source's, and no more than that of any item it cites;
        citing an unknown item is NotFound, a span that is not inside its text is InvalidInput.
        Correct: the old version is retracted and points to the new one, which takes its kind, slot, place, validity,
        pin and, unless it has its own, `occurred_at` and `expires_at`: `replaced`, others = the old version. If the new
        text would merge with an open item, the old one points to that: `repeated`. A derived draft whose text was
        forgotten is `kept_out`, and nothing changes.
        Change: `changed`. Change and Correct of an unknown or retracted item: NotFound.
        Forget: removes the item, the versions that corrections took away on the way to it, what cites any of these, and
        so on (others); cuts the spans that the removed items cite out of the items that stay (marked), puts FORGOTTEN
        in their place, indexes the words of what is left, drops those items' vectors and moves the other cites with
        their text. A cite without a span cuts the whole text, but only if it is the forgotten item's own or one of a
        version that it corrected. A summary cuts nothing: it has no words of its own to take back, and no more has a
        cite of 0:0, which is never outdated either. An item that rests on words that are cut is removed with them, and
        with what cites it, and so on (others): it cites a span that overlaps, the whole, or 0:0; what only such items
        cite is not cut. An episode whose item is removed or cut goes with its raw text, where episodes are in the same
        store. Leaves a tombstone (keyed hash, no text) of every text and span removed and of every text that was cut,
        as it was, but none of a summary that went along: what is left may be summed up in the same words. Nothing lifts
        a tombstone. With `keep_source` nothing is cut. An unknown id is `missing`. With `unchanged_since` it is
        `stale`, and nothing changes, if any item that would go changed after that number. Closed versions stay closed,
        and `replaced_by` may name one that is gone.
        A plan with a `record` also finishes that step in the store's own task journal, in the same transaction, with
        the list of the outcomes' ids (JSON) as the result in place of `end.result`: LeaseLost if the lease is stale; a
        step that is done already changes nothing and answers from its recorded ids, all `repeated`; one that is failed
        or skipped is a Conflict.
        A cite of `core.plans.own(k)` is one of the item that step k, an earlier one, gave; if that has no id or is
        gone, the step is `kept_out`; so may a Forget name it, which is then `missing`. `plan.episodes` are added in the
        same transaction as by Episodes.add, their items named likewise and their ids the item's where they have none;
        one whose item has no id or is gone is left out, and so are all in a plan that is `repeated`. One with neither
        id nor item is InvalidInput, and so is any in a store without episodes.
        Embed: replaces the item's vectors of that model: `changed`; `stale` if the hash is no longer the item's,
        `missing` if the item is gone.
        """

    def moment(self) -> int:
        """How far the store's time has come, in microseconds. A plan that `began` then is BeingErased, and nothing of
        it is kept, if an erasure began since of its user, or took the rows of a session or source that it adds to: what
        was on its way when somebody was erased does not come in afterwards."""

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        """In the order asked, closed, corrected and expired ones too; unknown ones are left out."""

    def page(self, query: ListQuery) -> list[Item]:
        """At most `limit` of them, from after the item `after` on, even if that one is gone."""

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        """The visible items that hold the slots whose name starts with the prefix, case and all, by name (code
        points)."""

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        """The visible item that holds the slot of exactly this name."""

    def history(self, scope: Scope, slot: str) -> list[Item]:
        """Every version of a slot, oldest validity first, corrected ones included."""

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        """The versions that corrections took away and that led to this item, newest first."""

    def count(self, query: ListQuery) -> int:
        """How many items `page` would give without a limit and from the start."""

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        """The visible items with a relation that has this entity on either side (casefold), newest first."""

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        """What these items cite, and what cites them, one step each way, visible or not; each once, in no set order."""

    def speakers(self, scope: Scope) -> frozenset[str]:
        """Who has spoken in this scope: the speakers of all its items, visible or not."""

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        """These items, and their neighbours up to `reach` places away in the same session; those that are visible
        and match, each once, in no set order. An item that is not visible itself still has neighbours."""

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        """The newest visible items that have any of these traits and match, newest first."""

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        """The spans of these items that are cited by items which were replaced or corrected and no longer hold.

        In the order asked, then by span, once for each item that cites it; a cite without a span is all of the text.
        `now` is the text of the slot's present holder, or else of the last item in the chain of `replaced_by`, None if
        that is not visible."""

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        """What changed after `since`, in order; an item that changed twice may appear once, at its later number.

        An item changes when it is added, altered, closed, corrected, cut, embedded or removed, not when it is touched.

        A reader that has seen n never later meets an unseen change with a number ≤ n, whatever order writers commit in.
        """

    def scopes(self) -> list[Scope]:
        """Every memory of this store that something was written to and that is not shut, in any order."""

    def removed(self) -> list[str]:
        """The ids of all items that went, forgotten or erased, in whatever scope, and were not restored since. For
        upkeep."""

    def newest(self, scope: Scope) -> int:
        """The number that `changes` gives a reader who has seen all of them, without looking through them."""

    def unembedded(self, model: str, limit: int) -> list[UnembeddedItem]:
        """Visible or not, items of any scope without vectors of this model, oldest first. For upkeep, not for callers
        who are inside a scope."""

    def vectors(self, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        """The stored vectors of those of these items that have some of this model."""

    def touch(self, scope: Scope, ids: Sequence[str]) -> None:
        """Count a use of each that is known, with its time. Not durable at once: seen by `get_many` of this store,
        written with a later commit."""

    def purge(self) -> bool:
        """Remove the bytes of what was forgotten from every file. False if a reader still holds them: try again."""

    def outbox(self, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        """What an outside index has still to take, in all scopes, oldest first, an item once at its latest change.

        The first call for a target registers it: everything that is in the store is still to take."""

    def settle(self, target: str, seq: int) -> None:
        """The target has taken everything up to seq; a smaller one than before changes nothing."""

    def status(self, model: str | None = None) -> StoreStatus:
        """`unembedded` counts the items without vectors of this model, or with none of any if no model is named."""

    def check(self) -> list[Finding]:
        """Look at the store itself: engine, schema, integrity, indexes, disk. Nothing fails in a healthy store."""

    def rebuild(self) -> int:
        """Make the word index anew from the texts and drop vectors that no longer fit; the number of items seen."""

    def close(self) -> None:
        """Write what is buffered. A second call does nothing; every other call then raises StoreClosed."""
