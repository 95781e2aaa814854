"""The parts of a maintenance run: its context and its passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from engrain.core.clock import CLOCK_CONFIRMATION, ClockState, clock_jumped, read_clock_state
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import Policies
from engrain.ports import Services

# Maintenance keeps its own records under this scope, where no user's task is listed.
MAINTENANCE_SCOPE = Scope(tenant="engrain", agent="maintain")
NO_LIMIT = 1_000_000
REMOVED = ("removed", "remove")
ReportProgress = Callable[[int], None]
CLOCK_TASK = "clock"


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
    is_on_hold: bool = field(init=False)  # a legal hold keeps everything of this scope

    def __post_init__(self) -> None:
        erasing = self.services.erasing
        object.__setattr__(self, "is_on_hold", erasing is not None and erasing.is_on_hold(self.scope))

    @property
    def policies(self) -> Policies:
        return self.services.policies

    @property
    def owner(self) -> Scope | None:
        return None if self.whole_store else self.scope


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
    newest = (item for scope in scopes for item in services.items.page(ListQuery(scope, before, history=True, limit=1)))
    times = [item.recorded_at for item in newest] + ([known.last] if known.last else [])
    return ClockState(max(times, default=None), known.since)
