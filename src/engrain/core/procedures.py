"""A named way of doing something, and how it has turned out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from engrain.core.errors import InvalidInput
from engrain.core.items import Item
from engrain.core.odds import at_least
from engrain.core.outcomes import Tally
from engrain.core.text import checked_key, checked_text

SLOT = "procedure:"
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
        return at_least(self.tally.successes, self.tally.failures)

    @property
    def text(self) -> str:
        return written(self.name, self.steps, self.when)

    def __str__(self) -> str:
        tried = self.tally.successes + self.tally.failures
        record = f"worked {self.tally.successes} of {tried} times" if tried else "not tried yet"
        return f"{self.text}\n(version {self.version}, {record})"


def written(name: str, steps: Sequence[str], when: str) -> str:
    head = f"How to {name}" + (f", when {when}" if when else "") + ":"
    return "\n".join([head, *(f"{number}. {step}" for number, step in enumerate(steps, 1))])


def checked_steps(steps: object) -> tuple[str, ...]:
    if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence) or not steps:
        raise InvalidInput('steps must be a list of texts, such as ["run the tests", "push the tag"].')
    if len(steps) > MAX_STEPS:
        raise InvalidInput(f"a procedure has at most {MAX_STEPS} steps, not {len(steps)}.")
    return tuple(checked_text(step, f"step {number}", MAX_STEP) for number, step in enumerate(steps, 1))


def checked_procedure(name: object) -> str:
    return checked_key(name, "the name of a procedure")


def numbered(kept: Iterable[int | None]) -> list[int]:
    """The numbers of versions, oldest first: the one that a version was written with, unless it has none, or another
    that was written at the same time took it."""
    found: list[int] = []
    for number in kept:
        found.append(max(number or 0, found[-1] + 1 if found else 1))
    return found


def procedure_of(item: Item, version: int, tally: Tally) -> Procedure:
    kept = item.metadata[KEY]
    name = (item.slot or "").removeprefix(SLOT)
    steps, when = tuple(kept["steps"]), kept["when"]
    return Procedure(item.id, name, steps, when, version, item.recorded_at, item.open, tally)
