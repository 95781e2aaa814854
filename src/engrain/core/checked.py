"""What the doctor found at each point of the checklist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from engrain.core.scope import Scope

Group = Literal["tiers", "durability", "retrieval", "safety", "privacy", "operation"]
State = Literal["pass", "warn", "fail", "unknown"]
GROUPS: tuple[Group, ...] = get_args(Group)
_COMMAND = re.compile(r"""`((?:'[^']*'|"[^"]*"|[^`'"])+)`""")
_PASSWORD = re.compile(r"(://[^/:@?]*:)[^?]*(?=@)|(?<=[?&]password=)[^&]*")
UNOPENED = "not checked: the memory does not open"


class Verdict(NamedTuple):
    """How a point stands, why in one sentence, and what mends it, with commands in `marks`. "unknown": it could not be
    looked at."""

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


def command(*words: str, about: str = "", store: str | None = None, owner: Scope | None = None) -> str:
    """A command line of engrain that is safe to paste, whatever the names in it hold. A password is not repeated."""
    line = ["engrain", *words]
    if about and not about.startswith("-"):
        line.append(about)
    shown = store and _PASSWORD.sub(r"\1PASSWORD", store)
    whose = (owner.user, owner.agent, owner.tenant) if owner else (None, None, None)
    for option, name in zip(("--user", "--agent", "--tenant", "--store"), (*whose, shown), strict=True):
        if name is not None:
            line += [f"{option}={name}"] if name.startswith("-") else [option, name]
    return shlex.join([*line, "--", about] if about.startswith("-") else line)


def parts(mend: str) -> list[tuple[bool, str]]:
    """What mends a point, taken apart: whether it is a command, and its text without the marks. A name in a command may
    hold a mark: it is quoted then."""
    found, at = [], 0
    for one in _COMMAND.finditer(mend):
        found += [(False, mend[at : one.start()]), (True, one[1])]
        at = one.end()
    return [(is_command, text) for is_command, text in (*found, (False, mend[at:])) if text]


def named(found: Sequence[str], most: int = 3) -> str:
    """The first few, and how many more."""
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def several(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
