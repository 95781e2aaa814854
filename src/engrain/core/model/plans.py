"""Plans of writes that a store applies in one transaction, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Draft, Vectors
from engrain.core.model.sessions import EpisodeDraft
from engrain.core.validation import check_key

if TYPE_CHECKING:
    from engrain.core.model.tasks import StepWrite

NO_CHANGE = -1  # the change number of an answer that is no plan's
OutcomeStatus = Literal[
    "added", "repeated", "replaced", "behind", "kept_out", "changed", "forgotten", "missing", "stale"
]


@dataclass(frozen=True, slots=True)
class Add:
    """A draft to store. With a request id it is applied once in its scope, whatever plan it comes in."""

    draft: Draft
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Correct:
    """The old version was never true: the draft takes its slot, place and validity."""

    id: str
    draft: Draft


@dataclass(frozen=True, slots=True)
class Change:
    """Values that change without a new version. None leaves a value as it is."""

    id: str
    importance: float | None = None
    pinned: bool | None = None
    metadata: Mapping[str, Any] | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove an item, everything derived from it, the spans that it cites, and whatever else cites them.

    With `keep_source` the cited spans stay in the log, and so does what else cites them. `unchanged_since` is a number
    of the change sequence: if anything to remove was changed after it, nothing is removed and the step is `stale`.
    """

    id: str
    keep_source: bool = False
    unchanged_since: int | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """Set the vectors of an item's text. `stale` if the text has changed since (`hash` is the store's own)."""

    id: str
    hash: str
    vectors: Vectors


Step = Add | Correct | Change | Forget | Embed


@dataclass(frozen=True, slots=True)
class Request:
    """A write that may be repeated: its first answer is stored under its id, and a repeat must ask for the same."""

    id: str
    asked: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps that are applied together or not at all.

    Repeating a request id returns the first answer. A plan without steps only asks for it. Conflict if the repeated
    plan asks for something else: compared by `asked`, or by the steps if it is None.
    """

    scope: Scope
    steps: tuple[Step, ...]
    request_id: str | None = None
    expect: tuple[str, int] | None = None  # a session and the length that it must have, else Conflict
    # A session and its summary's version, 0 for none, else Conflict: nothing was forgotten there since it was read.
    summary_version: tuple[str, int] | None = None
    record: StepWrite | None = None  # a step of a durable task, recorded in the same transaction
    episodes: tuple[EpisodeDraft, ...] = ()  # only for a store that holds episodes too
    # The store's `current_time` before anything of the plan was read: BeingErased if its owner was erased since.
    began: int | None = None
    asked: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one step. `others` are items that it replaced or also removed; `marked` are items that it cut."""

    id: str | None
    status: OutcomeStatus
    others: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The answer to a plan, or to another write that was requested with an id. `value` is plain JSON without text."""

    outcomes: tuple[Outcome, ...] = ()
    seq: int = NO_CHANGE
    repeated: bool = False
    value: Any = None


def refer_to_step(step: int) -> str:
    """Return a placeholder for the item that step `step` of the same plan adds.

    A later cite, a later Forget and an episode's item may use it.
    """
    return f"#{step}"


def resolve_references(draft: Draft, known_ids: Mapping[str, str | None]) -> Draft | None:
    """Return the draft with ids in place of the placeholders in its cites; None if one has no id."""
    ids = [known_ids.get(cite.item, cite.item) for cite in draft.source.cites]
    if None in ids:
        return None
    cites = (Citation(id or "", cite.start, cite.end) for id, cite in zip(ids, draft.source.cites, strict=True))
    return replace(draft, source=replace(draft.source, cites=tuple(cites)))


def make_request(request_id: str | None, *asked: object) -> Request | None:
    """Check a request id. `asked` is all that the caller passed; stores keep a keyed hash of it."""
    return None if request_id is None else Request(check_key(request_id, "request_id"), repr(asked))


def describe_request(steps: tuple[Step, ...]) -> str:
    """Describe the steps in one text, the same for every repeat of a request. Stores keep a keyed hash of it."""
    return "\x1e".join(_describe_step(step) for step in steps)


def _describe_step(step: Step) -> str:
    if isinstance(step, Change):
        return repr((step.id, step.importance, step.pinned, step.expires_at))
    if not isinstance(step, (Add, Correct)):
        return repr((type(step).__name__, step.id))
    draft = step.draft
    of = step.id if isinstance(step, Correct) else ""
    return repr((of, draft.kind, draft.slot, draft.position, draft.occurred_at, draft.relation, draft.text))


def repeat_outcome(first: Outcome) -> Outcome:
    """Return the outcome of an Add that was applied before."""
    return Outcome(first.id, "repeated", place=first.place)
