"""Remember when a store was last maintained, so that one wrong reading of the clock removes nothing."""

from __future__ import annotations

import logging
from datetime import datetime

from engrain.core.clock import (
    CLOCK_CONFIRMATION,
    ClockState,
    clock_jumped,
    next_state,
    read_clock_state,
    write_clock_state,
)
from engrain.core.errors import EngrainError, LeaseLost, StoreClosed, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.maintenance.passes import MAINTENANCE_SCOPE
from engrain.ports import ListQuery, Services
from engrain.tasks.lease import create_worker_name

CLOCK_TASK = "clock"
_LEASE_SECONDS = 10.0
_log = logging.getLogger("engrain")


def load_clock_state(services: Services, now: datetime, *scopes: Scope) -> ClockState:
    """Load the time of the last run. If it is long ago or unknown, recent items of these scopes count as well."""
    record = services.journal.task(MAINTENANCE_SCOPE, CLOCK_TASK) if services.journal else None
    known = read_clock_state(record.snapshot) if record else ClockState()
    if known.last is not None and not clock_jumped(known, now):
        return known
    # Items of the last day do not count: the same clock may have been wrong then.
    before = parse_filter({"recorded_at": {"<=": now - CLOCK_CONFIRMATION}})
    newest = (item for one in scopes for item in services.items.page(ListQuery(one, before, history=True, limit=1)))
    times = [item.recorded_at for item in newest] + ([known.last] if known.last else [])
    return ClockState(max(times, default=None), known.since)


def record_run(services: Services, before: ClockState, now: datetime) -> None:
    """Record the time of a run. Another process that records its own at this moment serves as well."""
    after = next_state(before, now)
    journal = services.journal
    if journal is None or (after == before and journal.task(MAINTENANCE_SCOPE, CLOCK_TASK) is not None):
        return
    claim = Claim(MAINTENANCE_SCOPE, CLOCK_TASK, create_worker_name(), _LEASE_SECONDS, "times of maintenance")
    try:
        lease = journal.claim(claim)
        journal.keep(lease, write_clock_state(after))
        journal.end(lease, TaskEnd("parked"))
    except StoreClosed:
        raise
    except (EngrainError, LeaseLost) as exc:
        raise_interrupt(exc)
        _log.info("the time of this run was not recorded: %s", exc)
