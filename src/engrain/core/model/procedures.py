"""A named way of doing something, and how it has turned out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Item
from engrain.core.validation import check_key, check_text


@dataclass(frozen=True, slots=True)
class Trial:
    """One task in which one version of a procedure was used."""

    procedure: str  # the item that is this version
    task: str
    success: bool
    at: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    successes: int = 0
    failures: int = 0
    last_at: datetime | None = None


Z = 1.645  # one-sided 95 %


def estimate_success_rate(successes: int, failures: int) -> float:
    """The success rate that these trials speak for: the lower end of Wilson's interval, with one success and one
    failure imagined besides. So what was never tried stands between what failed and what worked: .12 untried, .25 for
    1 of 1, .55 for 5 of 5, .70 for 10 of 10, .05 for 0 of 3."""
    tried = successes + failures + 2
    share = (successes + 1) / tried
    spread = Z * math.sqrt(share * (1 - share) / tried + Z * Z / (4 * tried * tried))
    return (share + Z * Z / (2 * tried) - spread) / (1 + Z * Z / tried)


PROCEDURE_SLOT_PREFIX = "procedure:"
KEY = "engrain"  # the metadata that belongs to us
MAX_STEPS = 200
MAX_STEP = 4_000


@dataclass(frozen=True, slots=True)
class Procedure:
    """One version. `rate` is the success rate that its trials speak for, not their bare share."""

    id: str
    name: str
    steps: tuple[str, ...]
    when: str
    version: int
    recorded_at: datetime
    current: bool = True
    tally: Tally = field(default_factory=Tally)

    @property
    def rate(self) -> float:
        return estimate_success_rate(self.tally.successes, self.tally.failures)

    @property
    def text(self) -> str:
        return write_procedure(self.name, self.steps, self.when)

    def __str__(self) -> str:
        tried = self.tally.successes + self.tally.failures
        record = f"worked {self.tally.successes} of {tried} times" if tried else "not tried yet"
        return f"{self.text}\n(version {self.version}, {record})"


def write_procedure(name: str, steps: Sequence[str], when: str) -> str:
    head = f"How to {name}" + (f", when {when}" if when else "") + ":"
    return "\n".join([head, *(f"{number}. {step}" for number, step in enumerate(steps, 1))])


def check_steps(steps: object) -> tuple[str, ...]:
    if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence) or not steps:
        raise InvalidInput('steps must be a list of texts, such as ["run the tests", "push the tag"].')
    if len(steps) > MAX_STEPS:
        raise InvalidInput(f"a procedure has at most {MAX_STEPS} steps, not {len(steps)}.")
    return tuple(check_text(step, f"step {number}", MAX_STEP) for number, step in enumerate(steps, 1))


def check_procedure_name(name: object) -> str:
    return check_key(name, "the name of a procedure")


def number_versions(kept: Iterable[int | None]) -> list[int]:
    """The numbers of versions, oldest first: the one that a version was written with, unless it has none, or another
    that was written at the same time took it."""
    found: list[int] = []
    for number in kept:
        found.append(max(number or 0, found[-1] + 1 if found else 1))
    return found


def item_to_procedure(item: Item, version: int, tally: Tally) -> Procedure:
    kept = item.metadata[KEY]
    name = (item.slot or "").removeprefix(PROCEDURE_SLOT_PREFIX)
    steps, when = tuple(kept["steps"]), kept["when"]
    return Procedure(item.id, name, steps, when, version, item.recorded_at, item.open, tally)
