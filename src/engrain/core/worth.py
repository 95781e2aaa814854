"""What the gate found in a message: something worth keeping, or something to be forgotten."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worth:
    """The words from `start` to `end` of a message say something that lasts.

    `slot` is a place for one value, where the statement has one. `explicit`: the speaker asked for it to be kept.
    `replaces` are words of an earlier statement that this one takes the place of ("tea instead of coffee": coffee).
    """

    start: int
    end: int
    slot: str | None = None
    importance: float = 0.6
    explicit: bool = False
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class Unsaid:
    """The speaker wants something forgotten: what a slot holds, or the statement between `start` and `end`."""

    start: int
    end: int
    slot: str | None = None
