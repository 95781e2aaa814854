"""The checklist of a memory in production: 35 points, each a check of this store and its settings."""

from __future__ import annotations

from collections.abc import Callable

from engrain.core.checked import UNOPENED, Checked, Verdict
from engrain.core.errors import (
    ConfigError,
    DiskFull,
    EngrainError,
    NewerStore,
    NotADatabase,
    OlderStore,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    WrongKey,
)
from engrain.lifecycle.checkup import durability, operation, privacy, retrieval, safety, tiers
from engrain.lifecycle.checkup.looking import Look, Point

__all__ = ["POINTS", "Look", "Point", "checkup", "unopened"]

POINTS: tuple[Point, ...] = (
    *tiers.POINTS,
    *durability.POINTS,
    *retrieval.POINTS,
    *safety.POINTS,
    *privacy.POINTS,
    *operation.POINTS,
)
# Which point says why a store does not open, and what mends it; any other reason is the first point's.
_REASONS: tuple[tuple[type[EngrainError], str, str], ...] = (
    (StoreCorrupt, "integrity", "engrain restore BACKUP STORE --replace, with --alone if too little of it can be read"),
    (NotADatabase, "integrity", "name the store's own file with --store; an encrypted one needs ENGRAIN_KEY"),
    (NewerStore, "schema", "pip install -U engrain"),
    (OlderStore, "schema", "engrain status brings it up to date; of a file it keeps a copy beside"),
    (DiskFull, "disk", "free some space on its disk"),
    (WrongKey, "encryption", "set ENGRAIN_KEY to the key of this file, or unset it"),
    (ConfigError, "stores", "mend the settings, and run engrain doctor again"),
)


def checkup(look: Look, tell: Callable[[int], None] = lambda _: None) -> list[Checked]:
    """Every point in order; `tell` hears of each when it is done."""
    found = []
    for point in POINTS:
        look.verdicts[point.name] = _looked(point, look)
        found.append(_checked(point, look.verdicts[point.name]))
        tell(1)
    return found


def unopened(error: EngrainError) -> list[Checked]:
    """The same of a memory that does not open: one point says why."""
    reason, mend = next(
        ((name, mend) for kind, name, mend in _REASONS if isinstance(error, kind)),
        ("stores", "start its server, or name another store with --store"),
    )
    why = Verdict("fail", _said(error), mend)
    rest = Verdict("unknown", UNOPENED)
    return [_checked(point, why if point.name == reason else rest) for point in POINTS]


def _looked(point: Point, look: Look) -> Verdict:
    """One that cannot be looked at keeps no other from it."""
    try:
        return point.look(look)
    except StoreClosed:
        raise
    except StoreUnavailable as exc:
        return Verdict("unknown", f"not checked: {_said(exc)}", "start the server")
    except EngrainError as exc:
        return Verdict("fail", f"it could not be looked at: {_said(exc)}", _mend(exc))


def _mend(error: EngrainError) -> str:
    if "--rebuild" in str(error):
        return "engrain doctor --rebuild"
    known = next((mend for kind, _, mend in _REASONS if isinstance(error, kind)), None)
    return known or "mend what it names, and run engrain doctor again"


def _said(error: EngrainError) -> str:
    """Without the advice to ask the doctor, who speaks here."""
    return str(error).replace("Run: engrain doctor. ", "").rstrip(".")


def _checked(point: Point, verdict: Verdict) -> Checked:
    return Checked(point.number, point.group, point.name, *verdict)
