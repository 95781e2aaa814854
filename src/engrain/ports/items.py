"""The contracts of items and of records, which frameworks keep by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Protocol, TypeVar

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Item, Vectors
from engrain.core.model.plans import Applied, Plan, Request
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
from engrain.core.model.records import Record, RecordKey, RecordScan, RecordWrite

Answer = TypeVar("Answer")


class ItemStore(Protocol):
    """The primary store: items, versions, lineage, tombstones. Every method stays inside the scope it is given.

    Safe to use from several threads. A time that is not given is now. Now never runs backwards in one store.
    """

    def apply(self, plan: Plan) -> Applied:
        """Apply all steps in one transaction, or raise an error and apply none.

        When it returns, the write is durable and every reader of the store sees it. The answer has one outcome per
        step, in order, and the number of its last change.

        A plan whose request id was applied before in this scope changes nothing and returns the first answer with
        `repeated`. It is a Conflict if it asks for something else than the first did. A plan that failed was not
        applied. Conflict if the session's length is not `expect`. OutcomeUnknown if the commit failed in a way that may
        have kept the write.

        Add: merges, versions or adds the draft as core.rules.reconcile decides. Two texts are the same if text, kind
        and relation are equal. The outcome is one of:
        - `added`.
        - `repeated`: the item keeps the higher importance and trust and the later expiry. It gets the source, if it is
          new, and the draft's metadata keys over its own. It stays the same otherwise.
        - `replaced`: others = the version it closed.
        - `behind`: the slot has a later value; others = the version it closed, if any.
        - `added` without a slot: a fact that would close one of higher trust is a claim, and its metadata names the
          slot.
        - `ends` names items that no longer hold: each is closed when the draft begins to hold, and counts among the
          others, unless it is closed, began later, is trusted more or is unknown (core.rules.reconcile.choose_ended).
        - `kept_out`: a derived draft whose text was forgotten in this scope; no id, no place.

        An Add whose own request id was applied before changes nothing and is `repeated`, with the first answer's id. A
        place without a number takes the session's next one, counting from 0. A place that a standing item holds with
        the same text is `repeated`, with another text a Conflict. Trust is the source's, and no more than that of any
        item it cites. Citing an unknown item is NotFound; a span outside its text is InvalidInput.

        Correct: retracts the old version and points it to the new one, which takes its kind, slot, place, validity, pin
        and, unless it has its own, `occurred_at` and `expires_at`: `replaced`, others = the old version. If the new
        text would merge with an open item, the old version points to that item: `repeated`. A derived draft whose text
        was forgotten is `kept_out`, and nothing changes.

        Change: `changed`. Change and Correct of an unknown or retracted item: NotFound.

        Forget: removes the item, the versions that corrections retracted on the way to it, everything that cites any of
        these, and so on (others).
        - It cuts the spans that the removed items cite out of the items that stay (marked): FORGOTTEN takes their
          place, the remaining words are indexed, the items lose their vectors, and other citations move with the text.
        - A citation without a span cuts the whole text, but only if it is the forgotten item's own or one of a version
          that it corrected. A summary cuts nothing, because it has no words of its own. Neither does a citation of 0:0,
          which is never outdated either.
        - An item that depends on cut words is removed too, with everything that cites it, and so on (others): it cites
          an overlapping span, the whole, or 0:0. Text that only such items cite is not cut.
        - An episode whose item is removed or cut is removed with its raw text, if episodes are in the same store.
        - Every removed text and span, and the former text of every cut item, leaves a tombstone (keyed hash, no text).
          A summary that was removed along leaves none: the remaining messages may be summarized in the same words.
          Nothing lifts a tombstone.
        - With `keep_source` nothing is cut. An unknown id is `missing`. With `unchanged_since` the step is `stale`, and
          nothing changes, if any item to remove changed after that number. Closed versions stay closed, and
          `replaced_by` may name a removed item.

        A plan with a `record` also finishes that step in the store's own task journal, in the same transaction. The
        result is the list of the outcomes' ids (JSON), in place of `end.result`. LeaseLost if the lease is stale. A
        step that is done changes nothing and answers from its recorded ids, all `repeated`; a failed or skipped one is
        a Conflict.

        A citation of `plans.refer_to_step(k)` means the item of the earlier step k. If that has no id or is gone, the
        step is `kept_out`. A Forget may name it too, and is then `missing`.

        `plan.episodes` are added in the same transaction, as by Episodes.add. They name items likewise, and take the
        item's id if they have none. An episode whose item has no id or is removed is left out; a `repeated` plan adds
        none. InvalidInput for an episode with neither id nor item, and for any episode in a store without episodes.

        Embed: replaces the item's vectors of that model: `changed`. `stale` if the hash is no longer the item's,
        `missing` if the item is removed.
        """

    def apply_many(self, plans: Sequence[Plan]) -> list[Applied | EngrainError]:
        """Apply each plan as `apply` does, of any scopes, and return the answer or the error of each, in order.

        A plan that fails changes nothing, and fails no other. Plans of one scope are applied in their order. When it
        returns, all answers are durable: a store may write many plans in one transaction.
        """

    def answer(self, scope: Scope, request: Request | None) -> Applied | None:
        """Return the first answer to a request, `repeated`; None if it was not answered, or there is no request.

        Conflict if the first asked for something else. It answers for plans with a request id too.
        """

    def once(self, scope: Scope, request: Request | None, do: Callable[[], Applied]) -> Applied:
        """Run `do` and store its answer under the request's id. All that `do` writes to this store is one transaction.

        A known request returns the first answer as `answer` does, and `do` is not called. `do` is run as by
        `in_transaction`. Without a request `do` is only called.
        """

    def in_transaction(self, do: Callable[[], Answer]) -> Answer:
        """Run `do`, and return its answer. All that it reads and writes in this store is one transaction.

        If `do` raises, nothing is written. It may be called twice, on another thread, and must neither embed nor call a
        server: others wait for it.
        """

    def drop_answers(self, before: datetime) -> int:
        """Forget requests of any scope that were answered before then: return how many. Repeated, they are new ones.

        The request ids of single Adds stay, and those of users on hold.
        """

    def current_time(self) -> int:
        """Return the store's current time, in microseconds.

        A plan that `began` at this moment raises BeingErased, and writes nothing, if an erasure of its user began
        since, or an erasure deleted the rows of a session or source that it adds to. So a write that was running during
        an erasure does not arrive after it.
        """

    def pin_snapshot(self) -> AbstractContextManager[None]:
        """Let the reads of this thread in the block see one snapshot, if the store can.

        Do not write, search or call a server in the block: an index may be newer than the snapshot, and a snapshot
        holds back the removal of old data.
        """

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        """Return the items in the order asked, including closed, corrected and expired ones.

        Unknown ids are left out.
        """

    def page(self, query: ListQuery) -> list[Item]:
        """Return at most `limit` items, starting after the item `after`, even if that one is removed."""

    def short_page(self, query: ListQuery) -> list[Item]:
        """Return the same as `page`, for a page of a few: a store may find them in memory."""

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        """Return the visible holders of the slots with this prefix, case-sensitive, by name (code points)."""

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        """Return the visible holder of the slot with exactly this name."""

    def history(self, scope: Scope, slot: str) -> list[Item]:
        """Return every version of a slot, oldest validity first, corrected ones included."""

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        """Return the versions that corrections retracted on the way to this item, newest first."""

    def count(self, query: ListQuery) -> int:
        """Count the items that `page` would return without a limit and from the start."""

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        """Return the visible items whose relation has this entity on either side, newest first.

        Names are compared without case and accents (core.text.tokenizer.fold_entity)."""

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        """Return what these items cite and what cites them, one step each way, visible or not.

        Each once, in no set order.
        """

    def speakers(self, scope: Scope) -> frozenset[str]:
        """Return the speakers of all items in this scope, visible or not."""

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        """Return these items, and their neighbours up to `reach` places away in the same session.

        Only visible ones that match the filter, each once, in no set order. An item that is not visible itself still
        has neighbours.
        """

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        """Return the newest `limit` visible items that match the filter and have any of these traits, newest first."""

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        """Return the spans of these items that are cited by replaced or corrected items, which no longer hold.

        In the order asked, then by span, once for each item that cites it. A citation without a span is the whole text.
        `now` and `by` are the text and id of the slot's current holder, or else of the last item in the chain of
        `replaced_by`; None if that is not visible.
        """

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        """Return the changes after `since`, in order. An item that changed twice may appear once, at its later number.

        An item changes when it is added, altered, closed, corrected, cut, embedded or removed, not when it is touched.

        A reader that has seen n never later meets an unseen change with a number ≤ n, whatever order writers commit in.
        """

    def scopes(self) -> list[Scope]:
        """Return every scope that was written to, in any order, except those being erased or hidden by a hold."""

    def removed(self) -> list[str]:
        """Return the ids of all forgotten or erased items that were not restored since, in all scopes.

        For maintenance.
        """

    def newest(self, scope: Scope) -> int:
        """Return the number that `changes` gives a reader who has seen all changes, without reading them."""

    def unembedded(self, model: str, limit: int) -> list[UnembeddedItem]:
        """Return items of any scope without vectors of this model, visible or not, oldest first.

        For maintenance only.
        """

    def vectors(self, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        """Return the stored vectors of this model, for those of these items that have some."""

    def touch(self, scope: Scope, ids: Sequence[str]) -> None:
        """Count a use of each known item, with its time.

        Not durable at once: `get_many` of this store sees it, and a later commit writes it.
        """

    def purge(self) -> bool:
        """Remove the bytes of forgotten data from every file. False if a reader still holds them: try again."""

    def outbox(self, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        """Return the changes that an outside index has not taken yet, in all scopes, oldest first.

        An item appears once, at its latest change. The first call for a target registers it, with the whole store to
        take.
        """

    def settle(self, target: str, seq: int) -> None:
        """Record that the target has taken everything up to seq. A smaller number than before changes nothing."""

    def status(self, model: str | None = None) -> StoreStatus:
        """Describe the store.

        `unembedded` counts the items without vectors of this model, or of any if none is named.
        """

    def check(self) -> list[Finding]:
        """Check the store itself: engine, schema, integrity, indexes, disk. Nothing fails in a healthy store."""

    def rebuild(self) -> int:
        """Rebuild the word index from the texts and drop vectors that no longer fit.

        Return the number of items read.
        """

    def close(self) -> None:
        """Write what is buffered. A second call does nothing; every other call then raises StoreClosed."""


def iterate_items(items: ItemStore, query: ListQuery) -> Iterator[Item]:
    """Yield all items of a query, in pages of its limit."""
    while page := items.page(query):
        yield from page
        query = replace(query, after=page[-1].id)


class Records(Protocol):
    """Bodies of bytes under (scope, space, key). If one store has all the ports, this one is its `records`.

    A key has several parts and orders part by part, by code point. A prefix is the first parts of keys. An expired
    record reads as if it did not exist. A record of the space ATTACHMENTS is removed together with the item whose id is
    the first part of its key, or when all words of that item are forgotten. Input has been checked
    (core.model.records).
    """

    def write(self, scope: Scope, write: RecordWrite) -> None:
        """Drop everything under the prefixes in `drops`, then put the drafts, in one transaction.

        A put replaces the body and counts as a new writing. With `keep`, a record that exists stays as it is.
        Conflict, and nothing changes, if the record of an expected key has another hash, or exists where None is
        expected. OnHold if records would be dropped under a hold; a put is written.
        """

    def read(self, scope: Scope, space: str, keys: Sequence[RecordKey]) -> list[Record]:
        """Return the records of these keys, in the order of the keys. A key without a record is left out."""

    def scan(self, scope: Scope, scan: RecordScan) -> list[Record]:
        """Return the records under a prefix by key, or with "newest" in the order of writing, newest first.

        With `after`, go on behind the record of this key. With "newest", NotFound if that record is gone.
        """

    def keys(self, scope: Scope, scan: RecordScan) -> list[RecordKey]:
        """Return the keys under a prefix, ascending, without reading bodies. With `after`, those behind this key."""

    def drop(self, scope: Scope, space: str, prefix: RecordKey = ()) -> int:
        """Drop everything under a prefix, and return how many records there were.

        Their bytes go with the next purge. OnHold under a hold.
        """

    def find(self, tenant: str | None, space: str, prefix: RecordKey) -> list[Scope]:
        """Return the tenant's scopes that have records under a prefix. For operators: it crosses scopes."""

    def count(self, scope: Scope | None = None) -> int:
        """Count the records of a scope in all spaces, or those of the store. Expired ones count until they are gone."""

    def expired(self, scope: Scope, now: datetime) -> list[tuple[str, RecordKey, datetime]]:
        """Return the space, the key and the end of each record of a scope whose time is over; none under a hold."""

    def expire(self, now: datetime) -> int:
        """Remove the records of all scopes whose time is over, but none under a hold. Return how many there were."""
