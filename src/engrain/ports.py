"""The contracts between engrain and its backends, each stated once and tested in engrain.conformance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from engrain.core.clock import Clock
from engrain.core.embedding import EmbeddingModel, EmbedKind
from engrain.core.items import Draft, Item, Vectors
from engrain.core.journal import Claim, Lease, StepEnd, StepRecord, StepStart, TaskEnd, TaskQuery, TaskRecord
from engrain.core.plans import Applied, Plan
from engrain.core.queries import (
    Changes,
    Completion,
    Episode,
    Finding,
    ItemChange,
    Lineage,
    ListQuery,
    Matches,
    Nearest,
    OutboxEntry,
    Outdated,
    Prompt,
    Sketch,
    SketchQuery,
    StoreStatus,
    Summary,
    Unembedded,
    VectorQuery,
    WordHit,
    WordQuery,
)
from engrain.core.scope import Scope
from engrain.core.tokens import CountTokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]


__all__ = [
    "Changes",
    "Completion",
    "Embedder",
    "Episode",
    "Episodes",
    "Finding",
    "ItemChange",
    "ItemStore",
    "Kit",
    "Lineage",
    "ListQuery",
    "Matches",
    "Model",
    "Nearest",
    "OutboxEntry",
    "Outdated",
    "Prompt",
    "SessionLog",
    "Sketch",
    "SketchQuery",
    "StoreStatus",
    "Summary",
    "TaskJournal",
    "Unembedded",
    "VectorIndex",
    "VectorQuery",
    "WordHit",
    "WordIndex",
    "WordQuery",
]


# Items


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
        their text. A cite without a span cuts the whole text, but only if it is the forgotten item's own. Leaves a
        tombstone (keyed hash, no text) of every text and span removed and of every text that was cut, as it was;
        nothing lifts a tombstone. With `keep_source` nothing is cut.
        An unknown id is `missing`. Closed versions stay closed, and `replaced_by` may name an item that is gone.
        A plan with a `record` also finishes that step in the store's own task journal, in the same transaction, with
        the list of the outcomes' ids (JSON) as the result in place of `end.result`: LeaseLost if the lease is stale; a
        step that is done already changes nothing and answers from its recorded ids, all `repeated`; one that is failed
        or skipped is a Conflict.
        Embed: replaces the item's vectors of that model: `changed`; `stale` if the hash is no longer the item's,
        `missing` if the item is gone.
        """

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        """In the order asked, closed, corrected and expired ones too; unknown ones are left out."""

    def page(self, query: ListQuery) -> list[Item]:
        """At most `limit` of them, from after the item `after` on, even if that one is gone."""

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        """The visible items that hold the slots whose name starts with the prefix, case and all, by name (code
        points)."""

    def history(self, scope: Scope, slot: str) -> list[Item]:
        """Every version of a slot, oldest validity first, corrected ones included."""

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        """The versions that corrections took away and that led to this item, newest first."""

    def count(self, query: ListQuery) -> int:
        """How many items `page` would give without a limit and from the start."""

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        """The visible items with a relation that has this entity on either side (casefold), newest first."""

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[Lineage]:
        """What these items cite, and what cites them, one step each way, visible or not; each once, in no set order."""

    def speakers(self, scope: Scope) -> frozenset[str]:
        """Who has spoken in this scope: the speakers of all its items, visible or not."""

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        """These items, and their neighbours up to `reach` places away in the same session; those that are visible
        and match, each once, in no set order. An item that is not visible itself still has neighbours."""

    def having(self, scope: Scope, traits: int, limit: int, at: datetime | None) -> list[str]:
        """The newest visible items that have any of these traits, newest first."""

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[Outdated]:
        """The spans of these items that are cited by items which were replaced or corrected and no longer hold.

        In the order asked, then by span, once for each item that cites it; a cite without a span is all of the text.
        `now` is the text of the slot's present holder, or else of the last item in the chain of `replaced_by`, None if
        that is not visible."""

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        """What changed after `since`, in order; an item that changed twice may appear once, at its later number.

        An item changes when it is added, altered, closed, corrected, cut, embedded or removed, not when it is touched.

        A reader that has seen n never later meets an unseen change with a number ≤ n, whatever order writers commit in.
        """

    def unembedded(self, model: str, limit: int) -> list[Unembedded]:
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


# Search


class VectorIndex(Protocol):
    def nearest(self, query: VectorQuery) -> Nearest:
        """Best first, cosine in -1..1, ties by newer id first; an item with several vectors counts with its best.

        Filter and validity apply before the limit. Never crosses the scope. Sees every write acknowledged before
        the call, of this and of other processes. `background` is the mean over every vector of the model that passes
        filter and validity, each counted, right to about .02; None if there is none, or in an index that does not see
        them all.
        """

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        """The cosine of each of these items, nan where it is not visible or has no vector of the model; filter and
        limit play no part."""


class WordIndex(Protocol):
    def best(self, query: WordQuery) -> Matches:
        """Items with at least one of the terms, best BM25 first (core.bm25), ties by newer id first.

        Filter and validity apply before the limit. Nothing outside the scope changes an order or a number.
        """

    def counts(self, query: WordQuery, ids: Sequence[str]) -> Matches:
        """The same for these items, in the order asked; one that is not visible or has none of the terms is left out.
        Filter and limit play no part."""


class Embedder(Protocol):
    @property
    def model(self) -> EmbeddingModel: ...

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        """One row per text, float32, unit length. The same text gives the same row whatever its neighbours are. A long
        text is cut at the model's limit, never refused."""

    def windows(self, text: str) -> list[str]:
        """The pieces of a text to embed, each a substring within the model's limit, in order; a short text is one."""


# Sessions


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
        """None if there is none. Forgetting or cutting an item before its `upto` drops it."""

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        """Stores it if its version is one more than the stored one's (1 for the first), else Conflict."""


class Episodes(Protocol):
    """Where one store has all the ports, this one is its `episodes`."""

    def add(self, scope: Scope, episode: Episode) -> None:
        """An id that is there already in this scope is replaced, in whatever session it was."""

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        """At most n, newest first (happened_at, then id), of one session or of all; never one whose expires_at is not
        after now."""

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        """How many of them were there."""

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        """Keep the newest (happened_at, then id) of a session; how many went."""

    def expire(self, now: datetime) -> int:
        """Remove what has expired, in every scope; how many went. Never early."""


# Durable tasks


class TaskJournal(Protocol):
    """Tasks and their steps. Leases are judged by the store's clock; every write carries the lease's epoch and worker,
    which are checked inside the transaction that writes: a stale one raises LeaseLost and changes nothing, and so does
    one that was given back, or whose task was pruned. A lease that ran out and that nobody has taken over since still
    writes. Where one store has all the ports, this one is its `journal`."""

    def claim(self, claim: Claim) -> Lease:
        """A new task, or one whose lease has run out or was released: it is `running`, the epoch rises by one; goal,
        version and deadline stay those of the first claim. A lease held by the worker that the claim calls `dead` has
        run out. TaskClaimed names the worker that holds it; a finished task is returned with a
        lease whose `status` says so and that cannot write."""

    def extend(self, lease: Lease, seconds: float) -> Lease:
        """The lease lasts so long from now."""

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        """Records the intent, under the lease's epoch. A step that is already there is returned as it stands, with
        nothing changed, unless `start.attempt` is one more than its attempt: then it begins again, but never once it
        is done or skipped."""

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        """Records the outcome of a step that was begun; NotFound if it was not. One that is settled (neither intent nor
        ambiguous) stays: the same outcome again changes nothing, another is a Conflict."""

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        """begin and finish in one transaction, for a step whose beginning nobody needs to know. One that is settled
        already is returned as it stands; one that begins with this began `end.took` seconds ago."""

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        """Sets the task's status and outcome and gives the lease back. `ended_at` is set for a status in ENDED."""

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        """In the order they first began."""

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        """None if there is none, or it was pruned."""

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        """Newest start first."""

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        """Settles an ambiguous or intended step by a person's or a probe's word, with no lease; Conflict if it is
        settled already, NotFound if it was never begun, TaskClaimed if it is an intent and a lease on its task has not
        run out: somebody may be doing it right now."""

    def keep(self, lease: Lease, snapshot: str) -> None:
        """Stores the task's working memory, in place of what was kept before."""

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        """Delivers an event to a task, which need not have begun; False if an event of that name is there already."""

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        """The payload of an event that was delivered; None if it was not."""

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        """Parks, cancels or ends a task by a person's word, with no lease: the epoch rises, so that a worker that
        still runs it is fenced off. NotFound if there is no such task, Conflict if it has ended."""

    def expire(self, now: datetime) -> list[TaskRecord]:
        """Unfinished tasks of any scope whose deadline is not after now become "expired": their leases write no more,
        their steps are kept; which ones."""

    def prune(self, before: datetime) -> int:
        """Remove tasks of any scope that ended before then, with their steps and events; how many. Never one that has
        not ended."""


# Language models


class Model(Protocol):
    def complete(self, prompt: Prompt) -> Completion:
        """ModelFailed if there is no answer within the time-out and the retries."""


@dataclass(frozen=True, slots=True)
class Kit:
    """The ports of one opened memory. What a deployment does not have is None."""

    items: ItemStore
    vectors: VectorIndex
    words: WordIndex
    log: SessionLog
    embedder: Embedder
    clock: Clock
    count_tokens: CountTokens
    episodes: Episodes | None = None
    journal: TaskJournal | None = None
    model: Model | None = None
