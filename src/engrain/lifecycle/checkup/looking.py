"""What a point of the checklist is given to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from engrain.core.audit import Audited
from engrain.core.checked import Group, Verdict
from engrain.core.items import Item
from engrain.core.queries import Finding, ListQuery, StoreStatus
from engrain.core.scope import Scope
from engrain.ports import Kit
from engrain.ports.deployed import Deployed

NEWEST = 500  # items that are read for what their texts say
READ = 20_000  # characters of each
RECENT = 5_000  # entries of the audit log


class Look:
    """An opened memory. What several points ask for is asked once; nothing is changed."""

    def __init__(self, kit: Kit, scope: Scope, background: Mapping[str, Any] | None = None) -> None:
        self.kit = kit
        self.scope = scope
        self.now: datetime = kit.clock()
        # What goes on beside, as `status` shows it: in this process only.
        self.background = background or {}
        self.verdicts: dict[str, Verdict] = {}  # of the points before, by name

    @cached_property
    def store(self) -> StoreStatus:
        return self.kit.items.status(self.kit.embedder.model.key)

    @cached_property
    def newest(self) -> list[Item]:
        return self.kit.items.page(ListQuery(self.scope, limit=NEWEST))

    @cached_property
    def audited(self) -> Audited | None:
        return self.kit.audit.verify() if self.kit.audit else None

    def last(self, what: str) -> datetime | None:
        """When this was last done, as the audit log has it; None if that is long ago, or never was."""
        if self.kit.audit is None or self.audited is None:
            return None
        entries = self.kit.audit.entries(max(0, self.audited.entries - RECENT), RECENT)
        return max((one.at for one in entries if one.what == what), default=None)

    def found(self, point: str) -> Verdict | None:
        """What the store itself says of this; None if it has nothing to say."""
        one = self._own.get(point)
        return one and Verdict(one.state, one.why.rstrip("."), one.mend)

    def beside(self, point: str) -> list[Verdict]:
        """What the servers beside it say."""
        return [Verdict(one.state, one.why.rstrip("."), one.mend) for one in self._beside if one.point == point]

    @cached_property
    def _own(self) -> dict[str, Finding]:
        items = self.kit.items
        around = items.deployment() if isinstance(items, Deployed) else []
        return {one.point: one for one in (*items.check(), *around)}

    @cached_property
    def _beside(self) -> list[Finding]:
        return [finding for server in self.kit.servers for finding in server.check()]


@dataclass(frozen=True, slots=True)
class Point:
    """`number` and `name` stay what they are from version to version, on every backend."""

    number: int
    group: Group
    name: str
    question: str
    look: Callable[[Look], Verdict]


def ago(moment: datetime, now: datetime) -> str:
    """How long it has been, in the unit that a person would take."""
    seconds = max(0.0, (now - moment).total_seconds())
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count:,} {unit}{'s' * (count != 1)} ago"
    return "just now"


def worst(verdicts: list[Verdict]) -> Verdict | None:
    """The first of the worst; None of none."""
    order = {"fail": 0, "warn": 1, "unknown": 2, "pass": 3}
    return min(verdicts, key=lambda one: order[one.state], default=None)
