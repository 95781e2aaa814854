"""Procedures: named ways to do something, their versions and their success rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from engrain.core.errors import InvalidInput, StoreCorrupt
from engrain.core.model.items import PROCEDURE_SLOT_PREFIX, RESERVED_KEY, Item
from engrain.core.validation import check_key, check_text


@dataclass(frozen=True, slots=True)
class Trial:
    """One use of one version of a procedure in one task."""

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
    """Estimate the success rate: the lower end of Wilson's interval, with one success and one failure added.

    So an untried procedure ranks between a failed one and a proven one: .12 untried, .25 for 1 of 1, .55 for 5 of 5,
    .70 for 10 of 10, .05 for 0 of 3.
    """
    tried = successes + failures + 2
    share = (successes + 1) / tried
    spread = Z * math.sqrt(share * (1 - share) / tried + Z * Z / (4 * tried * tried))
    return (share + Z * Z / (2 * tried) - spread) / (1 + Z * Z / tried)


MAX_STEPS = 200
MAX_STEP = 4_000


@dataclass(frozen=True, slots=True)
class Procedure:
    """One version of a procedure. `rate` is the estimated success rate, not the plain share."""

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


def number_versions(stored: Iterable[int | None]) -> list[int]:
    """Number the versions, oldest first, by their stored numbers. A missing or repeated number is replaced."""
    found: list[int] = []
    for number in stored:
        found.append(max(number or 0, found[-1] + 1 if found else 1))
    return found


def read_version(item: Item) -> tuple[tuple[str, ...], str, int | None]:
    """Return steps, condition and number out of an item. StoreCorrupt if they are not what `learn` writes."""
    own = item.metadata.get(RESERVED_KEY)
    steps, when, number = map(own.get, ("steps", "when", "version")) if isinstance(own, dict) else (None, None, None)
    if isinstance(steps, list) and isinstance(when, str) and isinstance(number, int | None):
        texts = tuple(step for step in steps if isinstance(step, str))
        if len(texts) == len(steps):
            return texts, when, number
    raise StoreCorrupt(f"procedure {item.id} has no readable steps. Run: engrain doctor. Restore a backup.")


def item_to_procedure(item: Item, version: int, tally: Tally) -> Procedure:
    name = (item.slot or "").removeprefix(PROCEDURE_SLOT_PREFIX)
    steps, when, _ = read_version(item)
    return Procedure(item.id, name, steps, when, version, item.recorded_at, item.open, tally)
