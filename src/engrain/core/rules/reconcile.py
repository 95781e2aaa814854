"""Decide whether a new item is added, repeats a stored one or replaces the value of its slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from engrain.core.model.items import Draft
from engrain.core.validation import check_metadata

CLAIM_KEY = "claims"  # metadata: the slot that a less trusted source wanted to fill


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A stored version, as `reconcile` needs it. Retracted versions are left out."""

    id: str
    hash: str
    valid_from: datetime
    valid_to: datetime | None
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class Decision:
    """Add the draft with this validity and close `closes` at `valid_from`; or the draft repeats `repeats`."""

    action: Literal["add", "repeat"]
    valid_from: datetime
    valid_to: datetime | None = None
    closes: str | None = None
    replaced_by: str | None = None
    repeats: str | None = None


def is_mergeable(draft: Draft) -> bool:
    """Tell if equal words are the same item: there is no slot, no date and no place."""
    return draft.slot is None and draft.occurred_at is None and draft.position is None


def reconcile(draft: Draft, hash: str, now: datetime, stored: Sequence[StoredVersion]) -> Decision:
    """Decide whether a draft is new, repeats a stored version or replaces one.

    `stored` has all versions of a slot, or the open item of the same hash for a mergeable draft.
    """
    begins = draft.occurred_at or now
    if draft.slot is None:
        # Only a slot's value may begin in the future: a message with a time slightly ahead must be found at once.
        begins = min(begins, now)
        same = next((one for one in stored if one.hash == hash and one.valid_to is None), None)
        if is_mergeable(draft) and same:
            return Decision("repeat", same.valid_from, repeats=same.id)
        return Decision("add", begins)
    return _reconcile_slot(hash, begins, sorted(stored, key=_sort_key))


def make_claim(draft: Draft, trust: float, decision: Decision, stored: Sequence[StoredVersion]) -> Draft | None:
    """Return the draft without its slot if it would replace a fact that is trusted more; else None.

    The claim stands beside the fact. Its metadata names the slot.
    """
    if draft.kind != "fact" or decision.closes is None:
        return None
    closed = next(one for one in stored if one.id == decision.closes)
    if closed.trust <= trust:
        return None
    return replace(draft, slot=None, metadata={**draft.metadata, CLAIM_KEY: draft.slot})


def merge_metadata(stored: Mapping[str, Any], repeated: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of an item that is stored again: of a name that both have, the new value counts."""
    return check_metadata({**stored, **repeated})


def choose_ended(begins: datetime, trust: float, named: Sequence[StoredVersion]) -> tuple[str, ...]:
    """Return which of the items that a draft names as ended it may close when it begins to hold.

    It closes none that is closed already, began later or is trusted more.
    """
    return tuple(one.id for one in named if one.valid_to is None and one.valid_from <= begins and one.trust <= trust)


def _sort_key(one: StoredVersion) -> tuple[datetime, bool, datetime, str]:
    """Sort the open version last among those that began in one instant: ids of two processes have no order."""
    return one.valid_from, one.valid_to is None, one.valid_to or one.valid_from, one.id


def _reconcile_slot(hash: str, begins: datetime, versions: Sequence[StoredVersion]) -> Decision:
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
