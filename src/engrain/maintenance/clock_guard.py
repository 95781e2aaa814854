"""Know when a store was last cared for, so that one wrong reading of the clock removes nothing."""

from __future__ import annotations

import logging
import os
import socket
from datetime import datetime

from engrain.core.clock import (
    CLOCK_CONFIRMATION,
    ClockState,
    clock_jumped,
    next_state,
    read_clock_state,
    write_clock_state,
)
from engrain.core.errors import EngrainError, LeaseLost, StoreClosed
from engrain.core.identity import Scope, SortableIds
from engrain.core.model.filters import parse_filter
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.ports import ListQuery, Services

# Where care leaves its marks, beside every memory: no task of anybody is listed there.
PLACE = Scope(tenant="engrain", agent="maintain")
CLOCK = "clock"
_SECONDS = 10.0

_log = logging.getLogger("engrain")


def memories(services: Services) -> list[Scope]:
    """Every memory of the store that can be cared for, in order; not the place where care leaves its own marks."""
    found = (one for one in services.items.scopes() if one != PLACE)
    return sorted(found, key=lambda one: (one.tenant or "", one.user or "", one.agent or ""))


def seen(services: Services, now: datetime, *scopes: Scope) -> ClockState:
    """Where the last round is long ago, or there was none, what was written to these memories tells it as well."""
    record = services.journal.task(PLACE, CLOCK) if services.journal else None
    known = read_clock_state(record.snapshot) if record else ClockState()
    if known.last is not None and not clock_jumped(known, now):
        return known
    # Not what was written within a day: it may be that the same clock was wrong then.
    before = parse_filter({"recorded_at": {"<=": now - CLOCK_CONFIRMATION}})
    newest = (item for one in scopes for item in services.items.page(ListQuery(one, before, history=True, limit=1)))
    moments = [item.recorded_at for item in newest] + ([known.last] if known.last else [])
    return ClockState(max(moments, default=None), known.since)


def note(services: Services, before: ClockState, now: datetime) -> None:
    """A round was done at this moment. If another process is about to note its own, that is as good."""
    after = next_state(before, now)
    if services.journal is None or (after == before and services.journal.task(PLACE, CLOCK) is not None):
        return
    worker = f"{socket.gethostname()}:{os.getpid()}:{SortableIds()(now)}"
    try:
        lease = services.journal.claim(Claim(PLACE, CLOCK, worker, _SECONDS, "the moments of care"))
        services.journal.keep(lease, write_clock_state(after))
        services.journal.end(lease, TaskEnd("parked"))
    except StoreClosed:
        raise
    except (EngrainError, LeaseLost) as exc:
        _log.info("the moment of this round is not noted: %s", exc)
