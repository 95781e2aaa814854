"""Slots: places for one value each, such as user.city."""

from __future__ import annotations

import builtins
from datetime import datetime

from engrain.core.clock import Time, check_time
from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.validation import check_key, check_name
from engrain.ports import Services

# Procedures and session summaries are versioned as slots are, and have parts of their own.
_OTHERS = ("procedure", "summary")


class Slots:
    """The slots of one scope."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def get(self, name: str, *, as_of: Time | None = None) -> Item | None:
        """The item that holds this slot, now or at a time."""
        return self._services.items.slot(self._scope, check_key(name, "slot"), moment_of(as_of))

    def list(self, prefix: str = "", *, as_of: Time | None = None) -> builtins.list[Item]:
        """Every filled slot whose name starts with the prefix, by name."""
        found = self._services.items.slots(self._scope, check_name(prefix, "slot prefix"), moment_of(as_of))
        return [item for item in found if item.kind not in _OTHERS]

    def history(self, name: str) -> builtins.list[Item]:
        """Every value that this slot has had, oldest first."""
        return self._services.items.history(self._scope, check_key(name, "slot"))


def moment_of(as_of: Time | None) -> datetime | None:
    """A date means the end of that day."""
    return None if as_of is None else check_time(as_of, "as_of", end_of_day=True)
