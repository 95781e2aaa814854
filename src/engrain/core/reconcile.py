"""Decide whether a new text repeats, replaces or stands beside what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from engrain.core.items import Draft


@dataclass(frozen=True, slots=True)
class Version:
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


def mergeable(draft: Draft) -> bool:
    """With no slot, no date and no place, the same words are the same item."""
    return draft.slot is None and draft.occurred_at is None and draft.place is None


def reconcile(draft: Draft, hash: str, now: datetime, stored: Sequence[Version]) -> Decision:
    """`stored`: for a slot, all its versions; for a mergeable draft, the open item of the same hash."""
    begins = draft.occurred_at or now
    if draft.slot is None:
        # Only a slot's value can be due in future: a turn stamped by a clock that runs ahead must be found at once.
        begins = min(begins, now)
        same = next((one for one in stored if one.hash == hash and one.valid_to is None), None)
        if mergeable(draft) and same:
            return Decision("repeat", same.valid_from, repeats=same.id)
        return Decision("add", begins)
    return _in_slot(hash, begins, sorted(stored, key=_order))


def _order(one: Version) -> tuple[datetime, bool, datetime, str]:
    """Of those that began in one instant, the one that still holds comes last: ids of two processes are in no order."""
    return one.valid_from, one.valid_to is None, one.valid_to or one.valid_from, one.id


def _in_slot(hash: str, begins: datetime, versions: Sequence[Version]) -> Decision:
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
