"""The checklist of a memory in production: 35 points, each a check of this store and its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from engrain.core.errors import (
    BackendMissing,
    ConfigError,
    DiskFull,
    EngrainError,
    InvalidInput,
    NewerStore,
    NotADatabase,
    OlderStore,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    WrongKey,
)
from engrain.core.model.results import UNOPENED, CheckResult, Verdict, command, passed, several
from engrain.health import durability, operation, privacy, retrieval, safety, tiers
from engrain.health.context import SEVERITY, Look, Point

__all__ = ["POINTS", "Look", "Point", "checkup", "unopened"]

_log = logging.getLogger("engrain")

POINTS: tuple[Point, ...] = (
    *tiers.POINTS,
    *durability.POINTS,
    *retrieval.POINTS,
    *safety.POINTS,
    *privacy.POINTS,
    *operation.POINTS,
)
_RESTORE = "`engrain restore BACKUP STORE --replace --yes`, with --alone if too little of it can be read"
_SETTINGS = "mend the settings, and run engrain doctor again"
# Which point says why a store does not open, and what mends it; any other reason is the first point's.
_REASONS: tuple[tuple[type[EngrainError], str, str], ...] = (
    (StoreCorrupt, "integrity", _RESTORE),
    (NotADatabase, "integrity", "name the store's own file with --store; an encrypted one needs ENGRAIN_KEY"),
    (NewerStore, "schema", "`pip install -U engrain`"),
    (OlderStore, "schema", "%s brings it up to date; of a file it keeps a copy beside"),
    (DiskFull, "disk", "free some space on its disk"),
    (WrongKey, "encryption", "set ENGRAIN_KEY to the key of this file, or unset it"),
    (ConfigError, "stores", _SETTINGS),
    (InvalidInput, "stores", _SETTINGS),
    (BackendMissing, "stores", "install it, and run engrain doctor again"),
)


def checkup(look: Look, tell: Callable[[int], None] = lambda _: None) -> list[CheckResult]:
    """Every point in order; `tell` hears of each when it is done."""
    found = []
    for point in POINTS:
        look.verdicts[point.name] = _of_all(point, look)
        found.append(_checked(point, look.verdicts[point.name]))
        tell(1)
    return found


def unopened(error: EngrainError, store: str | None = None) -> list[CheckResult]:
    """The same of a memory that does not open: one point says why."""
    reason, mend = next(
        ((name, mend) for kind, name, mend in _REASONS if isinstance(error, kind)),
        ("stores", "start its server, or name another store with --store"),
    )
    why = Verdict("fail", _said(error), mend.replace("%s", f"`{command('status', store=store)}`"))
    rest = Verdict("unknown", UNOPENED)
    return [_checked(point, why if point.name == reason else rest) for point in POINTS]


def _of_all(point: Point, look: Look) -> Verdict:
    """Of several memories the worst finding, and whose it is."""
    if not point.each or look.all is None:
        return _looked(point, look)
    found = [(one.scope, _looked(point, one)) for one in look.memories[: point.most]]
    scope, first = min(found, key=lambda one: SEVERITY.index(one[1].state))
    if first.state == "pass" and point.whole:
        together = _looked(replace(point, look=point.whole), look)
        if together.state != "pass":
            return together
    if first.state in ("pass", "unknown") and _of_none(first, [verdict for _, verdict in found]):
        return first
    if first.state == "pass":
        few = f"the {len(found):,} of {look.all:,}" if len(found) < look.all else f"all {len(found):,}"
        last = " last written to," if len(found) < look.all else ""
        return passed(f"in {few} memories{last} {point.each}")
    more = sum(verdict.state == first.state for _, verdict in found) - 1
    beside = f"; {several(more, 'more memory', 'more memories')} likewise" if more else ""
    return Verdict(first.state, f"{scope}: {first.why}{beside}", first.mend)


def _of_none(first: Verdict, found: list[Verdict]) -> bool:
    """Whether it is no single memory's: the same is said of each, and nothing is counted."""
    return len(found) == 1 or ({one.why for one in found} == {first.why} and not any(map(str.isdigit, first.why)))


def _looked(point: Point, look: Look) -> Verdict:
    """One that cannot be looked at keeps no other from it."""
    try:
        return point.look(look)
    except StoreClosed:
        raise
    except StoreUnavailable as exc:
        return Verdict("unknown", f"not checked: {_said(exc)}", "start the server")
    except EngrainError as exc:
        return Verdict("fail", f"it could not be looked at: {_said(exc)}", _mend(exc, look))
    except (ValueError, TypeError, LookupError, ArithmeticError) as exc:
        # What other hands or a bad disk left in a row may be anything. Its words are not repeated here.
        _log.debug("point %s of the checklist could not be looked at", point.number, exc_info=True)
        why = f"it could not be looked at: something that is stored is not as engrain writes it ({type(exc).__name__})"
        return Verdict("fail", why, f"{look.run('doctor', '--rebuild')}; if it stays, {_RESTORE}")


def _mend(error: EngrainError, look: Look) -> str:
    if "--rebuild" in str(error):
        return look.run("doctor", "--rebuild")
    known = next((mend for kind, _, mend in _REASONS if isinstance(error, kind)), None)
    return (known and known.replace("%s", look.run("status"))) or "mend what it names, and run engrain doctor again"


def _said(error: EngrainError) -> str:
    """Without the advice to ask the doctor, who speaks here."""
    return str(error).replace("Run: engrain doctor. ", "").rstrip(".")


def _checked(point: Point, verdict: Verdict) -> CheckResult:
    return CheckResult(point.number, point.group, point.name, *verdict)
