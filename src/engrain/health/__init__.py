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
from engrain.core.model.results import NOT_OPENED, CheckResult, Verdict, count_noun, format_command, report_pass
from engrain.health import durability, operation, privacy, retrieval, safety, tiers
from engrain.health.context import SEVERITY, Check, CheckContext

__all__ = ["CHECKS", "CheckContext", "Check", "run_checks", "explain_unopened"]

_log = logging.getLogger("engrain")

CHECKS: tuple[Check, ...] = (
    *tiers.CHECKS,
    *durability.CHECKS,
    *retrieval.CHECKS,
    *safety.CHECKS,
    *privacy.CHECKS,
    *operation.CHECKS,
)
_RESTORE = "`engrain restore BACKUP STORE --force --yes`"
_FIX_SETTINGS = "mend the settings, and run engrain doctor again"
# Which point says why a store does not open, and what mends it; any other reason is the first point's.
_OPEN_ERRORS: tuple[tuple[type[EngrainError], str, str], ...] = (
    (StoreCorrupt, "integrity", _RESTORE),
    (NotADatabase, "integrity", "name the store's own file with --store; an encrypted one needs ENGRAIN_KEY"),
    (NewerStore, "schema", "`pip install -U engrain`"),
    (OlderStore, "schema", "%s brings it up to date; of a file it keeps a copy beside"),
    (DiskFull, "disk", "free some space on its disk"),
    (WrongKey, "encryption", "set ENGRAIN_KEY to the key of this file, or unset it"),
    (ConfigError, "stores", _FIX_SETTINGS),
    (InvalidInput, "stores", _FIX_SETTINGS),
    (BackendMissing, "stores", "install it, and run engrain doctor again"),
)


def run_checks(look: CheckContext, tell: Callable[[int], None] = lambda _: None) -> list[CheckResult]:
    """Every point in order; `tell` hears of each when it is done."""
    found = []
    for point in CHECKS:
        look.verdicts[point.name] = _check_all_memories(point, look)
        found.append(_build_result(point, look.verdicts[point.name]))
        tell(1)
    return found


def explain_unopened(error: EngrainError, store: str | None = None) -> list[CheckResult]:
    """The same of a memory that does not open: one point says why."""
    reason, mend = next(
        ((name, mend) for kind, name, mend in _OPEN_ERRORS if isinstance(error, kind)),
        ("stores", "start its server, or name another store with --store"),
    )
    why = Verdict("fail", _shorten_message(error), mend.replace("%s", f"`{format_command('status', store=store)}`"))
    rest = Verdict("unknown", NOT_OPENED)
    return [_build_result(point, why if point.name == reason else rest) for point in CHECKS]


def _check_all_memories(point: Check, look: CheckContext) -> Verdict:
    """Of several memories the worst finding, and whose it is."""
    if not point.each or look.all is None:
        return _run_check(point, look)
    found = [(one.scope, _run_check(point, one)) for one in look.memories[: point.most]]
    scope, first = min(found, key=lambda one: SEVERITY.index(one[1].state))
    if first.state == "pass" and point.whole:
        together = _run_check(replace(point, look=point.whole), look)
        if together.state != "pass":
            return together
    if first.state in ("pass", "unknown") and _is_about_store(first, [verdict for _, verdict in found]):
        return first
    if first.state == "pass":
        few = f"the {len(found):,} of {look.all:,}" if len(found) < look.all else f"all {len(found):,}"
        last = " last written to," if len(found) < look.all else ""
        return report_pass(f"in {few} memories{last} {point.each}")
    more = sum(verdict.state == first.state for _, verdict in found) - 1
    beside = f"; {count_noun(more, 'more memory', 'more memories')} likewise" if more else ""
    return Verdict(first.state, f"{scope}: {first.why}{beside}", first.mend)


def _is_about_store(first: Verdict, found: list[Verdict]) -> bool:
    """Whether it is no single memory's: the same is said of each, and nothing is counted."""
    return len(found) == 1 or ({one.why for one in found} == {first.why} and not any(map(str.isdigit, first.why)))


def _run_check(point: Check, look: CheckContext) -> Verdict:
    """One that cannot be looked at keeps no other from it."""
    try:
        return point.look(look)
    except StoreClosed:
        raise
    except StoreUnavailable as exc:
        return Verdict("unknown", f"not checked: {_shorten_message(exc)}", "start the server")
    except EngrainError as exc:
        return Verdict("fail", f"it could not be looked at: {_shorten_message(exc)}", _choose_fix(exc, look))
    except (ValueError, TypeError, LookupError, ArithmeticError) as exc:
        # What other hands or a bad disk left in a row may be anything. Its words are not repeated here.
        _log.debug("point %s of the checklist could not be looked at", point.number, exc_info=True)
        why = f"it could not be looked at: something that is stored is not as engrain writes it ({type(exc).__name__})"
        return Verdict("fail", why, f"{look.run('doctor', '--rebuild')}; if it stays, {_RESTORE}")


def _choose_fix(error: EngrainError, look: CheckContext) -> str:
    if "--rebuild" in str(error):
        return look.run("doctor", "--rebuild")
    known = next((mend for kind, _, mend in _OPEN_ERRORS if isinstance(error, kind)), None)
    return (known and known.replace("%s", look.run("status"))) or "mend what it names, and run engrain doctor again"


def _shorten_message(error: EngrainError) -> str:
    """Without the advice to ask the doctor, who speaks here."""
    return str(error).replace("Run: engrain doctor. ", "").rstrip(".")


def _build_result(point: Check, verdict: Verdict) -> CheckResult:
    return CheckResult(point.number, point.group, point.name, *verdict)
