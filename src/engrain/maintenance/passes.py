"""The input and the output of a maintenance pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from engrain.core.identity import Scope
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import Policies
from engrain.ports import Services

# Maintenance keeps its own records under this scope, where no user's task is listed.
MAINTENANCE_SCOPE = Scope(tenant="engrain", agent="maintain")
NO_LIMIT = 1_000_000
REMOVED = ("removed", "remove")
ReportProgress = Callable[[int], None]


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
        return self.services.erasing is not None and self.services.erasing.held(self.scope)


@dataclass(frozen=True, slots=True)
class PassResult:
    """The completed actions of a pass, and why there are not more."""

    actions: tuple[MaintenanceAction, ...]
    trouble: str = ""


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
