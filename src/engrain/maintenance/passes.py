"""The parts of a maintenance run: its context, its passes, and the time of the last run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
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
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import Policies
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.ports import Services
from engrain.tasks.lease import create_worker_name

# Maintenance keeps its own records under this scope, where no user's task is listed.
MAINTENANCE_SCOPE = Scope(tenant="engrain", agent="maintain")
NO_LIMIT = 1_000_000
REMOVED = ("removed", "remove")
ReportProgress = Callable[[int], None]
CLOCK_TASK = "clock"
_LEASE_SECONDS = 10.0
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class RunHooks:
    """`report` gets the number of completed actions. `before_pass` may raise to stop the rest."""

    report: ReportProgress = lambda _: None
    before_pass: Callable[[], None] = lambda: None


NO_HOOKS = RunHooks()


@dataclass(frozen=True, slots=True)
class MaintenanceContext:
    """One scope of a run. All passes use the same time, whenever they run."""

    services: Services
    scope: Scope
    now: datetime
    reembed: bool = False  # the caller wants vectors of the current model
    clock_jumped: bool = False  # the clock may be wrong: nothing is removed for its age
    whole_store: bool = False  # for passes that belong to no scope

    @property
    def policies(self) -> Policies:
        return self.services.policies

    @property
    def owner(self) -> Scope | None:
        return None if self.whole_store else self.scope

    @property
    def is_held(self) -> bool:
        """True if a legal hold keeps everything of this scope."""
        return self.services.erasing is not None and self.services.erasing.is_on_hold(self.scope)


@dataclass(frozen=True, slots=True)
class PassResult:
    """The completed actions of a pass, and why there are not more."""

    actions: tuple[MaintenanceAction, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MaintenancePass:
    """A plan, and the function that carries it out; None from `act` means that all of it is done.

    `verb`, `noun` and `qualifier` make the report: ("removed", "remove"), "episode", "whose time is over".
    """

    name: str
    actions: tuple[MaintenanceAction, ...]
    verb: tuple[str, str]
    noun: str
    qualifier: str
    act: Callable[[ReportProgress], PassResult | None]
    always: bool = False  # act even without actions: other scopes of the store may have some

    def line(self, dry_run: bool) -> str:
        count = len(self.actions)
        verb = f"would {self.verb[1]}" if dry_run else self.verb[0]
        return f"{verb} {count:,} {self.noun}{'s' * (count != 1)} {self.qualifier}"


def list_scopes(services: Services) -> list[Scope]:
    """List every scope of the store in order, without that of maintenance itself."""
    found = (scope for scope in services.items.scopes() if scope != MAINTENANCE_SCOPE)
    return sorted(found, key=lambda scope: (scope.tenant or "", scope.user or "", scope.agent or ""))


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
