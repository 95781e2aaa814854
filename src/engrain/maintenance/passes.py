"""What every pass of a round of care is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from engrain.core.identity import Scope
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import Policies
from engrain.ports import Services

ALL = 1_000_000
Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Watch:
    """`tell` hears how many are done. `still` is called before each pass, and may stop all that is left."""

    tell: Tell = lambda _: None
    still: Callable[[], None] = lambda: None


UNWATCHED = Watch()


@dataclass(frozen=True, slots=True)
class MaintenanceContext:
    """All passes go by the same moment, whenever they run."""

    services: Services
    scope: Scope
    now: datetime
    reembed: bool = False  # a change of the model is wanted
    leapt: bool = False  # the clock may be wrong: nothing goes for its age
    whole: bool = False  # for what is the store's own, and no memory's

    @property
    def policies(self) -> Policies:
        return self.services.policies

    @property
    def owner(self) -> Scope | None:
        return None if self.whole else self.scope

    @property
    def held(self) -> bool:
        """Whether a legal hold keeps all of this memory from being removed."""
        return self.services.erasing is not None and self.services.erasing.held(self.scope)


@dataclass(frozen=True, slots=True)
class Done:
    """What was done of a pass, where that is not all of it, and why."""

    each: tuple[MaintenanceAction, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class MaintenancePass:
    """What is to be done, seen before anything is; `act` does just that, or says what it did. `verb` is the past form
    and the plain one, `which` says of what kind the things are: "episode", "whose time is over"."""

    name: str
    each: tuple[MaintenanceAction, ...]
    verb: tuple[str, str]
    what: str
    which: str
    act: Callable[[Tell], Done | None]
    # Also where there is nothing of this memory to do: other memories of the store may have something.
    always: bool = False

    def line(self, dry_run: bool) -> str:
        count = len(self.each)
        verb = f"would {self.verb[1]}" if dry_run else self.verb[0]
        return f"{verb} {count:,} {self.what}{'s' * (count != 1)} {self.which}"


REMOVED = ("removed", "remove")
