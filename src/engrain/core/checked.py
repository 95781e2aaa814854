"""What the doctor found at each point of the checklist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

Group = Literal["tiers", "durability", "retrieval", "safety", "privacy", "operation"]
State = Literal["pass", "warn", "fail", "unknown"]
GROUPS: tuple[Group, ...] = get_args(Group)
UNOPENED = "not checked: the memory does not open"


class Verdict(NamedTuple):
    """How a point stands, why in one sentence, and what mends it. "unknown": it could not be looked at."""

    state: State
    why: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """One point of the checklist, as docs/checklist.md numbers and names them."""

    number: int
    group: Group
    name: str
    state: State
    why: str
    mend: str = ""


def counted(points: Sequence[Checked]) -> str:
    """The last line of a report."""
    count = {state: sum(one.state == state for one in points) for state in get_args(State)}
    told = f"{len(points)} points: {count['pass']} passed, {count['warn']} to look at, {count['fail']} failed"
    return f"{told}, {count['unknown']} not checked" if count["unknown"] else told


def passed(why: str) -> Verdict:
    return Verdict("pass", why)


def warned(why: str, mend: str) -> Verdict:
    return Verdict("warn", why, mend)


def failed(why: str, mend: str) -> Verdict:
    return Verdict("fail", why, mend)


def named(found: Sequence[str], most: int = 3) -> str:
    """The first few, and how many more."""
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def several(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
