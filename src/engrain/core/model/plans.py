"""What a store is asked to do in one transaction, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Draft, Vectors
from engrain.core.model.sessions import EpisodeDraft
from engrain.core.model.tasks import StepWrite

OutcomeStatus = Literal[
    "added", "repeated", "replaced", "behind", "kept_out", "changed", "forgotten", "missing", "stale"
]


@dataclass(frozen=True, slots=True)
class Add:
    """With a request id of its own it is applied once in the scope, whatever plan it comes in."""

    draft: Draft
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Correct:
    """The old version was never so: the draft takes its slot, place and validity."""

    id: str
    draft: Draft


@dataclass(frozen=True, slots=True)
class Change:
    """What may change without making a new version. None leaves a value as it is."""

    id: str
    importance: float | None = None
    pinned: bool | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove an item, all that was derived from it, the spans that it cites, and what else rests on them.

    With `keep_source` the cited spans stay in the log, and what rests on them stays too. With `unchanged_since`, a
    number of the change sequence, nothing goes if any of it was added or changed after that: it is `stale`.
    """

    id: str
    keep_source: bool = False
    unchanged_since: int | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """Give an item the vectors of its text; `stale` if the text has changed since (`hash` is the store's own)."""

    id: str
    hash: str
    vectors: Vectors


Step = Add | Correct | Change | Forget | Embed


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps that happen together or not at all. Repeating a request id returns the first answer; a plan without steps
    only asks for it, and one that asks for something else is a Conflict."""

    scope: Scope
    steps: tuple[Step, ...]
    request_id: str | None = None
    # The position that a session must have, or the plan is refused with Conflict.
    expect: tuple[str, int] | None = None
    # The version that a session's summary must have, 0 for none: so nothing was forgotten there since that was read.
    summary_version: tuple[str, int] | None = None
    # A step of a durable task whose record is written in the same transaction.
    record: StepWrite | None = None
    # What happened, kept in the same transaction by a store that holds episodes too; for no other.
    episodes: tuple[EpisodeDraft, ...] = ()
    # The store's `moment` before anything of this was read or made: BeingErased if what it belongs to was erased since.
    began: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step. `others` are the items it replaced, or removed besides its own; `marked` are those
    that stay and had a span cut out."""

    id: str | None
    status: OutcomeStatus
    others: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    outcomes: tuple[Outcome, ...]
    seq: int
    repeated: bool = False


def refer_to_step(step: int) -> str:
    """Stands for the item that step `step` of the same plan adds, in a later step's cite, in a later Forget or in an
    episode's item."""
    return f"#{step}"


def resolve_references(draft: Draft, given: Mapping[str, str | None]) -> Draft | None:
    """The draft with the ids that stand for what it cites of its own plan; None if there is no id for one of them."""
    ids = [given.get(cite.item, cite.item) for cite in draft.source.cites]
    if None in ids:
        return None
    cites = (Citation(id or "", cite.start, cite.end) for id, cite in zip(ids, draft.source.cites, strict=True))
    return replace(draft, source=replace(draft.source, cites=tuple(cites)))


def describe_request(steps: tuple[Step, ...]) -> str:
    """What is asked for, as one text: the same for every repeat of a request. Stores keep a keyed hash of it."""
    return "\x1e".join(_gist(step) for step in steps)


def _gist(step: Step) -> str:
    if isinstance(step, Change):
        return repr((step.id, step.importance, step.pinned))
    if not isinstance(step, (Add, Correct)):
        return repr((type(step).__name__, step.id))
    draft = step.draft
    of = step.id if isinstance(step, Correct) else ""
    return repr((of, draft.kind, draft.slot, draft.place, draft.occurred_at, draft.relation, draft.text))


def repeat_outcome(first: Outcome) -> Outcome:
    """The answer to an Add that was applied before."""
    return Outcome(first.id, "repeated", place=first.place)


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """What a store must show of a stored item for the decision. Retracted versions are not shown."""

    id: str
    hash: str
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    """add it with this validity, closing `closes` at `valid_from`; or it repeats `repeats`."""

    action: Literal["add", "repeat"]
    valid_from: datetime
    valid_to: datetime | None = None
    closes: str | None = None
    replaced_by: str | None = None
    repeats: str | None = None


def is_mergeable(draft: Draft) -> bool:
    """With no slot, no date and no place, the same words are the same item."""
    return draft.slot is None and draft.occurred_at is None and draft.place is None


def reconcile(draft: Draft, hash: str, now: datetime, stored: Sequence[StoredVersion]) -> Decision:
    """`stored`: for a slot, all its versions; for a mergeable draft, the open item of the same hash."""
    begins = draft.occurred_at or now
    if draft.slot is None:
        # Only a slot's value can be due in future: a turn stamped by a clock that runs ahead must be found at once.
        begins = min(begins, now)
        same = next((one for one in stored if one.hash == hash and one.valid_to is None), None)
        if is_mergeable(draft) and same:
            return Decision("repeat", same.valid_from, repeats=same.id)
        return Decision("add", begins)
    return _in_slot(hash, begins, sorted(stored, key=_order))


def _order(one: StoredVersion) -> tuple[datetime, bool, datetime, str]:
    """Of those that began in one instant, the one that still holds comes last: ids of two processes are in no order."""
    return one.valid_from, one.valid_to is None, one.valid_to or one.valid_from, one.id


def _in_slot(hash: str, begins: datetime, versions: Sequence[StoredVersion]) -> Decision:
    # Slots order by when a value began to hold, not by arrival: a late import closes nothing that came after it.
    earlier = [one for one in versions if one.valid_from <= begins]
    later = [one for one in versions if one.valid_from > begins]
    before = earlier[-1] if earlier else None
    after = later[0] if later else None
    if before and before.hash == hash and (before.valid_to is None or begins < before.valid_to):
        return Decision("repeat", before.valid_from, repeats=before.id)
    return Decision(
        "add",
        begins,
        valid_to=after.valid_from if after else None,
        closes=before.id if before and (before.valid_to is None or begins < before.valid_to) else None,
        replaced_by=after.id if after else None,
    )
